"""Defects of state logs, of the resident state, and of restores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.engine import resume
from perseid.engine.feed import EpochFeed
from perseid.errors import DamagedFile
from perseid.state.durability import blob, owners
from perseid.state.durability.log import DELTA, LogEntry, StateLog
from perseid.state.durability.outputs import OUTPUTS
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.recovery.restore import PartitionRestore


def dirty_copy_is_kept() -> AbstractContextManager[Any]:
    """An epoch that failed halfway leaves its changes in the resident state."""
    bring_to = PartitionState.bring_to

    def mutant(self: PartitionState, epoch: int) -> None:
        if self.epoch is None and self.__dict__.get("_last") == epoch:
            self.epoch = epoch
        bring_to(self, epoch)
        self.__dict__["_last"] = epoch

    return patch.object(PartitionState, "bring_to", mutant)


def resume_after_the_highest() -> AbstractContextManager[Any]:
    """The fragment resumes after the highest epoch instead of the lowest."""

    def mutant(restored: Any, ledgers: Any, base_epoch: int, *_: Any, **__: Any) -> resume.Proceed:
        reached = [r.epoch for r in restored.values()] + list(ledgers.values())
        return resume.Proceed(max(reached, default=base_epoch))

    return patch.object(resume, "decide", mutant)


def outputs_are_not_retained() -> AbstractContextManager[Any]:
    """A log that lacks outputs which are needed again is accepted."""

    def mutant(self: PartitionRestore, last: int) -> int:
        return 0

    return patch.object(PartitionRestore, "_held_from", mutant)


def damaged_part_means_empty() -> AbstractContextManager[Any]:
    """A checkpoint part that cannot be read counts as an empty state."""
    part = PartitionRestore._part

    def mutant(self: PartitionRestore, *rest: Any) -> Any:
        try:
            return part(self, *rest)
        except DamagedFile:
            return {}

    return patch.object(PartitionRestore, "_part", mutant)


def old_log_is_trusted() -> AbstractContextManager[Any]:
    """A log is used without repair."""
    return patch.object(StateLog, "repair", lambda self: [])


def collecting_takes_the_base() -> AbstractContextManager[Any]:
    """Garbage collection of a log removes the snapshot on which the rest is based."""

    def mutant(self: StateLog, checkpoint_epoch: int) -> None:
        for epoch in self.snapshots():
            if epoch <= checkpoint_epoch:
                self._files.delete(self._path("snapshot", epoch))

    return patch.object(StateLog, "collect", mutant)


def deltas_appear_before_their_outputs() -> AbstractContextManager[Any]:
    """An epoch is committed by its delta, and its outputs are written after that."""
    append = StateLog.append

    def mutant(
        self: StateLog, epoch: int, generation: int, offset: int, sections: Any, outputs: Any = None
    ) -> LogEntry:
        if not outputs or not self.retains:
            return append(self, epoch, generation, offset, sections, outputs)
        header = blob.Header(DELTA, self.identity, epoch, generation, offset)
        with patch.object(self._files, "write_new", lambda *_: True):
            named = self._outputs.write(header, outputs)
        entry = append(self, epoch, generation, offset, {OUTPUTS: named, **sections})
        self._outputs.write(header, outputs)
        return entry

    return patch.object(StateLog, "append", mutant)


def outputs_are_released_too_early() -> AbstractContextManager[Any]:
    """Outputs are removed up to the newest epoch, which a task may have to return again."""
    release = StateLog.release

    def mutant(self: StateLog, epoch: int) -> None:
        release(self, self.last_epoch() or epoch)

    return patch.object(StateLog, "release", mutant)


def replicas_share_a_directory() -> AbstractContextManager[Any]:
    """The takeover of one replica deletes or takes the logs of the others."""

    def mutant(root: str, job_uuid: str, layout: int, replica: str = "") -> str:
        return f"{root}/{job_uuid}/{layout}"

    return patch.object(owners, "replica_directory", mutant)


def checksums_are_not_checked() -> AbstractContextManager[Any]:
    """A file with a flipped byte counts as sound."""

    def mutant(view: memoryview, where: str) -> int:
        if len(view) < blob._PREFIX.size:
            raise DamagedFile(where)
        return int(blob._PREFIX.unpack_from(view)[3])

    return patch.object(blob, "_check", mutant)


def logs_are_collected_too_early() -> AbstractContextManager[Any]:
    """Files are removed once the newest token makes them needless, not once a checkpoint does."""
    feed = EpochFeed.feed

    def mutant(self: EpochFeed, offset: int, record: Any, collect_epoch: int | None) -> Any:
        order = feed(self, offset, record, collect_epoch)
        return order and replace(order, collect_epoch=order.token.epoch)

    return patch.object(EpochFeed, "feed", mutant)


def ledgers_do_not_count_in_a_restore() -> AbstractContextManager[Any]:
    """The fragment resumes after its states' epoch, whatever the sinks have committed."""
    decide = resume.decide

    def mutant(restored: Any, _ledgers: Any, *of: Any, **more: Any) -> Any:
        return decide(restored, {}, *of, **more)

    return patch.object(resume, "decide", mutant)
