"""What the leader does for audits that workers run: it asks for continuous ones, and clears up.

It places none: a worker takes each (`perseid.worker.audit_runs`).

A continuous audit runs the epochs between two checkpoints again. Of each interval a digest decides
whether it is drawn, so a new leader decides the same, and nothing is stored. A job has at most one
open.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from perseid.clocks import Clock
from perseid.coordinator.model import JobState
from perseid.coordinator.watching import Watcher
from perseid.errors import DamagedFile, RefusedError, UsageError
from perseid.jobs.operations import audits
from perseid.records import CheckpointPointer
from perseid.records.audits import AuditRequest
from perseid.registry import ConflictError, Registry
from perseid.registry.audits import AuditNodes
from perseid.state.durability.store import Store

_log = logging.getLogger(__name__)

LOOK_S = 5.0  # checkpoints are rarer
CLEAR_S = 3600.0  # between two looks for audits that are kept no more
BY = "continuous"


class Interval(NamedTuple):
    """Epochs between two checkpoints, both included, and the id of their audit."""

    id: str
    first: int
    last: int


def drawn(job_uuid: str, pointers: Sequence[CheckpointPointer], share: float) -> Interval | None:
    """The interval between the two newest complete checkpoints, if it is drawn. Pure.

    `pointers`: newest first. `share`: of all intervals, 0 to 1. The base of an older interval is
    the next one to be deleted.
    """
    if len(pointers) < 2:
        return None
    newer, older = pointers[:2]
    digest = hashlib.sha256(f"{job_uuid} {newer.epoch}".encode()).hexdigest()
    if int(digest[:8], 16) >= share * 2**32 or older.epoch >= newer.epoch:
        return None
    return Interval(f"c{digest[8:19]}", older.epoch + 1, newer.epoch)


def unequal(before: Mapping[str, AuditRequest], now: Iterable[AuditRequest]) -> list[AuditRequest]:
    """Those that have ended since `before` (by id) without the verdict equal. Pure."""
    return [
        audit for audit in now
        if audit.result is not None and audit.state in ("done", "failed")
        and audit.result.verdict != "equal" and audit.id in before and before[audit.id].is_open
    ]  # fmt: skip


class AuditKeeper(Watcher):
    """`seen`: all audits as of its last look, for the metrics."""

    def __init__(
        self, registry: Registry, store: Store, jobs: Callable[[], Mapping[str, JobState]],
        leads: Callable[[], bool], clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__("audits")
        self._registry, self._store, self._jobs = registry, store, jobs
        self._leads, self._clock = leads, clock
        self._nodes = AuditNodes(registry)
        self._cleared_s = clock.monotonic_s()
        self.seen: tuple[AuditRequest, ...] = ()

    def _look(self) -> float:
        if not self._leads():
            return LOOK_S
        before = {audit.id: audit for audit in self.seen}
        self.seen = tuple(stored.value for stored in self._nodes.every())
        for audit in unequal(before, self.seen):
            self._report(audit)
        for name, job in self._jobs().items():
            self._ask(name, job)
        if self._clock.monotonic_s() - self._cleared_s >= CLEAR_S:
            self._cleared_s = self._clock.monotonic_s()
            deleted = audits.delete_expired(self._registry, self._store, self._clock.wall_ms())
            if deleted:
                _log.info("%d audits that have ended are deleted with their reports", deleted)
        return LOOK_S

    def _ask(self, name: str, job: JobState) -> None:
        share = job.program.spec.audit.continuous if job.program is not None else 0.0
        if not share or any(a.is_open and a.continuous and a.job == name for a in self.seen):
            return
        with suppress(DamagedFile):  # the leader reports it, and writes it again
            pointers = self._registry.pointers(name)
            if pointers is None or pointers.job_uuid != job.entry.uuid:
                return
            one = drawn(job.entry.uuid, pointers.pointers, share)
            if one is not None and one.id not in {audit.id for audit in self.seen}:
                self._asked(name, one)

    def _asked(self, name: str, one: Interval) -> None:
        given = audits.arguments({"epochs": f"{one.first}:{one.last}"})
        try:
            audits.ask(self._registry, self._clock, name, given, BY, id_=one.id, continuous=True)
        except ConflictError:
            return  # another leader has
        except (RefusedError, UsageError) as error:  # too many are open, or it was just removed
            _log.warning("a continuous audit is left out: %s", error, extra={"job": name})
            return
        _log.info("asks for the audit of epochs %d to %d", one.first, one.last,
                  extra={"job": name})  # fmt: skip

    def _report(self, audit: AuditRequest) -> None:
        result = audit.result
        assert result is not None
        _log.error(
            "audit %s: %s: %s; `perseid audits show-run %s --format markdown` has its report",
            audit.id, result.verdict or audit.state, result.text, audit.id,
            extra={"job": audit.job},
        )  # fmt: skip
