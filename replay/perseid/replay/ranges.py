"""Which epochs an audit runs and compares, and with which state it begins. Pure.

A range is of one revision and one layout, and so is everything that runs from its base on: another
revision's epochs, run by this one, would lead to another state. So a checkpoint of another revision
or layout is a base only if it is of the last token before theirs, from which the job itself
continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain as joined
from itertools import groupby
from math import ceil
from random import Random

import numpy as np
import numpy.typing as npt

from perseid.clocks import time_text
from perseid.errors import RefusedError
from perseid.jobs.validation.retention import duration
from perseid.records import CheckpointPointer
from perseid.replay.request import Request, SourceOffsets
from perseid.topics.chain import Base, Chain, Void
from perseid.topics.records import Begin, EpochDone, Token, TokenRecord

NAMED_MAX = 10  # parts of a range, or topics, that an error names

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Past:
    """What the token log still holds of the job's present UUID.

    `base`: the record before the first of `tokens`: the Begin (`begun`), or the token with which
    the trimmed log begins. `tokens`: the valid ones after it, by offset, their epochs without a
    gap. `before_ms`: the time of the last token at or before the base, None if none was seen.
    """

    base: Base
    begun: bool
    tokens: Mapping[int, Token]
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """What an audit runs: all `tokens`, by offset. It compares those from `first_epoch` on.

    `checkpoint`: of `base_epoch`; None: the job's start, with no state. `from_ms`, `to_ms`: the
    times of the first and last compared token.
    """

    job_uuid: str
    revision: str
    layout: int
    first_epoch: int
    last_epoch: int
    base_epoch: int
    base_offset: int
    checkpoint: CheckpointPointer | None
    from_ms: int
    to_ms: int
    tokens: Mapping[int, Token] = field(repr=False)

    @property
    def base(self) -> str:
        """As in `findings.Audit`."""
        return f"checkpoint {self.base_epoch}" if self.checkpoint is not None else "scratch"

    @property
    def redistributed(self) -> bool:
        """Whether the checkpoint is of another layout, so that its rows are distributed again."""
        return self.checkpoint is not None and self.checkpoint.layout != self.layout


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an audit of a range would do. `bytes` and `seconds` are None if no epoch was measured.

    `records`: at most, since markers and aborted records of transactions count. `measured`: from
    how many epochs bytes and seconds were estimated.
    """

    epochs: int
    compared: int
    records: int
    measured: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Sample:
    """The part of a range that is audited: `chosen` of `intervals` between checkpoints.

    `parts`: first and last epochs, in order; what is next to each other is one.
    """

    seed: int
    intervals: int
    chosen: int
    parts: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        named = [f"{first} to {last}" for first, last in self.parts]
        return (
            f"a sample of {self.chosen} of {self.intervals} intervals between checkpoints, drawn "
            f"with seed {self.seed}: epochs {_some(named)}"
        )


def past(entries: Iterable[tuple[int, TokenRecord]], *, trimmed: bool) -> Past | None:
    """From the token log's committed records by offset; None without a Begin or a token.

    `trimmed`: the log begins above offset 0, so its first record is one that counts.
    """
    rest = iter(entries)
    first = next(rest, None)
    if first is None:
        return None
    base, chain = None, Chain()
    tokens: dict[int, Token] = {}
    begun, before_ms = False, None
    if trimmed and isinstance(first[1], Begin | Token):
        chain = Chain(Base(first[1].job_uuid, first[1].epoch, first[0]))
    for offset, record in joined([first], rest):
        seen = chain.feed(offset, record)
        if isinstance(seen, Void) or seen.kind == "claim":
            continue
        if seen.kind == "token" and seen.token is not None:
            tokens[offset] = seen.token
        elif seen.kind == "rewind":
            while tokens and next(reversed(tokens)) > chain.tip_offset:
                tokens.popitem()
        else:  # the base, or a Begin
            if tokens:
                before_ms = tokens[next(reversed(tokens))].time_ms
            elif seen.token is not None:
                before_ms = seen.token.time_ms
            base, begun = Base(chain.job_uuid, chain.tip_epoch, offset), seen.token is None
            tokens = {}
    return None if base is None else Past(base, begun, tokens, before_ms)


def window(
    request: Request, checkpoints: Iterable[CheckpointPointer], now_ms: int
) -> tuple[int, int | None] | None:  # fmt: skip
    """Between which offsets of the token log, both included, a range is; None: unknown.

    From the newest checkpoint before it to the oldest one after it (None: to the log's end), up to
    which no token is rolled back any more. What these records resolve, the whole log would too;
    why they do not, only that shows.
    """
    listed = sorted(checkpoints, key=lambda p: p.epoch)
    if request.epochs is not None:
        first, last = request.epochs
        before = [p for p in listed if p.epoch < first]
        after = [p for p in listed if last is not None and p.epoch >= last]
    else:
        from_ms = request.from_ms if request.last_ms is None else now_ms - request.last_ms
        to_ms = request.to_ms
        before = [p for p in listed if from_ms is not None and p.time_ms < from_ms]
        after = [p for p in listed if to_ms is not None and p.time_ms >= to_ms]
    if not before:
        return None
    return before[-1].token_offset, after[0].token_offset if after else None


def resolve(
    request: Request, past: Past | None, checkpoints: Iterable[CheckpointPointer], *, job: str,
    committed_epoch: int, now_ms: int, horizon_s: float | None = None,
) -> Range:  # fmt: skip
    """The range that is asked for, and the newest base for it.

    `checkpoints`: the complete ones that are kept. `committed_epoch`: the last one that all ledger
    partitions hold. `horizon_s`: the job's, for messages.

    Raises:
        RefusedError: it cannot be audited; the message has what can.
    """
    if past is None or not past.tokens or committed_epoch <= past.base.epoch:
        raise RefusedError(
            f"{job} has committed no epoch that its token log still holds: there is nothing to "
            f"audit yet; `perseid jobs show {job}` shows what it does"
        )
    listed = list(past.tokens.values())
    horizon = _horizon(horizon_s)
    first, last = _epochs(request, past, listed, job, committed_epoch, now_ms, horizon)
    if last > committed_epoch:
        raise RefusedError(
            f"epoch {last} of {job} is not committed, the last one that is: {committed_epoch}; ask "
            f"for --epochs {min(first, committed_epoch)}:{committed_epoch}"
        )
    if first <= past.base.epoch:
        raise _too_early(past, job, f"epoch {first}", horizon)
    start = past.base.epoch + 1  # of the first in `listed`
    compared = listed[first - start : last - start + 1]
    _of_one_revision(compared, job)
    revision, layout = compared[0].revision, compared[0].layout
    earliest = first
    while earliest > start and _kind(listed[earliest - 1 - start]) == (revision, layout):
        earliest -= 1
    offsets = [past.base.offset, *past.tokens]
    usable = sorted(
        (p for p in checkpoints if _is_usable(p, earliest, last, past.base.epoch, offsets)),
        key=lambda p: p.epoch,
    )
    checkpoint = next((p for p in reversed(usable) if p.epoch < first), None)
    if checkpoint is None and not (past.begun and earliest == start):
        raise _no_base(job, first, last, usable, horizon)
    base_epoch = past.base.epoch if checkpoint is None else checkpoint.epoch
    run = slice(base_epoch - past.base.epoch, last - past.base.epoch)
    return Range(
        past.base.job_uuid, revision, layout, first, last, base_epoch,
        offsets[base_epoch - past.base.epoch], checkpoint, compared[0].time_ms,
        compared[-1].time_ms, dict(list(past.tokens.items())[run]),
    )  # fmt: skip


def sampled(
    found: Range, checkpoints: Iterable[CheckpointPointer], share: Fraction, seed: int
) -> Sample:
    """A share of the range's intervals between checkpoints, drawn with `seed`; at least one.

    Each can begin at its own checkpoint, so the others need not run. `checkpoints`: as in
    `resolve`.
    """
    epochs = {offset: token.epoch for offset, token in found.tokens.items()}
    ends = {p.epoch for p in checkpoints if epochs.get(p.token_offset) == p.epoch}
    inner = sorted(e for e in ends if found.first_epoch <= e < found.last_epoch)
    firsts = [found.first_epoch, *(e + 1 for e in inner)]
    intervals = list(zip(firsts, [*inner, found.last_epoch], strict=True))
    count = ceil(share * len(intervals))
    chosen = sorted(Random(seed).sample(intervals, count))
    parts = chosen[:1]
    for first, last in chosen[1:]:
        if first == parts[-1][1] + 1:  # one run, since no state has to be restored between them
            parts[-1] = parts[-1][0], last
        else:
            parts.append((first, last))
    return Sample(seed, len(intervals), count, tuple(parts))


def dry_run(found: Range, past: Past, done: Iterable[EpochDone]) -> Estimate:
    """What the range would cost, by what the progress topic has of the job's epochs.

    Duration and bytes are fitted as a part for each epoch and a part for each record, because
    epochs after a stop are larger than the ones that were measured.
    """
    reports = {
        (report.token_offset, report.fragment): report
        for report in done
        if report.token_offset in past.tokens and report.job_uuid == past.base.job_uuid
    }  # of an epoch that ran again the last one
    measured: dict[int, tuple[int, int]] = {}  # by token offset; fragments share an epoch
    for (offset, _), report in reports.items():
        size, took_ms = measured.get(offset, (0, 0))
        size += sum(report.bytes_in.values())
        measured[offset] = size, max(took_ms, report.duration_ms)
    records = np.array([t.records for t in found.tokens.values()], float)
    compared = found.last_epoch - found.first_epoch + 1
    total = int(records.sum())
    if not measured:
        return Estimate(len(records), compared, total, 0, None, None)
    known = np.array([past.tokens[offset].records for offset in measured], float)
    sizes, took = np.array(list(measured.values()), float).T
    return Estimate(
        len(records), compared, total, len(measured), round(_fitted(known, sizes, records)),
        _fitted(known, took, records) / 1000,
    )  # fmt: skip


def _fitted(known: Floats, cost: Floats, records: Floats) -> float:
    """The cost of epochs with `records` by the line through known ones, never one that falls."""
    spread = known - known.mean()
    slope = float(spread @ cost / (spread @ spread)) if spread.any() else 0.0
    slope = max(0.0, min(slope, float(cost.mean() / max(known.mean(), 1.0))))
    return float((cost.mean() + slope * (records - known.mean())).clip(0).sum())


def _epochs(
    request: Request, past: Past, listed: Sequence[Token], job: str, committed: int, now_ms: int,
    horizon: str,
) -> tuple[int, int]:  # fmt: skip
    """First and last epoch, which may still be too early or not committed."""
    if request.epochs is not None:
        first, last = request.epochs
        return first, max(first, committed) if last is None else last
    if request.offsets is not None:
        return _of_offsets(request.offsets, listed, past, job, horizon)
    from_ms = request.from_ms if request.last_ms is None else now_ms - request.last_ms
    if from_ms is not None and past.before_ms is not None and from_ms <= past.before_ms:
        raise _too_early(past, job, f"the time {time_text(from_ms)}", horizon)
    held = listed[: committed - past.base.epoch]
    times = np.array([token.time_ms for token in held])
    oldest_ms, newest_ms = int(times.min()), int(times.max())
    from_ms = oldest_ms if from_ms is None else from_ms
    to_ms = newest_ms + 1 if request.to_ms is None else request.to_ms
    rows = np.flatnonzero((times >= from_ms) & (times < to_ms))
    if not len(rows):
        raise RefusedError(
            f"no committed epoch of {job} has its time from {time_text(from_ms)} to before "
            f"{time_text(to_ms)}: those that are kept, {held[0].epoch} to {held[-1].epoch}, are "
            f"from {time_text(oldest_ms)} to {time_text(newest_ms)}"
        )
    return held[int(rows[0])].epoch, held[int(rows[-1])].epoch


def _of_offsets(
    wanted: SourceOffsets, listed: Sequence[Token], past: Past, job: str, horizon: str
) -> tuple[int, int]:
    """The epochs that read them; of several sources of one topic the earliest and the latest."""
    reads = [
        (token.epoch, r.start, r.end) for token in listed for split in token.splits for r in split
        if (r.topic, r.partition) == (wanted.topic, wanted.partition)
    ]  # fmt: skip
    place = f"{wanted.topic}[{wanted.partition}]"
    if not reads:
        raise RefusedError(f"--offsets: {job} does not read {place}; it reads {_read_of(listed)}")
    epochs, starts, ends = np.array(reads, np.int64).T
    low, high = int(starts.min()), int(ends.max())
    if wanted.first < low:
        why = f"{job} began to read it there" if past.begun else "what it read before is trimmed"
        raise RefusedError(
            f"offset {wanted.first} of {place} is before {low}, the first one that the epochs of "
            f"the token log read ({why}); ask for offsets from {low} on"
            + ("" if past.begun else horizon)
        )
    if wanted.last >= high:
        raise RefusedError(
            f"offset {wanted.last} of {place} is not read yet: {job} has read it up to {high - 1}; "
            f"ask for offsets to {high - 1}"
        )
    hit = epochs[(starts <= wanted.last) & (ends > wanted.first)]
    return int(hit.min()), int(hit.max())


def _read_of(listed: Sequence[Token]) -> str:
    found: dict[str, int] = {}
    for token in listed:
        for read in (r for split in token.splits for r in split):
            found[read.topic] = max(found.get(read.topic, 0), read.partition)
    named = [f"{topic} partition 0 to {top}" for topic, top in sorted(found.items())]
    return _some(named) or "nothing"


def _of_one_revision(compared: Sequence[Token], job: str) -> None:
    parts = [list(group) for _, group in groupby(compared, _kind)]
    if len(parts) == 1:
        return
    named = [
        f"--epochs {part[0].epoch}:{part[-1].epoch} (revision {part[0].revision}, layout "
        f"{part[0].layout})" for part in parts
    ]  # fmt: skip
    raise RefusedError(
        f"epochs {compared[0].epoch} to {compared[-1].epoch} of {job} are of {len(parts)} "
        f"revisions or layouts, and an audit is of one; ask for each: {_some(named)}"
    )


def _kind(token: Token) -> tuple[str, int]:
    return token.revision, token.layout


def _is_usable(
    pointer: CheckpointPointer, earliest: int, last: int, kept: int, offsets: Sequence[int]
) -> bool:
    """Whether no epoch of another revision or layout runs after it, and its token counts.

    `earliest`: the first epoch of the range's revision and layout without a gap.
    """
    if not max(kept, earliest - 1) <= pointer.epoch < last:
        return False
    return offsets[pointer.epoch - kept] == pointer.token_offset


def _horizon(horizon_s: float | None) -> str:
    """How much of its past the job keeps, and what makes that more."""
    if horizon_s is None:
        return '; `audit: {horizon: "7d"}` in job.yaml keeps more of its past, from then on'
    return f"; its audit horizon is {duration(round(horizon_s * 1000))}"


def _too_early(past: Past, job: str, what: str, horizon: str) -> RefusedError:
    why = (
        f"{job} was started again after epoch {past.base.epoch}, and what was before is not part "
        "of it" if past.begun else
        f"the token log begins with epoch {past.base.epoch}, and what was before is trimmed"
    )  # fmt: skip
    first = next(iter(past.tokens.values()))
    return RefusedError(
        f"{what} of {job} is before what is kept: {why}; ask for epochs from {first.epoch} on, or "
        f"times from {time_text(first.time_ms)} on" + ("" if past.begun else horizon)
    )


def _no_base(
    job: str, first: int, last: int, usable: Sequence[CheckpointPointer], horizon: str
) -> RefusedError:
    what = f"epoch {first} of {job} cannot be audited: no checkpoint before it is kept from which"
    if not usable:
        return RefusedError(
            f"{what} its revision ran, nor the job's start; the epochs after the next checkpoint "
            f"can be (`perseid checkpoint {job}`){horizon}"
        )
    return RefusedError(
        f"{what} its revision ran; the first one that can be is {usable[0].epoch + 1}: ask for "
        f"--epochs {usable[0].epoch + 1}:{last}{horizon}"
    )


def _some(named: Sequence[str]) -> str:
    more = f", and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
    return ", ".join(named[:NAMED_MAX]) + more
