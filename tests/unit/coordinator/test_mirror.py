"""What the mirror publishes of a job, when, and what becomes of an old leader's."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from perseid.coordinator import view
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.mirror import IDLE_S, REFRESH_S, OffsetsMirror, committed, is_mirrored
from perseid.jobs.model.spec import SourceSpec
from support.coordinator import Crashed, Leader, World, job_spec
from support.groups import ModelGroups

JOB = "wordcount"


class Mirrored:
    """A mirror of what `leader` knows, and the groups that it writes."""

    def __init__(self, leader: Leader, groups: ModelGroups | None = None) -> None:
        self.groups = groups or ModelGroups()
        self.leads, self.now_s = True, 0.0
        self.mirror = OffsetsMirror(
            lambda: leader.state.jobs, self.groups.writer, lambda: self.leads, lambda: self.now_s
        )

    def look(self, seconds: float = 1.0) -> list[dict[tuple[str, int], int]]:
        """The commits of one look, that much later."""
        before = len(self.groups.commits)
        self.now_s += seconds
        self.mirror._look()
        return [offsets for _, offsets in self.groups.commits[before:]]


def lag_of(leader: Leader) -> int:
    """As a lag tool reckons it."""
    job = leader.job(JOB)
    return sum(job.inputs.ends[place] - offset for place, offset in committed(job).items())


def test_the_lag_of_the_group_is_that_of_the_status(world: World, leader: Leader) -> None:
    seen = set()
    for step in range(12):
        world.produce(step % 2, 9_000 * step + 100)
        leader.poll()
        if step % 3:
            world.work(JOB)
            leader.listen()
        seen.add(leader.job(JOB).in_flight)
        assert lag_of(leader) == view.lag(leader.job(JOB))
        assert lag_of(leader) > 0
    assert seen >= {1, 2}  # with tokens in flight, one and two of them
    while world.work(JOB, 10):
        leader.listen()
    assert lag_of(leader) == 0


def test_a_new_leader_publishes_the_same(world: World, leader: Leader) -> None:
    world.produce(0, 50_000)
    leader.poll()
    world.work(JOB)
    leader.listen()
    assert leader.job(JOB).in_flight
    after = Leader(world)
    after.look()
    assert committed(after.job(JOB)) == committed(leader.job(JOB))


def test_of_two_sources_on_one_partition_the_one_with_more_lag_counts(world: World) -> None:
    line = SourceSpec(topic="lines", format="text")
    world.programs["archive-1"] = job_spec(sources={"lines": line, "again": line})
    leader = Leader(world)
    leader.look()
    job = leader.job(JOB)
    ahead = {key: at for key, at in job.inputs.positions.items() if key[0] == "again"}
    moved = {key: type(at)(at.topic, at.topic_id, 7) for key, at in ahead.items()}
    inputs = job.inputs.moved({**job.inputs.positions, **moved}, 0.0)
    reported = committed(replace(job, inputs=inputs))
    assert reported == {("lines", 0): 0, ("lines", 1): 0}


def test_a_job_that_is_being_read_or_removed_is_not_mirrored(world: World) -> None:
    leader = Leader(world, writes_left=0)
    with pytest.raises(Crashed):
        leader.look()
    assert leader.job(JOB).phase is Phase.LOADING
    assert not is_mirrored(leader.job(JOB))
    assert Mirrored(leader).look() == []


def test_only_what_changes_is_written_and_each_hour_all(world: World, leader: Leader) -> None:
    mirrored = Mirrored(leader)
    assert mirrored.look() == [{("lines", 0): 0, ("lines", 1): 0}]
    assert mirrored.look() == []
    world.produce(1, 10)
    leader.poll()
    assert mirrored.look() == []  # a token names it, and no group has committed it
    world.work(JOB)
    leader.listen()
    assert mirrored.look() == [{("lines", 0): 0, ("lines", 1): 10}]
    assert mirrored.look(REFRESH_S / 2) == []
    assert mirrored.look(REFRESH_S / 2) == [{("lines", 0): 0, ("lines", 1): 10}]


def test_the_writer_of_an_idle_job_is_let_go_and_acquired_again(
    world: World, leader: Leader
) -> None:
    mirrored = Mirrored(leader)
    assert len(mirrored.look()) == 1
    writer = mirrored.groups.writers[JOB]
    assert mirrored.look(IDLE_S - 1) == []
    assert writer.is_open
    assert mirrored.look(2.0) == []
    assert not writer.is_open
    world.produce(1, 10)
    leader.poll()
    world.work(JOB)
    leader.listen()
    assert mirrored.look() == [{("lines", 0): 0, ("lines", 1): 10}]
    assert writer.is_open
    assert not mirrored.mirror.failed


def test_an_old_leader_sets_nothing_back(world: World, leader: Leader) -> None:
    old = Mirrored(leader)
    old.look()
    world.produce(0, 10)
    leader.poll()
    new_leader = Leader(world)
    new_leader.look()
    new = Mirrored(new_leader, old.groups)
    world.work(JOB)
    new_leader.listen()
    (reported,) = new.look()
    leader.listen()  # the old one runs on, and believes for a moment that it leads
    assert old.look(REFRESH_S) == []
    old.leads = False
    assert old.look(REFRESH_S) == []  # it has acquired again, and writes nothing without a lease
    assert old.groups.offsets[JOB] == reported
    assert new.look(REFRESH_S) == []  # shut out by that
    assert new.look(REFRESH_S) == [reported]
    assert new.mirror.failed == {JOB: 1}


def test_a_failure_is_logged_once_and_counted(
    world: World, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = Mirrored(leader)
    mirrored.groups.away = True
    with caplog.at_level(logging.INFO, "perseid.coordinator.mirror"):
        for _ in range(300):
            mirrored.look()
        attempts = mirrored.mirror.failed[JOB]
        assert 8 <= attempts <= 12  # ever later, each minute at last
        assert [r.levelname for r in caplog.records] == ["WARNING"]
        assert "the broker is away" in caplog.text
        mirrored.groups.away = False
        for _ in range(60):
            mirrored.look()
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert f"after {attempts} failures" in caplog.text
    assert mirrored.mirror.failed == {JOB: attempts}
    assert len(mirrored.groups.commits) == 1


def test_a_removed_job_is_let_go(world: World, leader: Leader) -> None:
    mirrored = Mirrored(leader)
    mirrored.look()
    del world.entries[JOB]
    leader.look()
    mirrored.look()
    assert mirrored.mirror._groups == {}
