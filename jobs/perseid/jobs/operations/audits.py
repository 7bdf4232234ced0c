"""Audits that workers run, for users: ask for one, follow, cancel, read its report.

A worker takes each open one (`perseid.worker.audit_runs`); nothing here waits for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from perseid.clocks import Clock
from perseid.errors import RefusedError, UsageError
from perseid.jobs.model.trees import ArchiveReader
from perseid.jobs.operations import steering
from perseid.records.audits import REPORT, VALUES, AuditRequest, AuditResult
from perseid.registry.audits import AuditNodes
from perseid.registry.facade import Registry, Stored
from perseid.registry.port import ConflictError
from perseid.state.durability.store import Store

OPEN_MAX = 20  # a worker runs one at a time
KEPT_MAX = 50  # of those that have ended, the newest
KEPT_MS = 30 * 86_400_000
FOLDER = "audits"  # in the checkpoint store
_TRIES = 3  # to cancel one that makes progress meanwhile


class UnknownAudit(UsageError):
    """There is no audit of that id."""


def arguments(
    options: Mapping[str, str | None], tolerances: Sequence[str] = (), cores: int = 1
) -> tuple[str, ...]:
    """The options of `perseid replay`, without those that are None.

    >>> arguments({"epochs": "7:9", "last": None}, ["price=ulp:4"])
    ('--epochs=7:9', '--tolerance=price=ulp:4', '--cores=1')
    """
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    return (*given, *(f"--tolerance={text}" for text in tolerances), f"--cores={cores}")


def ask(
    registry: Registry, clock: Clock, job: str, options: tuple[str, ...], by: str, *,
    id_: str | None = None, continuous: bool = False,
) -> AuditRequest:  # fmt: skip
    """Asks for an audit. `options`: of `arguments`, checked by the caller.

    Raises UnknownJob, and RefusedError while too many are open. With an `id_` that there is already
    it raises ConflictError.
    """
    steering.stored_entry(registry, job)
    nodes = AuditNodes(registry)
    open_ = [stored.value.id for stored in nodes.every() if stored.value.is_open]
    if len(open_) >= OPEN_MAX:
        raise RefusedError(
            f"{len(open_)} audits are open, and each worker runs one at a time: wait for one, or "
            f"type `perseid audits cancel {open_[0]}`"
        )
    id_ = id_ or uuid.uuid4().hex[:12]
    made = AuditRequest(id_, job, options, clock.wall_ms(), by, continuous)
    nodes.create(made)
    return made


def find(registry: Registry, id_: str) -> Stored[AuditRequest]:
    """The audit with its version; UnknownAudit."""
    nodes = AuditNodes(registry)
    stored = nodes.one(id_) if id_ in nodes.ids() else None
    if stored is None:
        raise UnknownAudit(f"no audit {id_[:80]!r}; `perseid audits list` has those that there are")
    return stored


def every(registry: Registry, job: str | None = None) -> list[AuditRequest]:
    """All that are open or kept, the newest first; of one job or all."""
    found = [stored.value for stored in reversed(AuditNodes(registry).every())]
    return [audit for audit in found if job in (None, audit.job)]


def cancel(registry: Registry, clock: Clock, id_: str, by: str) -> AuditRequest:
    """Ends an open audit; its worker ends the process when it sees that. RefusedError if it ended.

    A ConflictError is left where it changes again and again meanwhile.
    """
    for _ in range(_TRIES - 1):
        with suppress(ConflictError):
            return _canceled(registry, clock, id_, by)
    return _canceled(registry, clock, id_, by)


def _canceled(registry: Registry, clock: Clock, id_: str, by: str) -> AuditRequest:
    stored = find(registry, id_)
    if not stored.value.is_open:
        raise RefusedError(f"audit {id_} has ended: {stored.value.state}")
    over = stored.value.ended(AuditResult("canceled", f"canceled by {by}"), clock.wall_ms())
    AuditNodes(registry).put(over, stored.version)
    return over


def report(store: ArchiveReader, audit: AuditRequest, *, values: bool) -> str:
    """Its report as JSON. `values`: with keys and values of records. RefusedError without one."""
    if not audit.report:
        why = audit.result.text if audit.result is not None else "it has not ended yet"
        raise RefusedError(f"audit {audit.id} of {audit.job} has no report ({audit.state}: {why})")
    return str(bytes(store.read(f"{audit.report}/{VALUES if values else REPORT}")), "utf-8")


def document(audit: AuditRequest) -> dict[str, Any]:
    """It as JSON, for the command line and the API."""
    result = audit.result or AuditResult(audit.state, "")
    return {
        "id": audit.id, "job": audit.job, "state": audit.state,
        "verdict": result.verdict or None, "text": result.text or None,
        "arguments": list(audit.arguments), "by": audit.by, "continuous": audit.continuous,
        "requested_ms": audit.requested_ms, "began_ms": audit.began_ms, "ended_ms": audit.ended_ms,
        "worker": audit.worker, "attempt": audit.attempt,
        "progress": None if audit.progress is None else asdict(audit.progress),
        "first_epoch": result.first_epoch or None, "last_epoch": result.last_epoch or None,
        "epochs": result.epochs, "records": result.records, "report": bool(audit.report),
    }  # fmt: skip


def folder(registry: Registry, id_: str) -> str:
    """Where the reports of an audit are in the checkpoint store, which deployments may share."""
    return f"{FOLDER}/{registry.deployment_id()}/{id_}"


def expired(audits: Iterable[Stored[AuditRequest]], now_ms: int) -> list[Stored[AuditRequest]]:
    """Those that have ended and are kept no more. Pure."""
    ended = [stored for stored in audits if not stored.value.is_open]
    ended.sort(key=lambda stored: stored.value.ended_ms or 0, reverse=True)
    return [
        stored for place, stored in enumerate(ended)
        if place >= KEPT_MAX or now_ms - (stored.value.ended_ms or 0) >= KEPT_MS
    ]  # fmt: skip


def delete_expired(registry: Registry, store: Store, now_ms: int) -> int:
    """Deletes their reports, then their entries: after a crash in between a later call repeats."""
    nodes = AuditNodes(registry)
    over = expired(nodes.every(), now_ms)
    for stored in over:
        store.delete(folder(registry, stored.value.id))
        nodes.delete(stored.value.id, stored.version)
    return len(over)
