"""A fragment's reports on an epoch for the progress topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perseid.errors import ReplayDataLost
from perseid.topics.records import EpochDone, EventTime, EventTimes, InputCheck, OperatorState
from perseid.worker.dataflow.source import SplitCount, read_split

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perseid.jobs.model.layout import Layout
    from perseid.records import Plan
    from perseid.topics.records import Token
    from perseid.worker.dataflow.context import EpochOrder, FragmentContext
    from perseid.worker.dataflow.source import Counts, Ranges, SourcePlan


def epoch_done(
    context: FragmentContext, order: EpochOrder, done: dict[str, Any], total_ms: int
) -> EpochDone:
    """`done`: the result of `EpochRunner.run`."""
    checks = tuple(
        InputCheck(epoch, split, source, read.count, read.crc)
        for (epoch, split, source), read in sorted(done["counts"].items())
    )
    reports = done["reports"]
    return EpochDone(
        job_uuid=context.job_uuid,
        generation=context.generation,
        incarnation=context.incarnation,
        epoch=order.token.epoch,
        token_offset=order.token_offset,
        rows_in=sum(check.count for check in checks),
        rows_out=sum(r.get("sent", 0) for r in reports),
        duration_ms=total_ms,
        stage_ms={
            "process": max((r["process_ms"] for r in reports), default=0),
            "commit": max((r["commit_ms"] for r in reports), default=0),
        },
        state_bytes=sum(r.get("state_bytes", 0) for r in reports),
        state_rows=sum(r.get("state_rows", 0) for r in reports),
        dead_letters=sum(read.refused for read in done["counts"].values())
        + sum(r.get("dead_letters", 0) for r in reports),
        checks=checks,
        states=operator_states(context.layout, reports),
        bytes_in=bytes_in(done["counts"]),
    )


def bytes_in(counts: Counts) -> dict[str, int]:
    """Bytes of the values that were read, by source."""
    found: Counter[str] = Counter()
    for (_, _, source), read in counts.items():
        found[source] += read.bytes
    return dict(found)


def operator_states(
    layout: Layout, reports: Iterable[Mapping[str, Any]]
) -> tuple[OperatorState, ...]:
    """By operator, the sums of its partitions' reports."""
    sums: dict[str, list[int]] = {}
    for report in reports:
        if "state_bytes" in report:
            found = sums.setdefault(layout.tasks[report["gid"]].operator, [0, 0])
            found[0] += report["state_bytes"]
            found[1] += report["changed_bytes"]
    return tuple(OperatorState(name, *sums[name]) for name in sorted(sums))


def event_times(plan: Plan, order: EpochOrder, counts: Counts) -> EventTimes:
    """The largest event time per source partition; none when no row of the epoch has one."""
    largest: dict[tuple[str, int], int] = {}
    for (_, _, source), read in counts.items():
        for partition, time_ms in read.event_times.items():
            key = source, partition
            largest[key] = max(time_ms, largest.get(key, time_ms))
    return EventTimes(
        job_uuid=plan.job_uuid,
        generation=plan.generation,
        epoch=order.token.epoch,
        token_offset=order.token_offset,
        late=sum(read.late for read in counts.values()),
        times=tuple(EventTime(*key, largest[key]) for key in sorted(largest)),
    )


def read_again(ranges: Ranges, plans: Iterable[SourcePlan], token: Token) -> Counts:
    """Reads an epoch's input again and counts it as its tasks did; skips what retention removed.

    Used for event times alone: the epoch is done, and records that this revision refuses may have
    been tolerated then.
    """
    found: Counts = {}
    for strict in plans:
        plan = replace(strict, tolerate=True, readers=())
        for split in range(len(token.splits)):
            count = SplitCount()
            try:
                for _ in read_split(ranges, plan, token, split, count):
                    pass
            except ReplayDataLost:
                continue
            found[token.epoch, split, plan.name] = count.read()
    return found
