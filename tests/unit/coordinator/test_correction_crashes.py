"""A failed job is corrected while the leader dies between any two of its writes."""

from __future__ import annotations

import contextlib

import pytest

from perseid.coordinator.job.positions import ranges_of
from perseid.topics.records import Token
from support.coordinator import Crashed, Leader, World
from support.coordinator_steps import (
    JOB,
    failed_in_flight,
    half_committed,
    new_revision,
    run,
)  # fmt: skip


def corrected(world: World, leader: Leader, crash: int) -> list[Token]:
    """The tokens of a job that is corrected, while the leader dies in front of a write."""
    leader.writes_left = crash
    with contextlib.suppress(Crashed):
        new_revision(world, leader)
        world.report(JOB, "running")
        leader.listen()
    leader = Leader(world)
    leader.look()
    for _ in range(4):
        leader.tick(1)
        world.report(JOB, "running")
        leader.listen()
        run(world, leader)
    tokens = list(world.valid(JOB).values())
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))
    return tokens


@pytest.mark.parametrize("crash", range(14))
def test_another_limit_survives_a_crash_between_any_two_writes(world: World, crash: int) -> None:
    world.codes = {"archive-1": "code", "archive-2": "code"}
    leader = Leader(world)
    leader.look()
    failed_in_flight(world, leader)
    tokens = corrected(world, leader, crash)
    assert {t.revision for t in tokens if t.epoch > 2} == {"r2"}
    assert world.plans[JOB].revision == "r2"


@pytest.mark.parametrize("crash", range(8))
def test_ending_an_epoch_survives_a_crash_between_any_two_writes(world: World, crash: int) -> None:
    leader = Leader(world)
    leader.look()
    bad = half_committed(world, leader)
    tokens = corrected(world, leader, crash)
    assert bad in tokens
    assert {t.revision for t in tokens if t.epoch > bad.epoch} == {"r2"}
    assert world.plans[JOB].revision == "r2"


@pytest.mark.parametrize("crash", range(12))
def test_a_rewind_survives_a_crash_between_any_two_writes(world: World, crash: int) -> None:
    leader = Leader(world)
    leader.look()
    failed_in_flight(world, leader)
    tokens = corrected(world, leader, crash)
    covered = [(r.start, r.end) for t in tokens for r in ranges_of(t)
               if r.partition == 0 and r.end > r.start]  # fmt: skip
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert (20, 30) not in [(r.start, r.end) for t in tokens if t.revision == "r1"
                            for r in ranges_of(t)]  # fmt: skip
    assert world.plans[JOB].revision == "r2"
