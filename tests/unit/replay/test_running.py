"""The life of an audit over a token log in memory: which epochs run, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perseid.engine.fragment import FragmentLife
from perseid.engine.last_word import LastWord
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, ReadCount, TaskReport
from perseid.errors import PerseidError, RetryableError
from perseid.records import Plan
from perseid.replay.ranges import Range
from perseid.replay.running import AuditRuntime, apart, plan_of
from perseid.topics import codec
from perseid.topics.log import Entry
from perseid.topics.records import Claim, EpochDone, ProgressRecord, Rewind, Token
from perseid.worker.dataflow.context import FragmentContext
from support.fragment_contexts import DEPLOYMENT, context_of
from support.fragment_lives import FIRST, Around

JOB = """\
name: twice
sources:
  rows: {topic: rows, format: json, columns: {i: int64}}
sinks:
  out: {input: rows, topic: out, format: json}
"""


class Runner:
    """In place of Spark: every partition reports."""

    def __init__(self, folder: Path, state: Path) -> None:
        settings = apart(DEPLOYMENT, "twice", state, 2)
        self.context = context_of(folder, deployment=settings)
        self.orders: list[EpochOrder] = []

    def prepare(self) -> None: ...
    def clean(self) -> None: ...

    def run(self, order: EpochOrder, _record: bytes) -> TaskReport:
        self.orders.append(order)
        gids = [task.gid for task in self.context.layout.tasks]
        reads = {(0, "rows"): ReadCount(50, 500, 0, 0, 0, {})}
        return TaskReport(order.token.epoch, reads, dict.fromkeys(gids, PartitionReport()))


class World(Around):
    """Token log and host of an audit up to epoch `last`."""

    def __init__(self, folder: Path, state: Path, last: int, rate: int | None = None) -> None:
        super().__init__(base=0)
        self.runner, self.last, self.rate = Runner(folder, state), last, rate
        self.ran: list[int] = []

    def token(self, epoch: int, previous: int, **changes: Any) -> int:
        fields = {"revision": "r", "layout": 1, "splits": (), "time_ms": 1_000, **changes}
        self.records.append(Token(1, "u", epoch, previous, **fields))
        return len(self.records)  # its offset, since the log begins at 1

    def read_from(
        self, _t: str, _p: int, offset: int, *, max_records: int, timeout_s: float
    ) -> list[Entry]:
        assert timeout_s > 0
        found = list(enumerate(self.records, FIRST))
        return [Entry(at, codec.encode(r), 0) for at, r in found if at >= offset][:max_records]

    @contextmanager
    def opened(self) -> Iterator[Any]:
        def ran(order: EpochOrder, done: TaskReport, context: FragmentContext) -> None:
            assert context is self.runner.context
            assert done.epoch == order.token.epoch
            self.ran.append(order.token.epoch)

        yield AuditRuntime(
            self.runner, self.plan, self, self, self.last, ran,  # type: ignore[arg-type]
            self.rate,
        )  # fmt: skip

    @property
    def plan(self) -> Plan:
        span = Range("u", "r", 1, 1, self.last, 0, FIRST, None, 0, 0, {})
        return plan_of("twice", "archive", span)

    def live(self) -> list[ProgressRecord]:
        kept: list[ProgressRecord] = []

        class Kept:
            def append(self, record: ProgressRecord) -> int:
                kept.append(record)
                return len(kept)

        progress = LastWord("twice", Kept(), self, lambda: self)  # type: ignore[arg-type,return-value]
        failure = FragmentLife(self.plan, "audit-1", progress, self).run()
        if failure is not None:
            assert self.error is not None
            raise self.error
        return kept

    error: PerseidError | None = None

    def classified(self, error: BaseException) -> PerseidError:
        self.error = super().classified(error)
        return self.error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "job"
    found.mkdir()
    (found / "job.yaml").write_text(JOB)
    return found


def test_it_runs_the_valid_epochs_up_to_the_last_one_muted(folder: Path, tmp_path: Path) -> None:
    """Tokens that were rolled back, other leaders' and later ones do not run."""
    world = World(folder, tmp_path / "audit", last=4)
    first = world.token(1, FIRST)
    second = world.token(2, first)
    world.token(3, second)
    world.records.append(Claim(2, "c2"))
    world.records.append(Rewind(2, "u", 2, second, "a reason"))
    third = len(world.records) + 1
    world.records.append(Token(2, "u", 3, second, "r", 1, (), 1_000, checkpoint=True))
    world.records.append(Token(2, "u", 4, third, "r", 1, (), 1_000, generation=9))
    world.records.append(Token(2, "u", 5, third + 1, "r", 1, (), 1_000))
    reports = world.live()
    assert world.ran == [1, 2, 3, 4]
    assert [order.token_offset for order in world.runner.orders] == [first, second, third,
                                                                     third + 1]  # fmt: skip
    assert all(order.muted for order in world.runner.orders)
    ends = [report for report in reports if isinstance(report, EpochDone)]
    assert [end.fragment for end in ends] == ["whole.audit"] * 4


def test_logs_are_collected_after_the_checkpoints_that_it_passes(
    folder: Path, tmp_path: Path
) -> None:
    world = World(folder, tmp_path / "audit", last=9)
    at = FIRST
    for epoch in range(1, 10):
        at = world.token(epoch, at, checkpoint=epoch % 3 == 0)
    world.live()
    assert [order.collect_epoch for order in world.runner.orders] == [None] * 3 + [3] * 6
    assert all(order.base is None for order in world.runner.orders)


def test_a_log_that_ends_too_early_ends_the_run(folder: Path, tmp_path: Path) -> None:
    world = World(folder, tmp_path / "audit", last=2)
    world.token(1, FIRST)
    with pytest.raises(RetryableError, match="no record at offset 3"):
        world.live()
    assert world.ran == [1]


def test_it_reads_no_faster_than_asked_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("perseid.replay.running.time.sleep", waited.append)
    for rate in (None, 5):
        world = World(folder, tmp_path / "audit", last=2, rate=rate)
        world.token(2, world.token(1, FIRST))
        world.live()
    assert waited[:2] == [0.0, 0.0]
    assert waited[2:] == pytest.approx([10.0, 10.0], abs=0.5)


def test_its_state_is_apart_and_its_clients_are_known(tmp_path: Path) -> None:
    found = apart(DEPLOYMENT, "twice", tmp_path, 3)
    assert found.state == str(tmp_path / "state")
    assert (found.master, found.cores) == ("local[3,4]", 3)
    assert (found.store, found.kafka) == (DEPLOYMENT.store, DEPLOYMENT.kafka)
    assert found.brokers("twice").client == "perseid-audit-twice"
