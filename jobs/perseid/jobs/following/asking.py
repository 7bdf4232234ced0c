"""The state of the followed repository, and requests for a look, for command line and API."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from perseid.errors import RefusedError, UsageError
from perseid.jobs.repository import git
from perseid.records.repository import RepoRecord
from perseid.registry.facade import Registry
from perseid.registry.repository import RepoNodes

LATE_LOOKS = 5  # intervals without a look, after which the follower counts as missing
LATE_S_MIN = 60.0  # a look that applies a job takes a while


class NotFollowed(RefusedError):
    """No repository has ever been followed here."""


def record(registry: Registry) -> RepoRecord | None:
    """The result of the last look; None where no repository is followed."""
    stored = RepoNodes(registry).record()
    return stored.value if stored is not None else None


def show(registry: Registry, now_ms: int) -> dict[str, Any]:
    """The record as JSON; NotFollowed where there is none."""
    return document(_known(registry), now_ms)


def look(registry: Registry, accept: str = "", *, dry_run: bool = False) -> dict[str, Any]:
    """Requests a look now. `accept`: a commit to take although the ref was rewritten."""
    found = _known(registry)
    if accept and not git.is_commit(accept):
        raise UsageError(f"--accept {accept[:80]!r}: expected a whole commit id of 40 digits")
    if not dry_run:
        RepoNodes(registry).ask(accept)
    state = "a look would be asked for" if dry_run else "a look is asked for"
    return {"url": found.url, "ref": found.ref, "state": state}


def _known(registry: Registry) -> RepoRecord:
    found = record(registry)
    if found is None:
        raise NotFollowed(
            "no repository is followed here; `perseid follow --repo URL --ref main` begins it"
        )
    return found


def document(found: RepoRecord, now_ms: int) -> dict[str, Any]:
    """The record as JSON, with its faults."""
    return asdict(found) | {"faults": faults(found, now_ms)}


def faults(found: RepoRecord, now_ms: int) -> list[str]:
    """The faults that a user has to correct."""
    lines = []
    if found.fault is not None:
        lines.append(f"repository: {found.fault.text}; {found.fault.next}")
    for job in found.jobs:
        if job.result != "applied":
            runs = f" ({job.commit[:12]} continues)" if job.commit and job.result != "gone" else ""
            lines.append(f"repository: {job.job or job.folder} {job.result}{runs}: {job.text}")
    late_ms = 1000 * max(LATE_LOOKS * found.interval_s, LATE_S_MIN)
    if now_ms - found.looked_ms > late_ms:
        lines.append(
            f"repository: it was not checked for {(now_ms - found.looked_ms) // 1000} s; does "
            "`perseid follow` run?"
        )
    return lines
