"""Record values to columns: what fits, what is refused and why, whatever stands beside it."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.topics.transactions import octets
from perseid.worker.formats import make

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
        (b'{"n": 1.5}', "does not fit the columns"),
        (b'{"n": 9223372036854775808}', "does not fit the columns"),
        (b'{"user": "a"}{"user": "b"}', "not valid JSON"),
        (b'{"user": "a"}\n{"user": "b"}', "not valid JSON"),
    ],
)
def test_json_refuses_and_says_why(bad: bytes | None, reason: str) -> None:
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
    beside, bad_beside = kind.decode(octets([corner, b"["]))
    assert str(alone.to_pylist()) == str(beside.to_pylist())
    assert (0 in bad_alone, 1 in bad_beside) == (0 in bad_beside, True)


def test_json_that_is_not_utf8_is_refused() -> None:
    _, refused = make("json", COLUMNS, None).decode(octets([b'{"user": "\xff"}', b'{"user": "a"}']))
    assert list(refused) == [0]


json_value = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False),
    st.text(max_size=4), st.lists(st.booleans(), max_size=2),
)  # fmt: skip
json_object = st.dictionaries(st.sampled_from(["user", "n", "share", "on", "more"]), json_value)
any_record = st.one_of(
    json_object.map(orjson.dumps), st.binary(max_size=6), st.none(),
    st.sampled_from([b'{"n": 1, "n": 2}', b"{}", b"[]", b'{"user": "\\u0000"}']),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(any_record, max_size=6))
def test_what_becomes_of_a_json_record_does_not_depend_on_its_neighbours(
    values: list[bytes | None],
) -> None:
    kind = make("json", COLUMNS, None)
    together, refused = kind.decode(octets(values))
    alone = [kind.decode(octets([value])) for value in values]
    assert together.to_pylist() == [row for table, _ in alone for row in table.to_pylist()]
    assert sorted(refused) == [i for i, (_, bad) in enumerate(alone) if bad]


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
    assert refused[3] == "bytes are left over behind the Avro record"
    assert refused[1].startswith("not an Avro record of the schema: ")


@pytest.mark.parametrize("kind", ["Unknown", {"type": "map", "values": "long"}, ["int", "long"]])
def test_avro_schemas_of_other_types_are_refused(kind: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    with pytest.raises(BadInputError, match="Avro field 'x' has type"):
        make("avro", None, schema)
