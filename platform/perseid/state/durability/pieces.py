"""Large files of the store in numbered pieces, so that an interrupted upload can resume.

A file of up to PIECE_BYTES is stored under its path. A larger one is stored as `<path>.0000`,
`<path>.0001` and so on, each with PIECE_BYTES of its bytes (the last one with the rest) and their
CRC-32. An existing piece with the right bytes is not written again: a process with the same
immutable source resumes the upload of one that died.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from perseid.errors import DamagedFile
from perseid.records import crashpoints
from perseid.state.durability.store import Store

PIECE_BYTES = 8 << 20  # a second on a slow line, and not too many files for gigabytes
CHUNK_BYTES = 1 << 20  # passed to the store at once
_CRC = struct.Struct("<I")
_PIECE = re.compile(r"\.\d{4,}")


def write_pieces(store: Store, path: str, chunks: list[memoryview], operator: str = "") -> int:
    """Writes the missing pieces, of the state of `operator`; returns the bytes of the file."""
    size = sum(len(chunk) for chunk in chunks)
    if size <= PIECE_BYTES:
        store.write(path, _small(chunks, operator))
        return size
    there = set(store.list(path.rpartition("/")[0]))
    for number, piece in enumerate(_cut(chunks)):
        crc = 0
        for chunk in piece:
            crc = zlib.crc32(chunk, crc)
        name = piece_path(path, number)
        if name not in there or not _holds(store, name, crc, sum(map(len, piece))):
            store.write(name, [*_small(piece, operator), _CRC.pack(crc)])
    return size


def read_pieces(store: Store, path: str, size: int) -> memoryview:
    """The file of `size` bytes.

    DamagedFile when a piece is missing or differs from what was written.
    """
    if size <= PIECE_BYTES:
        return store.read(path)
    found = bytearray(size)
    for number, at in enumerate(range(0, size, PIECE_BYTES)):
        name = piece_path(path, number)
        data = _checked(store.read(name), name)
        expected = min(PIECE_BYTES, size - at)
        if len(data) != expected:
            raise DamagedFile(f"{name} has {len(data)} bytes, expected {expected}")
        found[at : at + expected] = data
    return memoryview(found)


def piece_path(path: str, number: int) -> str:
    return f"{path}.{number:04d}"


def file_of(path: str) -> str:
    """The file that `path` is, or is a piece of."""
    return _PIECE.sub("", path) if _PIECE.fullmatch(path[path.rfind(".") :]) else path


def _holds(store: Store, name: str, crc: int, size: int) -> bool:
    """Whether a stored piece has the expected bytes: it is read again and compared."""
    try:
        data = _checked(store.read(name), name)
    except DamagedFile:
        return False
    return len(data) == size and zlib.crc32(data) == crc


def _checked(data: memoryview, name: str) -> memoryview:
    """A piece's bytes without their CRC."""
    content = data[: -_CRC.size]
    if len(data) < _CRC.size or _CRC.unpack(data[-_CRC.size :])[0] != zlib.crc32(content):
        raise DamagedFile(f"{name} does not match its CRC")
    return content


def _cut(chunks: Iterable[memoryview]) -> Iterator[list[memoryview]]:
    """The bytes of `chunks` in lists of PIECE_BYTES each, without a copy."""
    piece: list[memoryview] = []
    room = PIECE_BYTES
    for chunk in chunks:
        rest = chunk
        while len(rest):
            piece.append(rest[:room])
            rest, room = rest[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], PIECE_BYTES
    if piece:
        yield piece


def _small(chunks: Iterable[memoryview], operator: str) -> Iterator[Any]:
    for chunk in chunks:
        for start in range(0, len(chunk), CHUNK_BYTES):
            yield chunk[start : start + CHUNK_BYTES]
            crashpoints.reach("checkpoint.during-upload", operator)
