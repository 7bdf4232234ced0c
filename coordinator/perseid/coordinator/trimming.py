"""Up to where a job's token log and ledger may be deleted, and when. Pure.

No reader needs the token log before the oldest kept checkpoint: a restore falls back to it when the
newer ones are damaged. A restoring owner reads from the checkpoints in its plan, and a backup is
restored from the checkpoint of its moment, so backups of the last week hold the log back too, and
audits need all from the beginning of their horizon on (`horizon`). In a ledger partition only the
last record is ever read, except by audits; it stays at any age.

A failure is harmless: the records stay, and the next checkpoint retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator import horizon
from perseid.coordinator.actions import Action, TrimLogs
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.records import BackupMark, Plan

TRIM_S = 20.0  # between two trims of a job: each looks at all ledger partitions
BACKUPS_MS = 7 * 86_400_000  # the default retention of sources
REPORTED_FAILURES = 3  # in a row before an event reports it: a broker may be away for a moment


def ask(job: JobState, now: Now) -> tuple[JobState, list[Action]]:
    """What to delete after a complete checkpoint; nothing soon after the last trim."""
    if job.newest is None or now.monotonic_s - job.checkpointing.trimmed_s < TRIM_S:
        return job, []
    job = replace(job, checkpointing=job.checkpointing.trims(now.monotonic_s))
    # A clock that is set forward, or was ahead when the leader started, ends no backup.
    now_ms = int(min(now.wall_ms, now.time_ms, job.chain.time.after(now)))
    once, since_ms = horizon.horizon_ms(job) is not None, now_ms - BACKUPS_MS
    return job, [TrimLogs(job.name, job.entry.uuid, kept_from(job), since_ms, once)]


def with_result(job: JobState, error: str) -> JobState:
    """The job after a trim, which succeeded or failed with `error`."""
    checkpointing = job.checkpointing.trim_ended(failed=bool(error))
    job = replace(job, checkpointing=checkpointing)
    if checkpointing.untrimmed != REPORTED_FAILURES:
        return job
    return job.with_events(
        f"token log and ledger grow: {REPORTED_FAILURES} times in a row what is older than the "
        f"oldest checkpoint could not be deleted: {error}"
    )


def kept_from(job: JobState) -> Tip | None:
    """The token log's record from which the farthest reader begins; None: delete nothing."""
    pointers, horizon_ms = job.checkpointing.pointers, horizon.horizon_ms(job)
    if job.newest is None or pointers is None:
        return None
    kept = [Tip(p.epoch, p.token_offset) for p in job.kept]
    if horizon_ms is not None:
        base = horizon.log_base(pointers, horizon_ms)
        if base is None:
            return None
        kept.append(base)
    if job.plan is not None and job.phase is not Phase.RUNNING:
        kept.append(_base(job.plan))
    return min(kept, key=lambda tip: tip.offset)


def floor(trim: TrimLogs, marks: Iterable[BackupMark]) -> Tip | None:
    """The same, including the backups that may still be restored."""
    if trim.kept is None:
        return None
    held = [
        Tip(mark.epoch, mark.token_offset) for mark in marks
        if mark.job_uuid == trim.job_uuid and mark.taken_ms >= trim.backups_since_ms
    ]  # fmt: skip
    return min([trim.kept, *held], key=lambda tip: tip.offset)


def ledger_cut(records: Iterable[tuple[int, int]], kept_epoch: int) -> int | None:
    """The first offset of a ledger partition that stays; None: delete nothing.

    `records`: offsets and epochs of its records from the first one on, without a gap, but not
    necessarily to the end. The last given one stays, because it may be the partition's last.
    """
    cut = None
    for offset, epoch in records:
        cut = offset
        if epoch > kept_epoch:
            break
    return cut


def _base(plan: Plan) -> Tip:
    """Where the plan's owner starts reading the token log; see `perseid.engine.feed.base_of`."""
    if not plan.usable_checkpoints:
        return Tip(plan.base_epoch, plan.base_offset)
    oldest = plan.usable_checkpoints[-1]
    return Tip(oldest.epoch, oldest.token_offset)
