"""Bringing one operator partition's state back: from the log on this host, else a checkpoint.

1. The directory of the owner before on this host is renamed to ours, which fences that owner,
   before the token log is read (`restoring.fence`).
2. The log is repaired: what is damaged, and all behind it, is set aside; entries made for tokens
   that were taken back are discarded. A token that is gone without that is an error: the broker has
   lost it, and what came of its epoch may stand in the sink topics.
3. A checkpoint that is newer than the log (which another host's owner has left behind, or which a
   power failure has cut) is put into an empty log: the newest one that can be read; a damaged part
   means an older checkpoint and an event. Else a log that the tokens reach back to is the state.
4. A checkpoint of a layout with another number of the operator's partitions is dealt out anew.
5. Before a revision's first epoch, where its operator migrates state, the state is that of the
   checkpoint with which the revision before ended (`migration`).
6. Only a job without any complete checkpoint starts from empty state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

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
from perseid.worker.recovery.resume import Restored


@dataclass(frozen=True)
class RestoreOrder:
    """What to restore to.

    `tokens`: epoch -> offset of the valid tokens behind the oldest usable base. `tip_epoch`: the
    newest of them. `taken_back_below`: a token below this offset may have been taken back. `floor`:
    the state must not be above it, None at the first try.
    """

    tokens: Mapping[int, int]
    tip_epoch: int
    taken_back_below: int
    pointers: tuple[CheckpointPointer, ...]
    base_epoch: int
    base_offset: int
    generation: int
    floor: int | None = None

    @property
    def complete_epoch(self) -> int:
        """That of the newest complete checkpoint, 0 without one."""
        return self.pointers[0].epoch if self.pointers else 0


@dataclass
class PartitionRestore:
    """The restore of one partition, over ports. `share`: what it is of its operator."""

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
        if held is not None and self._is_of_before(order, held):
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
        """Entries of epochs that were issued anew, or taken back and not issued again."""
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
            return None
        return Restored(self.task.gid, last, held_from, "log")

    def _is_of_before(self, order: RestoreOrder, held: Restored) -> bool:
        """Whether the log may end with state that this revision's operator has to migrate."""
        return (
            self._migration.is_written
            and held.epoch == order.base_epoch
            and any(pointer.epoch == order.base_epoch for pointer in _usable(order))
        )  # fmt: skip

    def _held_from(self, last: int) -> int:
        """The first epoch from which on the log has every delta up to `last`."""
        held = set(self.log.epochs())
        first = last + 1
        while first - 1 in held:
            first -= 1
        return first

    def _from_checkpoint(
        self, order: RestoreOrder, held: Restored | None, events: list[str]
    ) -> Restored | None:
        """The newest readable checkpoint that is newer than what the log holds."""
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
        """What a partition of the operator had, as this revision keeps it."""
        found = read_state(self.store, manifest, self.task.operator, partition)
        return self._migration.run(found, manifest.epoch)

    def _at(self, epoch: int, source: str) -> Restored:
        return Restored(self.task.gid, epoch, epoch + 1, source)


def _usable(order: RestoreOrder) -> tuple[CheckpointPointer, ...]:
    """Newest first; none above the floor."""
    return tuple(p for p in order.pointers if order.floor is None or p.epoch <= order.floor)
