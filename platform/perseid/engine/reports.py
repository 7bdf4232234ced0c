"""A fragment's reports on an epoch for the progress topic."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from perseid.topics.records import EpochDone, EventTime, EventTimes, InputCheck, OperatorState

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import Buffered, Reads, TaskReport
    from perseid.jobs.model.layout import Layout
    from perseid.records import Plan


def epoch_done(
    plan: Plan, incarnation: str, layout: Layout, order: EpochOrder, done: TaskReport, total_ms: int
) -> EpochDone:
    """`done`: the merged reports of the epoch's tasks. A muted epoch reports no input checks."""
    epoch, partitions = order.token.epoch, done.partitions.values()
    sizes = [report.state for report in partitions if report.state is not None]
    checks = tuple(
        InputCheck(epoch, split, source, read.count, read.crc)
        for (split, source), read in sorted(done.reads.items())
    )
    return EpochDone(
        job_uuid=plan.job_uuid,
        generation=plan.generation,
        incarnation=incarnation,
        epoch=epoch,
        token_offset=order.token_offset,
        rows_in=sum(read.count for read in done.reads.values()),
        rows_out=sum(report.sent for report in partitions),
        duration_ms=total_ms,
        stage_ms={
            "process": max((report.process_ms for report in partitions), default=0),
            "commit": max((report.commit_ms for report in partitions), default=0),
        },
        state_bytes=sum(size.bytes for size in sizes),
        state_rows=sum(size.rows for size in sizes),
        dead_letters=sum(read.refused for read in done.reads.values())
        + sum(report.dead_letters for report in partitions),
        checks=() if order.muted else checks,
        states=_operator_states(layout, done),
        bytes_in=_bytes_in(done.reads),
        fragment=plan.only.name,
        buffered=_buffered(done.buffered),
    )


def _bytes_in(reads: Reads) -> dict[str, int]:
    """Bytes of the values that were read, by source."""
    found: Counter[str] = Counter()
    for (_, source), read in reads.items():
        found[source] += read.bytes
    return dict(found)


def _buffered(sent: Buffered) -> dict[str, int]:
    """Bytes that were sent, by the operator that reads them."""
    found: Counter[str] = Counter()
    for (reader, _, _), size in sent.items():
        found[reader] += size
    return dict(found)


def _operator_states(layout: Layout, done: TaskReport) -> tuple[OperatorState, ...]:
    """By operator, the sums of its partitions' reports."""
    sums: dict[str, list[int]] = {}
    for gid, report in done.partitions.items():
        if report.state is not None:
            found = sums.setdefault(layout.task(gid).operator, [0, 0])
            found[0] += report.state.bytes
            found[1] += report.state.changed_bytes
    return tuple(OperatorState(name, *sums[name]) for name in sorted(sums))


def event_times(plan: Plan, order: EpochOrder, reads: Reads) -> EventTimes:
    """The largest event time per source partition; none when no row of the epoch has one."""
    largest: dict[tuple[str, int], int] = {}
    for (_, source), read in reads.items():
        for partition, time_ms in read.event_times.items():
            key = source, partition
            largest[key] = max(time_ms, largest.get(key, time_ms))
    return EventTimes(
        job_uuid=plan.job_uuid,
        generation=plan.generation,
        epoch=order.token.epoch,
        token_offset=order.token_offset,
        late=sum(read.late for read in reads.values()),
        times=tuple(EventTime(*key, largest[key]) for key in sorted(largest)),
        fragment=plan.only.name,
    )
