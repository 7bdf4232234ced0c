"""The entry of the config repository that a deployment follows: the result of the last check.

Written by `perseid.jobs.following`, read by status displays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RepoJob:
    """The result for one job folder.

    `job`: "" while its job file cannot be read. `tree`: digest of the files of `result`.
    `commit` and `archive` are of what was applied last, "" before the first time. `text` describes
    the fault, and what to do.

    - applied: the registry has it
    - broken: its files are wrong, so only another commit helps
    - refused: the cluster does not allow it now, so every check retries
    - gone: no commit has it any more, and it keeps running
    """

    folder: str
    job: str
    result: Literal["applied", "broken", "refused", "gone"]
    tree: str = ""
    commit: str = ""
    archive: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RepoFault:
    """Why a check failed, and what to do. It leaves all jobs unchanged."""

    kind: str
    text: str
    next: str


@dataclass(frozen=True, slots=True)
class RepoRecord:
    """State of the followed repository.

    `commit` is the last one applied, `seen` the last one found at its ref; "" before that.
    `unfinished`: a check has begun to apply `seen`, and `jobs` are those of the previous check; the
    next check applies everything again. `rewritten`: `seen` is no descendant of `commit`.
    """

    url: str
    ref: str
    interval_s: float
    state: Literal["applying", "applied", "refused", "unreachable"]
    looked_ms: int
    commit: str = ""
    seen: str = ""
    unfinished: bool = False
    rewritten: bool = False
    fault: RepoFault | None = None
    jobs: tuple[RepoJob, ...] = ()
