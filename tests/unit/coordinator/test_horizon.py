"""What of a job's past stays for audits, and what goes: through the core with a short horizon."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import horizon
from perseid.coordinator.job.chain import Tip
from perseid.jobs.model.spec import AuditSpec, JobSpec
from perseid.records import CheckpointPointer, CheckpointPointers
from perseid.registry import codec
from perseid.replay.programs import Program, recorded
from support.coordinator import Leader, World, job_spec
from support.coordinator_setting import JOB

PERIOD_S = 30.0
HORIZON_S = 600.0
DAY_MS = 86_400_000


@pytest.fixture
def world(world: World) -> World:
    """The job has a horizon of 20 checkpoint periods."""
    world.programs["archive-1"] = audited(HORIZON_S)
    return world


def audited(horizon_s: float | None) -> JobSpec:
    return job_spec(audit=AuditSpec(horizon_s=horizon_s))


def periods(world: World, leader: Leader, count: int) -> None:
    """Runs an epoch with a checkpoint in each."""
    for _ in range(count):
        world.time_s += PERIOD_S
        world.produce(0, 10)
        leader.poll()
        world.work(JOB, epochs=9)
        leader.listen()


def trims(leader: Leader) -> list[act.TrimLogs]:
    return [a for a in leader.performed if isinstance(a, act.TrimLogs)]


def pointer(epoch: int, time_ms: int, revision: str = "r1", layout: int = 1) -> CheckpointPointer:
    return CheckpointPointer(epoch, 1, layout, revision, epoch, "m", 0, 0, time_ms, epoch, (epoch,))


# -- through the core ------------------------------------------------------------------------------


def test_nothing_goes_until_the_job_is_older_than_its_horizon(world: World, leader: Leader) -> None:
    periods(world, leader, 15)
    assert trims(leader)
    assert {trim.kept for trim in trims(leader)} == {None}


def test_the_log_begins_with_the_newest_checkpoint_that_is_older_than_the_horizon(
    world: World, leader: Leader
) -> None:
    periods(world, leader, 60)
    found, tokens = world.pointers[JOB], world.valid(JOB)
    now_ms, kept = found.pointers[0].time_ms, trims(leader)[-1].kept
    assert kept is not None
    assert kept == Tip(found.past[-1].epoch, found.past[-1].token_offset)
    assert tokens[kept.offset].time_ms < now_ms - HORIZON_S * 1000
    early = [p for p in found.every if p.time_ms < now_ms - HORIZON_S * 1000]
    assert early == [found.past[-1]], "one older than the horizon is enough"


def test_the_files_of_all_that_are_listed_stay(world: World, leader: Leader) -> None:
    periods(world, leader, 40)
    found = world.pointers[JOB]
    last = [a for a in leader.performed if isinstance(a, act.DeleteCheckpoints)][-1]
    assert last.live == found.pointers
    assert {p.epoch for p in found.past} <= set(last.spared)
    assert 3 < len(found.past) < 20, "some of the twenty of the horizon are thinned out"


def test_the_archive_of_a_revision_stays_as_long_as_its_epochs(
    world: World, leader: Leader
) -> None:
    periods(world, leader, 5)
    world.programs["archive-2"] = audited(HORIZON_S)
    entry = replace(world.entries[JOB], revision="r2", archive="archive-2", counter=2)
    world.entries[JOB] = entry
    leader.look()
    periods(world, leader, 10)
    assert world.plans[JOB].archive == "archive-2"
    found = world.pointers[JOB]
    assert found.archives == {"r1": "archive-1", "r2": "archive-2"}
    assert recorded("r1", entry, world.plans[JOB], found) == Program("r1", "archive-1")
    assert recorded("r1", entry, world.plans[JOB]) is None
    periods(world, leader, 30)
    found = world.pointers[JOB]
    assert found.archives == {"r2": "archive-2"}
    assert recorded("r1", entry, world.plans[JOB], found) is None


def test_another_leader_keeps_the_same(world: World, leader: Leader) -> None:
    periods(world, leader, 30)
    before = world.pointers[JOB]
    leader = Leader(world)
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    periods(world, leader, 2)
    after = world.pointers[JOB]
    assert set(after.past) <= set(before.every)
    assert len(after.past) >= len(before.past) - 2, "two are complete, and two others may go"
    assert after.archives == before.archives


def test_another_name_of_the_same_files_waits_until_the_old_one_is_known(
    world: World, leader: Leader
) -> None:
    world.entries[JOB] = replace(world.entries[JOB], revision="r2", counter=2)
    leader.look()
    world.produce(0, 10)
    leader.poll()
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].revision == "r1"
    periods(world, leader, 3)
    assert world.plans[JOB].revision == "r2"
    assert world.pointers[JOB].archives == {"r1": "archive-1", "r2": "archive-1"}


def test_without_a_horizon_the_past_goes(world: World, leader: Leader) -> None:
    periods(world, leader, 30)
    assert world.pointers[JOB].past
    world.programs["archive-2"] = audited(None)
    world.entries[JOB] = replace(world.entries[JOB], revision="r2", archive="archive-2", counter=2)
    leader.look()
    periods(world, leader, 3)
    found = world.pointers[JOB]
    assert world.plans[JOB].archive == "archive-2"
    assert (found.past, found.archives) == ((), {})
    oldest = found.pointers[-1]
    assert trims(leader)[-1].kept == Tip(oldest.epoch, oldest.token_offset)
    last = [a for a in leader.performed if isinstance(a, act.DeleteCheckpoints)][-1]
    assert last.spared == ()


# -- which checkpoints stay ------------------------------------------------------------------------


def played(count: int, period_ms: int, horizon_ms: int, change: int = 0) -> CheckpointPointers:
    """What is kept after so many checkpoints; every `change`-th is of another revision."""
    found = CheckpointPointers("u1")
    for epoch in range(1, count + 1):
        revision = f"revision-{epoch // change if change else 0:055}"
        new = pointer(epoch, epoch * period_ms, revision)
        kept = (new, *found.pointers[:1])
        past = horizon.chosen(found.every, kept, horizon_ms)
        archives = {p.revision: "a" * 64 for p in (*kept, *past)}
        found = CheckpointPointers("u1", kept, past, archives)
    return found


@pytest.mark.parametrize(
    ("period_ms", "horizon_ms"), [(1_000, 600_000), (30_000, DAY_MS // 6), (DAY_MS // 8, DAY_MS)]
)
def test_an_audit_runs_little_more_than_it_compares(period_ms: int, horizon_ms: int) -> None:
    found = played(2 * horizon_ms // period_ms, period_ms, horizon_ms)
    now_ms, listed = found.pointers[0].time_ms, found.every[::-1]
    for base, after in pairwise(listed):
        allowed = horizon.gap_ms(now_ms - base.time_ms, horizon_ms)
        assert after.time_ms - base.time_ms <= max(allowed, period_ms)
    assert listed[0].time_ms < now_ms - horizon_ms <= listed[1].time_ms


@pytest.mark.parametrize("change", [0, 1, 2, 40])
def test_what_zookeeper_holds_is_bounded(change: int) -> None:
    """Whatever the number of checkpoints and of applied revisions, of names of full length."""
    found = played(1_500, 30_000, DAY_MS // 6, change)
    assert len(found.every) <= 58 + 2 * horizon.CHANGES_MAX
    named = replace(
        found, past=tuple(replace(p, manifest="m" * 200, needs=tuple(range(7))) for p in found.past)
    )
    assert len(codec.encode(named)) < codec.ENTRY_BYTES_MAX / 2


def test_the_last_checkpoint_before_a_change_stays() -> None:
    """The epochs of a revision can be audited from its first one on, or from its checkpoint."""
    times = range(0, 100_000, 1_000)
    listed = [pointer(n, ms, "r1" if n < 37 else "r2", 1 if n < 61 else 2)
              for n, ms in enumerate(times)]  # fmt: skip
    past = horizon.chosen(listed[:-1], (listed[-1],), 80_000)
    assert {36, 37, 60, 61} <= {p.epoch for p in past}
    assert len(past) < 40


def test_a_shorter_horizon_lets_the_rest_go() -> None:
    found = played(300, 30_000, DAY_MS)
    past = horizon.chosen(found.every, found.pointers, DAY_MS // 48)
    assert past[-1].time_ms < found.pointers[0].time_ms - DAY_MS // 48
    assert set(past) < set(found.past)


def test_a_horizon_inside_what_restores_need_adds_nothing() -> None:
    kept = pointer(9, 9_000), pointer(8, 8_000), pointer(3, 3_000)
    older = pointer(2, 2_000), pointer(1, 1_000)
    assert horizon.chosen(older, kept, 500) == ()
    assert horizon.log_base(CheckpointPointers("u1", kept), 500) == Tip(8, 8)
    assert horizon.log_base(CheckpointPointers("u1", kept), 6_500) is None
