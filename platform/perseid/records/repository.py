"""The entry of the config repository that a deployment follows: what its last look has found.

Written by `perseid.jobs.following`, read by whoever shows the status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RepoJob:
    """What came of one job folder.

    `job`: "" while its job file cannot be read. `tree`: digest of the files that `result` is about.
    `commit` and `archive` are of what was applied last, "" before the first time. `text` says what
    is wrong, and what to do.

    - applied: the registry has it
    - broken: its files are wrong, so only another commit helps
    - refused: the cluster does not allow it now, so every look tries again
    - gone: no commit has it any more, and it goes on running
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
    """Why a look came to nothing, and what to do. It leaves all jobs as they are."""

    kind: str
    text: str
    next: str


@dataclass(frozen=True, slots=True)
class RepoRecord:
    """State of the followed repository.

    `commit` is the last one that was taken, `seen` the last that its ref was found at; "" before
    that. `unfinished`: a look has begun to apply `seen`, and `jobs` are those of before it; whoever
    looks next does it all again. `rewritten`: `seen` did not come behind `commit`.
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
