"""The life of a replica: it restores and runs like a primary, and nothing waits for it."""

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
from perseid.errors import Diverged
from perseid.jobs.model.layout import Layout, build
from perseid.jobs.model.spec import EventTimeSpec, JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.records import CheckpointPointer, Plan
from perseid.topics.records import (
    EpochDone,
    FragmentState,
    Rewind,
    SourceRange,
    Token,
)
from support.fragment_lives import Around

SPEC = JobSpec(
    name="job", parallelism=2,
    sources={"a": SourceSpec(
        topic="a", format="json", columns={"k": "string", "at": "timestamp"},
        event_time=EventTimeSpec(column="at"),
    )},
    operators={
        "sums": OperatorSpec(inputs={"in": "a"}, use="x:Y", key=("k",), parallelism=2, sql=None)
    },
    sinks={"out": SinkSpec(input="sums", topic="out", format="json")},
)  # fmt: skip
STATELESS = SPEC.model_copy(
    update={"operators": {}, "sinks": {"out": SinkSpec(input="a", topic="out", format="json")}}
)
BASE = 10


def plan(*pointers: CheckpointPointer, muted: bool = True) -> Plan:
    whole = Plan.fused("job", "u", 5, "w1-a", "r", "archive", 1, BASE, 1, pointers)
    primary, replica = whole.only, whole.with_replica("whole", "w2-a", 6).replicas[0]
    return whole.of_one(replica if muted else primary)


def pointer(epoch: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 4, 1, "r", epoch - BASE + 1, f"c-{epoch}/m", 0, 1, 1)


def token(epoch: int, previous: int, **changes: Any) -> Token:
    splits = ((SourceRange("a", "a", "id", 0, 0, 10),),)
    return replace(Token(1, "u", epoch, previous, "r", 1, splits, 80, generation=5), **changes)


class World(Around):
    """The token log, what the fragment finds and asks, and what it reports."""

    def __init__(
        self, plan: Plan, *epochs: int, spec: JobSpec = SPEC,
        states: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.plan, self.spec, self.states = plan, spec, states or {}
        self.layout: Layout = build(spec, 1)
        super().__init__(BASE)
        for epoch in epochs:
            self.records.append(token(epoch, len(self.records)))
        self.orders: list[EpochOrder] = []
        self.called: list[str] = []
        self.asked: list[RestoreOrder] = []
        self.made_of: dict[int, Exception] = {}  # raised after the epoch
        self.complete = plan.checkpoints  # as they are known while it runs
        self.restored = max((p.epoch for p in plan.checkpoints), default=BASE)

    def fence(self) -> None:
        self.called.append("fence")

    def ledgers(self) -> Callable[[], Mapping[int, int]]:
        self.called.append("ledgers")
        return lambda: {task.gid: self.restored for task in self.layout.ledger_tasks}

    def restore(self, order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        self.asked.append(order)
        for gid in gids:
            epoch = self.states.get(gid, self.restored)
            yield Restored(gid, epoch, BASE + 1, "log")

    def read_again(self, _token: Token) -> Reads:
        self.called.append("read_again")
        return {(0, "a"): ReadCount(10, 0, 7, 0, 0, {0: 1_000})}

    def known(self, now: bool) -> tuple[CheckpointPointer, ...]:
        if now:
            self.called.append("known now")
        return self.complete

    def execute(self, order: EpochOrder, _record: bytes) -> tuple[TaskReport, int]:
        self.orders.append(order)
        done = {t.gid: PartitionReport() for t in self.layout.tasks}
        reads = {(0, "a"): ReadCount(10, 0, 7, 0, 0, {0: 1_000})}
        return TaskReport(order.token.epoch, reads, done), 3

    def after(self, order: EpochOrder) -> None:
        if order.token.epoch in self.made_of:
            raise self.made_of[order.token.epoch]

    def take_over_orders(self) -> None:
        self.called.append("take_over_orders")

    def follow(self, life: FragmentLife) -> None:
        for entry in self.read_range("", 0, life.offset, 99):
            life.take(entry.offset, entry.value)
        life.look()
        self.stopping = True

    def look(self, again: FragmentState) -> bool:
        self.reported.append(again)
        return False

    def live(self) -> FragmentState | None:
        return FragmentLife(self.plan, "w2-a", cast(Any, self), cast(Any, self)).run()

    @property
    def ran(self) -> list[int]:
        return [order.token.epoch for order in self.orders]


def stateful(world: World) -> list[int]:
    return [task.gid for task in world.layout.stateful_tasks]


def test_it_reports_its_condition_and_the_ends_of_its_epochs_alone() -> None:
    world = World(plan(), 11, 12)
    assert world.live() is None
    kinds = {type(record) for record in world.reported}
    assert kinds == {FragmentState, EpochDone}
    assert {(r.fragment, r.generation) for r in world.reported} == {("whole.replica", 6)}  # type: ignore[union-attr]
    done = [r for r in world.reported if isinstance(r, EpochDone)]
    assert [(r.epoch, r.checks, r.rows_in) for r in done] == [(11, (), 10), (12, (), 10)]
    assert {(order.generation, order.muted) for order in world.orders} == {(6, True)}


def test_a_primary_reports_what_its_replica_does_not() -> None:
    world = World(plan(muted=False), 11)
    assert world.live() is None
    assert "EventTimes" in {type(record).__name__ for record in world.reported}
    (done,) = [r for r in world.reported if isinstance(r, EpochDone)]
    assert [(c.epoch, c.count, c.crc) for c in done.checks] == [(11, 10, 7)]
    assert {"ledgers", "fence"} <= set(world.called)


def test_it_fences_its_own_logs_and_reads_no_ledger() -> None:
    world = World(plan(pointer(11)), 11, 12, 13)
    world.records[2] = token(12, 2, checkpoint=True)
    assert world.live() is None
    assert world.called == ["fence"]  # neither ledgers nor orders nor event times read again


def test_a_checkpoints_token_orders_nothing() -> None:
    """Logs are collected as a primary's: up to the second newest complete checkpoint."""
    world = World(plan(pointer(12), pointer(11)), 11, 12, 13)
    world.records[3] = token(13, 3, checkpoint=True)
    assert world.live() is None
    (order,) = world.orders
    assert (order.token.epoch, order.collect_epoch) == (13, 11)
    assert "take_over_orders" not in world.called
    primary = World(plan(pointer(12), pointer(11), muted=False), 11, 12, 13)
    primary.records[3] = token(13, 3, checkpoint=True)
    assert primary.live() is None
    assert {"take_over_orders", "known now"} <= set(primary.called)


def test_logs_are_not_collected_beyond_what_it_has_run() -> None:
    world = World(plan(), 11, 12, 13, 14)
    world.complete = (pointer(13), pointer(12))
    assert world.live() is None
    assert [(o.token.epoch, o.collect_epoch) for o in world.orders] == [
        (11, None), (12, None), (13, 12), (14, 12),
    ]  # fmt: skip


def test_it_begins_after_its_own_lowest_epoch() -> None:
    """A log that is ahead returns its outputs again, as a primary's does."""
    first, second = stateful(World(plan()))
    world = World(plan(), 11, 12, 13, states={first: 13, second: 11})
    assert world.live() is None
    assert world.ran == [12, 13]


@pytest.mark.parametrize("complete", [None, 12])
def test_without_state_it_begins_after_the_newest_complete_checkpoint(
    complete: int | None,
) -> None:
    pointers = () if complete is None else (pointer(complete),)
    world = World(plan(*pointers), 11, 12, 13, spec=STATELESS)
    assert world.live() is None
    assert world.ran == ([11, 12, 13] if complete is None else [13])


def test_it_outlives_other_primaries_and_no_rewind() -> None:
    world = World(plan(), 11)
    world.records.append(token(12, 2, generation=9))
    assert world.live() is None
    assert world.ran == [11, 12]
    world = World(plan(), 11)
    follow = world.follow

    def rewound(life: FragmentLife) -> None:
        world.records.append(Rewind(1, "u", BASE, 1, "test"))
        follow(life)

    world.follow = rewound  # type: ignore[method-assign]
    world.live()
    (end,) = [r for r in world.reported if isinstance(r, FragmentState) and r.state == "failed"]
    assert (end.error_kind, end.permanent) == ("FencedError", False)


def test_divergence_ends_it_as_a_failure_that_does_not_pass() -> None:
    world = World(plan(), 11, 12, 13)
    world.made_of[12] = Diverged("operator sums, partition 1, epoch 11, out[0]: other records")
    failure = world.live()
    assert failure is not None
    assert (failure.error_kind, failure.permanent, failure.epoch) == ("Diverged", True, 12)
    assert failure.fragment == "whole.replica"
    assert "operator sums, partition 1, epoch 11" in failure.error
    assert world.ran == [11, 12]
