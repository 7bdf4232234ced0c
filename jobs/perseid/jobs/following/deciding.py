"""What a look at a config repository makes of what it finds. Pure: no git, no registry, no clock.

1. A commit is taken or not as a whole: signature, and whether it comes behind the last one.
2. Of a commit that is taken each job folder is decided on by itself, by the digest of its files and
   by what came of them the last time. So a look that died is simply done again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perseid.clocks import growing_s
from perseid.records import JobEntry
from perseid.records.repository import RepoFault, RepoJob, RepoRecord

TEXT_BYTES_MAX = 600  # of what is wrong with one job: 200 of them must fit into one entry
AGAIN_S = 5.0  # behind a look whose cause of failure may pass: a server that starts, say
GAP_S = 1.0  # between looks that were asked for, however often: each one asks a server


@dataclass(frozen=True, slots=True)
class Seen:
    """What the ref names now.

    `unsigned`: why the signature is none that is allowed; None if it is, or need not be.
    `follows`: whether the commit is the last one that was taken, or comes behind it.
    """

    commit: str
    unsigned: str | None = None
    follows: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """A folder of the commit. `job` is the name in its job file, "" when that cannot be read.

    `fault`: what is wrong with its files, "" when nothing is.
    """

    folder: str
    tree: str
    job: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done: folders to apply, jobs to remove. `kept`: what needs nothing done."""

    apply: tuple[str, ...]
    remove: tuple[RepoJob, ...]
    kept: tuple[RepoJob, ...]


def pause_s(interval_s: float, since_s: float, *, asked: bool, tries: int = 0) -> float:
    """How long to wait for the next look, `since_s` after the last one began.

    `tries`: looks in a row that came to nothing in passing; they are `AGAIN_S` apart, then twice
    that, and so on up to the interval.
    """
    wait_s = interval_s
    if asked:
        wait_s = GAP_S
    elif tries:
        wait_s = growing_s(tries, AGAIN_S, interval_s)
    return max(0.0, min(wait_s, interval_s) - since_s)


def may_pass(record: RepoRecord) -> bool:
    """Whether the same commit may be applied by another look, with nobody changing anything."""
    return record.state == "unreachable" or any(job.result == "refused" for job in record.jobs)


def fault(
    record: RepoRecord | None, seen: Seen, accepted: str, *, signed: bool
) -> RepoFault | None:
    """Why the commit as a whole is not taken, or None.

    A ref that was rewritten is followed. Not so where signatures count: whoever has the server, and
    no key, could else go back to any commit that once was signed.
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
            f"the ref was rewritten: commit {seen.commit} does not come behind {before}",
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

    A job is applied when its files have changed since they were last judged, when the cluster
    refused it, and with a new commit also when somebody has removed it or applied other files.
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
    # A folder whose job has no name that can be read may be the one that a job has moved to.
    if prune and all(one.job for one in found):
        return Work(tuple(apply), tuple(gone), tuple(kept))
    return Work(tuple(apply), (), (*kept, *map(_told_gone, gone)))


def _judged(found: Sequence[Found]) -> list[Found]:
    """The folders; those with the name of another one's job are at fault."""
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
    """Whether the registry has what was applied, and nobody has removed or replaced it since."""
    entry = entries.get(job.job)
    return entry is not None and entry.archive == job.archive and entry.desired != "removed"


def _told_gone(job: RepoJob) -> RepoJob:
    text = (
        f"is no longer in the repository and goes on running; `perseid jobs remove {job.job}` "
        "removes it (a follower with --prune does that by itself)"
    )
    return replace(job, result="gone", text=text)


def cut(text: str) -> str:
    """`text` at a length that an entry can hold for every job."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= TEXT_BYTES_MAX:
        return data.decode()
    begin = data[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return f"{begin} ... (`perseid jobs validate` says all of it)"
