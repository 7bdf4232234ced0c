"""State files: every damage is found."""

from __future__ import annotations

import random
import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import DamagedFile
from perseid.state.durability.blob import ALIGNMENT, Header, Identity, decode, encode
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

IDENTITY = Identity("0b7e", 2, "counts", 3)
HEADER = Header("delta", IDENTITY, epoch=7, generation=4, token_offset=99)


def written(sections: dict[str, bytes]) -> bytes:
    return b"".join(encode(HEADER, sections))


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=200), max_size=4))
def test_what_is_read_is_what_was_written(sections: dict[str, bytes]) -> None:
    header, found = decode(written(sections), where="f", identity=IDENTITY, kind="delta")
    assert header == HEADER
    assert {name: bytes(view) for name, view in found.items()} == sections


@given(st.lists(st.binary(max_size=100), max_size=4), st.binary(max_size=9))
def test_a_section_in_chunks_is_the_same_file(chunks: list[bytes], other: bytes) -> None:
    parts = [memoryview(chunk) for chunk in chunks]
    in_chunks = b"".join(encode(HEADER, {"a": parts, "b": other}))
    assert in_chunks == written({"a": b"".join(chunks), "b": other})


def test_sections_are_aligned_views_of_the_file() -> None:
    data = written({"a": b"\xaa" * 9, "b": b"\xbb" * 65})
    _, sections = decode(data, where="f")
    for view in sections.values():
        assert view.obj is data
        assert data.find(bytes(view)) % ALIGNMENT == 0


@pytest.mark.security("5.9")
def test_every_truncation_is_found() -> None:
    data = written({"out": b"0123456789"})
    for size in range(len(data)):
        with pytest.raises(DamagedFile, match="file-x"):
            decode(data[:size], where="file-x")
    with pytest.raises(DamagedFile, match="its header gives"):
        decode(data + b"\0", where="f")


@pytest.mark.security("5.9")
def test_every_flipped_bit_is_found() -> None:
    data = written({"out": b"0123456789"})
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFile):
            decode(bytes(damaged), where="f")


@pytest.mark.security("5.9")
def test_random_bits_of_a_large_file_are_found() -> None:
    chance = random.Random(5)
    data = bytearray(written({"a": chance.randbytes(100_000), "b": chance.randbytes(50_000)}))
    for _ in range(200):
        bit = chance.randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedFile, match=r"CRC|begin|header gives"):
            decode(data, where="f")
        data[bit // 8] ^= 1 << bit % 8
    assert decode(data, where="f")[0] == HEADER


@pytest.mark.parametrize(
    "other",
    [
        Identity("0b7f", 2, "counts", 3),
        Identity("0b7e", 1, "counts", 3),
        Identity("0b7e", 2, "count", 3),
        Identity("0b7e", 2, "counts", 0),
    ],
)
@pytest.mark.security("5.9")
def test_a_valid_file_of_another_identity_is_refused(other: Identity) -> None:
    with pytest.raises(DamagedFile, match="expected Identity"):
        decode(written({}), where="f", identity=other)


@pytest.mark.security("5.9")
def test_another_kind_and_another_version_are_refused() -> None:
    with pytest.raises(DamagedFile, match="is a delta, expected a part"):
        decode(written({}), where="f", kind="part")
    data = bytearray(written({}))
    data[8:10] = struct.pack("<H", 2)
    data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
    with pytest.raises(DamagedFile, match="format version 2"):
        decode(data, where="f")


def test_arrow_tables_through_a_section() -> None:
    table = pa.table({"a": ["x", None], "n": [1, 2]})
    _, sections = decode(written({"t": ipc_bytes(table)}), where="f")
    assert ipc_table(sections["t"]).equals(table)
    with pytest.raises(DamagedFile, match="cannot be read"):
        ipc_table(b"not arrow")
