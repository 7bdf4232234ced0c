"""A job of several fragments: where they run, and what the loss of some means for the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import failing, issue
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from perseid.errors import UnexpectedError
from perseid.records import CheckpointPointer
from support.coordinator import Leader, job_entry, job_spec
from support.spread_job import (
    ALL,
    JOB,
    OF_A,
    OF_B,
    SpreadWorld,
    epochs,
    feed,
    leading,
    lose,
    spread_world,
)


def plans_written(leader: Leader) -> list[act.PutPlan]:
    return [a for a in leader.performed if isinstance(a, act.PutPlan)]


@pytest.fixture
def world() -> SpreadWorld:
    """Four workers: each has one fragment."""
    return spread_world(4)


@pytest.fixture
def leader(world: SpreadWorld) -> Leader:
    return leading(world)


def tip(leader: Leader) -> int:
    return leader.job().chain.tip.epoch


# -- where fragments run -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "each"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (5, [1, 1, 1, 1])]
)
def test_fragments_are_spread_over_the_workers_in_one_plan(workers: int, each: list[int]) -> None:
    world = spread_world(workers)
    leader = leading(world)
    (written,) = plans_written(leader)
    assert sorted(Counter(world.owners.values()).values(), reverse=True) == each
    shares = world.spread.shares
    assert [(a.fragment, a.gids, a.split) for a in written.plan.assignments] == [
        (str(at), share.gids, at) for at, share in enumerate(shares)
    ]
    assert leader.job().phase is Phase.RUNNING
    warned = [e for e in leader.job().health.events if f"and {workers} are live" in e]
    assert len(warned) == (workers < 4)


def test_too_few_workers_are_reported_once() -> None:
    world = spread_world(2)
    leader = leading(world)
    for _ in range(3):
        world.report_of("0", "failed", error="reset")
        leader.listen()
        leader.tick(60)
        world.restore()
        leader.listen()
    assert sum("wants 4 workers" in e for e in leader.job().health.events) == 1


def test_fragments_of_other_jobs_count_first() -> None:
    world = spread_world(2)
    world.programs["archive-2"] = job_spec("other")
    world.entries = {"a-first": job_entry("a-first", archive="archive-2"), **world.entries}
    leader = Leader(world)
    leader.look()
    both = Counter({world.plans["a-first"].owner: 1})
    both.update(world.owners.values())
    assert sorted(both.values()) == [2, 3]


def test_without_a_worker_no_plan_is_written() -> None:
    world = spread_world(0)
    leader = Leader(world)
    leader.look()
    assert not plans_written(leader)
    assert leader.job().phase is Phase.WAITING


# -- tokens --------------------------------------------------------------------------------------


def test_a_token_has_one_split_for_each_fragment(world: SpreadWorld, leader: Leader) -> None:
    world.produce(0, 5, "b")
    leader.poll()
    token = list(world.valid(JOB).values())[-1]
    assert [len(split) for split in token.splits] == [2, 2, 2, 1], "the first names every partition"
    world.run()
    leader.listen()
    world.produce(4, 5, "a")
    leader.poll()
    token = list(world.valid(JOB).values())[-1]
    assert [[(r.source, r.partition) for r in split] for split in token.splits] == [
        [], [("a", 4)], [], [],
    ]  # fmt: skip


# -- a worker that dies --------------------------------------------------------------------------


def test_of_a_dead_worker_only_its_fragments_get_another_owner(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 3)
    before, plans = world.plans[JOB], len(plans_written(leader))
    lose(world, leader, "w2-1")
    after = world.plans[JOB]
    assert len(plans_written(leader)) == plans + 1
    assert {a.fragment for a in after.assignments if a not in before.assignments} == {"1"}
    moved = after.of_fragment("1")
    assert moved is not None
    assert moved.owner in world.workers
    assert (moved.generation, after.generation, after.floor) == (2, 2, 1)
    assert leader.job().phase is Phase.RESTORING
    assert [a.fragment for a in leader.job().ownership.are(Condition.RUNNING)] == ["0", "2", "3"]
    assert world.failures[JOB].count == 1


def test_all_fragments_of_a_dead_worker_are_placed_in_one_write() -> None:
    world = spread_world(2)
    leader = leading(world)
    plans = len(plans_written(leader))
    lose(world, leader, "w2-1")
    assert len(plans_written(leader)) == plans + 1
    assert world.generations_of == {"0": 1, "1": 2, "2": 1, "3": 2}
    assert set(world.owners.values()) == {"w1-1"}
    assert world.failures[JOB].count == 1, "one death, whatever it had"


def test_the_part_that_does_not_need_the_dead_worker_continues(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 3)
    lose(world, leader, "w2-1")
    epochs(world, leader, 10)
    assert world.ran[OF_B] > 10
    assert max(world.ran[name] for name in OF_A) <= 4, "they wait for fragment 1"
    assert leader.job().done <= 4
    new = list(world.valid(JOB).values())[-1]
    assert new.generation == 1, "the generation of the last change of the whole job"
    assert len(new.splits) == 4


def test_a_worker_that_is_silent_holds_the_other_part_back_for_a_moment_only(
    world: SpreadWorld, leader: Leader
) -> None:
    """Until it is known to be dead, or for as long as it hangs."""
    epochs(world, leader, 3)
    before = tip(leader)
    for _ in range(10):
        feed(world, leader)
        world.run(1, {OF_B})
        leader.listen()
    assert tip(leader) - before <= issue.CREDITS_BACKLOG
    leader.tick(2 * issue.LATE_S)
    before = tip(leader)
    for _ in range(10):
        feed(world, leader)
        world.run(1, {OF_B})
        leader.listen()
    assert tip(leader) >= before + 9
    assert leader.job().ownership.are(Condition.WAITING) == (), "no owner is taken for dead"
    world.run(100)
    leader.listen()
    assert leader.job().done == tip(leader)


def test_a_part_of_which_a_fragment_is_dead_gets_no_tokens_of_its_own() -> None:
    """Both parts have lost a fragment: none may be issued, except the one that is due anyway."""
    world = spread_world(4)
    leader = leading(world)
    epochs(world, leader, 3)
    world.workers = ["w1-1", "w3-1"]
    leader.look()
    before = tip(leader)
    epochs(world, leader, 10)
    assert tip(leader) <= before + 1


def test_what_was_lost_catches_up_and_does_not_hold_the_others_meanwhile(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 3)
    lose(world, leader, "w2-1")
    epochs(world, leader, 20)
    world.restore()
    leader.listen()
    missing = tip(leader) - leader.job().ownership.done_by["1"]
    assert missing > issue.CREDITS_BACKLOG
    assert leader.job().phase is Phase.RUNNING
    before = tip(leader)
    for _ in range(3):
        feed(world, leader)
        world.run(1, {OF_B})
        leader.listen()
    assert tip(leader) == before + 3, "fragment 3 does not wait until the others have caught up"
    world.run(100)
    leader.listen()
    assert leader.job().done == tip(leader)
    feed(world, leader)
    feed(world, leader)
    before = tip(leader)
    for _ in range(5):
        feed(world, leader)
        world.run(1, {OF_B})
        leader.listen()
    assert tip(leader) - before <= issue.CREDITS_BACKLOG, "now both parts have the same credits"


def test_no_part_is_too_far_ahead(world: SpreadWorld, leader: Leader) -> None:
    lose(world, leader, "w1-1")
    for _ in range(issue.AHEAD_MAX + 20):
        feed(world, leader)
        world.run(1, {OF_B})
        leader.listen()
    slowest = leader.job().done
    assert tip(leader) == slowest + issue.AHEAD_MAX == world.ran[OF_B]
    world.restore()
    world.run(1)
    leader.listen()
    feed(world, leader)
    assert tip(leader) > slowest + issue.AHEAD_MAX, "it continues as the slowest does"


def test_a_plan_keeps_the_checkpoints_from_which_a_fragment_restores(
    world: SpreadWorld, leader: Leader
) -> None:
    """Another one is placed meanwhile, when there are newer checkpoints."""
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    old = CheckpointPointer(1, 1, 1, "r1", 3, "c-1", 1, 10, 0, 1, (1,))
    job = leader.job()
    plan = replace(world.plans[JOB], checkpoints=(old,))
    job = replace(job, ownership=job.ownership.renamed(plan))
    leader.state = leader.state.with_job(job)
    world.report_of("3", "failed", error="reset")
    leader.listen()
    assert leader.job().ownership.condition("1") is Condition.RESTORING
    assert world.plans[JOB].checkpoints == (old,)
    assert world.generations_of["3"] == 3
    world.restore()
    leader.listen()
    world.report_of("3", "failed", error="reset")
    leader.listen()
    leader.tick(60)
    assert world.generations_of["3"] == 4
    assert world.plans[JOB].checkpoints == ()


# -- failures of a fragment ----------------------------------------------------------------------


def test_a_transient_failure_moves_one_fragment(world: SpreadWorld, leader: Leader) -> None:
    before = world.plans[JOB]
    world.report_of("2", "failed", error="reset by peer")
    leader.listen()
    after = world.plans[JOB]
    assert {a.fragment for a in after.assignments if a not in before.assignments} == {"2"}
    assert after.of_fragment("2").owner != before.of_fragment("2").owner  # type: ignore[union-attr]
    assert any("failure 1 of fragment 2: reset" in e for e in leader.job().health.events)


def test_it_alone_waits_for_its_delay(world: SpreadWorld, leader: Leader) -> None:
    for count in (1, 2):
        world.report_of("2", "failed", error="reset")
        leader.listen()
        if count == 1:
            world.restore()
            leader.listen()
    assert leader.job().ownership.waiting == (leader.job().plan.of_fragment("2"),)  # type: ignore[union-attr]
    assert leader.job().phase is Phase.RESTORING
    generations = world.generations_of
    epochs(world, leader, 5)
    assert world.ran[OF_B] >= 4, "fragment 3 continues during the delay"
    assert world.generations_of == generations
    leader.tick(failing.delay_s(2))
    assert world.generations_of == {**generations, "2": generations["2"] + 1}


def test_one_trouble_of_all_fragments_counts_once(world: SpreadWorld, leader: Leader) -> None:
    for name in ALL:
        world.report_of(name, "failed", error="the broker is away")
    leader.listen()
    assert world.failures[JOB].count == 1
    world.restore()
    leader.listen()
    world.report_of("3", "failed", error="the broker is away")
    leader.listen()
    assert world.failures[JOB].count == 2, "fragment 3 fails again"


def test_others_that_catch_up_do_not_end_the_failures_of_one_that_is_ahead(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    epochs(world, leader, 5)
    for count in (1, 2):
        world.report_of(OF_B, "failed", error="reset")
        leader.listen()
        assert world.failures[JOB].count == count
        leader.tick(60)
        world.restore({OF_B})
        leader.listen()
    done = leader.job().done
    world.restore()
    world.run(2, OF_A)
    leader.listen()
    assert leader.job().done > done
    assert world.failures[JOB].count == 2
    world.run(20)
    leader.listen()
    epochs(world, leader)
    assert world.failures[JOB].count == 0, "fragment 3 has done the epoch in which it failed"


def test_the_same_unexpected_error_in_all_fragments_is_one_try(
    world: SpreadWorld, leader: Leader
) -> None:
    for _ in range(failing.TRIES_MAX - 1):
        for name in ALL:
            world.report_of(name, "failed", error_kind=UnexpectedError.__name__, error="KeyError")
        leader.listen()
        leader.tick(60)
        world.restore()
        leader.listen()
        assert leader.job().phase is Phase.RUNNING
    world.report_of("0", "failed", error_kind=UnexpectedError.__name__, error="KeyError")
    leader.listen()
    assert leader.job().phase is Phase.FAILED


def test_a_permanent_failure_of_one_fragment_ends_the_job(
    world: SpreadWorld, leader: Leader
) -> None:
    owners = world.owners
    world.report_of("1", "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    assert world.statuses[JOB].state == "failed"
    assert set(world.owners.values()) == {None}
    error = world.statuses[JOB].error
    assert error is not None
    assert error["owners"] == owners


def test_reports_of_an_earlier_owner_do_not_make_a_fragment_run(
    world: SpreadWorld, leader: Leader
) -> None:
    late = world.report_of("1", "running")
    lose(world, leader, "w2-1")
    world.progress[JOB].append(late)
    leader.listen()
    assert leader.job().ownership.condition("1") is Condition.RESTORING


# -- a worker that leaves ------------------------------------------------------------------------


def test_a_leaving_worker_hands_its_fragments_over(world: SpreadWorld, leader: Leader) -> None:
    before = world.plans[JOB]
    world.leaving = {"w1-1"}
    leader.look()
    assert world.plans[JOB] == before
    world.report_of("0", "stopped")
    leader.listen()
    after = world.plans[JOB]
    assert {a.fragment for a in after.assignments if a not in before.assignments} == {"0"}
    assert after.of_fragment("0").owner != "w1-1"  # type: ignore[union-attr]
    assert JOB not in world.failures, "no failure"


def test_a_worker_that_has_left_without_a_word_of_a_fragment(
    world: SpreadWorld, leader: Leader
) -> None:
    world.leaving = {"w1-1"}
    leader.look()
    lose(world, leader, "w1-1")
    assert world.owners["0"] != "w1-1"
    assert world.generations_of == {"0": 2, "1": 1, "2": 1, "3": 1}
    assert JOB not in world.failures


# -- an epoch that does not end ------------------------------------------------------------------


def test_epochs_of_one_part_do_not_hide_that_another_is_stuck(
    world: SpreadWorld, leader: Leader
) -> None:
    """Fragment 3 has an epoch that does not end; the others of its worker are stuck with it."""
    job = leader.job()
    feed(world, leader)
    world.run(1, OF_A)
    leader.listen()
    job = replace(leader.job(), health=leader.job().health.waited(world.time_s, 5.0))
    leader.state = leader.state.with_job(job)
    waited_s = job.health.stalled_for_s
    assert waited_s > 0
    feed(world, leader)
    world.run(1, OF_A)
    leader.listen()
    assert leader.job().health.stalled_for_s == waited_s
    world.run(1, {OF_B})
    leader.listen()
    assert leader.job().health.stalled_for_s == 0.0


# -- the sums of an epoch ------------------------------------------------------------------------


def test_an_epoch_counts_once_with_the_sums_of_its_fragments(
    world: SpreadWorld, leader: Leader
) -> None:
    feed(world, leader)
    world.run(1, OF_A)
    leader.listen()
    assert leader.job().totals.rows_in == 0
    assert [one.fragments for one in leader.job().inputs.ending] == [frozenset(OF_A)]
    world.duration_ms = 300
    world.run(1, {OF_B})
    leader.listen()
    job = leader.job()
    assert (job.totals.rows_in, job.totals.bytes_in) == (70, 7000)
    assert sum(job.totals.epochs) == 1
    assert job.totals.epochs_s == 0.3
    assert [(d.rows_in, d.duration_ms) for d in job.inputs.recent] == [(70, 300)]
    assert job.checkpointing.state_bytes == 40
    assert job.inputs.ending == ()


def test_input_checks_of_every_fragment_are_carried(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 6)
    named = {
        (token.epoch, at, r.source)
        for token in world.valid(JOB).values()
        for at, split in enumerate(token.splits) for r in split if r.end > r.start
    }  # fmt: skip
    carried = [(c.epoch, c.split, c.source) for t in world.valid(JOB).values() for c in t.checks]
    assert len(carried) == len(set(carried))
    assert set(carried) == {place for place in named if place[0] <= tip(leader) - 1}


def test_checks_of_parts_that_are_ahead_are_not_lost(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    epochs(world, leader, 8)
    world.restore()
    world.run(20)
    leader.listen()
    epochs(world, leader, 2)
    splits = Counter((c.epoch, c.split) for t in world.valid(JOB).values() for c in t.checks)
    for epoch in range(1, 11):
        found = {split for e, split in splits if e == epoch}
        token = next(t for t in world.valid(JOB).values() if t.epoch == epoch)
        assert found == {at for at, split in enumerate(token.splits) if split}, epoch


def test_input_is_named_once_whatever_happens(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    epochs(world, leader, 4)
    world.restore()
    world.run(20)
    leader.listen()
    epochs(world, leader, 2)
    reached: dict[tuple[str, int], int] = {}
    for token in world.valid(JOB).values():
        for r in ranges_of(token):
            assert r.start == reached.get((r.source, r.partition), 0)
            reached[r.source, r.partition] = r.end
    assert reached == {key: world.ends[key] for key in reached}
