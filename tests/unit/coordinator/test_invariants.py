"""Each invariant of the coordinator holds in every unit test, and is found broken where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from perseid.coordinator import buffer_bound, invariants
from perseid.coordinator.actions import AppendToken, DeleteCheckpoints, TrimLogs
from perseid.coordinator.events import Tick
from perseid.coordinator.job.chain import Issued, Tip
from perseid.coordinator.job.checkpointing import Collecting
from perseid.coordinator.job.ownership import Condition
from perseid.coordinator.job.positions import Position
from perseid.coordinator.model import JobState
from perseid.coordinator.service import Service
from perseid.records import WHOLE, CheckpointPointers
from support.coordinator import Leader, World
from support.coordinator_steps import JOB, run
from support.spread_job import epochs, feed, leading, spread_world

Change = Callable[[JobState], JobState]


@pytest.fixture
def job(world: World, leader: Leader) -> JobState:
    """Some epochs and a checkpoint are done, and one epoch is in flight."""
    for _ in range(5):
        world.time_s += 12.0
        run(world, leader)
    world.produce(0, 10)
    leader.poll()
    assert leader.job().newest is not None
    return leader.job()


def of_chain(job: JobState, **changes: Any) -> JobState:
    return replace(job, chain=replace(job.chain, **changes))


def of_owners(job: JobState, **changes: Any) -> JobState:
    return replace(job, ownership=replace(job.ownership, **changes))


def with_done(job: JobState, epoch: int) -> JobState:
    return of_owners(job, done_by={WHOLE: epoch})


def with_last(job: JobState, **changes: Any) -> JobState:
    last = job.chain.tokens[-1]
    token = replace(last.token, **changes)
    return of_chain(job, tokens=(*job.chain.tokens[:-1], Issued(last.offset, token)))


def handed(job: JobState, owner: str | None) -> JobState:
    """Under the generation that it has."""
    assert job.plan is not None
    return of_owners(job, plan=job.plan.handed_to(owner, job.ownership.generation))


def with_plan(job: JobState, generation: int) -> JobState:
    assert job.plan is not None
    return of_owners(job, plan=job.plan.handed_to(job.plan.owner, generation))


def with_checkpointing(job: JobState, **changes: Any) -> JobState:
    return replace(job, checkpointing=replace(job.checkpointing, **changes))


def checkpoints_in_another_order(job: JobState) -> JobState:
    pointers = job.checkpointing.pointers
    assert pointers is not None
    newest = pointers.pointers[0]
    return with_checkpointing(job, pointers=replace(pointers, pointers=(newest, newest)))


BROKEN: dict[str, Change] = {
    "is done, of": lambda job: with_done(job, job.chain.tip.epoch + 1),
    "epoch 0 is done": lambda job: of_chain(with_done(job, 0), base=Tip(1, 2)),
    "tokens are of epochs": lambda job: of_chain(
        job, tokens=(job.chain.tokens[0], *job.chain.tokens[2:])
    ),
    "has generation 9": lambda job: with_last(job, generation=9),
    "leader 9": lambda job: with_last(job, coordinator_epoch=9),
    "does not follow the one before": lambda job: with_last(job, previous_offset=0),
    "of epoch 6 does not follow": lambda job: with_last(job, time_ms=0),
    "the checkpoints are of epochs": checkpoints_in_another_order,
    "is collected without its token": lambda job: with_checkpointing(
        job, collecting=Collecting(job.chain.tip.epoch, job.chain.tip.offset + 1, 0.0)
    ),
    "the plan has generation 5": lambda job: with_plan(job, 5),
    "without an owner": lambda job: handed(job, None),
    "fell from": lambda job: with_done(job, job.done - 1),
    "fell from 5, 1 to 5, 0": lambda job: of_chain(
        of_owners(with_plan(job, 0), generation=0), tokens=()
    ),
    "changed under generation 1": lambda job: handed(job, "w2-1"),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_invariant_is_found(leader: Leader, job: JobState, text: str) -> None:
    before = leader.state
    after = before.with_job(BROKEN[text](job))
    found = invariants.broken(before, after, [])
    assert any(text in one for one in found), found
    assert all(one.startswith(f"job {JOB}: ") for one in found)


def test_what_was_broken_before_is_reported_once(leader: Leader, job: JobState) -> None:
    broken = leader.state.with_job(with_done(job, job.chain.tip.epoch + 1))
    later = broken.with_job(broken.jobs[JOB].with_events("something else"))
    assert len(invariants.broken(leader.state, broken, [])) == 1
    assert invariants.broken(broken, later, []) == []


def test_in_production_it_is_logged_and_counted_and_the_leader_continues(
    leader: Leader, job: JobState, caplog: pytest.LogCaptureFixture
) -> None:
    service = object.__new__(Service)  # without its threads and clients
    service._violations = 0
    service.state = leader.state.with_job(with_done(job, job.chain.tip.epoch + 1))
    service._check(leader.state, Tick(), [])
    with patch.object(invariants, "broken", side_effect=KeyError("a check with a defect")):
        service._check(leader.state, Tick(), [])
    first, second = [record.getMessage() for record in caplog.records]
    assert service._violations == 2
    assert f"after Tick, job {JOB}: epoch 7 is done, of 0 to 6" in first
    assert "cannot be checked: KeyError" in second


def test_a_token_that_leaves_out_or_repeats_input(leader: Leader, job: JobState) -> None:
    after = leader.state
    for offset in (49, 51):
        moved = {("lines", 0): Position("lines", "topic-1", offset)}
        inputs = replace(job.inputs, positions={**job.inputs.positions, **moved})
        old = of_chain(job, tokens=job.chain.tokens[:-1])
        before = after.with_job(replace(old, inputs=inputs))
        (found,) = invariants.broken(before, after, [])
        assert f"names lines 0 from 50 to 60, and the one before it ended at {offset}" in found


def test_a_trim_above_a_kept_checkpoint(leader: Leader, job: JobState) -> None:
    kept = job.kept[-1].epoch
    for epoch, count in ((kept, 0), (kept + 1, 1)):
        trim = TrimLogs(JOB, "u1", Tip(epoch, 3), 0)
        assert len(invariants.broken(leader.state, leader.state, [trim])) == count


def test_a_trim_or_a_deletion_inside_an_audit_horizon(leader: Leader, job: JobState) -> None:
    kept = job.kept
    oldest = replace(kept[-1], epoch=kept[-1].epoch - 2, needs=(kept[-1].epoch - 3,))
    pointers = CheckpointPointers(job.entry.uuid, kept, (oldest,))
    state = leader.state.with_job(
        replace(job, checkpointing=replace(job.checkpointing, pointers=pointers))
    )
    for kept_from, count in ((None, 0), (Tip(oldest.epoch, 1), 0), (Tip(kept[-1].epoch, 3), 1)):
        trim = TrimLogs(JOB, "u1", kept_from, 0)
        assert len(invariants.broken(state, state, [trim])) == count
    for spared, count in ((oldest.needs, 0), ((), 1)):
        delete = DeleteCheckpoints(JOB, "u1", kept, spared)
        assert len(invariants.broken(state, state, [delete])) == count


def test_a_token_with_input_while_a_buffer_is_near_its_bound(
    leader: Leader, job: JobState, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = job.chain.tokens[-1].token
    freeing = replace(token, splits=(), checkpoint=True, whole=True)
    monkeypatch.setattr(buffer_bound, "is_near", lambda _: True)
    for issued, count in (
        (token, 1), (freeing, 0), (replace(freeing, whole=False), 1),
        (replace(token, final=True), 0),
    ):  # fmt: skip
        found = invariants.broken(leader.state, leader.state, [AppendToken(JOB, issued)])
        assert len(found) == count, issued


@pytest.fixture
def spread() -> Leader:
    """Of a job of several fragments: some epochs are done, and one is in flight."""
    world = spread_world(4)
    leader = leading(world)
    epochs(world, leader, 3)
    feed(world, leader)
    return leader


def placed(job: JobState, fragment: str, generation: int, base_epoch: int = 0) -> JobState:
    """Only that fragment has another owner; `base_epoch`: another begin of all others."""
    assert job.plan is not None
    plan = job.plan.placed({fragment: "w9-1"}, generation)
    made = tuple(
        replace(a, from_epoch=base_epoch) if base_epoch and a.fragment != fragment else a
        for a in plan.assignments
    )
    ownership = job.ownership.planned(replace(plan, assignments=made))
    return replace(job, ownership=ownership, phase=ownership.phase)


OF_FRAGMENTS: dict[str, Change] = {
    "fragment 1 changed under generation 1": lambda job: placed(job, "1", 1),
    "fragment 0 changed under generation 1": lambda job: placed(job, "1", 2, base_epoch=1),
    "fragment 1 has generation 2 since plan 3, which followed 1": lambda job: of_owners(
        placed(job, "1", 2),
        plan=replace(placed(job, "1", 2).plan, generation=3),  # type: ignore[type-var]
        generation=3,
    ),
    "done epoch of fragment 3 fell from 3 to 2": lambda job: of_owners(
        job, done_by={**job.ownership.done_by, "3": 2}
    ),
    "it is running, and its fragments are restoring": lambda job: replace(
        job, ownership=job.ownership.become(Condition.RESTORING, ["2"])
    ),
    "without an owner": lambda job: of_owners(
        job, plan=replace(job.plan, assignments=tuple(  # type: ignore[type-var]
            replace(a, owner=None) if a.fragment == "2" else a for a in job.plan.assignments  # type: ignore[union-attr]
        ))
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", OF_FRAGMENTS)
def test_a_broken_invariant_of_one_fragment_is_found(spread: Leader, text: str) -> None:
    before, job = spread.state, spread.job()
    found = invariants.broken(before, before.with_job(OF_FRAGMENTS[text](job)), [])
    assert any(text in one for one in found), found


def test_the_loss_of_one_fragment_breaks_none(spread: Leader) -> None:
    job = spread.job()
    assert invariants.broken(spread.state, spread.state.with_job(placed(job, "1", 2)), []) == []
