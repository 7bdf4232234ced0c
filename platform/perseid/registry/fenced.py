"""Writes of the leading coordinator: each one is a transaction that checks the fence.

The fence is the version of `/epoch`. A new leader increases it in the same transaction that creates
`/leader`, so from that moment every write of an older leader fails with FenceLostError, however
late it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseid.records import CheckpointPointers, JobEntry, JobFailures, JobStatus, LeaderInfo, Plan
from perseid.registry import codec, paths
from perseid.registry.facade import EpochEntry, Registry
from perseid.registry.port import (
    Check,
    ConflictError,
    Create,
    Delete,
    FenceLostError,
    Set,
    UnknownOutcomeError,
    Write,
)


@dataclass(frozen=True, slots=True)
class Fence:
    """A coordinator epoch and the version of `/epoch` that proves it."""

    epoch: int
    version: int


def lead(registry: Registry, describe: Callable[[int], LeaderInfo], above: int = 0) -> Fence | None:
    """Tries to become leader; None while another one leads. `describe` gets the new epoch.

    One transaction creates the ephemeral `/leader` and raises `/epoch`, to a value above `above`.
    """
    found = registry.read(paths.EPOCH, EpochEntry)
    node = registry.coordination.get(paths.LEADER)
    if found is None or (node is not None and not node.mine):
        return None
    epoch = max(found.value.epoch, above) + 1
    info = describe(epoch)
    writes: list[Write] = [
        Set(paths.EPOCH, codec.encode(EpochEntry(epoch, info.id)), found.version),
        Set(paths.LEADER, codec.encode(info)) if node is not None
        else Create(paths.LEADER, codec.encode(info), ephemeral=True),
    ]  # fmt: skip
    try:
        registry.coordination.write(*writes)
    except (ConflictError, UnknownOutcomeError):
        # Unknown: if it succeeded, `/leader` is ours and the next call continues.
        return None
    return Fence(epoch, found.version + 1)


class FencedRegistry:
    """The leader's writes. Any of them raises FenceLostError when the fence has moved."""

    def __init__(self, registry: Registry, fence: Fence) -> None:
        self.registry = registry
        self.fence = fence
        self._known: set[str] = set()

    def confirm(self) -> None:
        """One round trip that proves that the session lives and the fence has not moved."""
        self._write()

    def put_plan(self, plan: Plan) -> None:
        """Writes the plan and its generation in one transaction, and notifies watchers."""
        generation = str(plan.generation).encode()
        self._put(
            {paths.generation(plan.job): generation, paths.plan(plan.job): codec.encode(plan)},
            Set(paths.CHANGED, plan.job.encode()),
        )

    def put_pointers(self, job: str, pointers: CheckpointPointers) -> None:
        self._put({paths.checkpoint(job): codec.encode(pointers)})

    def put_status(self, job: str, status: JobStatus) -> None:
        self._put({paths.status(job): codec.encode(status)})

    def put_failures(self, job: str, failures: JobFailures) -> None:
        self._put({paths.failures(job): codec.encode(failures)})

    def remove_job(self, job: str, job_uuid: str) -> None:
        """Deletes all of the job's nodes except its generation, which must never restart.

        Does nothing if the name is another job's by now.
        """
        nodes = (paths.plan, paths.checkpoint, paths.failures, paths.status, paths.backups)
        present = [at(job) for at in nodes if self.registry.coordination.get(at(job)) is not None]
        deletes = [Delete(path) for path in present]
        spec = self.registry.read(paths.spec(job), JobEntry)
        if spec is not None and spec.value.uuid != job_uuid:
            return
        if spec is not None:  # by its version, so that it is still this job's
            deletes.append(Delete(paths.spec(job), spec.version))
            present.append(paths.spec(job))
        self._write(*deletes, Set(paths.CHANGED, job.encode()))
        self._known.difference_update(present)

    def _put(self, entries: dict[str, bytes], *more: Write) -> None:
        """Creates or sets each path; after a conflict it reads again which nodes exist."""
        try:
            self._write(*(self._upsert(path, data) for path, data in entries.items()), *more)
        except ConflictError:
            self._known.clear()
            self._write(*(self._upsert(path, data) for path, data in entries.items()), *more)
        self._known.update(entries)

    def _upsert(self, path: str, data: bytes) -> Write:
        if path in self._known or self.registry.coordination.get(path) is not None:
            return Set(path, data)
        return Create(path, data)

    def _write(self, *writes: Write) -> None:
        try:
            self.registry.coordination.write(Check(paths.EPOCH, self.fence.version), *writes)
        except ConflictError as error:
            if error.path == paths.EPOCH:
                raise FenceLostError(
                    f"coordinator epoch {self.fence.epoch} is over: another coordinator leads"
                ) from error
            raise
