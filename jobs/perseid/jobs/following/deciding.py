"""Decides what a look at a config repository does. Pure: no git, no registry, no clock.

1. A commit is accepted or refused as a whole, by its signature and whether it descends from the
   last accepted one.
2. In an accepted commit each job folder is decided by itself, by the digest of its files and the
   previous outcome. So a look that died is simply repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perseid.clocks import growing_s
from perseid.records import JobEntry
from perseid.records.repository import RepoFault, RepoJob, RepoRecord

TEXT_BYTES_MAX = 600  # of one job's error text: 200 of them must fit into one entry
AGAIN_S = 5.0  # after a look that failed for a transient reason, such as a starting server
GAP_S = 1.0  # between requested looks: each one is a request to a server


@dataclass(frozen=True, slots=True)
class Seen:
    """The current commit of the ref.

    `unsigned`: why the signature is not an allowed one; None if it is, or is not required.
    `follows`: whether the commit is the last accepted one, or descends from it.
    """

    commit: str
    unsigned: str | None = None
    follows: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """A folder of the commit. `job` is the name in its job file, "" when that cannot be read.

    `fault`: the mistake in its files, "" without any.
    """

    folder: str
    tree: str
    job: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What to do: folders to apply, jobs to remove. `kept`: jobs that need no action."""

    apply: tuple[str, ...]
    remove: tuple[RepoJob, ...]
    kept: tuple[RepoJob, ...]


def pause_s(interval_s: float, since_s: float, *, asked: bool, tries: int = 0) -> float:
    """How long to wait for the next look, `since_s` after the last one began.

    `tries`: consecutive looks with transient failures. The pause after them is `AGAIN_S`, then
    twice that, and so on up to the interval.
    """
    wait_s = interval_s
    if asked:
        wait_s = GAP_S
    elif tries:
        wait_s = growing_s(tries, AGAIN_S, interval_s)
    return max(0.0, min(wait_s, interval_s) - since_s)


def may_pass(record: RepoRecord) -> bool:
    """Whether another look may apply the same commit without any change by a user."""
    return record.state == "unreachable" or any(job.result == "refused" for job in record.jobs)


def fault(
    record: RepoRecord | None, seen: Seen, accepted: str, *, signed: bool
) -> RepoFault | None:
    """Why the commit as a whole is not accepted, or None.

    A rewritten ref is followed, except where signatures are required: control of the server,
    without a key, would else allow a return to any commit that was once signed.
    """
    if seen.unsigned is not None:
        return RepoFault(
            "NotSigned",
            f"commit {seen.commit} has no signature of the allowed signers: {seen.unsigned}",
            "sign the commit (`git commit --amend -S`, with gpg.format=ssh) and push it, or add "
            "its key to the file of allowed signers",
        )
    if signed and not seen.follows and seen.commit != accepted:
        before = record.commit if record is not None else ""
        return RepoFault(
            "Rewritten",
            f"the ref was rewritten: commit {seen.commit} does not follow {before}",
            f"push a signed commit on top of {before[:12]}, or accept this one with "
            f"`perseid jobs look --accept {seen.commit}`",
        )
    return None


def is_settled(record: RepoRecord | None, commit: str) -> bool:
    """Whether a look at this commit has nothing to do."""
    return (
        record is not None and record.commit == commit and not record.unfinished
        and all(job.result in ("applied", "broken") for job in record.jobs)
    )  # fmt: skip


def work(
    record: RepoRecord | None, commit: str, found: Sequence[Found],
    entries: Mapping[str, JobEntry], *, prune: bool,
) -> Work:  # fmt: skip
    """What to do for `commit`, whose folders are `found`, while the registry has `entries`.

    A job is applied when its files have changed since the last attempt, when the cluster refused
    it, and with a new commit also when a user has removed it or applied other files.
    """
    before = {job.folder: job for job in record.jobs if job.result != "gone"} if record else {}
    new = record is None or record.commit != commit or record.unfinished
    apply, kept = [], []
    for one in _judged(found):
        old = before.get(one.folder, RepoJob(one.folder, one.job, "broken"))
        if one.fault:
            if one.job not in ("", old.job):
                old = RepoJob(one.folder, one.job, "broken")
            kept.append(replace(old, result="broken", tree=one.tree, text=cut(one.fault)))
        elif (
            old.tree != one.tree or old.job != one.job or old.result == "refused"
            or (new and old.result == "applied" and not _is_ours(old, entries))
        ):  # fmt: skip
            apply.append(one.folder)
        else:
            kept.append(old)
    gone = [job for job in _gone(record, found) if _is_ours(job, entries)]
    # A folder without a readable job name may be the one that a job has moved to.
    if prune and all(one.job for one in found):
        return Work(tuple(apply), tuple(gone), tuple(kept))
    return Work(tuple(apply), (), (*kept, *map(_reported_gone, gone)))


def _judged(found: Sequence[Found]) -> list[Found]:
    """The folders; those whose job name another folder uses are at fault."""
    names = Counter(one.job for one in found if one.job)
    places = {name: [o.folder for o in found if o.job == name] for name in names}
    return [
        replace(one, fault=f"job {one.job} is in several folders ({', '.join(places[one.job])}), "
                "expected one; rename it in all but one")
        if names[one.job] > 1 and not one.fault else one
        for one in sorted(found, key=lambda o: o.folder)
    ]  # fmt: skip


def _gone(record: RepoRecord | None, found: Sequence[Found]) -> list[RepoJob]:
    """Jobs that were applied from the repository and are in none of its folders now."""
    there = {one.job for one in found}
    unread = {one.folder for one in found if not one.job}
    return [
        job for job in (record.jobs if record is not None else ())
        if job.archive and job.job not in there
        and (job.result == "gone" or job.folder not in unread)
    ]  # fmt: skip


def _is_ours(job: RepoJob, entries: Mapping[str, JobEntry]) -> bool:
    """Whether the registry has what was applied, not removed or replaced since."""
    entry = entries.get(job.job)
    return entry is not None and entry.archive == job.archive and entry.desired != "removed"


def _reported_gone(job: RepoJob) -> RepoJob:
    text = (
        f"is no longer in the repository and keeps running; `perseid jobs remove {job.job}` "
        "removes it (a follower with --prune does that by itself)"
    )
    return replace(job, result="gone", text=text)


def cut(text: str) -> str:
    """`text` at a length that an entry can hold for every job."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= TEXT_BYTES_MAX:
        return data.decode()
    begin = data[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return f"{begin} ... (`perseid jobs validate` shows all of it)"
