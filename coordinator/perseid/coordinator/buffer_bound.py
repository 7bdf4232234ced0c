"""Holds input back while a spread job's buffer topics are near their bound. Pure.

    below 80 %      tokens are granted as always
    from 80 % on    the next token is a checkpoint, without input and of whole parts, and no other
                    is granted until it is complete; again, until there is room

A buffer keeps what followed the oldest kept checkpoint, since a restore falls back to that one when
newer ones are damaged. A checkpoint of whole parts shares no file with an older one, so once it is
complete, only it and its predecessor are kept: two at most leave a buffer with one epoch without
input, and a restore can do what it could before. Without input, an attempt that fails adds nothing.

How much a buffer holds is what the fragments report as sent (`EpochDone.buffered`): also what a
reader that is slow or dead has not read, and what a restored fragment has sent again. Epochs under
way count as the last one of each fragment. Attempts of tasks that failed are not counted, nor that
a reader trims with its next epoch only; epochs that are under way may be larger: 20 % are for that.

Rejected:
- At 100 % the slowest reader is dropped, and restores. It frees nothing: the reader then needs the
  buffer from a checkpoint on, more than before, and no other place has those rows.
- Trimming to the newest checkpoint, or keeping fewer: a damaged file would leave nothing to restore
  from.
- Bytes as readers know them: they read no further than their epoch, so what waits for one that is
  late, the case that fills a buffer, would be unknown. Kafka's client has no call for a topic's
  size.
- Smaller epochs near the bound: a second control of their size, for the one case that exceeds the
  bound, epochs of more than the 20 %.
"""

from __future__ import annotations

from collections import Counter

from perseid.coordinator.job.buffers import Sent
from perseid.coordinator.model import JobState
from perseid.topics.records import EpochDone

NEAR = 0.8  # of the bound: what remains is for epochs that are under way


def counted(job: JobState, record: EpochDone) -> JobState:
    """The job after a fragment's report of an epoch, which counts as often as it was run."""
    if job.spread is None:
        return job
    collecting = job.checkpointing.collecting
    known = [p.epoch for p in job.kept] + ([collecting.epoch] if collecting is not None else [])
    after = max((epoch for epoch in known if epoch < record.epoch), default=0)
    return job.with_buffers(
        job.buffers.counted(record.fragment, record.buffered, after, _oldest(job))
    )


def bytes_max(job: JobState) -> int | None:
    """The bound of each buffer topic; None of a job without."""
    if job.spread is None or job.program is None:
        return None
    return job.program.spec.placement.buffer_bytes


def held(job: JobState) -> dict[str, int]:
    """Bytes in each buffer topic, by the operator that reads it; empty without."""
    return job.buffers.held(_oldest(job)) if job.spread is not None else {}


def is_near(job: JobState) -> bool:
    """Whether only a token that lets buffers be trimmed may be issued."""
    return _fullest(job) is not None


def reason(job: JobState) -> str:
    """Why no input is taken, for users; empty while it is."""
    fullest = _fullest(job)
    return _text(job, fullest[1], f" ({fullest[0]} bytes)") if fullest is not None else ""


def noted(job: JobState) -> JobState:
    """With an event when input is held back, if users do not see one already."""
    fullest = _fullest(job)
    if fullest is None:
        return job
    text = _text(job, fullest[1], "")
    return job if text in job.health.events else job.with_events(text)


def _fullest(job: JobState) -> tuple[int, str] | None:
    """What a topic near the bound holds, and its reader; None if there is room in all."""
    limit = bytes_max(job)
    if limit is None or _is_freed(job):
        return None
    fullest = max(((size, reader) for reader, size in _expected(job).items()), default=None)
    return fullest if fullest is not None and fullest[0] >= NEAR * limit else None


def _text(job: JobState, reader: str, size: str) -> str:
    return (
        f"no input is taken until a checkpoint is complete: the buffer topic of {reader} is near "
        f"its bound of {bytes_max(job)} bytes{size}; if that recurs, raise "
        "`placement.bufferBytes` or lower `faultTolerance.checkpoint.period`"
    )


def _expected(job: JobState) -> Sent:
    """What the topics hold once all that is issued has run."""
    found, tip = Counter(held(job)), job.chain.tip.epoch
    for own in job.ownership.primaries:
        waiting = tip - job.ownership.done_of(own)
        last = job.buffers.last.get(own.fragment, {})
        found.update({reader: waiting * size for reader, size in last.items()})
    return found


def _is_freed(job: JobState) -> bool:
    """Whether another checkpoint would free nothing: then one epoch alone is above the bound."""
    return bool(job.kept) and job.kept[-1].epoch >= job.chain.tip.epoch - 1


def _oldest(job: JobState) -> int:
    return job.kept[-1].epoch if job.kept else 0
