"""Rows to Kafka keys and values."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.worker.formats import encode
from perseid.worker.formats.decode import make

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


MICROS = st.integers(-62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.none() | st.floats(), st.none() | MICROS)), st.integers(0, 2))
def test_numbers_and_times_are_written_as_orjson_writes_single_ones(
    rows: list[tuple[float | None, int | None]], start: int
) -> None:
    floats, times = pa.array([f for f, _ in rows], pa.float64()), pa.array([t for _, t in rows])
    columns = {
        "f": floats, "g": floats.cast(pa.float32()), "h": floats.cast(pa.float16()),
        "t": times.cast(pa.int64()).cast(pa.timestamp("us", "UTC")),
        "u": times.cast(pa.int64()).cast(pa.timestamp("us")),
    }  # fmt: skip
    table = pa.table(columns).slice(start)
    wanted = table.to_pylist()
    values = encode.json_values(table).to_pylist()
    for name in columns:
        texts = encode.json_values(table.select([name])).to_pylist()
        assert texts == [b'{"%s": %s}' % (name.encode(), orjson.dumps(r[name])) for r in wanted]
    assert [orjson.loads(value) for value in values] == [
        orjson.loads(orjson.dumps(row)) for row in wanted
    ]


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


FAR = pa.array([0, -62_135_600_400 * 10**6, 253_402_318_799 * 10**6, 2**63 - 1, None])
TIME_TYPES = [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns")]


@pytest.mark.parametrize("kind", TIME_TYPES, ids=str)
def test_times_that_python_has_no_value_for_are_written_as_the_others_are(
    kind: pa.DataType,
) -> None:
    table = pa.table({"at": FAR.cast(kind)})
    found = [json.loads(v)["at"] for v in encode.json_values(table).to_pylist()]
    assert found[0].startswith("1970-01-01T00:00:00")
    assert found[4] is None
    if kind.unit == "us":
        zone = "+00:00" if kind.tz else ""
        far = ["0000-12-31T23:00:00.000000", "10000-01-01T04:59:59.000000",
               "294247-01-10T04:00:54.775807"]  # fmt: skip
        assert [text.removesuffix(zone) for text in found[1:4]] == far
    alone = [json.loads(encode.json_values(table.slice(i, 1))[0].as_py())["at"] for i in range(5)]
    assert found == alone
    for format_ in ("text", "bytes"):
        assert len(encode.values(table, format_, None)) == 5
    assert len(encode.keys(table, "at")) == 5


def test_dates_that_python_has_no_value_for() -> None:
    days = pa.array([0, 2_932_897, None], pa.int32()).cast(pa.date32())
    found = [json.loads(v)["d"] for v in encode.json_values(pa.table({"d": days})).to_pylist()]
    assert found == ["1970-01-01", "10000-01-01", None]


def test_a_value_without_a_json_form_names_its_row_and_is_not_quoted() -> None:
    nested = pa.array([[0], [2**62]]).cast(pa.list_(pa.timestamp("us")))
    with pytest.raises(BadInputError, match=r"'at' of type .* without a JSON form .* in row 1"):
        encode.json_values(pa.table({"at": nested}))
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    with pytest.raises(BadInputError, match=r"\(UnicodeDecodeError\) in row 1"):
        encode._json_column(pa.chunked_array([broken]), "text")


def test_a_type_without_text_is_no_key_and_no_text() -> None:
    table = pa.table({"value": pa.array([[1]]), "n": pa.array([{"a": 1}])})
    with pytest.raises(BadInputError, match=r"value of format text is column .* list<.*no text"):
        encode.values(table, "text", None)
    with pytest.raises(BadInputError, match=r"key is column 'n' of type struct<.*no text"):
        encode.keys(table, "n")


@pytest.mark.parametrize(("logical", "unit"), [("timestamp-millis", 1000), ("timestamp-micros", 1)])
@pytest.mark.parametrize("kind", TIME_TYPES[:2], ids=str)
def test_avro_takes_every_time_rounded_down(logical: str, unit: int, kind: pa.DataType) -> None:
    at = ["null", {"type": "long", "logicalType": logical}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": at}]}
    times = pa.array([*FAR.to_pylist(), -1])
    values = encode.values(pa.table({"at": times.cast(kind)}), "avro", schema).to_pylist()
    plain = fastavro.parse_schema({**schema, "fields": [{"name": "at", "type": ["null", "long"]}]})
    read = [fastavro.schemaless_reader(io.BytesIO(v), plain, None) for v in values]
    assert read == [{"at": None if t is None else t // unit} for t in times.to_pylist()]


def test_an_avro_time_too_large_for_its_unit_is_refused() -> None:
    at = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": at}]}
    with pytest.raises(BadInputError, match="column 'at' has a time that the sink's Avro schema"):
        encode.values(pa.table({"at": pa.array([2**62]).cast(pa.timestamp("ms"))}), "avro", schema)


def test_a_row_that_avro_cannot_take_is_named_without_its_values() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": "string"}]}
    far = pa.table({"at": pa.array([2**62]).cast(pa.timestamp("us"))})
    with pytest.raises(BadInputError, match=r"schema \(OverflowError\): {at: timestamp\[us\]}"):
        encode.values(far, "avro", schema)


CANNOT = {
    "json": {
        pa.binary(): r"'c' of type binary .*`base64\(c\) AS c`",
        pa.decimal128(9, 2): r"'c' of type decimal128\(9, 2\) .*`CAST\(c AS STRING\) AS c`",
        pa.duration("us"): "no JSON form",
        pa.list_(pa.struct([("b", pa.binary())])): "no JSON form",
        pa.map_(pa.string(), pa.binary()): "no JSON form",
    },
    "text": {
        pa.list_(pa.int64()): r"value of format text is column 'c' .*`to_json\(COLUMN\)`",
        pa.struct([("a", pa.int64())]): "has no text",
    },
}


@pytest.mark.parametrize(
    ("format_", "kind", "why"), [(f, *one) for f, kinds in CANNOT.items() for one in kinds.items()]
)
def test_a_column_that_cannot_be_written_is_known_without_a_row(
    format_: str, kind: pa.DataType, why: str
) -> None:
    schema = pa.schema([("c", kind)])
    with pytest.raises(BadInputError, match=why):
        encode.check(schema, format_, None, None)
    with pytest.raises(BadInputError, match=why):
        encode.values(schema.empty_table(), format_, None)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int32(), pa.float32(), pa.bool_(), pa.null(), pa.date32(),
             pa.timestamp("us", "UTC"), pa.time64("ns"),
             pa.list_(pa.map_(pa.string(), pa.float64()))]
)  # fmt: skip
def test_what_passes_the_check_can_be_written(kind: pa.DataType) -> None:
    schema = pa.schema([("c", kind)])
    encode.check(schema, "json", None, None)
    assert encode.values(pa.table([pa.nulls(1, kind)], schema), "json", None).to_pylist() == [
        b'{"c": null}'
    ]


def test_a_missing_column_is_known_without_a_row() -> None:
    schema = pa.schema([("c", pa.string()), ("d", pa.string())])
    with pytest.raises(BadInputError, match="key is column 'k', and its input has only c, d"):
        encode.check(schema, "json", "k", None)
    with pytest.raises(BadInputError, match="value of format bytes is column 'value'"):
        encode.check(schema, "bytes", None, None)
    encode.check(schema, "json", "d", None)


AVRO = {
    "type": "record", "name": "R",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["a"]}, "default": "a"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"id": pa.int64(), "at": pa.timestamp("us", "UTC")}, None),
        ({"id": pa.int32(), "at": pa.timestamp("ms", "UTC"), "kind": pa.string()}, None),
        ({"id": pa.int64()}, "has the field 'at', and its input has only id; add the column"),
        ({"id": pa.string(), "at": pa.timestamp("us", "UTC")}, "column 'id' has type string, and"),
        ({"id": pa.int64(), "at": pa.string()}, "column 'at' has type string, and the sink's Avro"),
        (
            {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "note": pa.float64()},
            "column 'note' has type double, and",
        ),
    ],
)
def test_columns_are_held_against_the_avro_schema(
    columns: dict[str, pa.DataType], why: str | None
) -> None:
    schema = pa.schema(list(columns.items()))
    if why is None:
        encode.check(schema, "avro", None, AVRO)
    else:
        with pytest.raises(BadInputError, match=why):
            encode.check(schema, "avro", None, AVRO)
