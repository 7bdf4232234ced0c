"""The life of one fragment of several: it restores, runs and reports what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from perseid.engine.agreement import RestoreOrder
from perseid.engine.fragment import FragmentLife
from perseid.engine.order import EpochOrder
from perseid.engine.resume import Restored
from perseid.engine.task_report import PartitionReport, ReadCount, Reads, TaskReport
from perseid.engine.token_loop import own_input
from perseid.jobs.model.layout import Layout, build
from perseid.jobs.model.spec import (
    EventTimeSpec,
    JobSpec,
    OperatorSpec,
    PlacementSpec,
    SinkSpec,
    SourceSpec,
)
from perseid.jobs.model.spread import Spread, spread_of
from perseid.records import Assignment, CheckpointPointer, Plan
from perseid.topics.records import (
    EpochDone,
    EventTimes,
    FragmentState,
    SourceRange,
    Token,
)
from support.fragment_lives import Around

TIMED = SourceSpec(
    topic="a", format="json", columns={"k": "string", "at": "timestamp"},
    event_time=EventTimeSpec(column="at"),
)  # fmt: skip
SPEC = JobSpec(
    name="job", parallelism=1,
    sources={"a": TIMED, "b": SourceSpec(topic="b", format="json", columns={"k": "string"})},
    operators={
        "sums": OperatorSpec(inputs={"in": "a"}, use="x:Y", key=("k",), parallelism=4, sql=None)
    },
    sinks={n: SinkSpec(input=n, topic=f"out-{n}", format="json") for n in ("sums", "b")},
    placement=PlacementSpec(spread=3),
)
LAYOUT = build(SPEC, 1)
BASE = 10


def cut() -> Spread:
    found = spread_of(SPEC, LAYOUT)
    assert found is not None
    return found


def plan_of(at: int, *pointers: CheckpointPointer, gids: tuple[int, ...] | None = None) -> Plan:
    """As its worker sees fragment `at`; `gids`: instead of those that are its own."""
    own = tuple(
        Assignment(str(i), share.gids, "w1-a", 5 + i, from_epoch=BASE, split=i)
        for i, share in enumerate(cut().shares)
    )
    if gids is not None:
        own = (*own[:at], replace(own[at], gids=gids), *own[at + 1 :])
    plan = Plan("job", "u", 9, "r", "archive", 1, BASE, 1, own, pointers)
    return plan.of_one(plan.assignments[at])


def ranges(partitions: Sequence[int], source: str = "a") -> tuple[SourceRange, ...]:
    return tuple(SourceRange(source, source, "id", p, 0, 10) for p in partitions)


def token(epoch: int, previous: int, **changes: Any) -> Token:
    """Each fragment has its own source partitions of four."""
    spread = cut()
    splits = tuple(
        tuple(
            one for source in sorted(share.among) for one in ranges(range(4), source)
            if spread.split_of(source, one.partition) == at
        )
        for at, share in enumerate(spread.shares)
    )  # fmt: skip
    return replace(Token(1, "u", epoch, previous, "r", 1, splits, 80, generation=5), **changes)


class World(Around):
    """The token log, what a fragment finds and asks, and what it reports."""

    def __init__(self, plan: Plan, *epochs: int, states: Mapping[int, int] | None = None) -> None:
        self.plan, self.states = plan, states or {}
        super().__init__(BASE)
        for epoch in epochs:
            self.records.append(token(epoch, len(self.records)))
        self.asked: list[int] = []
        self.read: list[Token] = []
        self.ran: list[int] = []
        self.silent: set[int] = set()
        self.layout: Layout = LAYOUT.part(plan.only.gids)
        self.spec = SPEC

    # Token log

    # Runtime

    def fence(self) -> None: ...

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        tasks = self.layout.ledger_tasks
        return lambda: {task.gid: self.states.get(task.gid, BASE) for task in tasks}

    def restore(self, _order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        for gid in gids:
            self.asked.append(gid)
            yield Restored(gid, self.states.get(gid, BASE), BASE + 1, "log")

    def read_again(self, token: Token) -> Reads:
        self.read.append(token)
        found = {}
        for at, split in enumerate(token.splits):
            times = {r.partition: 1_000 + r.partition for r in split if r.source == "a"}
            found[at, "a"] = ReadCount(len(times), 0, 0, 0, 0, times)
        return found

    def known(self, _now: bool) -> tuple[CheckpointPointer, ...]:
        return self.plan.checkpoints

    def execute(self, order: EpochOrder, _record: bytes) -> tuple[TaskReport, int]:
        self.ran.append(order.token.epoch)
        done = {t.gid: PartitionReport() for t in self.layout.tasks if t.gid not in self.silent}
        split = self.plan.only.split or 0
        read = {r.source for r in order.token.splits[split]}
        counts = {(split, source): ReadCount(10, 0, 7, 0, 0, {}) for source in read}
        return TaskReport(order.token.epoch, counts, done), 3

    def follow(self, life: FragmentLife) -> None:
        for entry in self.read_range("", 0, life.offset, 99):
            life.take(entry.offset, entry.value)
        self.stopping = True

    def live(self) -> FragmentState | None:
        return FragmentLife(self.plan, "w1-a", cast(Any, self), cast(Any, self)).run()


def states(world: World) -> list[str]:
    return [r.state for r in world.reported if isinstance(r, FragmentState)]


def test_it_restores_runs_and_reports_its_own_partitions() -> None:
    for at, share in enumerate(cut().shares):
        world = World(plan_of(at), 11, 12)
        assert world.live() is None
        own = [t.gid for t in LAYOUT.stateful_tasks if t.gid in share.gids]
        assert (world.asked, world.ran) == (own, [11, 12])
        assert states(world) == ["restoring", "running", "stopped"]
        assert {(r.fragment, r.generation) for r in world.reported} == {(str(at), 5 + at)}  # type: ignore[union-attr]
        done = [r for r in world.reported if isinstance(r, EpochDone)]
        assert [r.epoch for r in done] == [11, 12]
        assert {check.split for r in done for check in r.checks} == {at}


def test_the_job_has_fragments_with_and_without_state() -> None:
    kinds = [{LAYOUT.task(gid).stateful for gid in share.gids} for share in cut().shares]
    assert kinds == [{True}, {True}, {False}]


def test_an_own_partition_that_does_not_report_is_missed_and_no_other_ones() -> None:
    world = World(plan_of(1), 11)
    world.silent = {cut().shares[1].gids[0]}
    failure = world.live()
    assert failure is not None
    assert "operator partitions sums-2 did not report" in failure.error
    assert failure.fragment == "1"


def test_it_resumes_where_its_own_partitions_are_and_repeats_what_it_may_not_have_sent() -> None:
    own = cut().shares[0].gids
    world = World(plan_of(0), 11, 12, 13, states=dict.fromkeys(own, 12))
    assert world.live() is None
    assert world.ran == [12, 13]


def test_the_last_event_times_are_those_of_its_own_input() -> None:
    found: dict[str, list[int]] = {}
    for at in range(3):
        gids = cut().shares[at].gids
        world = World(plan_of(at), 11, 12, 13, states=dict.fromkeys(gids, 13))
        world.live()
        (again,) = world.read
        assert [bool(split) for split in again.splits] == [i == at for i in range(3)]
        times = [r for r in world.reported if isinstance(r, EventTimes)]
        found |= {r.fragment: [t.partition for t in r.times] for r in times}
    assert found == {"0": [0, 2], "1": [1, 3]}


def test_of_another_layouts_token_each_fragment_takes_the_partitions_that_it_reads() -> None:
    fused = token(10, 0, layout=0, splits=(ranges([0, 1]), (), ranges([2, 3, 0], "b")))
    given = [own_input(SPEC, plan_of(at), fused).splits for at in range(3)]
    assert given == [
        (ranges([0]), (), ()), (ranges([1]), (), ()), ((), (), ranges([2, 3, 0], "b")),
    ]  # fmt: skip
    whole = Plan.fused("job", "u", 5, "w1-a", "r", "a", 1, BASE, 1)
    assert own_input(SPEC, whole, fused) is fused


def pointer(epoch: int, offset: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 4, 1, "r", offset, f"c-{epoch}/m", 0, 1, 1)


@pytest.mark.parametrize("complete", [None, 12])
def test_a_fragment_without_partitions_restores_nothing_and_runs(complete: int | None) -> None:
    """It sends; what a complete checkpoint covers was sent, and the log may begin there."""
    pointers = () if complete is None else (pointer(complete, complete - 9),)
    world = World(plan_of(2, *pointers, gids=()), 11, 12, 13, 14)
    assert world.live() is None
    assert world.asked == []
    assert world.ran == [epoch for epoch in (11, 12, 13, 14) if epoch > (complete or BASE)]
    assert states(world) == ["restoring", "running", "stopped"]


def test_an_empty_split_is_an_epoch_like_another() -> None:
    world = World(plan_of(0), 11)
    world.records[1] = token(11, 1, splits=((), (), ()))
    assert world.live() is None
    (done,) = [r for r in world.reported if isinstance(r, EpochDone)]
    assert (done.epoch, done.rows_in, done.checks) == (11, 0, ())
