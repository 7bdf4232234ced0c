"""Errors of code or data without a type: a few tries at one epoch, then the job stops."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator import events as ev
from perseid.coordinator import failing, statuses
from perseid.coordinator.core import decide
from perseid.coordinator.failing import TRIES_MAX
from perseid.coordinator.job.health import EVENTS_MAX
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.errors.texts import EVENT_MAX, TEXT_MAX
from perseid.records import WHOLE
from perseid.registry.codec import ENTRY_BYTES_MAX, encode
from support.coordinator import Leader, World, job_entry
from support.coordinator_steps import JOB, run

TEXT = "operator spent, partition 1, epoch 3, raised ArrowTypeError: Expected bytes"
LATER_S = 60.0  # than any attempt is spaced out


def fail(world: World, leader: Leader, times: int, kind: str = "UnexpectedError") -> None:
    """The owner fails, and the job is placed again, so often."""
    for _ in range(times):
        world.report(JOB, "failed", error_kind=kind, error=TEXT)
        leader.listen()
        leader.tick(LATER_S)


def test_the_third_try_of_one_epoch_is_the_last(world: World, leader: Leader) -> None:
    run(world, leader, 2)
    fail(world, leader, TRIES_MAX - 1)
    assert world.statuses[JOB].state != "failed"
    assert world.plans[JOB].owner is not None
    fail(world, leader, 1)
    status = world.statuses[JOB]
    assert status.state == "failed"
    assert status.error is not None
    assert (status.error["kind"], status.error["epoch"]) == ("UnexpectedError", 2)
    assert status.error["text"] == f"{TEXT}\nEpoch 3 was tried 3 times; the job's state is kept"
    assert f"perseid jobs start {JOB}" in status.error["next"]
    assert world.plans[JOB].owner is None


def test_an_epoch_that_got_done_begins_the_count_again(world: World, leader: Leader) -> None:
    run(world, leader, 2)
    for _ in range(3):
        fail(world, leader, TRIES_MAX - 1)
        world.report(JOB, "running")
        leader.listen()
        world.produce(0, 10)
        leader.poll()
        world.work(JOB)
        leader.listen()
    assert world.statuses[JOB].state == "running"


def test_what_passes_is_not_counted_and_takes_nothing_back(world: World, leader: Leader) -> None:
    """A broker that is away is waited for, and so is a process that the kernel kills."""
    fail(world, leader, 10, "RetryableError")
    fail(world, leader, TRIES_MAX - 1)
    fail(world, leader, 10, "ProcessDied")
    assert world.statuses[JOB].state != "failed"
    assert world.failures[JOB].count == 20 + TRIES_MAX - 1
    fail(world, leader, 1)
    assert world.statuses[JOB].state == "failed"


def test_a_new_leader_begins_the_count_again(world: World, leader: Leader) -> None:
    fail(world, leader, TRIES_MAX - 1)
    successor = Leader(world)
    successor.look()
    fail(world, successor, TRIES_MAX - 1)
    assert world.statuses[JOB].state != "failed"
    fail(world, successor, 1)
    assert world.statuses[JOB].state == "failed"


def test_started_again_it_has_all_tries(world: World, leader: Leader) -> None:
    fail(world, leader, TRIES_MAX)
    world.entries[JOB] = job_entry(counter=2)
    leader.look()
    leader.tick(LATER_S)
    fail(world, leader, TRIES_MAX - 1)
    assert world.statuses[JOB].state != "failed"


def test_a_job_that_cannot_be_loaded_for_a_defect_ends_at_the_third_try(
    world: World, leader: Leader
) -> None:
    entry = world.entries[JOB]
    for tried in range(1, TRIES_MAX + 1):
        leader.feed(ev.ActionFailed(JOB, "PutPlan", "written again"))  # it is to be loaded again
        leader.feed(ev.JobLoadFailed(JOB, entry, "UnexpectedError", TEXT, permanent=False))
        assert (world.statuses[JOB].state == "failed") is (tried == TRIES_MAX)


def test_what_passes_while_it_is_loaded_is_no_try(world: World, leader: Leader) -> None:
    """The store is away for a while, and its answer when it is back is unexpected once."""
    entry = world.entries[JOB]
    leader.feed(ev.ActionFailed(JOB, "PutPlan", "written again"))
    for kind in ["RetryableError"] * 10 + ["UnexpectedError"] * (TRIES_MAX - 1):
        leader.feed(ev.JobLoadFailed(JOB, entry, kind, TEXT, permanent=False))
    assert world.statuses[JOB].state != "failed"
    leader.feed(ev.JobLoadFailed(JOB, entry, "UnexpectedError", TEXT, permanent=False))
    assert world.statuses[JOB].state == "failed"


def test_tries_of_an_epoch_are_none_of_its_loading(world: World, leader: Leader) -> None:
    fail(world, leader, TRIES_MAX - 1)
    leader.feed(ev.ActionFailed(JOB, "PutPlan", "written again"))
    leader.feed(ev.JobLoadFailed(JOB, world.entries[JOB], "UnexpectedError", TEXT, permanent=False))
    assert world.statuses[JOB].state != "failed"


def test_started_again_its_loading_has_all_tries(world: World, leader: Leader) -> None:
    leader.feed(ev.ActionFailed(JOB, "PutPlan", "written again"))
    for _ in range(TRIES_MAX):
        leader.feed(
            ev.JobLoadFailed(JOB, world.entries[JOB], "UnexpectedError", TEXT, permanent=False)
        )
    assert leader.job().phase is Phase.FAILED
    before = leader.job()
    entry = job_entry(counter=2)
    loading = replace(before, entry=entry).move(Phase.LOADING, world.now, "started")
    state = leader.state.with_job(loading)
    again = ev.JobLoadFailed(JOB, entry, "UnexpectedError", TEXT, permanent=False)
    state, _ = decide(state, again, world.now)
    assert state.jobs[JOB].phase is Phase.LOADING


ANY_TEXT = st.builds(
    lambda part, times: part * times,
    st.text(st.characters(exclude_categories=()), min_size=1, max_size=20),  # surrogates, too
    st.sampled_from([1, 100, 100_000]),
)


@given(st.lists(ANY_TEXT, max_size=2 * EVENTS_MAX), ANY_TEXT)
def test_a_status_always_fits(lines: list[str], text: str) -> None:
    now = Now(1.0, 1)
    job = JobState(JOB, job_entry()).with_events(*lines)
    assert len(job.health.events) == min(len(lines), EVENTS_MAX)
    assert all(len(event.encode()) <= EVENT_MAX for event in job.health.events)
    job, (put,) = failing.transient(job, now, [WHOLE], text)
    assert len(encode(put.failures)) < ENTRY_BYTES_MAX  # type: ignore[union-attr]
    error = failing.status_error(job, text, text, text)
    assert len(error["text"].encode()) <= TEXT_MAX
    assert len(encode(replace(statuses.status_of(job, 1), error=error))) < ENTRY_BYTES_MAX
