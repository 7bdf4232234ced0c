"""Objects that the kernel writes are those that orjson writes of the same values."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import PermanentError
from perseid.kernels import json_encode

COLUMNS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        | st.text("\"\\\x00\x1f\x7fé", max_size=20),
        st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.booleans(),
        st.none() | st.integers(0, 255),
    ),
    max_size=9,
)  # fmt: skip


def fields(table: pa.Table) -> list[json_encode.Field]:
    return [
        json_encode.Field(
            b"%s%s:" % (b"," if i else b"{", orjson.dumps(name)), table.column(name)
        )
        for i, name in enumerate(table.column_names)
    ]  # fmt: skip


@given(COLUMNS, st.integers(0, 3))
def test_written_objects_are_those_of_orjson(rows: list[tuple[Any, ...]], start: int) -> None:
    kinds = (pa.string(), pa.int64(), pa.bool_(), pa.uint8())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    table = pa.table(arrays, names=["s", "n", "b", "u"]).slice(start)
    found = json_encode.encode(fields(table), table.num_rows)
    found.validate(full=True)
    assert found.to_pylist() == [orjson.dumps(row) for row in table.to_pylist()]


def test_every_byte_is_escaped_as_orjson_does_it() -> None:
    texts = ["x" * before + chr(c) + "y" * after for c in range(128) for before in range(10)
             for after in (0, 9)]  # fmt: skip
    found = json_encode.encode([json_encode.Field(b"", pa.array(texts))], len(texts))
    assert found.to_pylist() == [orjson.dumps(text) + b"}" for text in texts]


def test_texts_that_are_json_already_stand_as_they_are() -> None:
    texts = json_encode.Field(b'{"f": ', pa.array(["1.5", "null", "[]"]), is_json=True)
    assert json_encode.encode([texts], 3).to_pylist() == [
        b'{"f": 1.5}', b'{"f": null}', b'{"f": []}',
    ]  # fmt: skip


def test_types_that_the_kernel_takes() -> None:
    assert all(map(json_encode.is_plain, (pa.string(), pa.bool_(), pa.int8(), pa.uint32())))
    others = (pa.uint64(), pa.float64(), pa.binary(), pa.large_string(), pa.date32())
    assert not any(map(json_encode.is_plain, others))


def test_more_than_an_array_holds_is_refused_before_it_is_written() -> None:
    with pytest.raises(PermanentError, match=r"may have 3\d+ bytes of JSON.*maxRecords"):
        json_encode.encode([json_encode.Field(b"x" * 3_000_000_000, pa.array([1]))], 1)
