"""Rows to Kafka keys and values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.worker import encode
from perseid.worker.formats import make

TABLE = pa.table({"word": ["x", "y"], "n": [12, None]})


def test_json_is_written_as_people_write_it() -> None:
    assert encode.values(TABLE, "json", None).to_pylist() == [
        b'{"word": "x", "n": 12}', b'{"word": "y", "n": null}',
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\x00", "\x1f", "é", "\U0001f600", "\x7f", ""])
def test_strings_are_escaped_whatever_their_neighbours(text: str) -> None:
    for words in ([text], ["plain", text, None]):
        rows = [json.loads(v) for v in encode.json_values(pa.table({"w": words})).to_pylist()]
        assert rows == [{"w": w} for w in words]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(), st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.booleans(), st.none() | st.floats(allow_nan=False, allow_infinity=False),
        )
    )
)  # fmt: skip
def test_json_read_back_is_what_was_written(rows: list[tuple[Any, ...]]) -> None:
    names = ["word", "n", 'on"', "share"]
    kinds = [pa.string(), pa.int64(), pa.bool_(), pa.float64()]
    columns = [pa.array([r[i] for r in rows], kind) for i, kind in enumerate(kinds)]
    values = encode.json_values(pa.table(columns, names=names)).to_pylist()
    assert [json.loads(v) for v in values] == [dict(zip(names, r, strict=True)) for r in rows]


def test_json_of_times_and_lists() -> None:
    table = pa.table(
        {"at": pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")), "l": [[1]]}
    )
    wanted = [b'{"at": "2026-01-02T00:00:00+00:00", "l": [1]}']
    assert encode.json_values(table).to_pylist() == wanted


def test_what_has_no_json_form_names_the_column() -> None:
    with pytest.raises(BadInputError, match="output column 'raw' of type binary has no JSON form"):
        encode.json_values(pa.table({"raw": [b"\xff"]}))


def test_keys() -> None:
    table = pa.table({"word": ["é", None], "raw": [b"\xff", b""], "n": [1, None]})
    assert encode.keys(table, None).to_pylist() == [None, None]
    assert encode.keys(table, "word").to_pylist() == ["é".encode(), None]
    assert encode.keys(table, "raw").to_pylist() == [b"\xff", b""]
    assert encode.keys(table, "n").to_pylist() == [b"1", None]
    with pytest.raises(BadInputError, match="key is column 'user', and its input has only word"):
        encode.keys(table, "user")


def test_text_and_bytes_take_the_only_column_or_value() -> None:
    assert encode.values(pa.table({"line": ["a"]}), "text", None).to_pylist() == [b"a"]
    table = pa.table({"k": [1], "value": [b"\xff"]})
    assert encode.values(table, "bytes", None).to_pylist() == [b"\xff"]
    with pytest.raises(BadInputError, match="value of format text is column 'value'"):
        encode.values(TABLE, "text", None)


def test_avro_is_what_a_source_reads() -> None:
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Count",
        "fields": [{"name": "word", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }
    values = encode.values(TABLE, "avro", schema).to_pylist()
    found, refused = make("avro", None, schema).decode(pa.array(values, pa.binary()))
    assert (found.to_pylist(), refused) == (TABLE.to_pylist(), {})
    with pytest.raises(BadInputError, match="does not fit the sink's Avro schema"):
        encode.values(pa.table({"word": [1], "n": [1]}), "avro", schema)
