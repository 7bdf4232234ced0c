"""Random histories of a job of several fragments: each keeps the invariants, and ends well."""

from __future__ import annotations

from random import Random

import pytest

from perseid.coordinator import issue
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from support.coordinator import Leader
from support.coordinator_steps import want
from support.spread_job import JOB, SpreadWorld, feed, leading, spread_spec, spread_world

SEEDS = 40
STEPS = 60


class History:
    """One random history; `Leader.feed` checks the invariants after each decision."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = spread_world(self.random.randint(1, 5), self.random.choice([1, 2, 4, 5]))
        self.leader = leading(self.world)
        self.lives = 1
        self.revisions = 1

    def play(self) -> None:
        steps = [
            self.input, self.input, self.run, self.run, self.run, self.restore, self.restore,
            self.listen, self.listen, self.tick, self.worker_dies, self.worker_comes, self.fails,
            self.leaves, self.new_leader, self.asks_for_a_checkpoint, self.changes,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check()
        self.world.leaving = set()
        self.worker_comes()
        for _ in range(60):
            self.leader.tick(3)
            self.world.restore()
            self.world.run(10)
            self.leader.listen()

    def check(self) -> None:
        job = self.leader.job()
        if job.plan is not None and job.phase is not Phase.LOADING:
            assert job.in_flight <= issue.AHEAD_MAX

    # -- steps -----------------------------------------------------------------------------------

    def input(self) -> None:
        feed(self.world, self.leader)

    def run(self) -> None:
        names = list(self.world.owners)
        self.world.run(self.random.randint(1, 4), self.random.sample(names, len(names) // 2 + 1))

    def restore(self) -> None:
        self.world.restore(self.random.sample(list(self.world.owners), 1))

    def listen(self) -> None:
        self.leader.listen()

    def tick(self) -> None:
        self.leader.tick(self.random.choice([0.1, 1.0, 30.0]))

    def worker_dies(self) -> None:
        if self.world.workers:
            self.world.workers.remove(self.random.choice(self.world.workers))
        self.leader.look()

    def worker_comes(self) -> None:
        self.lives += 1
        self.world.workers.append(f"w{self.lives % 5}-{self.lives}")
        self.leader.look()

    def fails(self) -> None:
        name, owner = self.random.choice(list(self.world.owners.items()))
        if owner in self.world.workers:
            self.world.report_of(name, "failed", error="reset")

    def leaves(self) -> None:
        name, owner = self.random.choice(list(self.world.owners.items()))
        if owner in self.world.workers and owner is not None:
            self.world.leaving.add(owner)
            self.leader.look()
            self.world.report_of(name, "stopped")

    def new_leader(self) -> None:
        self.leader = Leader(self.world)
        self.leader.look()

    def asks_for_a_checkpoint(self) -> None:
        self.leader.tick(12.0)

    def changes(self) -> None:
        if self.random.random() < 0.3:
            self.revisions += 1
            archive = f"archive-{self.revisions}"
            self.world.programs[archive] = spread_spec(self.random.choice([1, 2, 4, 5]))
            want(self.world, self.leader, revision=f"r{self.revisions}", archive=archive)


def named_once(world: SpreadWorld) -> dict[tuple[str, int], int]:
    reached: dict[tuple[str, int], int] = {}
    for token in world.valid(JOB).values():
        for r in ranges_of(token):
            assert r.start == reached.get((r.source, r.partition), 0)
            reached[r.source, r.partition] = r.end
    return reached


@pytest.mark.drawn(12)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_job_runs_again_and_takes_all_input_once(seed: int) -> None:
    history = History(seed)
    history.play()
    world, job = history.world, history.leader.job()
    assert job.phase is Phase.RUNNING
    assert (job.in_flight, job.inputs.backlog) == (0, 0)
    assert {key: end for key, end in named_once(world).items() if end} == {
        key: end for key, end in world.ends.items() if end
    }
    assert all(owner in world.workers for owner in world.owners.values())
    last = list(world.valid(JOB).values())[-1]
    assert job.ownership.done == last.epoch
    if job.spread is not None:
        assert len(last.splits) == len(world.plans[JOB].assignments)
