"""Restores one operator partition's state: from the log on this host, else from a checkpoint.

1. The previous owner's directory on this host is renamed to ours, which fences that owner, before
   the token log is read (`perseid.engine.fragment`).
2. The log is repaired: damaged files and all later ones are set aside; entries of rolled-back
   tokens are discarded. A token that is missing without a rollback is an error: the broker has
   lost it, and the sink topics may have its epoch's output.
   A partition whose outputs are needed again and are not there goes back in its log, if it can.
3. If a checkpoint is newer than the log (an owner on another host has run since, or a power
   failure has cut the log), the newest readable one is put into an empty log. A damaged part
   means an older checkpoint and an event. Else the log is the state, if the tokens reach it.
4. A checkpoint of a layout with another parallelism of the operator is redistributed.
5. Before a revision's first epoch, if its operator migrates state, the state comes from the
   checkpoint with which the previous revision ended (`migration`).
6. Only a job without any complete checkpoint starts from empty state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from perseid.engine.agreement import RestoreOrder
from perseid.engine.order import MUTED
from perseid.engine.resume import UNCOMMITTED, Restored
from perseid.errors import DamagedFile, PermanentError, lost_by_broker
from perseid.jobs.model.layout import Task
from perseid.records import CheckpointPointer, crashpoints
from perseid.state.durability.blob import Identity
from perseid.state.durability.checkpoint import Manifest, read_manifest, read_state
from perseid.state.durability.files import Files
from perseid.state.durability.log import StateLog
from perseid.state.durability.store import Store
from perseid.worker.recovery.migration import Migration
from perseid.worker.recovery.resplit import Share


@dataclass
class PartitionRestore:
    """The restore of one partition, over ports. `share`: its share of its operator."""

    files: Files
    store: Store
    log: StateLog
    task: Task
    identity: Identity
    share: Share

    @cached_property
    def _migration(self) -> Migration:
        return Migration(self.share.instance())

    def run(self, order: RestoreOrder) -> Restored:
        self.log.create()
        events = self.log.repair()
        crashpoints.reach("restore.during", self.identity.operator)
        self._discard_stale(order)
        held = self._from_log(order)
        if held is not None and self._is_older(order, held):
            held = None
        found = self._from_checkpoint(order, held, events) or held
        if found is None:
            if order.pointers:
                raise self._unreadable(order, events)
            self.log.discard_from(0)
            self.log.write_snapshot(
                order.base_epoch, order.generation, order.base_offset,
                self._migration.run({}, order.base_epoch),
            )  # fmt: skip
            found = self._at(order.base_epoch, "scratch")
        return replace(found, events=tuple(events))

    def _discard_stale(self, order: RestoreOrder) -> None:
        """Discards entries of epochs that were issued again, or rolled back."""
        for epoch in self.log.epochs():
            known = order.tokens.get(epoch)
            if known is None and epoch <= order.tip_epoch:
                continue
            offset = self.log.entry(epoch).header.token_offset
            if offset == known:
                continue
            if offset >= order.taken_back_below:
                raise lost_by_broker(
                    f"the state of {self.task.label} has epoch {epoch} of the token at offset "
                    f"{offset}, and the token log has none there"
                )
            self.log.discard_from(epoch)
            return

    def _from_log(self, order: RestoreOrder) -> Restored | None:
        last = self.log.last_epoch()
        if last is None or last not in order.tokens:
            return None
        held_from = self._held_from(last)
        floor = order.floor
        if floor is not None and last > floor and held_from > floor + 1:
            if min(self.log.snapshots()) > floor:
                return None
            self.log.discard_from(floor + 1)
            last, held_from = floor, self._held_from(floor)
        return Restored(self.task.gid, last, held_from, self._source(last))

    def _source(self, last: int) -> str:
        """Whose log it is at its last epoch; a snapshot alone is a complete checkpoint's."""
        if last in self.log.epochs() and self.log.entry(last).header.generation == MUTED:
            return UNCOMMITTED
        return "log"

    def _is_older(self, order: RestoreOrder, held: Restored) -> bool:
        """Whether the log may end with state that this revision's operator has to migrate."""
        return (
            self._migration.is_written
            and held.epoch == order.base_epoch
            and any(pointer.epoch == order.base_epoch for pointer in _usable(order))
        )  # fmt: skip

    def _held_from(self, last: int) -> int:
        """The first epoch from which on the log can return every epoch up to `last`."""
        return self.log.outputs_from(last)

    def _from_checkpoint(
        self, order: RestoreOrder, held: Restored | None, events: list[str]
    ) -> Restored | None:
        """The newest readable checkpoint that is newer than the log."""
        for pointer in _usable(order):
            if held is not None and pointer.epoch <= held.epoch:
                break
            try:
                manifest = read_manifest(self.store, pointer.manifest, pointer.crc)
                sections = self._part(manifest, pointer)
            except DamagedFile as error:
                events.append(f"checkpoint {pointer.epoch} of {self.task.label} unusable: {error}")
                continue
            self.log.discard_from(0)
            self.log.write_snapshot(
                pointer.epoch, pointer.generation, pointer.token_offset, sections
            )
            return self._at(pointer.epoch, f"checkpoint:{pointer.epoch}")
        return None

    def _unreadable(self, order: RestoreOrder, events: list[str]) -> PermanentError:
        tried = ", ".join(str(p.epoch) for p in _usable(order)) or "none old enough"
        return PermanentError(
            f"no checkpoint of {self.task.label} can be read (tried: {tried}); "
            + "; ".join(events)
            + ". The state is not replaced by an empty one. Repair the checkpoint store, or "
            "start over with `perseid jobs start JOB --from scratch`"
        )

    def _part(self, manifest: Manifest, pointer: CheckpointPointer) -> Mapping[str, Any]:
        count = manifest.parallelism(self.task.operator)
        if pointer.layout != self.identity.layout and count == 0:
            return self._migration.run({}, pointer.epoch)  # added by this layout: starts empty
        if pointer.layout == self.identity.layout or count == self.share.parallelism:
            return self._state(manifest, self.task.partition)
        parts = (self._state(manifest, number) for number in range(count))
        return self.share.of(parts, count, pointer.epoch)

    def _state(self, manifest: Manifest, partition: int) -> Mapping[str, Any]:
        """The state of an old partition of the operator, converted for this revision."""
        found = read_state(self.store, manifest, self.task.operator, partition)
        return self._migration.run(found, manifest.epoch)

    def _at(self, epoch: int, source: str) -> Restored:
        return Restored(self.task.gid, epoch, epoch + 1, source)


def _usable(order: RestoreOrder) -> tuple[CheckpointPointer, ...]:
    """The usable checkpoints, newest first; none above the floor."""
    return tuple(p for p in order.pointers if order.floor is None or p.epoch <= order.floor)
