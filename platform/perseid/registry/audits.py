"""The nodes of audits that workers run.

The version of an audit's node is its fence: each write names the version that its writer has read
or written last. So of two workers one takes it, and its worker learns with its next write
that it was canceled or taken by another one.
"""

from __future__ import annotations

from contextlib import suppress

from perseid.errors import DamagedFile
from perseid.records.audits import AuditRequest
from perseid.registry import codec, paths
from perseid.registry.facade import Registry, Stored
from perseid.registry.port import ConflictError, Create, Delete, Set


class AuditNodes:
    """All methods raise RetryableError while ZooKeeper is unavailable."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._coordination = registry.coordination

    def changes(self) -> int:
        """A number that rises when an audit is asked for, taken or ended; not with its progress."""
        node = self._coordination.get(paths.AUDITS)
        return node.version if node is not None else -1

    def ids(self) -> tuple[str, ...]:
        return self._coordination.children(paths.AUDITS)

    def one(self, id_: str) -> Stored[AuditRequest] | None:
        """DamagedFile if its entry is not valid."""
        return self._registry.read(paths.audit(id_), AuditRequest)

    def every(self) -> list[Stored[AuditRequest]]:
        """The oldest first, without those whose entry is damaged."""
        found = []
        for id_ in self.ids():
            with suppress(DamagedFile):  # `one` names it
                stored = self.one(id_)
                found += [stored] if stored is not None else []
        return sorted(found, key=lambda stored: (stored.value.requested_ms, stored.value.id))

    def create(self, audit: AuditRequest) -> None:
        """ConflictError if there is one of this id."""
        if self._coordination.get(paths.AUDITS) is None:
            with suppress(ConflictError):  # another process was faster
                self._coordination.write(Create(paths.AUDITS, b""))
        self._coordination.write(
            Create(paths.audit(audit.id), codec.encode(audit)), self._changed(audit.id)
        )

    def put(self, audit: AuditRequest, version: int) -> int:
        """Writes over `version` and returns the new one; ConflictError if it is another by now."""
        data = codec.encode(audit)
        self._coordination.write(Set(paths.audit(audit.id), data, version), self._changed(audit.id))
        return version + 1

    def put_progress(self, audit: AuditRequest, version: int) -> int:
        """The same without a change that others look for."""
        self._coordination.write(Set(paths.audit(audit.id), codec.encode(audit), version))
        return version + 1

    def delete(self, id_: str, version: int) -> None:
        """ConflictError if it has another version by now, or is gone."""
        self._coordination.write(Delete(paths.audit(id_), version), self._changed(id_))

    def _changed(self, id_: str) -> Set:
        return Set(paths.AUDITS, id_.encode())
