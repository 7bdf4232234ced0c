"""The steps of an epoch of a fragment whose rows come and go by buffer topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perseid.engine.levels import run_levels
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, ReadCount, TaskReport
from perseid.errors import RetryableError
from perseid.jobs.model.layout import Layout, Task
from perseid.topics.records import Token

TASKS = (
    Task(0, "a", 0, 1, True, None), Task(1, "a", 1, 1, True, None),
    Task(2, "b", 0, 3, True, 0),
)  # fmt: skip
ORDER = EpochOrder(
    Token(
        coordinator_epoch=1, job_uuid="u", epoch=7, previous_offset=0, revision="r", layout=1,
        splits=((),), time_ms=0, watermark_ms=None, checkpoint=False, final=False, checks=(),
        generation=1,
    ),
    70, None,
)  # fmt: skip


class Steps:
    """An inbox and tasks that note what they are asked. `silent`: does not report."""

    def __init__(self, silent: int = -1) -> None:
        self.silent = silent
        self.seen: list[object] = []

    def begin(self, *_args: object) -> None: ...

    def rows(self, _order: EpochOrder, gids: Sequence[int]) -> str:
        self.seen.append(("wait", *gids))
        return f"rows of {gids}"

    def done(self, order: EpochOrder) -> None:
        self.seen.append(("done", order.token_offset))

    def read(self, order: EpochOrder) -> TaskReport:
        self.seen.append("read")
        return TaskReport(order.token.epoch, {(0, "s"): ReadCount(5, 50, 0, 0, 0, {})})

    def run(self, order: EpochOrder, level: int, gids: Sequence[int], rows: Any) -> TaskReport:
        assert rows == f"rows of {gids}"
        self.seen.append(("run", level))
        reports = {gid: PartitionReport(sent=gid) for gid in gids if gid != self.silent}
        return TaskReport(order.token.epoch, partitions=reports)


def test_each_level_waits_for_its_sets_and_all_are_reported() -> None:
    steps = Steps()
    found = run_levels(ORDER, Layout(1, TASKS), steps, steps)
    assert steps.seen == [
        "read", ("wait", 0, 1), ("run", 1), ("wait", 2), ("run", 3), ("done", 70)
    ]  # fmt: skip
    assert {gid: report.sent for gid, report in found.partitions.items()} == {0: 0, 1: 1, 2: 2}
    assert found.reads[0, "s"].count == 5


def test_a_level_that_did_not_report_keeps_the_next_one_from_waiting_in_vain() -> None:
    steps = Steps(silent=1)
    with pytest.raises(RetryableError, match=r"of level 1 the operator partitions \[1\]"):
        run_levels(ORDER, Layout(1, TASKS), steps, steps)
    assert ("wait", 2) not in steps.seen
    assert ("done", 70) not in steps.seen
