"""Record values to columns: what fits, what is refused and why, in any batch."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.topics.transactions import octets
from perseid.worker.formats import decode
from perseid.worker.formats.avro_format import decode_avro
from perseid.worker.formats.decode import _decode_any_json, make

COLUMNS = {"user": "string", "n": "int64", "share": "float64", "on": "bool"}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def avro_bytes(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def test_text_is_utf8() -> None:
    found, refused = make("text", None, None).decode(octets([b"a b", "é".encode(), b"", None]))
    assert found["value"].to_pylist() == ["a b", "é", "", None]
    assert (found.schema, refused) == (pa.schema([("value", pa.string())]), {})


def test_text_refuses_only_what_is_not_utf8() -> None:
    values = octets([b"ok", b"a\xffb", None, b"\xc3", b"too"])
    found, refused = make("text", None, None).decode(values)
    assert found["value"].to_pylist() == ["ok", None, "too"]
    assert sorted(refused) == [1, 3]
    assert refused[1] == "not valid UTF-8: invalid start byte at byte 1"


def test_bytes_take_everything() -> None:
    found, refused = make("bytes", None, None).decode(octets([b"\xff\x00", None]))
    assert (found["value"].to_pylist(), refused) == ([b"\xff\x00", None], {})


def test_json_takes_declared_columns_and_leaves_others() -> None:
    values = [
        b'{"user": "ann", "n": 1, "share": 0.5, "on": true, "more": [1]}',
        b'{"n": null, "user": "bob"}',
        b"{}",
    ]
    found, refused = make("json", COLUMNS, None).decode(octets(values))
    assert refused == {}
    assert found.to_pylist() == [
        {"user": "ann", "n": 1, "share": 0.5, "on": True},
        {"user": "bob", "n": None, "share": None, "on": None},
        {"user": None, "n": None, "share": None, "on": None},
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "tombstone"),
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"n": "x"}', "does not fit the columns user, n, share, on: found user: null, n: str, "),
        (b'{"n": 1.5}', "n: float that is no whole number, "),
        (b'{"n": 9223372036854775808}', "n: int out of the range of int64, "),
        (b'{"n": 1e300}', "n: float above 2**53, which is not exact, "),
        (b'{"n": 9007199254740994.0}', "n: float above 2**53, which is not exact, "),
        (b'{"user": "a"}{"user": "b"}', "not valid JSON"),
        (b'{"user": "a"}\n{"user": "b"}', "not valid JSON"),
    ],
)
def test_json_refuses_with_the_reason(bad: bytes | None, reason: str) -> None:
    found, refused = make("json", COLUMNS, None).decode(octets([b'{"n": 1}', bad, b'{"n": 2}']))
    assert found["n"].to_pylist() == [1, 2]
    assert list(refused) == [1]
    assert reason in refused[1]


def test_json_on_several_lines_is_one_record() -> None:
    found, refused = make("json", COLUMNS, None).decode(octets([b'{\n "n": 1\n}', b' {"n": 2} ']))
    assert (found["n"].to_pylist(), refused) == ([1, 2], {})


def test_json_timestamps() -> None:
    kind = make("json", {"at": "timestamp"}, None)
    found, refused = kind.decode(octets([b'{"at": "2026-11-21T09:30:00Z"}']))
    assert refused == {}
    assert found["at"].to_pylist() == [datetime(2026, 11, 21, 9, 30, tzinfo=UTC)]


def test_formats_keep_their_schema_without_rows() -> None:
    for kind in (make("json", COLUMNS, None), make("text", None, None), make("avro", None, AVRO)):
        found, refused = kind.decode(octets([]))
        assert (found.schema, found.num_rows, refused) == (kind.schema, 0, {})


@pytest.mark.parametrize(
    "corner",
    [b'{"user": "\xff"}', b'{"more": "\xff"}', b'{"share": NaN}', b'{"share": -Infinity}',
     b'{"more": ' + b"[" * 2000 + b"]" * 2000 + b"}", b'{"n":1}{"user":"}', b'{"user":"\\ud800"}'],
)  # fmt: skip
def test_corners_of_json_do_not_depend_on_their_neighbours(corner: bytes) -> None:
    kind = make("json", COLUMNS, None)
    alone, bad_alone = kind.decode(octets([corner]))
    in_batch, bad_in_batch = kind.decode(octets([corner, b"["]))
    assert str(alone.to_pylist()) == str(in_batch.to_pylist())
    assert (0 in bad_alone, 1 in bad_in_batch) == (0 in bad_in_batch, True)


def test_json_that_is_not_utf8_is_refused() -> None:
    _, refused = make("json", COLUMNS, None).decode(octets([b'{"user": "\xff"}', b'{"user": "a"}']))
    assert list(refused) == [0]


@pytest.mark.parametrize(("text", "n"), [("5.0", 5), ("1e3", 1000), ("-0.0", 0), ("-2E1", -20)])
def test_a_whole_number_with_a_point_or_an_exponent_is_an_integer(text: str, n: int) -> None:
    found, refused = make("json", COLUMNS, None).decode(octets([b'{"n": %s}' % text.encode()]))
    assert (found["n"].to_pylist(), refused) == ([n], {})


@pytest.mark.parametrize(
    ("text", "fits"),
    [("0001-01-01T00:00:00+01:00", False), ("0001-01-01T00:00:00Z", True),
     ("0001-01-01T00:00:00-01:00", True), ("9999-12-31T23:59:59-05:00", False),
     ("9999-12-31T23:59:59Z", True), ("2026-11-21T09:30:00Z", True)],
)  # fmt: skip
@pytest.mark.parametrize("neighbours", [[], [b"["], [b'{"n": 1, "at": "2026-01-01T00:00:00Z"}']])
def test_times_out_of_the_calendar_are_refused_in_any_batch(
    text: str, fits: bool, neighbours: list[bytes]
) -> None:
    kind = make("json", {"n": "int64", "at": "timestamp"}, None)
    record = b'{"n": 0, "at": "%s"}' % text.encode()
    found, refused = kind.decode(octets([record, *neighbours]))
    assert (0 in found["n"].to_pylist(), 0 not in refused) == (fits, fits)
    if not fits:
        assert refused[0] == "column at: its time is outside of the years 1 to 9999 in UTC"


NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "5.0",
    "1e3",
    "1.5",
    "NaN",
    "-Infinity",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "123456789012345678901234",
]
TIMES = ["2026-11-21T09:30:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00",
         "2026-11-21", "2026-11-21 09:30:00.123456", "21.11.2026",
         "2026-02-30T00:00:00Z"]  # fmt: skip
ALL_TYPES = {**COLUMNS, "raw": "binary", "at": "timestamp"}
json_text_value = st.one_of(
    st.sampled_from(["null", "true", "[]", "[true]", '{"user": 1}', *NUMBERS]),
    st.sampled_from([orjson.dumps(time).decode() for time in TIMES]),
    st.integers(-(2**63), 2**64 - 1).map(str), st.floats(allow_nan=False).map(repr),
    st.text(max_size=4).map(json.dumps),
    st.sampled_from(['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"a\\nb"']),
)  # fmt: skip
json_object = st.dictionaries(st.sampled_from([*ALL_TYPES, "more"]), json_text_value, max_size=7)


def object_of(row: dict[str, str]) -> bytes:
    return b"{%s}" % ", ".join(f'"{name}": {value}' for name, value in row.items()).encode()


any_record = st.one_of(
    json_object.map(object_of),
    st.binary(max_size=6), st.none(),
    st.sampled_from([b'{"n": 1, "n": 2}', b"{}", b"[]", b'{"user": "\xff"}', b'{\n"n": 5}',
                     b'{"more": ' + b"[" * 3000 + b"]" * 3000 + b"}"]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(any_record, max_size=6), st.sampled_from([ALL_TYPES, COLUMNS]))
def test_what_becomes_of_a_json_record_does_not_depend_on_its_neighbours(
    values: list[bytes | None], columns: dict[str, str]
) -> None:
    kind = make("json", columns, None)
    together, refused = kind.decode(octets(values))
    alone = [kind.decode(octets([value])) for value in values]
    rows = pa.concat_tables([table for table, _ in alone] or [kind.schema.empty_table()])
    assert rows.schema == together.schema == kind.schema
    assert repr(together.to_pylist()) == repr(rows.to_pylist())  # NaN is not equal to itself
    reasons = [bad.get(0) for _, bad in alone]
    assert refused == {i: reason for i, reason in enumerate(reasons) if reason}


@settings(max_examples=300, deadline=None)
@given(st.lists(any_record, max_size=6), st.sampled_from([ALL_TYPES, COLUMNS]))
def test_both_ways_of_json_have_the_same_rows_and_refusals(
    values: list[bytes | None], columns: dict[str, str]
) -> None:
    kind = make("json", columns, None)
    found, refused = kind.decode(octets(values))
    wanted, bad = _decode_any_json(octets(values), kind.schema)
    assert repr(found.to_pylist()) == repr(wanted.to_pylist())  # NaN is not equal to itself
    assert refused == bad


def test_one_odd_record_takes_no_other_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[bytes | None] = []

    def noted(values: pa.BinaryArray, schema: pa.Schema) -> Any:
        slow.extend(values.to_pylist())
        return _decode_any_json(values, schema)

    monkeypatch.setattr(decode, "_decode_any_json", noted)
    odd = [b'{"n": 1, "n": 2}', b'{"n": ', None, b'{"share": 1e-300}']
    values = [odd[i // 10] if i % 10 == 5 else b'{"n": %d}' % i for i in range(40)]
    found, refused = make("json", COLUMNS, None).decode(octets(values))
    assert slow == odd
    assert sorted(refused) == [15, 25]
    wanted = [{5: 2, 35: None}.get(i, i) for i in range(40) if i not in refused]
    assert found["n"].to_pylist() == wanted


def test_avro_mixed_with_what_is_none() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    good: list[dict[str, Any]] = [
        {"user": "ann", "n": 5, "at": at},
        {"user": "bob", "n": None, "at": at},
    ]
    values = [avro_bytes(good[0]), b"\x02", avro_bytes(good[1]), avro_bytes(good[0]) + b"!", None]
    found, refused = make("avro", None, AVRO).decode(octets(values))
    assert found.to_pylist() == good
    assert sorted(refused) == [1, 3, 4]
    assert refused[4] == "the value is null (a tombstone): expected an Avro record"
    assert refused[3] == "bytes are left over after the Avro record"
    assert refused[1].startswith("not an Avro record of the schema: ")


LOGICAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
ENUM = {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}
UNREADABLE: list[tuple[Any, str]] = [
    ("Unknown", "x (Unknown)"),
    ({"type": "map", "values": "long"}, "x (map)"),
    (["int", "long"], "x (a union of int, long)"),
    (["null", LOGICAL], "x (decimal)"),
    (LOGICAL, "x (decimal)"),
    ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal"}, "x (decimal of fixed)"),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "x (uuid of fixed)"),
    ({"type": "int", "logicalType": "date"}, "x (date)"),
    ({"type": "int", "logicalType": "time-millis"}, "x (time-millis)"),
    ({"type": "long", "logicalType": "time-micros"}, "x (time-micros)"),
    (["null", {"type": "long", "logicalType": "local-timestamp-millis"}],
     "x (local-timestamp-millis)"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, "x (timestamp-nanos)"),
    (ENUM, "x (enum)"),
    ({"type": "array", "items": "string"}, "x (array)"),
    ({"type": "record", "name": "A", "fields": []}, "x (record)"),
]  # fmt: skip


def of_fields(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in zip("xyz", kinds, strict=False)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(("kind", "shown"), UNREADABLE)
def test_avro_fields_of_other_types_are_refused(kind: Any, shown: str) -> None:
    with pytest.raises(BadInputError) as refused:
        make("avro", None, of_fields(kind, "long"))
    message = str(refused.value)
    assert f"has fields that a source cannot read: {shown}; expected string, bytes, int" in message


def test_all_avro_fields_that_cannot_be_read_are_named_at_once() -> None:
    with pytest.raises(BadInputError, match=r"read: x \(enum\), z \(date\); expected"):
        make("avro", None, of_fields(ENUM, "long", {"type": "int", "logicalType": "date"}))


def encoded(schema: dict[str, Any], *rows: dict[str, Any]) -> pa.BinaryArray:
    found = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
        found.append(out.getvalue())
    return octets(found)


def test_an_avro_uuid_is_a_string_and_unknown_logical_types_are_ignored() -> None:
    schema = of_fields(
        ["null", {"type": "string", "logicalType": "uuid"}],
        {"type": "string", "logicalType": "postcode"},
    )
    rows: list[dict[str, Any]] = [
        {"x": "8a3c9d2e-0000-4000-8000-000000000001", "y": "N1"}, {"x": "no uuid", "y": ""},
        {"x": None, "y": "E2"},
    ]  # fmt: skip
    plain = of_fields(["null", "string"], "string")
    found, refused = make("avro", None, schema).decode(encoded(plain, *rows))
    assert (found.to_pylist(), refused) == (rows, {})


@pytest.mark.parametrize("logical", ["timestamp-millis", "timestamp-micros"])
def test_avro_times_out_of_the_calendar_are_refused_alone(logical: str) -> None:
    schema = of_fields(["null", {"type": "long", "logicalType": logical}], "long")
    factor = 1000 if logical == "timestamp-millis" else 1_000_000
    first, end = -62_135_596_800 * factor, 253_402_300_800 * factor
    times = [None, first - 1, first, -1, 0, end - 1, end, 2**63 - 1, -(2**63)]
    rows = [{"x": time, "y": i} for i, time in enumerate(times)]
    found, refused = make("avro", None, schema).decode(
        encoded(of_fields(["null", "long"], "long"), *rows)
    )
    assert found["y"].to_pylist() == [0, 2, 3, 4, 5]
    micros = [None, first, -1, 0, end - 1]
    assert found["x"].cast(pa.int64()).to_pylist() == [
        None if t is None else t * (1_000_000 // factor) for t in micros
    ]
    assert list(refused) == [1, 6, 7, 8]
    assert refused[6] == "column x: its time is outside of the years 1 to 9999 in UTC"


def test_avro_times_have_the_unit_of_who_wrote_them() -> None:
    of = {"millis": of_fields({"type": "long", "logicalType": "timestamp-millis"}),
          "micros": of_fields({"type": "long", "logicalType": "timestamp-micros"})}  # fmt: skip
    values = encoded(of_fields("long"), {"x": 1_500_000})
    schema = make("avro", None, of["micros"]).schema
    for writer, micros in (("millis", 1_500_000_000), ("micros", 1_500_000)):
        for reader in of.values():
            found, refused = decode_avro(values, of[writer], schema, reader)
            assert (found["x"].cast(pa.int64()).to_pylist(), refused) == ([micros], {})
    renamed = {**of["millis"], "fields": [{"name": "at", "aliases": ["x"], "type": of["millis"][
        "fields"][0]["type"]}]}  # fmt: skip
    found, _ = decode_avro(values, of["micros"], make("avro", None, renamed).schema, renamed)
    assert found["at"].cast(pa.int64()).to_pylist() == [1_500_000]


def test_an_avro_number_too_large_for_its_column_is_refused_alone() -> None:
    values = encoded(of_fields("long"), {"x": 1}, {"x": 2**31}, {"x": -(2**31)})
    found, refused = make("avro", None, of_fields("int")).decode(values)
    assert (found["x"].to_pylist(), list(refused)) == ([1, -(2**31)], [1])
    assert "found x: int out of the range of int32, expected x: int32" in refused[1]


EVERY: dict[str, Any] = {"type": "record", "name": "E", "fields": [
    {"name": "text", "type": ["null", "string"]}, {"name": "raw", "type": ["null", "bytes"]},
    {"name": "small", "type": "long"}, {"name": "n", "type": "long"},
    {"name": "f", "type": "float"}, {"name": "d", "type": ["double", "null"]},
    {"name": "on", "type": "boolean"}, {"name": "at", "type": ["null", "long"]},
]}  # fmt: skip
READ_AS = {"small": "int", "at": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
           "text": ["null", {"type": "string", "logicalType": "uuid"}]}  # fmt: skip
READ_EVERY = {**EVERY, "fields": [
    {**field, "type": READ_AS.get(field["name"], field["type"])} for field in EVERY["fields"]
]}  # fmt: skip
longs = st.integers(-(2**63), 2**63 - 1)
avro_row = st.fixed_dictionaries({
    "text": st.none() | st.text(max_size=3), "raw": st.none() | st.binary(max_size=3),
    "small": st.integers(-3, 3) | longs, "n": longs, "f": st.floats(width=32),
    "d": st.none() | st.floats(), "on": st.booleans(),
    "at": st.none() | st.integers(-(10**14), 3 * 10**14) | longs,
})  # fmt: skip
any_avro = st.one_of(
    avro_row.map(lambda row: encoded(EVERY, row)[0].as_py()),
    st.none(),
    st.binary(max_size=12),
    avro_row.map(lambda row: encoded(EVERY, row)[0].as_py() + b"!"),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(any_avro, max_size=6))
def test_what_becomes_of_an_avro_record_does_not_depend_on_its_neighbours(
    values: list[bytes | None],
) -> None:
    kind = make("avro", None, READ_EVERY)
    together, refused = kind.decode(octets(values))
    alone = [kind.decode(octets([value])) for value in values]
    rows = pa.concat_tables([table for table, _ in alone] or [kind.schema.empty_table()])
    assert rows.schema == together.schema == kind.schema
    assert repr(together.to_pylist()) == repr(rows.to_pylist())  # NaN is not equal to itself
    reasons = [bad.get(0) for _, bad in alone]
    assert refused == {i: reason for i, reason in enumerate(reasons) if reason}


@pytest.mark.parametrize("depth", [10, 100_000, 1_000_000])
@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_deeply_nested_json_is_a_record_like_another(opened: str, depth: int) -> None:
    deep = opened * depth + "1" + {"[": "]"}.get(opened, "}") * depth
    values = [b'{"n": 1}', b'{"n": %s}' % deep.encode(), b"[", b'{"n": 2}']
    found, refused = make("json", COLUMNS, None).decode(octets(values))
    assert (found["n"].to_pylist(), list(refused)) == ([1, 2], [1, 2])


@pytest.mark.parametrize(
    ("made", "where", "records"),
    [
        (make("json", COLUMNS, None), (pyarrow.json, "read_json"), [b"[", b'{"n": 1.0, "on": 3}']),
        (make("avro", None, AVRO), (fastavro, "schemaless_reader"), [b"\x02a\x02\x02\x00"]),
    ],
    ids=["json", "avro"],
)
def test_a_host_without_memory_makes_no_record_a_bad_one(
    made: Any, where: tuple[Any, str], records: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(*where, short)
    with pytest.raises(MemoryError):
        made.decode(octets(records))
