"""`perseid checkpoint`: requests a checkpoint now, and waits for it.

The request is an epoch in the job's entry: the leader takes checkpoints until there is one above
it. The epoch is the last one in the token log at the time of the request, so the checkpoint is of a
later moment. The pointer to the checkpoint is the answer; no other reply is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perseid.clocks import Clock
from perseid.errors import RefusedError, ReplayDataLost
from perseid.jobs.operations import report
from perseid.jobs.operations.steering import awaited, stored_entry
from perseid.records import CheckpointPointer, JobEntry, JobStatus
from perseid.registry import Registry
from perseid.topics import codec, names
from perseid.topics.records import Begin, Rewind, Token

if TYPE_CHECKING:
    from perseid.topics.admin import TopicReader
    from perseid.topics.log import LogReader

READ_TIMEOUT_S = 10.0
RECORDS_READ = 64  # at a time, from the end: only the claims of leaders have no epoch


def last_epoch(topics: TopicReader, logs: LogReader, job: str) -> int:
    """The epoch of the newest record of the job's token log; 0 for an empty one."""
    place = (names.tokens(job), 0)
    end, low = topics.ends([place])[place], topics.starts([place])[place]
    while end > low:
        start = max(low, end - RECORDS_READ)
        try:
            found = logs.read_range(*place, start, end, timeout_s=READ_TIMEOUT_S)
        except ReplayDataLost as trimmed:  # meanwhile, after a checkpoint
            low = trimmed.earliest
            continue
        for entry in reversed(found):
            record = codec.decode_token(place[0], entry.offset, entry.value)
            if isinstance(record, Begin | Rewind | Token):
                return record.epoch
        end = start
    return 0


def ask(registry: Registry, job: str, above: int) -> tuple[JobEntry, int]:
    """The entry that requests a checkpoint above epoch `above`. Nothing is written."""
    stored = stored_entry(registry, job)
    entry = stored.value
    if entry.desired != "running":
        raise RefusedError(
            f"{job} is {entry.desired}, so its newest checkpoint stays as it is; "
            f"`perseid jobs start {job}` starts it, `perseid jobs show {job}` lists checkpoints"
        )
    _not_failed(entry, registry.status(job))
    return replace(entry, checkpoint_above=above), stored.version


def wait(registry: Registry, clock: Clock, entry: JobEntry, timeout_s: float) -> CheckpointPointer:
    """Waits for the checkpoint; PermanentError when the time is over, the request stays valid."""
    return awaited(lambda: answered(registry, entry), registry, clock, entry, timeout_s)


def answered(registry: Registry, entry: JobEntry) -> CheckpointPointer | None:
    """The requested checkpoint, None while there is none."""
    assert entry.checkpoint_above is not None
    pointers = registry.pointers(entry.name)
    if pointers is not None and pointers.job_uuid == entry.uuid and pointers.pointers:
        newest = pointers.pointers[0]
        if newest.epoch > entry.checkpoint_above:
            return newest
    now = registry.job_entry(entry.name)
    if now is None or now.value.uuid != entry.uuid or now.value.desired != "running":
        raise RefusedError(f"{entry.name}: another user stopped or removed it meanwhile")
    _not_failed(entry, registry.status(entry.name))
    return None


def _not_failed(entry: JobEntry, status: JobStatus | None) -> None:
    if status is None or status.job_uuid != entry.uuid or status.counter < entry.counter:
        return
    if status.state == "failed":
        error = status.error or {}
        kind = str(error.get("kind", ""))
        raise RefusedError(
            f"{entry.name} has failed, so it takes no checkpoint: {kind}: {error.get('text')}; "
            + str(error.get("next") or report.next_step(entry.name, kind))
        )
