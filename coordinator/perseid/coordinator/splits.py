"""Which source task reads which part of an epoch. Pure: derived from the token's ranges.

Partitions are assigned whole. If that gives one task much more than the others (a topic of one
partition, or one partition that holds most records), ranges are split: tasks then read pieces of
one partition that follow each other in task order. Consumers take rows in that order, so each
consumer still sees a partition's rows in order. Only rows that reach a sink without a shuffle by
key would lose it: each task has its own writer and commits separately.

A job of several fragments has one split for each of them, whatever it holds: `by_share`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from heapq import heapreplace

from perseid.jobs.model.layout import host
from perseid.jobs.model.spec import JobSpec
from perseid.jobs.model.spread import Spread
from perseid.topics.records import SourceRange, Split

SPLIT_RECORDS_MIN = 20_000  # below it, a second source task costs more than it saves
UNEVEN = 1.2  # largest source task over the mean, above which ranges are balanced


def ordered_sources(spec: JobSpec) -> set[str]:
    """The sources whose ranges must not be split: a sink keeps the order of what one task read."""
    kept = (sink.input for sink in spec.sinks.values() if sink.order == "required")
    return {host(spec, stream) for stream in kept} & spec.sources.keys()


def split(
    ranges: Sequence[SourceRange], tasks_max: int, ordered: Collection[str] = (),
    places: Iterable[tuple[str, int]] = (),
) -> tuple[Split, ...]:  # fmt: skip
    """Assigns the ranges to source tasks; never splits those of `ordered` sources.

    First round robin over all `places` (source, partition) of the job, including those without a
    range, so that a task reads the same partitions in every epoch and reuses its consumers. If that
    is uneven, largest first, each to the task with the fewest records. If that is uneven too,
    ranges are split.
    """
    records = _records(ranges)
    tasks = 1 if records < SPLIT_RECORDS_MIN else max(1, tasks_max)
    in_order = sorted(ranges, key=lambda r: (r.source, r.partition))
    whole = min(tasks, len(in_order))
    dealt = _in_turn(in_order, whole, places)
    if _largest(dealt) * whole > UNEVEN * records:
        dealt = _balanced(in_order, whole)
    if _largest(dealt) * tasks > UNEVEN * records:
        dealt = min(dealt, _cut(in_order, tasks, ordered), key=_largest)
    return tuple(tuple(found) for found in dealt if found)


def by_share(ranges: Iterable[SourceRange], spread: Spread) -> tuple[Split, ...]:
    """One split for each fragment, in their order; empty where a fragment has nothing to read."""
    dealt: list[list[SourceRange]] = [[] for _ in spread.shares]
    for r in sorted(ranges, key=lambda r: (r.source, r.partition)):
        dealt[spread.split_of(r.source, r.partition)].append(r)
    return tuple(map(tuple, dealt))


def _in_turn(
    in_order: Sequence[SourceRange], tasks: int, places: Iterable[tuple[str, int]]
) -> list[list[SourceRange]]:
    known = sorted({*places, *((r.source, r.partition) for r in in_order)})
    turn = {place: at % tasks for at, place in enumerate(known)} if tasks > 1 else {}
    dealt: list[list[SourceRange]] = [[] for _ in range(tasks)]
    for r in in_order:
        dealt[turn.get((r.source, r.partition), 0)].append(r)
    return dealt


def _balanced(in_order: Iterable[SourceRange], tasks: int) -> list[list[SourceRange]]:
    dealt: list[list[SourceRange]] = [[] for _ in range(tasks)]
    least = [(0, task) for task in range(tasks)]  # a heap: the records that each task has so far
    for r in sorted(in_order, key=lambda r: r.start - r.end):
        records, task = least[0]
        heapreplace(least, (records + r.end - r.start, task))
        dealt[task].append(r)
    return [sorted(d, key=lambda r: (r.source, r.partition)) for d in dealt]


def _cut(
    in_order: Sequence[SourceRange], tasks: int, ordered: Collection[str]
) -> list[list[SourceRange]]:
    """Even pieces of all ranges in a row."""
    size = -(-_records(in_order) // tasks)
    dealt: list[list[SourceRange]] = [[]]
    room = size  # left in the last task
    for found in in_order:
        rest = found
        while len(dealt) < tasks and room < rest.end - rest.start:
            if room > 0 and rest.source not in ordered:
                dealt[-1].append(replace(rest, end=rest.start + room))
                rest = replace(rest, start=rest.start + room)
            elif room == size:
                break  # it fits into no task
            dealt.append([])
            room = size
        dealt[-1].append(rest)
        room -= rest.end - rest.start
    return dealt


def _largest(dealt: Iterable[Sequence[SourceRange]]) -> int:
    return max(map(_records, dealt), default=0)


def _records(ranges: Iterable[SourceRange]) -> int:
    return sum(r.end - r.start for r in ranges)
