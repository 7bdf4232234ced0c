"""A checkpoint's part of one operator partition, made after the epoch from immutable files.

    net:    the deltas since the previous checkpoint, from the state log, as one net delta
    whole:  the log's newest snapshot and the deltas after it, as a new snapshot of the log

The part is a net delta if the newest complete checkpoint is a usable base: the same owner made it,
its manifest is readable, and its chain is short (`Manifest.may_grow`). So no part builds on what an
older owner could not read. All partitions see the same manifest; one whose changes have outgrown
its state copies it at once (`partition_state.copy_at_once`), so chains begin at different epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from perseid.clocks import Clock, SystemClock
from perseid.errors import DamagedFile, RetryableError
from perseid.records import PartFile
from perseid.state.durability.blob import Header, Identity
from perseid.state.durability.checkpoint import (
    NET,
    PART,
    Manifest,
    checkpoint_folder,
    part_path,
    read_manifest,
    write_part,
)
from perseid.state.durability.files import Files
from perseid.state.durability.log import LogEntry, StateLog
from perseid.state.durability.merging import SCHEMA, STATE, net_sections, whole_sections
from perseid.state.durability.store import Store
from perseid.state.primitives.arrow import ipc_chunks
from perseid.topics.records import PartDone

TO_RESTORE = "; it has to be restored"
AT_ONCE_BYTES = 64 << 20  # of a partition's snapshot: some 25 ms of its task with keys of 88 bytes
MERGED_BYTES = 1 << 16  # of deltas: the part writer merges less than this in a few milliseconds
LOG_BYTES = 64 << 20  # deltas that the log may have, whatever the snapshot's size
LOG_FILES = 4_096  # maximum number of delta files


@dataclass(frozen=True)
class PartOrder:
    """What an epoch records for its checkpoint.

    `directory`: of the state log. `base`: path and CRC of the manifest of the newest complete
    checkpoint; None if that has a previous owner. `schemas`: of the state, by primitive. `emitted`:
    sections with outputs of the epoch, which belong to the state. `final`: of the job's last epoch,
    which waits for the part.
    """

    job: str
    identity: Identity
    directory: str
    generation: int
    epoch: int
    token_offset: int
    base: tuple[str, int] | None
    schemas: Mapping[str, Any]
    emitted: tuple[str, ...]
    final: bool = False

    def encode(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def decode(cls, data: bytes) -> PartOrder:
        fields = orjson.loads(data)
        identity = Identity(**fields["identity"])
        base = tuple(fields["base"]) if fields["base"] is not None else None
        read = {"identity": identity, "base": base, "emitted": tuple(fields["emitted"])}
        return cls(**{**fields, **read})


def at_once(state_bytes: int, delta_bytes: int) -> bool:
    """Whether the epoch's task copies its whole state, for the log's next snapshot.

    Otherwise the part writer reads all deltas since the previous checkpoint, `delta_bytes`. If
    keys change repeatedly these are many times larger than the state, and merging them slows the
    epochs down (decisions/0008). Copying a large state would delay its epoch.
    """
    return state_bytes <= AT_ONCE_BYTES and delta_bytes >= max(2 * state_bytes, MERGED_BYTES)


@dataclass(frozen=True)
class StateCopy:
    """The state of an order's epoch, as a process held it; `emitted` as in `PartOrder`, with data.

    The part is then whole. A process that takes the order over without the copy reads the log.
    """

    tables: Mapping[str, pa.Table]  # snapshots, by primitive
    emitted: Mapping[str, Any]

    def write(self, files: Files, order: PartOrder) -> None:
        """Puts the state into the log as one file, unless the epoch has one."""
        log = StateLog(files, order.directory, order.identity)
        sections = {STATE + name: ipc_chunks(table) for name, table in self.tables.items()}
        log.write_snapshot(
            order.epoch, order.generation, order.token_offset, {**sections, **self.emitted}
        )


def make(
    order: PartOrder, files: Files, store: Store, clock: Clock | None = None
) -> PartDone:  # fmt: skip
    """Builds and uploads the part; after a crash, repeating it resumes the upload.

    Raises FencedError when the log has another owner, RetryableError when it lacks the epoch.
    """
    clock = clock or SystemClock()
    started_s = clock.monotonic_s()
    log = StateLog(files, order.directory, order.identity)
    before = _before(order, store)
    if _outgrown(log, whole_part=before is None):
        write_snapshot(log, order)
    sections: Mapping[str, Any]
    if before is None:
        kind, chain = PART, tuple[PartFile, ...]()
        sections = state_of(log, order)
    else:
        part = before.part(order.identity.operator, order.identity.partition)
        kind, chain = NET, part.files(before.epoch)
        sections = _net(log, order, before.epoch)
    header = Header(kind, order.identity, order.epoch, order.generation, order.token_offset)
    folder = checkpoint_folder(
        order.job, order.identity.job_uuid, order.epoch, order.generation, order.token_offset
    )
    path = part_path(folder, order.identity.operator, order.identity.partition, kind)
    size, crc = write_part(store, path, header, sections, kind)
    return PartDone(
        job_uuid=order.identity.job_uuid,
        generation=order.generation,
        epoch=order.epoch,
        layout=order.identity.layout,
        operator=order.identity.operator,
        partition=order.identity.partition,
        path=path,
        bytes=size,
        crc=crc,
        seconds=clock.monotonic_s() - started_s,
        chain=chain,
    )


def fold(order: PartOrder, files: Files) -> None:
    """What `make` does for the log: a snapshot when its deltas have outgrown it.

    For a replica, which makes no parts. Raises like `make`.
    """
    log = StateLog(files, order.directory, order.identity)
    if _outgrown(log, whole_part=False):
        write_snapshot(log, order)


def write_snapshot(log: StateLog, order: PartOrder) -> None:
    """Puts the state of the order's epoch into the log as one file, unless it is there."""
    if order.epoch not in log.snapshots():
        sections = state_of(log, order)
        log.write_snapshot(order.epoch, order.generation, order.token_offset, sections)


def state_of(log: StateLog, order: PartOrder) -> Mapping[str, Any]:
    """The sections of a snapshot of the order's epoch: for one state always the same bytes.

    They are views of the log's snapshot of that epoch, if it has one; else as in `blob.encode`.
    """
    base, entries = log.load(order.epoch)
    if base is None:
        raise _short(log, order)
    if not entries:
        return _checked(log, order, base).sections
    last = _checked(log, order, entries[-1])
    sections = whole_sections(order.schemas, base.sections, [e.sections for e in entries])
    return sections | {name: last.sections[name] for name in order.emitted}


def _net(log: StateLog, order: PartOrder, after: int) -> dict[str, Any]:
    entries = list(log.deltas(after, order.epoch))
    if not entries:
        raise _short(log, order)
    last = _checked(log, order, entries[-1])
    sections = net_sections(order.schemas, [entry.sections for entry in entries])
    sections[SCHEMA] = orjson.dumps(order.schemas)
    sections |= {name: last.sections[name] for name in order.emitted}
    return sections


def _before(order: PartOrder, store: Store) -> Manifest | None:
    """The checkpoint on which this one builds; None when the whole state is to be written."""
    if order.base is None:
        return None
    try:
        manifest = read_manifest(store, *order.base)
        part = manifest.part(order.identity.operator, order.identity.partition)
    except DamagedFile:
        return None
    usable = manifest.is_made_by(order.generation, part) and manifest.epoch < order.epoch
    return manifest if usable and manifest.may_grow else None


def _outgrown(log: StateLog, *, whole_part: bool) -> bool:
    """Whether the log gets a new snapshot.

    With a whole part a snapshot of moderate size costs little more. Else the log gets one when the
    deltas outweigh the last snapshot, so that it costs no more than they did.
    """
    base_bytes, delta_bytes, count = log.sizes()
    return (
        (whole_part and base_bytes <= AT_ONCE_BYTES)
        or delta_bytes > max(base_bytes, LOG_BYTES)
        or count > LOG_FILES
    )


def _checked(log: StateLog, order: PartOrder, last: LogEntry) -> LogEntry:
    if (last.header.epoch, last.header.token_offset) != (order.epoch, order.token_offset):
        raise _short(log, order)
    return last


def _short(log: StateLog, order: PartOrder) -> RetryableError:
    return RetryableError(
        f"the state log {order.directory} ends with epoch {log.last_epoch()}, and a checkpoint of "
        f"epoch {order.epoch} (token at {order.token_offset}) was ordered: another one is taken"
    )
