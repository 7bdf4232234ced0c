"""Checkpoints in the store: one part an operator partition, one manifest that names them all.

    jobs/<job>/<job_uuid>/c-<epoch>-g<generation>/<operator>-<partition>.part
    jobs/<job>/<job_uuid>/c-<epoch>-g<generation>/manifest.json

A part is a state file (see `blob`) of kind "part". The manifest has each part's size and CRC, and a
CRC of its own; the manifest's CRC is in the pointer that makes the checkpoint count. So a restore
either gets exactly what was written or raises DamagedFile, and the caller takes the checkpoint
before, never an empty state.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from perseid.errors import DamagedFile
from perseid.records import crashpoints
from perseid.state import blob
from perseid.state.blob import Header, Identity, Sections
from perseid.state.store import Store

PART = "part"
MANIFEST = "manifest.json"
FORMAT = 1
UPLOAD_BYTES = 1 << 20  # a part goes out in pieces of this size: small next to a part, not a packet
_FOLDER = re.compile(r"c-(\d+)-g(\d+)")


@dataclass(frozen=True, slots=True)
class Part:
    """One operator partition's share; `crc` is the one that ends its file (`blob.stated_crc`)."""

    operator: str
    partition: int
    path: str
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete checkpoint: the state at the end of `epoch`, whose token is at `token_offset`."""

    job: str
    job_uuid: str
    epoch: int
    generation: int
    layout: int
    revision: str
    token_offset: int
    time_ms: int
    parts: tuple[Part, ...]

    def part(self, operator: str, partition: int) -> Part:
        """The part of an operator partition. DamagedFile when the checkpoint has none."""
        for part in self.parts:
            if (part.operator, part.partition) == (operator, partition):
                return part
        raise DamagedFile(
            f"the checkpoint of epoch {self.epoch} of job {self.job} has no part of "
            f"{operator}-{partition}"
        )


def job_folder(job: str, job_uuid: str) -> str:
    """Where all checkpoints of a job are."""
    return f"jobs/{job}/{job_uuid}"


def checkpoint_folder(job: str, job_uuid: str, epoch: int, generation: int) -> str:
    return f"{job_folder(job, job_uuid)}/c-{epoch}-g{generation}"


def part_path(folder: str, operator: str, partition: int) -> str:
    """Where a part is, given its `checkpoint_folder`."""
    return f"{folder}/{operator}-{partition}.part"


def manifest_path(job: str, job_uuid: str, epoch: int, generation: int) -> str:
    return f"{checkpoint_folder(job, job_uuid, epoch, generation)}/{MANIFEST}"


def write_part(
    store: Store, path: str, header: Header, sections: Mapping[str, Any]
) -> tuple[int, int]:
    """Uploads a part; returns its bytes and CRC. `header`'s kind becomes "part".

    The CRC is the file's own, over all before it. One over the whole file would be the same number
    for every part: that is what a CRC over data and its CRC comes to.
    """
    chunks = blob.encode(replace(header, kind=PART), sections)
    size, _ = store.write(path, _pieces(chunks))
    return size, blob.stated_crc(chunks[-1])


def read_part(
    store: Store, path: str, identity: Identity, crc: int, *, epoch: int | None = None
) -> Sections:
    """The sections of a part. DamagedFile when it is missing or anything in it is not as it was."""
    data = store.read(path)
    found = blob.stated_crc(data)
    if found != crc:
        raise DamagedFile(f"{path} ends with the CRC {found:08x}, its manifest says {crc:08x}")
    header, sections = blob.decode(data, where=path, identity=identity, kind=PART)
    if epoch is not None and header.epoch != epoch:
        raise DamagedFile(f"{path} is of epoch {header.epoch}, expected {epoch}")
    return sections


def read_state(store: Store, manifest: Manifest, operator: str, partition: int) -> Sections:
    """The whole state of an operator partition, as the sections of a snapshot of its epoch.

    A primitive without a section is empty. DamagedFile when the checkpoint has no such partition,
    or when anything of it is missing or not as it was written.
    """
    part = manifest.part(operator, partition)
    identity = Identity(manifest.job_uuid, manifest.layout, operator, partition)
    return read_part(store, part.path, identity, part.crc, epoch=manifest.epoch)


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON with a CRC over all other fields."""
    fields = {"format": FORMAT, **asdict(manifest)}
    return _canonical({**fields, "crc": zlib.crc32(_canonical(fields))})


def decode_manifest(data: Any, where: str) -> Manifest:
    """The manifest in `data`; DamagedFile, naming `where`, when it is not what was written."""
    try:
        fields = json.loads(bytes(data))
        crc = fields.pop("crc")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFile(f"{where} is not a manifest: {error!r}") from error
    # Compared as bytes, so that a change which means the same to JSON is found too.
    if bytes(data) != _canonical({**fields, "crc": crc}) or zlib.crc32(_canonical(fields)) != crc:
        raise DamagedFile(f"{where} does not match its CRC")
    if fields.pop("format") != FORMAT:
        raise DamagedFile(f"{where} has another format than {FORMAT}, which this program reads")
    parts = tuple(Part(**part) for part in fields.pop("parts"))
    return Manifest(**fields, parts=parts)


def write_manifest(store: Store, manifest: Manifest) -> tuple[str, int]:
    """Writes the manifest; returns path and CRC for the pointer. All parts must be written."""
    path = manifest_path(manifest.job, manifest.job_uuid, manifest.epoch, manifest.generation)
    _, crc = store.write(path, [encode_manifest(manifest)])
    return path, crc


def read_manifest(store: Store, path: str, crc: int) -> Manifest:
    """The manifest that a pointer names; DamagedFile when it is missing or another."""
    data = store.read(path)
    found = zlib.crc32(data)
    if found != crc:
        raise DamagedFile(f"{path} has the CRC {found:08x}, its pointer says {crc:08x}")
    return decode_manifest(data, path)


def checkpoints(store: Store, job: str, job_uuid: str) -> list[tuple[int, int]]:
    """(epoch, generation) of all checkpoints in the store, begun or complete, sorted."""
    top = job_folder(job, job_uuid)
    found = {path[len(top) + 1 :].split("/")[0] for path in store.list(top)}
    matches = (_FOLDER.fullmatch(name) for name in found)
    return sorted((int(m[1]), int(m[2])) for m in matches if m is not None)


def delete_checkpoint(store: Store, job: str, job_uuid: str, epoch: int, generation: int) -> None:
    """Removes a checkpoint, the manifest first: what is half removed is not complete."""
    store.delete(manifest_path(job, job_uuid, epoch, generation))
    store.delete(checkpoint_folder(job, job_uuid, epoch, generation))


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _pieces(chunks: Iterable[memoryview]) -> Iterator[memoryview]:
    for chunk in chunks:
        for start in range(0, len(chunk), UPLOAD_BYTES):
            yield chunk[start : start + UPLOAD_BYTES]
            crashpoints.reach("checkpoint.during-upload")
