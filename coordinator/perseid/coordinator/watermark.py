"""The watermark of the next token: the event time up to which all rows are assumed to have arrived.

Workers report the largest event time of each source partition and epoch. A partition's watermark is
that less the source's delay; the job's is the lowest of its partitions. A quiet partition would
hold it back without limit, so it is left out once the tokens of IDLE_MS have named no record of it
and none is waiting. Only issued tokens count, not the time since the last one: the leader may have
been cut off meanwhile (ZooKeeper was away) and will learn of rows next. If all partitions are quiet
the highest counts: all existing rows have arrived.

A token's watermark is a decision that every reader takes from it, so it does not matter that a new
leader knows less of the past. It treats all partitions as active until IDLE_MS have passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.model import JobState
from perseid.topics.records import EventTimes, ProgressRecord, Token

IDLE_MS = 30_000  # three tokens of an idle job; a slower source makes its own rows late


def next_ms(job: JobState) -> int | None:
    """The watermark of a token that is issued now; never below the last token's."""
    last = job.chain.last_token.watermark_ms if job.chain.last_token is not None else None
    delays = _timed(job)
    found = _lowest(job, delays) if delays else None
    return max((w for w in (last, found) if w is not None), default=None)


def moves(job: JobState) -> bool:
    """Whether a token would raise the watermark."""
    last = job.chain.last_token
    return last is not None and next_ms(job) != last.watermark_ms


def with_event_times(job: JobState, record: EventTimes) -> JobState:
    """The job after a worker's report; ignores one of a rolled-back token."""
    if not job.chain.confirmed(record):
        return job
    return replace(job, inputs=job.inputs.with_event_times(record))


def replay_reports(job: JobState, records: Iterable[ProgressRecord]) -> JobState:
    """The job that a new leader has read, with the earlier reports of workers."""
    for record in records:
        if isinstance(record, EventTimes) and record.job_uuid == job.entry.uuid:
            job = with_event_times(job, record)
    return job


def issued(job: JobState, token: Token) -> JobState:
    """Notes the partitions of which the token names records; those never seen count as active."""
    timed = _timed(job)
    if not timed:
        return job
    active = {key: token.time_ms for key in job.inputs.positions if key[0] in timed}
    active |= job.inputs.active_ms
    active |= {k: token.time_ms for k in _named(token) if k[0] in timed}
    return replace(job, inputs=job.inputs.active(active))


def _lowest(job: JobState, delays: Mapping[str, int]) -> int | None:
    places = [key for key in job.inputs.positions if key[0] in delays]
    times = job.inputs.event_times
    known = {k: times[k] - delays[k[0]] for k in places if k in times}
    tokens = job.chain.tokens
    flying = {key for i in tokens[len(tokens) - job.in_flight :] for key in _named(i.token)}
    active = [key for key in places if key in flying or _active(job, key)]
    if not active:
        return max(known.values(), default=None)
    return min(known[key] for key in active) if all(key in known for key in active) else None


def _active(job: JobState, key: tuple[str, int]) -> bool:
    position, last = job.inputs.positions[key], job.chain.last_token
    waiting = job.inputs.ends.get((position.topic, key[1]), 0) > position.offset
    if waiting or last is None:
        return True
    return last.time_ms - job.inputs.active_ms.get(key, last.time_ms) < IDLE_MS


def _named(token: Token) -> set[tuple[str, int]]:
    return {(r.source, r.partition) for r in ranges_of(token) if r.end > r.start}


def _timed(job: JobState) -> dict[str, int]:
    """The sources with event time, and their delays in milliseconds."""
    spec = job.program.spec if job.program is not None else None
    return {n: t.delay_ms for n, t in spec.event_times.items()} if spec is not None else {}
