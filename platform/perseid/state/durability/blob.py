"""The one file format of the state: log entries, snapshots and checkpoint parts.

    8 bytes  magic "PERSEIDS"         little endian throughout
    2        version                  2 reserved
    4        length of the header
    8        length of the whole file
    -        header: JSON with kind, identity, epoch, generation, token offset, places of sections
    -        sections, each at a multiple of 64 bytes, as Arrow prefers
    4        CRC-32 of everything before

The CRC covers the identity, which is compared with the reader's expectation, so a valid file in the
wrong place is found as surely as a flipped bit. Neither encoding nor decoding copies sections.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from perseid.errors import DamagedFile

MAGIC = b"PERSEIDS"
VERSION = 1
ALIGNMENT = 64
_PREFIX = struct.Struct("<8sHHIQ")
_CRC = struct.Struct("<I")

Sections = dict[str, memoryview]


@dataclass(frozen=True, slots=True)
class Identity:
    """The operator partition whose state a file holds."""

    job_uuid: str
    layout: int
    operator: str
    partition: int


@dataclass(frozen=True, slots=True)
class Header:
    """The contents of a file: the state or change of `identity` at the end of `epoch`.

    `token_offset` is the offset of the epoch's token in the token log; a file with another offset
    than the valid token's is stale. `generation` is the writer's.
    """

    kind: str
    identity: Identity
    epoch: int
    generation: int
    token_offset: int


def encode(header: Header, sections: Mapping[str, Any]) -> list[memoryview]:
    """The file as chunks, to be written one after another.

    `sections` are bytes-like, or lists of memoryviews of bytes (`arrow.ipc_chunks`).
    """
    views = {
        name: data if isinstance(data, list) else [memoryview(data).cast("B")]
        for name, data in sections.items()
    }
    sizes = {name: sum(map(len, parts)) for name, parts in views.items()}
    places, end = [], 0
    for name, size in sizes.items():
        places.append([name, end, size])
        end = _aligned(end + size)
    text = orjson.dumps({
        "kind": header.kind, "identity": header.identity, "epoch": header.epoch,
        "generation": header.generation, "token_offset": header.token_offset, "sections": places,
    })  # fmt: skip
    start = _aligned(_PREFIX.size + len(text))
    size = start + end + _CRC.size
    front = _PREFIX.pack(MAGIC, VERSION, 0, len(text), size) + text
    chunks = [memoryview(front.ljust(start, b"\0"))]
    for name, parts in views.items():
        chunks.extend(parts)
        padding = _aligned(sizes[name]) - sizes[name]
        if padding:
            chunks.append(memoryview(bytes(padding)))
    chunks.append(memoryview(_CRC.pack(checksum(chunks))))
    return chunks


def decode(
    data: Any, *, where: str, identity: Identity | None = None, kind: str | None = None
) -> tuple[Header, Sections]:
    """Header and sections of a file, as views of `data`.

    Raises DamagedFile, naming `where`, when a byte is wrong or missing, or when the file has
    another identity or kind than expected.
    """
    view = memoryview(data).cast("B")
    header_length = _check(view, where)
    fields = orjson.loads(view[_PREFIX.size : _PREFIX.size + header_length])
    places = fields.pop("sections")
    fields["identity"] = Identity(**fields["identity"])
    header = Header(**fields)
    if identity is not None and header.identity != identity:
        raise DamagedFile(f"{where} is of {header.identity}, expected {identity}")
    if kind is not None and header.kind != kind:
        raise DamagedFile(f"{where} is a {header.kind}, expected a {kind}")
    start = _aligned(_PREFIX.size + header_length)
    sections = {name: view[start + at : start + at + length] for name, at, length in places}
    return header, sections


def checksum(chunks: list[memoryview]) -> int:
    """CRC-32 over consecutive chunks."""
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return crc


def stated_crc(data: Any) -> int:
    """The CRC at the end of a file, over all bytes before it; -1 when the file is too short."""
    view = memoryview(data).cast("B")
    if len(view) < _CRC.size:
        return -1
    (crc,) = _CRC.unpack_from(view, len(view) - _CRC.size)
    return int(crc)


def _check(view: memoryview, where: str) -> int:
    """Checks everything except the JSON header; returns the length of the header."""
    if len(view) < _PREFIX.size + _CRC.size:
        raise DamagedFile(f"{where} is cut off: {len(view)} bytes")
    magic, version, _, header_length, size = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise DamagedFile(f"{where} does not begin as a state file does: {bytes(magic)!r}")
    if size != len(view):
        raise DamagedFile(f"{where} has {len(view)} bytes, its header gives {size}")
    crc = stated_crc(view)
    found = zlib.crc32(view[: -_CRC.size])
    if found != crc:
        raise DamagedFile(f"{where} has the CRC {found:08x}, expected {crc:08x}")
    if version != VERSION:
        raise DamagedFile(f"{where} has format version {version}, this program reads {VERSION}")
    return int(header_length)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
