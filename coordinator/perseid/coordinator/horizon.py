"""What is kept of a job's past for audits, with `audit: {horizon: ...}`. Pure.

An audit needs a checkpoint before its first epoch, and the token log, the ledgers and the revision
from there on. So the newest checkpoint that is older than the horizon stays, with everything after
it; until there is one, nothing is deleted. Of the others so many stay that an audit runs
little more than what it compares (`gap_ms`), and the two around each change of revision or layout,
since an audit is of one: it begins with the last one before, or with the first one after where only
the name changed. The horizon counts back from the newest checkpoint, in token time.

Their number is bounded, whatever period, horizon and changes are: it is that of their pointers in
one node of ZooKeeper, and of the states in the store.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from perseid.coordinator.job.chain import Tip
from perseid.coordinator.model import JobState
from perseid.records import CheckpointPointer, CheckpointPointers

CHANGES_MAX = 25  # of revision or layout, of which the checkpoints on both sides stay


def horizon_ms(job: JobState) -> int | None:
    """How far back audits may ask, in token time; None: the job keeps nothing for them."""
    horizon_s = job.program.spec.audit.horizon_s if job.program is not None else None
    return None if horizon_s is None else round(horizon_s * 1000)


def gap_ms(age_ms: int, horizon_ms: int) -> int:
    """How far a checkpoint of this age may be from the next one: what an audit runs in addition.

    With a horizon of a week that is 40 minutes for the newest ones, and 3 hours more a day before.
    """
    return horizon_ms // 256 + max(0, age_ms) // 8


def pointers(job: JobState, kept: tuple[CheckpointPointer, ...]) -> CheckpointPointers:
    """The job's pointers once it has completed the newest of `kept`, which restores need."""
    horizon, before, program = horizon_ms(job), job.checkpointing.pointers, job.program
    if horizon is None or program is None:
        return CheckpointPointers(job.entry.uuid, kept)
    known = before if before is not None and before.job_uuid == job.entry.uuid else None
    past = chosen(known.every if known is not None else (), kept, horizon)
    names = {pointer.revision for pointer in (*kept, *past)}
    archives = {**(known.archives if known is not None else {}), program.revision: program.archive}
    archives = {name: archives[name] for name in sorted(names & archives.keys())}
    return CheckpointPointers(job.entry.uuid, kept, past, archives)


def chosen(
    older: Collection[CheckpointPointer], kept: tuple[CheckpointPointer, ...], horizon_ms: int
) -> tuple[CheckpointPointer, ...]:
    """Which of the older checkpoints stay for audits besides `kept`, newest first."""
    listed = sorted({*older, *kept}, key=lambda pointer: pointer.epoch)
    now_ms = listed[-1].time_ms
    early = [p.epoch for p in listed if p.time_ms < now_ms - horizon_ms]
    inside = [p for p in listed if not early or p.epoch >= early[-1]]
    changes = [pair for pair in pairwise(inside) if _code(pair[0]) != _code(pair[1])]
    ends = {one for pair in changes[-CHANGES_MAX:] for one in pair}
    stay = inside[:1]
    for one, after in pairwise(inside[1:]):
        since_ms = stay[-1].time_ms
        far = after.time_ms - since_ms > gap_ms(now_ms - since_ms, horizon_ms)
        if far or one in kept or one in ends:
            stay.append(one)
    return tuple(p for p in reversed(stay) if p not in kept)


def knows(job: JobState, revision: str) -> bool:
    """Whether audits find the files of the revision, which has run; true without a horizon."""
    pointers = job.checkpointing.pointers
    return horizon_ms(job) is None or (pointers is not None and revision in pointers.archives)


def log_base(found: CheckpointPointers, horizon_ms: int) -> Tip | None:
    """The token log's record with which the horizon begins; None: it has no beginning yet."""
    every = found.every
    old = [p for p in every if p.time_ms < every[0].time_ms - horizon_ms]
    return Tip(old[0].epoch, old[0].token_offset) if old else None


def needed_epochs(past: Collection[CheckpointPointer]) -> tuple[int, ...]:
    """The epochs in whose folders files of these checkpoints are, ascending."""
    return tuple(sorted({epoch for p in past for epoch in (p.epoch, *p.needs)}))


def _code(pointer: CheckpointPointer) -> tuple[str, int]:
    return pointer.revision, pointer.layout
