"""Rows come out of a buffer as they went in, and changed ones are noticed."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import DamagedFile
from perseid.topics.buffers import DATA_BYTES_MAX, Blobs, packed, unpacked
from perseid.topics.records import BufferRecord
from perseid.worker.dataflow.buffered import OutgoingSet, incoming, outgoing
from perseid.worker.dataflow.edges import Route, Row, deal, inputs

HEAD = BufferRecord("u", "r", 1, 2, 3, 0, 0, 1, 1, 0, 1, 0, b"")
ROUTE = Route((5, 6, 7), 1, ("k",))


def rows(chunk_bytes: int, count: int = 400) -> list[Row]:
    table = pa.table({"k": [f"k{n}" * (n % 9) for n in range(count)], "n": range(count)})
    parts = np.arange(count) % 2  # none for the third
    return [row for origin in (3, 4) for row in deal(table, ROUTE, origin, parts, chunk_bytes)]


def through(one: OutgoingSet) -> Blobs:
    records = list(packed(HEAD, one.blobs))
    assert [(r.chunk, r.chunks) for r in records] == [
        (n, len(records)) for n in range(len(records))
    ]
    assert all(len(r.data) <= DATA_BYTES_MAX for r in records)
    return Blobs(unpacked([r.data for r in records]), one.rows_crc)


@pytest.mark.parametrize("chunk_bytes", [50, 1000, 1 << 20])
def test_rows_come_out_as_they_went_in(chunk_bytes: int) -> None:
    sent = rows(chunk_bytes)
    for target in ROUTE.targets:
        mine = [row for row in sent if row.target == target]
        Random(target).shuffle(mine)
        found = {(one.input, one.origin): through(one) for one in outgoing(mine)}
        back = incoming(target, found, "x")
        names = ("other", "input")
        assert inputs(back, names)["input"].equals(inputs(mine, names)["input"])
        assert {(r.origin, r.chunk, r.chunks) for r in back} == {
            (r.origin, r.chunk, r.chunks) for r in mine
        }


def test_the_checksum_is_of_the_rows_and_not_of_their_chunks() -> None:
    small, large = list(outgoing(rows(50))), list(outgoing(rows(1 << 20)))
    assert len(small[0].blobs) > len(large[0].blobs)
    assert [one.rows_crc for one in small] == [one.rows_crc for one in large]
    assert len({one.rows_crc for one in small}) == 3  # two targets have rows, one has none
    assert [one.rows_crc for one in small if one.target == 7] == [0, 0]


def test_a_set_larger_than_a_record_is_cut() -> None:
    large = Random(1).randbytes(2 * DATA_BYTES_MAX)
    records = list(packed(HEAD, [b"", large, b"end"]))
    assert len(records) == 3
    assert [bytes(blob) for blob in unpacked([r.data for r in records])] == [b"", large, b"end"]
    with pytest.raises(DamagedFile, match="its records do not belong together"):
        unpacked([r.data for r in records[:2]])
    assert list(packed(HEAD, [])) == [HEAD]
    assert unpacked([b""]) == ()


def test_other_rows_than_were_sent_are_refused() -> None:
    (one, other, *_) = outgoing(rows(1 << 20))
    with pytest.raises(DamagedFile, match=r"^epoch 7: the rows of input 1 from origin 3 have the "):
        incoming(5, {(1, 3): Blobs(through(one).blobs[:0], one.rows_crc)}, "epoch 7")
    assert one.rows_crc == other.rows_crc, "of two origins with the same rows"
