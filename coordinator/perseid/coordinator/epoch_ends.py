"""The end of an epoch of a job of several fragments: each reports its own part. Pure.

Fragments report their epochs in order, and some may be many epochs ahead of others. An epoch has
ended once every fragment has reported it: then its parts count, as one report. A report that is
missing when a later epoch has ended was lost; that epoch counts with the reports that came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from perseid.coordinator.job.inputs import Ending
from perseid.records import WHOLE
from perseid.topics.records import EpochDone, OperatorState


def reported(
    ending: tuple[Ending, ...], record: EpochDone, fragments: Collection[str]
) -> tuple[tuple[Ending, ...], tuple[EpochDone, ...]]:
    """The epochs that have not ended after this report, and those that have now, in their order.

    `fragments`: all of the job. Of the ended ones only the last is sure to be complete.
    """
    if record.fragment not in fragments:
        return ending, ()
    if len(fragments) == 1:
        return ending, (record,)
    by_epoch = {one.report.epoch: one for one in ending}
    known = by_epoch.get(record.epoch)
    if known is None:
        known = Ending(replace(record, fragment=WHOLE), frozenset({record.fragment}))
    elif record.fragment not in known.fragments:
        known = Ending(merged(known.report, record), known.fragments | {record.fragment})
    found = sorted({**by_epoch, record.epoch: known}.items())
    if not known.fragments.issuperset(fragments):
        return tuple(one for _, one in found), ()
    return (
        tuple(one for epoch, one in found if epoch > record.epoch),
        tuple(one.report for epoch, one in found if epoch <= record.epoch),
    )


def merged(one: EpochDone, other: EpochDone) -> EpochDone:
    """Both parts of an epoch: sums, and the longest times, since they ran at the same time."""
    return replace(
        one,
        generation=max(one.generation, other.generation),
        rows_in=one.rows_in + other.rows_in,
        rows_out=one.rows_out + other.rows_out,
        duration_ms=max(one.duration_ms, other.duration_ms),
        stage_ms={
            name: max(one.stage_ms.get(name, 0), other.stage_ms.get(name, 0))
            for name in sorted(one.stage_ms.keys() | other.stage_ms.keys())
        },
        state_bytes=one.state_bytes + other.state_bytes,
        state_rows=one.state_rows + other.state_rows,
        dead_letters=one.dead_letters + other.dead_letters,
        checks=tuple(
            sorted({*one.checks, *other.checks}, key=lambda c: (c.epoch, c.split, c.source))
        ),
        states=_states(one.states, other.states),
        bytes_in=_sums(one.bytes_in, other.bytes_in),
        buffered=_sums(one.buffered, other.buffered),
    )  # fmt: skip


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _states(
    one: tuple[OperatorState, ...], other: tuple[OperatorState, ...]
) -> tuple[OperatorState, ...]:
    size: Counter[str] = Counter()
    changed: Counter[str] = Counter()
    for state in (*one, *other):
        size[state.operator] += state.bytes
        changed[state.operator] += state.changed_bytes
    return tuple(OperatorState(name, size[name], changed[name]) for name in sorted(size))
