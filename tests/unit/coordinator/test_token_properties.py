"""Whatever happens in whatever order, the tokens that count name every offset once, in order."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import FencedError
from perseid.jobs.model.spec import EventTimeSpec, JobSpec, SourceSpec
from perseid.topics.records import Token
from support.coordinator import Crashed, Leader, World, job_entry, job_spec

JOB = "wordcount"
PARTITIONS = 3
DELAY_MS = 3000
TIMED = SourceSpec(
    topic="lines", format="text",
    event_time=EventTimeSpec(column="timestamp", delay_ms=DELAY_MS),
)  # fmt: skip

step = st.one_of(
    st.tuples(st.just("produce"), st.integers(0, PARTITIONS - 1), st.integers(1, 60_000)),
    st.tuples(st.just("poll"), st.just(0), st.just(0)),
    st.tuples(st.just("work"), st.integers(1, 3), st.integers(1, 2000)),
    st.tuples(st.just("listen"), st.just(0), st.just(0)),
    st.tuples(st.just("tick"), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("new worker"), st.just(0), st.just(0)),
    st.tuples(st.just("lose worker"), st.just(0), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
    st.tuples(st.just("new leader"), st.just(0), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("old leader"), st.integers(0, 30), st.just(0)),
    st.tuples(st.just("stop"), st.just(0), st.just(0)),
    st.tuples(st.just("start"), st.just(0), st.just(0)),
)


class Play:
    """Runs a list of steps against the world, with one leader and one that was leader before."""

    def __init__(self, spec: JobSpec | None = None) -> None:
        self.world = World({"archive-1": spec or job_spec()}, {JOB: job_entry()}, ["w1-1"])
        for partition in range(PARTITIONS):
            self.world.ends["lines", partition] = 0
        self.lives = 1
        self.old: Leader | None = None
        self.leader = Leader(self.world)
        self.leader.look()

    def all(self, steps: list[tuple[str, int, int]]) -> None:
        """The steps, with another leader where one crashed, and then to the end."""
        for kind, a, b in steps:
            try:
                self.run(kind, a, b)
            except Crashed:
                self.replace_leader()
        self.finish()

    def run(self, kind: str, a: int, b: int) -> None:
        if kind in ("stop", "start"):
            self.want("stopped" if kind == "stop" else "running")
        elif kind in ("new worker", "lose worker"):
            self.change_workers(kind)
        elif kind == "produce":
            self.world.produce(a, b)
        elif kind == "work":
            self.world.work(JOB, a, duration_ms=b)
        elif kind == "fail" and JOB in self.world.plans:
            self.world.report(JOB, "failed", error="a transient fault")
        elif kind == "new leader":
            self.replace_leader()
        elif kind == "crash":
            self.leader.writes_left = a
        elif kind == "old leader":
            self.zombie(float(a))
        elif kind == "tick":
            self.leader.tick(float(a))
        elif kind == "listen":
            self.leader.listen()
        else:
            self.leader.poll()

    def want(self, desired: str) -> None:
        counter = self.world.entries[JOB].counter + 1
        self.world.entries[JOB] = job_entry(desired=desired, counter=counter)
        self.leader.look()

    def change_workers(self, kind: str) -> None:
        if kind == "new worker":
            self.lives += 1
            self.world.workers.append(f"w{self.lives}-1")
        else:
            self.world.workers[:1] = []
        self.leader.look()

    def replace_leader(self) -> None:
        self.old, self.leader = self.leader, Leader(self.world)
        self.leader.look()

    def zombie(self, seconds: float) -> None:
        """The earlier leader wakes up: it may append, and every other write of it is refused."""
        if self.old is None or self.old.state.epoch == self.world.leader_epoch:
            return
        with contextlib.suppress(FencedError, Crashed):
            self.old.poll()
            self.old.listen()
            self.old.tick(seconds)

    def finish(self) -> None:
        """Lets everything come to rest: all input is named, run and committed."""
        counter = self.world.entries[JOB].counter + 1
        self.world.entries[JOB] = job_entry(counter=counter)
        if not self.world.workers:
            self.world.workers.append("w99-1")
        self.replace_leader()
        for _ in range(400):
            self.leader.tick(1.0)
            self.leader.poll()
            ran = self.world.work(JOB, 5)
            self.leader.listen()
            job = self.leader.job()
            if not (ran or job.inputs.backlog or job.in_flight):
                return
        raise AssertionError("the job does not come to rest")


def check(world: World) -> None:
    tokens = list(world.valid(JOB).values())
    assert [t.epoch for t in tokens] == list(range(1, len(tokens) + 1))
    assert all(a.time_ms <= b.time_ms for a, b in pairwise(tokens))
    position = dict.fromkeys(range(PARTITIONS), 0)
    for token in tokens:
        for split in token.splits:
            for r in split:
                assert r.start == position[r.partition]
                assert r.end >= r.start
                position[r.partition] = r.end
    assert position == {p: world.ends["lines", p] for p in range(PARTITIONS)}


def check_watermarks(world: World) -> None:
    """Never falling, and never above what the tokens before let the workers read."""
    last: float = -inf
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for token in world.valid(JOB).values():
        mark = token.watermark_ms
        if mark is None:
            assert last == -inf
        else:
            assert last <= mark <= 1000 * (max(ends.values()) - 1) - DELAY_MS
            last = mark
        for r in (r for split in token.splits for r in split):
            ends[r.partition] = r.end


@settings(max_examples=200, deadline=None)
@given(st.lists(step, max_size=60))
def test_watermarks_follow_the_event_times_and_never_fall(
    steps: list[tuple[str, int, int]],
) -> None:
    play = Play(job_spec(sources={"lines": TIMED}))
    play.all(steps)
    for _ in range(6):  # all partitions are quiet by now
        play.leader.tick(10.0)
        play.world.work(JOB, 1)
        play.leader.listen()
    check(play.world)
    check_watermarks(play.world)
    ends = [end for end in play.world.ends.values() if end]
    mark = list(play.world.valid(JOB).values())[-1].watermark_ms
    assert mark == (1000 * (max(ends) - 1) - DELAY_MS if ends else None)


@settings(max_examples=300, deadline=None)
@given(st.lists(step, max_size=60))
def test_tokens_cover_every_offset_once_in_order(steps: list[tuple[str, int, int]]) -> None:
    play = Play()
    play.all(steps)
    check(play.world)
    # Generations only rise, and a checkpoint that counts is one of a token that counts.
    valid = play.world.valid(JOB)
    for pointer in play.world.pointers[JOB].pointers if JOB in play.world.pointers else ():
        assert valid[pointer.token_offset].epoch == pointer.epoch
        assert (JOB, pointer.epoch) in play.world.manifests


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5))
def test_a_leader_that_reads_the_same_log_knows_the_same_positions(
    rounds: int, changes: int
) -> None:
    play = Play()
    for number in range(rounds):
        play.run("produce", number % PARTITIONS, 1000 * (number + 1))
        play.run("poll", 0, 0)
        play.run("work", 1, 100)
        play.run("listen", 0, 0)
        if number % changes == 0:
            play.run("tick", 31, 0)
        before = play.leader.job()
        play.replace_leader()
        after = play.leader.job()
        assert (after.chain.tip, after.done) == (before.chain.tip, before.done)
        assert after.inputs.positions == before.inputs.positions
        assert {c.epoch for c in after.inputs.checks} <= set(range(before.chain.tip.epoch + 1))


def test_checks_of_every_epoch_are_carried_once_by_a_later_token() -> None:
    play = Play()
    for number in range(20):
        play.run("produce", 0, 500)
        play.run("poll", 0, 0)
        play.run("work", 1, 100)
        play.run("listen", 0, 0)
        if number == 10:
            play.replace_leader()
    tokens = [r for r in play.world.tokens[JOB] if isinstance(r, Token)]
    carried = [check.epoch for token in tokens for check in token.checks]
    assert carried == sorted(set(carried)) == list(range(1, len(carried) + 1))
    assert len(carried) >= len(tokens) - 2
