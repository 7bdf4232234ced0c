"""Audits that workers run: what is asked for, who runs it, and what it found.

`perseid.registry.audits` has their nodes. The reports are in the checkpoint store.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

AuditState = Literal["waiting", "running", "done", "failed", "refused", "canceled"]
OPEN: tuple[AuditState, ...] = ("waiting", "running")
ATTEMPTS_MAX = 3  # workers that died while they ran it
TEXT_MAX = 500  # characters of a reason

# Files in the folder of an audit's process, the first two written by it while it runs.
PROGRESS, RESULT = "progress.json", "result.json"
REPORT, VALUES = "audit.json", "values.json"  # redacted; with keys and values of records


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """`epoch`: the last one that ran, of `of`. `differences`: places that differ so far."""

    epoch: int
    of: int
    differences: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} of {self.of}, {self.differences} differences"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """How an audit ended. `verdict`: "" unless it is done. `text`: the first reason.

    `epochs` and `records`: what ran again. `first_epoch`, `last_epoch`: the compared range.
    """

    state: AuditState
    text: str
    verdict: str = ""
    first_epoch: int = 0
    last_epoch: int = 0
    epochs: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """One audit. `arguments`: options of `perseid replay`, each as `--name=value`.

    `by`: who asks for it. `continuous`: the leader does, by the job's `audit.continuous`. `worker`:
    the incarnation that runs it, or ran it last; `attempt` counts them, without those that left.
    `report`: its folder in the checkpoint store, "" without one. Times in ms since 1970.
    """

    id: str
    job: str
    arguments: tuple[str, ...]
    requested_ms: int
    by: str
    continuous: bool = False
    state: AuditState = "waiting"
    worker: str | None = None
    attempt: int = 0
    began_ms: int | None = None
    progress: AuditProgress | None = None
    ended_ms: int | None = None
    result: AuditResult | None = None
    report: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    def is_free(self, live: Collection[str]) -> bool:
        """Whether a worker may take it. `live`: the incarnations of the live workers."""
        return self.state == "waiting" or (self.state == "running" and self.worker not in live)

    def taken(self, worker: str, now_ms: int) -> AuditRequest:
        """It runs on `worker` from now on, from its begin."""
        return replace(
            self, state="running", worker=worker, attempt=self.attempt + 1, began_ms=now_ms,
            progress=None,
        )  # fmt: skip

    def released(self) -> AuditRequest:
        """Its worker leaves: another one may take it, and the attempt does not count."""
        return replace(self, state="waiting", worker=None, attempt=self.attempt - 1, progress=None)

    def ended(self, result: AuditResult, now_ms: int, report: str = "") -> AuditRequest:
        cut = replace(result, text=result.text[:TEXT_MAX])
        return replace(self, state=result.state, result=cut, ended_ms=now_ms, report=report)
