"""Up to where a job's token log and ledger are deleted, and when. Pure.

Nobody reads the token log before the oldest checkpoint that is kept: a restore falls back to it
when the newer ones are damaged. An owner that restores reads from what its plan names, and a backup
is restored from the checkpoint of its moment, so backups of the last week hold the log back too. Of
a ledger partition only the last record is ever asked for; it stays, however old it is.

Failing is harmless: the records stay, and the next checkpoint asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator.actions import Action, TrimLogs
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState, Now, Tip
from perseid.records import BackupMark, Plan

TRIM_S = 20.0  # between two of a job: each looks at all ledger partitions
BACKUPS_MS = 7 * 86_400_000  # as long as sources keep their records if nobody says otherwise
TOLD_FAILURES = 3  # in a row, before people are told: a broker may be away for a moment


def ask(job: JobState, now: Now) -> tuple[JobState, list[Action]]:
    """What to delete behind a checkpoint that is complete; nothing soon after the last time."""
    kept = kept_from(job)
    if kept is None or now.monotonic_s - job.trimmed_s < TRIM_S:
        return job, []
    job = replace(job, trimmed_s=now.monotonic_s)
    # A clock that is set forward, or was ahead when the leader started, ends no backup.
    now_ms = int(min(now.wall_ms, now.time_ms, job.time.after(now)))
    return job, [TrimLogs(job.name, job.entry.uuid, kept, now_ms - BACKUPS_MS)]


def told(job: JobState, error: str) -> JobState:
    """The job after a trim that went well, or failed with `error`."""
    if not error:
        return replace(job, untrimmed=0)
    job = replace(job, untrimmed=job.untrimmed + 1)
    if job.untrimmed != TOLD_FAILURES:
        return job
    return job.told(
        f"token log and ledger grow: {TOLD_FAILURES} times in a row what is behind the oldest "
        f"checkpoint could not be deleted: {error}"
    )


def kept_from(job: JobState) -> Tip | None:
    """The record of the token log that the farthest reader begins with; None: nothing may go."""
    if job.newest is None or job.pointers is None:
        return None
    kept = [Tip(p.epoch, p.token_offset) for p in job.pointers.pointers]
    if job.plan is not None and job.phase is not Phase.RUNNING:
        kept.append(_base(job.plan))
    return min(kept, key=lambda tip: tip.offset)


def floor(trim: TrimLogs, marks: Iterable[BackupMark]) -> Tip:
    """The same, seen the backups that may still be restored."""
    held = [
        Tip(mark.epoch, mark.token_offset) for mark in marks
        if mark.job_uuid == trim.job_uuid and mark.taken_ms >= trim.backups_since_ms
    ]  # fmt: skip
    return min([trim.kept, *held], key=lambda tip: tip.offset)


def ledger_cut(records: Iterable[tuple[int, int]], kept_epoch: int) -> int | None:
    """The first offset of a ledger partition that stays; None: nothing may go.

    `records`: offset and epoch of its records from the first one on, without a gap, and not
    necessarily to the last one. The last of them stays, for it may be the partition's last.
    """
    cut = None
    for offset, epoch in records:
        cut = offset
        if epoch > kept_epoch:
            break
    return cut


def _base(plan: Plan) -> Tip:
    """Where the plan's owner reads the token log from, as in `perseid.worker.feed.base_of`."""
    if not plan.usable_checkpoints:
        return Tip(plan.base_epoch, plan.base_offset)
    oldest = plan.usable_checkpoints[-1]
    return Tip(oldest.epoch, oldest.token_offset)
