"""A job that failed and is changed: its epoch is taken back, or ended by the new revision."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator.events import SourceTopic, TopicsSeen
from perseid.coordinator.job.positions import ranges_of
from perseid.jobs.model.spec import EpochSpec, JobSpec, SourceSpec
from perseid.topics.records import PartDone, Rewind
from support.coordinator import TOPIC_ID, Crashed, Leader, World, job_spec
from support.coordinator_steps import (
    JOB,
    fail,
    failed_in_flight,
    half_committed,
    last,
    new_revision,
    run,
    want,
)  # fmt: skip


def test_a_changed_job_takes_the_bad_epoch_back_and_computes_it_again(
    world: World, leader: Leader
) -> None:
    bad = failed_in_flight(world, leader)
    new_revision(world, leader)
    (rewind,) = [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert rewind.epoch == bad.epoch - 1
    world.report(JOB, "running")
    leader.listen()
    assert (last(world).epoch, last(world).final, last(world).revision) == (bad.epoch, True, "r1")
    assert all(r.start == r.end for r in ranges_of(last(world)))
    world.work(JOB)
    leader.listen()
    leader.tick()
    again = last(world)
    assert again.revision == "r2"
    assert [(r.start, r.end) for r in ranges_of(again) if r.partition == 0] == [(20, 30)]


def test_the_same_job_started_again_runs_the_same_tokens(world: World, leader: Leader) -> None:
    bad = failed_in_flight(world, leader)
    want(world, leader)
    assert last(world) == bad
    assert not [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert world.plans[JOB].owner is not None


def test_a_changed_job_ends_an_epoch_that_is_committed_in_part(
    world: World, leader: Leader
) -> None:
    bad = half_committed(world, leader)
    before = world.plans[JOB]
    new_revision(world, leader, epoch=EpochSpec(max_records=7))
    assert not [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert last(world) == bad
    plan = world.plans[JOB]
    assert (plan.revision, plan.archive, plan.owner) == ("r2", "archive-2", "w1-1")
    assert plan.generation > before.generation
    same = (plan.layout, plan.base_epoch, plan.base_offset)
    assert same == (before.layout, before.base_epoch, before.base_offset)
    assert "revision r2 ends epoch 3" in "".join(world.statuses[JOB].events)
    world.report(JOB, "running")
    leader.listen()
    assert last(world) == bad
    run(world, leader)
    assert leader.job().done >= bad.epoch
    again = next(t for t in world.valid(JOB).values() if t.epoch == bad.epoch + 1)
    assert (again.revision, again.generation) == ("r2", plan.generation)
    assert [(r.start, r.end) for r in ranges_of(again) if r.partition == 0] == [(30, 37)]


def test_the_host_with_the_state_logs_ends_it(world: World, leader: Leader) -> None:
    """Another would compute what is after the checkpoint again, with the corrected code."""
    half_committed(world, leader)
    world.workers = ["w0-1", "w1-2"]
    leader.look()
    world.programs["archive-2"] = job_spec(parallelism=3)
    want(world, leader, revision="r2", archive="archive-2")  # which cannot
    assert world.statuses[JOB].state == "failed"
    world.programs["archive-3"] = job_spec(epoch=EpochSpec(max_records=7))
    want(world, leader, revision="r3", archive="archive-3")
    assert (world.plans[JOB].revision, world.plans[JOB].owner) == ("r3", "w1-2")
    run(world, leader, 2)
    world.workers = ["w0-1", "w1-3"]
    leader.look()
    assert world.plans[JOB].owner == "w1-3", "no checkpoint has that epoch yet"


@pytest.mark.parametrize("changes, shown", [
    ({"parallelism": 3}, "operators, their inputs, keys or parallelism are others"),
    ({"sources": {"lines": SourceSpec(topic="lines", format="bytes")}}, "sources, SQL, or"),
    ({"sinks": {}}, "sink counts is not the same"),
])  # fmt: skip
def test_a_revision_that_could_not_end_it_is_refused_until_one_did(
    world: World, leader: Leader, changes: dict[str, object], shown: str
) -> None:
    bad = half_committed(world, leader)
    new_revision(world, leader, **changes)
    status = world.statuses[JOB]
    assert (status.state, status.counter) == ("failed", 2)
    assert status.error is not None
    assert status.error["kind"] == "RefusedError"
    assert status.error["text"].startswith(
        "epoch 3 failed and a part of it is committed, so the changed revision has to end it, and "
        f"revision r2 cannot: {shown}"
    )
    assert "only corrects keyed operators or settings of r1" in status.error["next"]
    assert last(world) == bad
    assert (world.plans[JOB].owner, world.plans[JOB].revision) == (None, "r1")

    world.programs["archive-3"] = job_spec()
    want(world, leader, revision="r3", archive="archive-3")
    world.report(JOB, "running")
    leader.listen()
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].revision == "r3"
    assert leader.job().done == bad.epoch


@pytest.mark.parametrize("stopped_first", [True, False])
def test_a_failed_job_may_be_stopped_before_its_correction_runs(
    world: World, leader: Leader, stopped_first: bool
) -> None:
    bad = half_committed(world, leader)
    if stopped_first:
        want(world, leader, desired="stopped")
    world.programs["archive-2"] = job_spec(epoch=EpochSpec(max_records=7))
    want(world, leader, revision="r2", archive="archive-2", desired="stopped")
    status = world.statuses[JOB]
    assert (status.state, status.counter) == ("stopped", world.entries[JOB].counter)
    assert status.error is not None
    leader = Leader(world)
    leader.look()
    want(world, leader, desired="running")
    world.report(JOB, "running")
    leader.listen()
    assert world.plans[JOB].revision == "r2"
    assert last(world) == bad
    assert world.statuses[JOB].error is None


@pytest.mark.parametrize("crash", [None, 0, 1, 2, 3, 4, 5, 6])
def test_a_source_that_only_a_taken_back_token_names_begins_where_it_had_begun(
    world: World, leader: Leader, crash: int | None
) -> None:
    """It has `start: latest`, which is another place when the correction comes."""
    run(world, leader, 2)
    both = {n: SourceSpec(topic=n, format="text", start="latest") for n in ("lines", "more")}
    world.ends["more", 0] = world.starts["more", 0] = 5
    new_revision(world, leader, sources=both)
    world.produce(0, 3)
    leader.poll()
    world.work(JOB)  # the final epoch of the old one
    leader.listen()
    leader.tick(1)
    world.report(JOB, "running")
    leader.listen()
    bad = last(world)
    assert (bad.revision, bad.records) == ("r2", 3)
    assert [(r.start, r.end) for r in ranges_of(bad) if r.source == "more"] == [(5, 5)]
    world.produce(0, 9, "more")
    fail(world, leader)
    world.starts["more", 0] = world.ends["more", 0]  # where it would begin now
    world.programs["archive-3"] = job_spec(sources=both, epoch=EpochSpec(max_records=70))
    if crash is not None:
        leader.writes_left = crash
    with contextlib.suppress(Crashed):
        want(world, leader, revision="r3", archive="archive-3")
        for _ in range(4):
            steps(world, leader)
    leader = Leader(world)
    leader.look()
    for _ in range(6):
        steps(world, leader)
    rewinds = [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert [r.epoch for r in rewinds] == [bad.epoch - 1]
    ranges = [r for t in world.valid(JOB).values() for r in ranges_of(t) if r.source == "more"]
    assert (ranges[0].start, ranges[-1].end) == (5, world.ends["more", 0])
    assert all(r.end == after.start for r, after in pairwise(ranges))


def steps(world: World, leader: Leader) -> None:
    """Time goes by, the owner runs and answers."""
    world.report(JOB, "running")
    leader.listen()
    leader.tick(3)
    world.work(JOB)
    leader.listen()


def test_a_token_that_is_taken_back_takes_its_time_with_it(world: World, leader: Leader) -> None:
    """The clocks of its leader were ahead; any reader of the log counts the next token."""
    run(world, leader, 2)
    before = last(world)
    world.time_s += 600  # of all clocks of this leader, which dies after the token
    world.produce(0, 10)
    leader.poll()
    bad = last(world)
    fail(world, leader)
    world.time_s -= 600
    leader = Leader(world)
    leader.look()
    new_revision(world, leader)
    for _ in range(4):
        steps(world, leader)
    assert [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert last(world).revision == "r2"
    assert before.time_ms < last(world).time_ms < bad.time_ms
    assert leader.job().done == last(world).epoch


def test_an_operator_that_leads_to_no_sink_may_be_the_one_that_raised(
    world: World, leader: Leader
) -> None:
    """All ledgers have the epoch, and yet it is not done: its correction has to end it."""
    world.programs["archive-1"] = aside(job_spec())
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    bad = last(world)
    world.ledger[JOB] = dict.fromkeys(range(2), bad.epoch)
    world.report(JOB, "failed", epoch=bad.epoch - 1, permanent=True, error_kind="BadInputError")
    leader.listen()
    operators = aside(job_spec()).operators
    new_revision(world, leader, operators=operators, epoch=EpochSpec(max_records=7))
    assert (last(world), world.plans[JOB].revision) == (bad, "r2")
    assert f"revision r2 ends epoch {bad.epoch}: a part of it is committed" in (
        world.statuses[JOB].events
    )


def aside(spec: JobSpec) -> JobSpec:
    """With another operator that keeps state and that is not read."""
    other = spec.operators["counts"].model_copy(update={"use": "m:Other"})
    return spec.model_copy(update={"operators": {**spec.operators, "other": other}})


def test_an_epoch_without_input_is_ended_and_not_taken_back(world: World, leader: Leader) -> None:
    """What raises after all rows, or at a timer, raises in any epoch of the old revision."""
    run(world, leader, 2)
    leader.tick(10)
    assert last(world).records == 0
    fail(world, leader)
    bad = last(world)
    new_revision(world, leader)
    assert not [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert (last(world), world.plans[JOB].revision) == (bad, "r2")
    text = "revision r2 ends epoch 3: it has no input that another epoch could have"
    assert text in world.statuses[JOB].events


def test_nothing_is_placed_while_a_correction_is_loaded(world: World, leader: Leader) -> None:
    """Nor is a topic looked for that it may no longer read."""
    failed_in_flight(world, leader)
    leader.loads = False
    new_revision(world, leader)
    leader.feed(TopicsSeen({"lines": None}))
    leader.tick(5)
    assert (world.statuses[JOB].state, world.statuses[JOB].counter) == ("failed", 1)
    assert world.plans[JOB].owner is None
    leader.loads = True
    leader.tick(5)
    assert world.plans[JOB].owner == "w1-1"


def placed(leader: Leader) -> list[str]:
    """The revisions of the plans that were given to a worker, in their order."""
    return [a.plan.revision for a in leader.performed
            if isinstance(a, act.PutPlan) and a.plan.owner is not None]  # fmt: skip


@pytest.mark.parametrize("in_flight", [True, False])
def test_another_limit_is_there_before_the_old_revision_runs_again(
    world: World, leader: Leader, in_flight: bool
) -> None:
    """The old one would stop at its limit again, with the larger one applied."""
    run(world, leader, 2)
    if in_flight:
        world.produce(0, 10)
        leader.poll()
    fail(world, leader)
    leader.performed.clear()
    world.codes = {"archive-1": "code", "archive-2": "code"}
    counts = job_spec().operators["counts"].model_copy(update={"memory_bytes": 1 << 30})
    new_revision(world, leader, operators={"counts": counts}, epoch=EpochSpec(max_records=5))
    assert placed(leader) == ["r2"]
    world.report(JOB, "running")
    leader.listen()
    run(world, leader, 2)
    tokens = list(world.valid(JOB).values())
    assert [t.revision for t in tokens] == ["r1"] * 2 + ["r2"] * (len(tokens) - 2)
    assert world.statuses[JOB].error is None


@pytest.mark.parametrize("changes, code", [
    ({"parallelism": 3}, "code"),
    ({"sources": {"lines": SourceSpec(topic="lines", format="bytes")}}, "code"),
    ({"epoch": EpochSpec(max_records=5)}, "other code"),
])  # fmt: skip
def test_other_changes_leave_the_last_epoch_without_input_to_the_old_revision(
    world: World, leader: Leader, changes: dict[str, object], code: str
) -> None:
    failed_in_flight(world, leader)
    leader.performed.clear()
    world.codes = {"archive-1": "code", "archive-2": code}
    new_revision(world, leader, **changes)
    assert placed(leader) == ["r1"]
    world.report(JOB, "running")
    leader.listen()
    assert (last(world).final, last(world).records) == (True, 0)
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].revision == "r2"


@pytest.mark.parametrize("resumed", [True, False])
def test_where_the_old_revision_cannot_end_the_changed_one_does(
    world: World, leader: Leader, resumed: bool
) -> None:
    """It fails in the epoch without input, or after it, while its correction is applied."""
    failed_in_flight(world, leader)
    new_revision(world, leader)
    world.report(JOB, "running")
    leader.listen()
    final = last(world)
    assert final.final
    if resumed:
        world.work(JOB)
        world.progress[JOB] = [r for r in world.progress[JOB] if not isinstance(r, PartDone)]
    fail(world, leader)
    assert world.statuses[JOB].state != "failed"
    assert (world.plans[JOB].revision, world.plans[JOB].owner) == ("r2", "w1-1")
    assert final in world.valid(JOB).values()
    for _ in range(2):
        steps(world, leader)
        run(world, leader)
    assert last(world).revision == "r2"
    assert leader.job().done == last(world).epoch
    assert world.statuses[JOB].error is None


def test_a_failure_after_which_another_revision_waits_is_not_the_end(
    world: World, leader: Leader
) -> None:
    """It was applied a moment before: no user would type `jobs start` for it."""
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    bad = last(world)
    new_revision(world, leader)
    fail(world, leader)
    assert [r.epoch for r in world.tokens[JOB] if isinstance(r, Rewind)] == [bad.epoch - 1]
    for _ in range(4):
        steps(world, leader)
    assert world.plans[JOB].revision == "r2"
    assert "revision r1 failed: BadInputError" in world.statuses[JOB].events
    assert leader.job().done == last(world).epoch > bad.epoch


@pytest.mark.parametrize("seen", [None, SourceTopic("lines", "another", False, {0: 0, 1: 0})])
def test_a_job_whose_topic_is_gone_resumes_with_a_revision_that_reads_another(
    world: World, leader: Leader, seen: SourceTopic | None
) -> None:
    run(world, leader, 2)
    for _ in range(31):  # no topic: only an answer that is repeated for half a minute is final
        leader.feed(TopicsSeen({"lines": seen}))
        leader.tick(1.0)
        world.work(JOB)
        leader.listen()
    assert world.statuses[JOB].error is not None
    world.ends["more", 0] = 7
    new_revision(world, leader, sources={"rest": SourceSpec(topic="more", format="text")},
                 operators={"counts": job_spec().operators["counts"].model_copy(
                     update={"inputs": {"input": "rest"}})})  # fmt: skip
    for _ in range(4):
        more = SourceTopic("more", TOPIC_ID, False, {0: 0})
        leader.feed(TopicsSeen({"lines": seen, "more": more}))
        steps(world, leader)
    assert world.plans[JOB].revision == "r2"
    assert world.statuses[JOB].error is None
    assert [(r.start, r.end) for r in ranges_of(last(world)) if r.source == "rest"]


def test_a_correction_that_cannot_be_loaded_yet_can_be_stopped(
    world: World, leader: Leader
) -> None:
    half_committed(world, leader)
    leader.loads = False
    new_revision(world, leader)
    want(world, leader, desired="stopped")
    assert (world.statuses[JOB].state, world.statuses[JOB].counter) == ("stopped", 3)
    leader.loads = True
    want(world, leader, desired="running")
    leader.tick(1)
    assert world.plans[JOB].revision == "r2"


def test_a_failure_is_forgotten_once_its_epoch_is_done(world: World, leader: Leader) -> None:
    failed_in_flight(world, leader)
    want(world, leader)
    world.report(JOB, "running")
    leader.listen()
    run(world, leader)
    want(world, leader, desired="stopped")
    for _ in range(2):  # what is in flight, and the final epoch
        world.work(JOB)
        leader.listen()
    status = world.statuses[JOB]
    assert (status.state, status.error) == ("stopped", None)


def test_what_failed_right_after_a_switch_is_replaced_by_any_revision(
    world: World, leader: Leader
) -> None:
    """It has run nothing: the revision before has ended with a checkpoint of its own."""
    run(world, leader, 2)
    new_revision(world, leader)
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].revision == "r2"
    leader.tick(10)
    leader.tick(10)
    bad = last(world)
    assert (bad.records, bad.revision) == (0, "r2")
    fail(world, leader)
    world.programs["archive-3"] = job_spec(parallelism=3)
    want(world, leader, revision="r3", archive="archive-3")
    leader.tick(1)
    assert [r.epoch for r in world.tokens[JOB] if isinstance(r, Rewind)] == [bad.epoch - 1]
    assert world.plans[JOB].revision == "r3"


def test_a_revision_that_cannot_be_loaded_ends_nothing(world: World, leader: Leader) -> None:
    bad = half_committed(world, leader)
    want(world, leader, revision="r2", archive="not there")
    error = world.statuses[JOB].error
    assert error is not None
    assert error["text"].endswith("revision r2 cannot: missing")
    assert last(world) == bad
    assert world.plans[JOB].owner is None
