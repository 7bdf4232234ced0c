"""Changes that concern all fragments of a job, and leaders that adopt it in the middle of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from perseid.topics.records import Rewind, Token
from support.coordinator import Crashed, Leader
from support.coordinator_steps import want
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
    spread_spec,
    spread_world,
)


@pytest.fixture
def world() -> SpreadWorld:
    return spread_world(4)


@pytest.fixture
def leader(world: SpreadWorld) -> Leader:
    return leading(world)


def last(world: SpreadWorld) -> Token:
    return list(world.valid(JOB).values())[-1]


def revise(world: SpreadWorld, leader: Leader, spread: int = 4, **changes: object) -> None:
    world.programs["archive-2"] = spread_spec(spread, **changes)
    want(world, leader, revision="r2", archive="archive-2")


def settle(world: SpreadWorld, leader: Leader, rounds: int = 12) -> None:
    """Everything that can restore and run does, until nothing is in flight."""
    for _ in range(rounds):
        leader.tick(2.5)
        world.restore()
        leader.listen()
        world.run(5)
        leader.listen()


# -- stop ----------------------------------------------------------------------------------------


def test_a_stop_ends_all_fragments_after_one_final_token(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    feed(world, leader)
    want(world, leader, desired="stopped", stop_checkpoint=True)
    world.run(1, OF_A)
    leader.listen()
    assert not last(world).final, "fragment 3 has an epoch to end"
    world.run(1, {OF_B})
    leader.listen()
    assert last(world).final
    assert last(world).checkpoint
    world.run(1, OF_A)
    leader.listen()
    assert None not in world.owners.values()
    world.run(1, {OF_B})
    leader.listen()
    assert set(world.owners.values()) == {None}
    assert set(world.generations_of.values()) == {2}
    assert world.statuses[JOB].state == "stopped"
    assert world.pointers[JOB].pointers[0].epoch == last(world).epoch


def test_a_stop_waits_for_the_fragments_of_a_dead_worker(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    epochs(world, leader, 5)
    want(world, leader, desired="stopped", stop_checkpoint=True)
    leader.tick(3)
    assert not last(world).final
    settle(world, leader, 1)
    assert last(world).final


def test_a_stop_without_a_checkpoint_does_not(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    want(world, leader, desired="stopped")
    assert world.statuses[JOB].state == "stopped"
    assert set(world.owners.values()) == {None}


# -- switch --------------------------------------------------------------------------------------


def test_a_switch_gives_all_fragments_one_generation(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    owners = world.owners
    revise(world, leader)
    settle(world, leader, 2)
    plan = world.plans[JOB]
    assert (plan.revision, plan.layout, plan.floor, plan.generation) == ("r2", 1, 2, 2)
    assert world.owners == owners
    assert {a.from_epoch for a in plan.assignments} == {plan.base_epoch}
    epochs(world, leader)
    assert (last(world).revision, last(world).generation) == ("r2", 2)
    assert leader.job().phase is Phase.RUNNING


def test_all_fragments_restore_after_a_switch(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    revise(world, leader)
    world.run(5)
    leader.listen()
    assert world.plans[JOB].revision == "r2"
    assert {a.fragment for a in leader.job().ownership.are(Condition.RESTORING)} == set(ALL)


# -- another spread or parallelism ---------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (4, 2), (2, 5)])
def test_another_spread_is_another_layout_with_fragments_of_its_own(
    before: int, after: int
) -> None:
    world = spread_world(5, before)
    leader = leading(world)
    epochs(world, leader, 2)
    revise(world, leader, after)
    settle(world, leader)
    plan = world.plans[JOB]
    assert (plan.layout, plan.archive) == (2, "archive-2")
    names = ["whole"] if after == 1 else [str(at) for at in range(after)]
    assert [a.fragment for a in plan.assignments] == names
    assert plan.base_epoch == world.pointers[JOB].pointers[0].epoch, "the final checkpoint"
    assert all(owner in world.workers for owner in world.owners.values())
    assert leader.job().phase is Phase.RUNNING
    done = leader.job().done
    epochs(world, leader, 3)
    assert leader.job().done == done + 3
    assert leader.job().totals.restarts == 0, "a change is no restart"
    token = last(world)
    assert token.layout == 2
    if after > 1:
        assert len(token.splits) == after
        assert {a.split for a in plan.assignments} == set(range(after))


def test_a_rescale_keeps_the_fragments_with_other_partitions(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    owners = world.owners
    operators = dict(spread_spec().operators)
    operators["b1"] = operators["b1"].model_copy(update={"parallelism": 1})
    revise(world, leader, operators=operators)
    settle(world, leader)
    plan = world.plans[JOB]
    assert (plan.layout, plan.rescaled) == (2, True)
    assert world.owners == owners
    assert [a.gids for a in plan.assignments] == [s.gids for s in world.spread.shares]
    assert leader.job().phase is Phase.RUNNING


# -- a revision that corrects --------------------------------------------------------------------


def test_a_correction_rewinds_all_fragments(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    feed(world, leader)
    bad = last(world)
    world.report_of("1", "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    assert leader.job().phase is Phase.FAILED
    revise(world, leader)
    (rewind,) = [r for r in world.tokens[JOB] if isinstance(r, Rewind)]
    assert rewind.epoch == bad.epoch - 1
    settle(world, leader)
    plan = world.plans[JOB]
    assert plan.archive == "archive-2"
    assert len(set(world.generations_of.values())) == 1
    epochs(world, leader, 2)
    assert leader.job().phase is Phase.RUNNING
    assert leader.job().done > bad.epoch


def test_a_fragment_that_was_ahead_has_not_done_what_is_rolled_back(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    feed(world, leader)
    bad = last(world)
    ledger = dict(world.ledger[JOB])
    world.run(1, {OF_B})
    leader.listen()
    assert leader.job().ownership.done_by[OF_B] == bad.epoch
    world.ledger[JOB] = ledger  # as of a fragment that feeds no sink
    world.report_of("1", "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    revise(world, leader)
    assert any(isinstance(r, Rewind) for r in world.tokens[JOB])
    assert set(leader.job().ownership.done_by.values()) == {bad.epoch - 1}
    again = Leader(world)
    world.ran[OF_B] = bad.epoch - 1  # its restore returns to the token that counts
    again.look()
    assert again.job().done == bad.epoch - 1


def test_what_another_part_has_committed_is_ended_and_not_rewound(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    feed(world, leader)
    world.run(1, {OF_B})
    leader.listen()
    world.report_of("1", "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    revise(world, leader)
    assert not any(isinstance(r, Rewind) for r in world.tokens[JOB])
    settle(world, leader, 2)
    assert world.plans[JOB].archive == "archive-2"
    assert leader.job().in_flight == 0


# -- a new leader --------------------------------------------------------------------------------


def test_a_new_leader_finds_each_fragment_as_it_was(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    lose(world, leader, "w2-1")
    epochs(world, leader, 5)
    old, plan = leader.job(), world.plans[JOB]
    new = Leader(world)
    new.look()
    job = new.job()
    assert world.plans[JOB] == plan, "it changes nothing"
    assert {a.fragment: job.ownership.done_of(a) for a in job.ownership.primaries} == {
        a.fragment: old.ownership.done_of(a) for a in old.ownership.primaries
    }
    assert job.ownership.condition("1") is Condition.RESTORING
    assert job.ownership.condition(OF_B) is Condition.RUNNING
    assert [one.report.rows_in for one in job.inputs.ending] == [
        one.report.rows_in for one in old.inputs.ending
    ]
    before = job.chain.tip.epoch
    epochs(world, new, 2)
    assert new.job().chain.tip.epoch == before + 2, "the part without fragment 1 continues"


def test_a_worker_that_died_with_the_leader_loses_only_its_fragments(
    world: SpreadWorld, leader: Leader
) -> None:
    epochs(world, leader, 2)
    before = world.plans[JOB]
    world.workers.remove("w3-1")
    new = Leader(world)
    new.look()
    after = world.plans[JOB]
    assert {a.fragment for a in after.assignments if a not in before.assignments} == {"2"}
    assert world.owners["2"] in world.workers
    settle(world, new, 2)
    assert new.job().phase is Phase.RUNNING


def test_a_failure_that_no_leader_has_seen_is_found(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    world.report_of("2", "failed", error="reset")
    world.report_of("0", "failed", error="reset")
    new = Leader(world)
    new.look()
    assert world.generations_of == {"0": 2, "1": 1, "2": 2, "3": 1}
    assert world.failures[JOB].count == 1


def stops(world: SpreadWorld, leader: Leader) -> None:
    want(world, leader, desired="stopped", stop_checkpoint=True)
    settle(world, leader)


def switches(world: SpreadWorld, leader: Leader) -> None:
    revise(world, leader)
    settle(world, leader)


def spreads(world: SpreadWorld, leader: Leader) -> None:
    revise(world, leader, 2)
    settle(world, leader)


def corrects(world: SpreadWorld, leader: Leader) -> None:
    feed(world, leader)
    world.report_of("1", "failed", permanent=True, error_kind="BadInputError", error="line 7")
    leader.listen()
    revise(world, leader)
    settle(world, leader)


def loses(world: SpreadWorld, leader: Leader) -> None:
    lose(world, leader, "w2-1")
    settle(world, leader)


@pytest.mark.parametrize("change", [stops, switches, spreads, corrects, loses])
def test_a_leader_that_crashes_before_any_write_is_followed_by_one_that_completes_it(
    change: Callable[[SpreadWorld, Leader], None],
) -> None:
    whole = spread_world(4)
    counted = leading(whole)
    epochs(whole, counted, 2)
    begun = len(counted.performed)
    change(whole, counted)
    writes = len(counted.performed) - begun
    assert writes > 1
    for left in range(writes):
        world = spread_world(4)
        first = leading(world)
        epochs(world, first, 2)
        first.writes_left = left
        with contextlib.suppress(Crashed):
            change(world, first)
        second = Leader(world)
        second.look()
        settle(world, second)
        if change is corrects and world.entries[JOB].archive == "archive-1":
            continue  # it crashed before the user corrected the job
        _same(world, whole, second)


def _same(world: SpreadWorld, whole: SpreadWorld, leader: Leader) -> None:
    plan, wanted = world.plans[JOB], whole.plans[JOB]
    assert (plan.archive, plan.layout) == (wanted.archive, wanted.layout)
    shown = [(a.fragment, a.gids, a.split, a.owner is None) for a in plan.assignments]
    assert shown == [(a.fragment, a.gids, a.split, a.owner is None) for a in wanted.assignments]
    assert world.statuses[JOB].state == whole.statuses[JOB].state
    reached: dict[tuple[str, int], int] = {}
    for token in world.valid(JOB).values():
        for r in ranges_of(token):
            assert r.start == reached.get((r.source, r.partition), 0)
            reached[r.source, r.partition] = r.end
    assert leader.job().in_flight == 0


def test_actions_of_a_stop_are_few(world: SpreadWorld, leader: Leader) -> None:
    epochs(world, leader, 2)
    before = sum(isinstance(a, act.PutPlan) for a in leader.performed)
    stops(world, leader)
    assert sum(isinstance(a, act.PutPlan) for a in leader.performed) == before + 1
