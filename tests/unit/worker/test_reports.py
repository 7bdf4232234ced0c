"""What the tasks of an epoch report: merged by the driver, and reported to the coordinator."""

from __future__ import annotations

import pickle
from random import Random

from perseid.engine.order import EpochOrder
from perseid.engine.reports import epoch_done
from perseid.engine.task_report import (
    PartitionReport,
    ReadCount,
    StateSize,
    TaskReport,
)
from perseid.jobs.model.layout import build
from perseid.records import Plan
from perseid.topics.records import InputCheck, OperatorState, Token
from perseid.worker.spark.epochs import NO_EPOCH, Merging
from support.coordinator import job_spec

PLAN = Plan.fused("job", "uuid", 3, "w1-a", "r1", "archive", 1, 7, 0)
ORDER = EpochOrder(Token(1, "uuid", 8, 4, "r1", 1, (), 1_000), 5, None)
READS = {
    (split, source): ReadCount(10 + split, 100, 7, 1, 0, {})
    for source in ("lines", "more") for split in range(2)
}  # fmt: skip


def done(report: TaskReport) -> tuple[int, int, int]:
    """Records in and out, and dead letters, as reported to the coordinator."""
    found = epoch_done(PLAN, "w1-a", build(job_spec(parallelism=2), 1), ORDER, report, 9)
    return found.rows_in, found.rows_out, found.dead_letters


def test_partitions_of_an_operator_are_summed_and_what_has_no_state_is_left_out() -> None:
    layout = build(job_spec(parallelism=2), 1)
    first, second = (task.gid for task in layout.stateful_tasks)
    partitions = {
        first: PartitionReport(3, 40, 5, 1, StateSize(100, 9, 7)),
        99: PartitionReport(30, 4, 6),
        second: PartitionReport(1, 2, 0, 0, StateSize(20, 2, 1)),
    }
    report = TaskReport(8, READS, partitions)
    found = epoch_done(PLAN, "w1-a", layout, ORDER, report, 50)
    assert found.states == (OperatorState("counts", 120, 8),)
    assert (found.state_bytes, found.state_rows) == (120, 11)
    assert (found.rows_in, found.rows_out, found.dead_letters) == (42, 11, 5)
    assert found.stage_ms == {"process": 30, "commit": 40}
    assert found.bytes_in == {"lines": 200, "more": 200}
    assert found.checks == tuple(
        InputCheck(8, split, source, 10 + split, 7)
        for split in range(2) for source in ("lines", "more")
    )  # fmt: skip
    assert report.state_bytes == {first: 100, second: 20}
    assert epoch_done(PLAN, "w1-a", layout, ORDER, TaskReport(8), 50).states == ()


def test_a_task_that_runs_again_or_twice_counts_once() -> None:
    """In any order, and whatever attempts of earlier epochs still report."""
    pieces = [TaskReport(8, {key: read}) for key, read in READS.items()]
    pieces += [TaskReport(8, partitions={gid: PartitionReport(sent=gid)}) for gid in range(4)]
    stragglers = [TaskReport(7, {(5, "lines"): READS[0, "lines"]}, {9: PartitionReport(sent=99)})]
    merging, chance = Merging(), Random(5)
    for _ in range(20):
        found = merging.zero(TaskReport(NO_EPOCH))
        updates = [*pieces, *chance.choices(pieces, k=6), *stragglers]
        chance.shuffle(updates)
        for update in updates:
            sent: TaskReport = pickle.loads(pickle.dumps(update))  # as Spark sends it
            found = merging.addInPlace(found, sent)
        assert (found.epoch, dict(found.reads)) == (8, READS)
        assert sorted(found.partitions) == [0, 1, 2, 3]
        assert done(found) == (42, 6, 4)
