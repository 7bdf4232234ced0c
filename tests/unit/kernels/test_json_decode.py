"""The kernel reads what the general way reads, and leaves the rest to it, record by record."""

from __future__ import annotations

import json
import math
import struct
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import PermanentError
from perseid.kernels import json_decode, library
from perseid.worker.formats import decode

SCHEMA = pa.schema(
    [("s", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()),
     ("ä", pa.string()), ("t", pa.timestamp("us", "UTC")), ("raw", pa.binary())]
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LONGS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(-1e25, 1e25).filter(lambda f: not 0 < abs(f) < 1e-9)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | LONGS | TEXT, lambda below: st.lists(below, max_size=3)
    | st.dictionaries(TEXT, below, max_size=3), max_leaves=8,
)  # fmt: skip
DAMAGE = list(b'"\\{}[],:.-+eE019ntfud8DZT \n\t\x00\x1f\x80\xc3\xff')
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | TEXT, "n": st.none() | LONGS, "f": st.none() | FLOATS,
        "b": st.none() | st.booleans(), "ä": TEXT,
        "t": st.none() | TIMES.map(datetime.isoformat), "raw": st.none() | TEXT,
        "other": ANY_JSON, "n2": ANY_JSON,
    },
)  # fmt: skip
LAYOUTS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : "), (",\n", ":\r\n")])


def binaries(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def whole(*values: bytes | None) -> pa.Table:
    """The columns of texts of which none is left out."""
    table, left = json_decode.decode(binaries(*values), SCHEMA)
    assert left.tolist() == []
    table.validate(full=True)
    return table


def expected(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row.get(name) for name in SCHEMA.names}
    found["t"] = None if found["t"] is None else datetime.fromisoformat(found["t"])
    found["raw"] = None if found["raw"] is None else found["raw"].encode()
    return found


@given(st.lists(ROWS, max_size=8), LAYOUTS, st.booleans())
def test_ordinary_objects_are_what_the_json_module_reads(
    rows: list[dict[str, Any]], separators: tuple[str, str], ascii_only: bool
) -> None:
    texts = [json.dumps(r, separators=separators, ensure_ascii=ascii_only).encode() for r in rows]
    found = whole(*texts)
    assert found.schema == SCHEMA
    assert found.to_pylist() == [expected(row) for row in rows]


@given(st.lists(ROWS, min_size=1, max_size=6), st.booleans(), st.data())
def test_what_is_taken_of_damaged_texts_is_what_the_general_way_takes(
    rows: list[dict[str, Any]], ascii_only: bool, data: st.DataObject
) -> None:
    texts = [bytearray(json.dumps(r, ensure_ascii=ascii_only).encode()) for r in rows]
    for _ in range(data.draw(st.integers(1, 4))):
        text = texts[data.draw(st.integers(0, len(texts) - 1))]
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from(DAMAGE))
    values = [bytes(text) for text in texts]
    found, left = json_decode.decode(binaries(*values), SCHEMA)
    found.validate(full=True)
    taken = [value for i, value in enumerate(values) if i not in set(left.tolist())]
    wanted, refused = decode._decode_any_json(binaries(*taken), SCHEMA)
    assert refused == {}
    assert repr(found.to_pylist()) == repr(wanted.to_pylist()), taken


@pytest.mark.parametrize(
    "text",
    [
        b'{"s": "a\nb"}', b'{"s": "\x1f"}', b'{"s": "\xff"}', b'{"s": "\\x"}', b'{"s": "\\',
        b'{"s": "\\ud800"}', b'{"s": "\\udc00"}', b'{"s": "\\ud800\\u0041"}', b'{"s": "\\u12g4"}',
        b'{"s": "\\ud800\\ud800"}', b'{"s": "\\u12', b'{"x": "\\ud800"}', b'{"\\ud800": 1}',
        b'{"s": "\xed\xa0\x80"}', b'{"s": "\xc0\xaf"}', b'{"s": "\xf4\x90\x80\x80"}',
        b'{"s": "\xe2\x82"}', b'{"s": 1}', b'{"s": {}}',
        b'{"n": 1.5}', b'{"n": 1e300}', b'{"n": 01}', b'{"n": -0}', b'{"n": -}', b'{"n": "1"}',
        b'{"n": 9223372036854775808}', b'{"n": -9223372036854775809}', b'{"n": 9007199254740993.0}',
        b'{"n": 1e16}', b'{"n": -0.0}', b'{"n": 1e}', b'{"n": 1e+}',
        b'{"n": 12', b'{"n": 1}}', b'{"n": 1} {}', b'{"n": 1}{"n": 2}',
        b'{"f": 1.}', b'{"f": .5}', b'{"f": 1e100}', b'{"f": NaN}', b'{"f": -Infinity}',
        b'{"f": 0.12345678901234567891}', b'{"f": 1e-40}', b'{"b": tru}', b'{"b": 1}',
        b'{"n": 1, "n": 2}', b'{"n": 1, "\\u006e": 2}', b'{"n" 1}',
        b'{"x": {"y": 1}', b'{"x": [1}', b'{"x": [1,]}', b'{"x": {"y"}}', b'{"x": {1: 2}}',
        b'{"x": 00}', b'{"x": [NaN]}', b'{"x": 1e400}',
        b'{"x": %s1%s}' % (b"[" * 70, b"]" * 70), b'{"%s": 1}' % (b"\\u0061" * 50),
        b'{"t": "2026-02-29T00:00:00Z"}', b'{"t": "1900-02-29T00:00:00Z"}',
        b'{"t": "2026-01-01"}', b'{"t": "2026-13-01T00:00:00Z"}', b'{"t": "2026-00-01T00:00:00Z"}',
        b'{"t": "2026-01-00T00:00:00Z"}', b'{"t": "2026-01-01T24:00:00Z"}',
        b'{"t": "2026-01-01T00:60:00Z"}', b'{"t": "2026-01-01T00:00:60Z"}',
        b'{"t": "2026-01-01T00:00:00.1234567Z"}', b'{"t": "2026-01-01T00:00:00.Z"}',
        b'{"t": "2026-01-01T00:00:00+24:00"}', b'{"t": "2026-01-01T00:00:00+01:60"}',
        b'{"t": "2026-01-01T00:00:00+0100"}', b'{"t": "2026-01-01T00:00:00z"}',
        b'{"t": "0000-01-01T00:00:00Z"}', b'{"t": "0001-01-01T00:00:00+01:00"}',
        b'{"t": "9999-12-31T23:59:59-05:00"}', b'{"t": 1}', b'{"t": "2026-01-01T00:00:00',
        b'{"t": "', b'{"n": 1,}', b"{,}", b"{", b"", b" ", b"null", b"[]", b"{n: 1}", b'{"n": nul}',
        b'{"s": "open', b'{"', b'{"s', b'{"s"', b'{"s":', None,
    ],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_is_left_to_the_general_way(text: bytes | None) -> None:
    good = b'{"n": 1, "s": "a"}'
    found, left = json_decode.decode(binaries(good, text, good), SCHEMA)
    assert left.tolist() == [1]
    found.validate(full=True)
    assert found.select(["s", "n", "f"]).to_pylist() == [{"s": "a", "n": 1, "f": None}] * 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("5.0", 5), ("1e3", 1000), ("-2E1", -20), ("120e-1", 12), ("0.0", 0), ("0e99", 0),
     ("9007199254740992.0", 2**53), ("9223372036854775807", 2**63 - 1),
     ("-9223372036854775808", -(2**63))],
)  # fmt: skip
def test_whole_numbers_with_a_point_or_an_exponent(text: str, value: int) -> None:
    assert whole(b'{"n": %s}' % text.encode())["n"].to_pylist() == [value]


def test_escapes() -> None:
    text = rb'{"s": "\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC\ud83d\ude00", "\u00e4": "\\"}'
    found = whole(text)
    assert found["s"].to_pylist() == ['"\\/\b\f\n\r\t\0é€\U0001f600']
    assert found["ä"].to_pylist() == ["\\"]


def test_times() -> None:
    texts = ["2026-11-21T09:30:00Z", "2026-11-21 09:30:00", "2026-11-21T10:30:00.000001+01:00",
             "2024-02-29T00:00:00.5-00:30", "0001-01-01T00:00:00Z"]  # fmt: skip
    found = whole(*[b'{"t": "%s"}' % text.encode() for text in texts])["t"].to_pylist()
    assert found == [
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC), datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
        datetime(2026, 11, 21, 9, 30, 0, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 0, 30, 0, 500_000, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC),
    ]  # fmt: skip


def test_types_and_names_that_need_more_are_left_to_the_general_way() -> None:
    for field in (("t", pa.timestamp("ms")), ('a"b', pa.string()), ("a\\b", pa.string())):
        found, left = json_decode.decode(binaries(b'{"a": "b"}'), pa.schema([field]))
        assert (found.num_rows, left.tolist()) == (0, [0])
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(65)])
    assert json_decode.decode(binaries(b"{}"), wide)[1].tolist() == [0]
    found, left = json_decode.decode(binaries(b'{"c63": 7, "c0": 1}'), pa.schema(list(wide)[:64]))
    assert left.tolist() == []
    assert (found["c63"].to_pylist(), found["c0"].to_pylist()) == ([7], [1])


def test_a_slice_is_read_where_it_lies() -> None:
    texts = binaries(b"not json", b'{"n": 1}', b'{"n": 2}', b"nor this")
    found, left = json_decode.decode(texts[1:3], SCHEMA)
    assert (found["n"].to_pylist(), left.tolist()) == ([1, 2], [])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=9))
def test_floats_are_rounded_once(numbers: list[float]) -> None:
    texts = [b'{"f": %s}' % repr(number).encode() for number in numbers]
    found, left = json_decode.decode(binaries(*texts), SCHEMA)
    wanted = [number for i, number in enumerate(numbers) if i not in set(left.tolist())]
    assert bits(found["f"].to_pylist()) == bits(wanted)


@given(st.integers(1, 10**19 - 1), st.integers(-40, 40), st.booleans())
def test_decimals_next_to_the_middle_of_two_doubles(digits: int, power: int, near: bool) -> None:
    if near:  # 54 bits and an end of 1: the middle, or as near to it as 19 digits come
        digits = (digits % 2**53 | 2**52) * 2 + 1
    text = f"-{digits}e{power}"
    found, left = json_decode.decode(binaries(b'{"f": %s}' % text.encode()), SCHEMA)
    assert bits(found["f"].to_pylist()) == ([] if len(left) else bits([float(text)]))
    assert not len(left) or abs(power) > 22 or near


def bits(numbers: list[float]) -> list[bytes]:
    return [struct.pack("d", number) for number in numbers]


def test_zeros_keep_their_sign() -> None:
    found = whole(b'{"f": 0}', b'{"f": -0}', b'{"f": -0.00}', b'{"f": -0e5}')["f"].to_pylist()
    assert [math.copysign(1, number) for number in found] == [1, -1, -1, -1]


def test_columns_keep_no_more_memory_than_they_need() -> None:
    text = b'{"s": "short", "pad": "%s"}' % (b"x" * 1000)
    before = pa.total_allocated_bytes()
    found = whole(*[text] * 1000)
    assert found.num_rows == 1000
    assert pa.total_allocated_bytes() - before < 100_000


def test_what_lies_under_nulls_is_the_same_in_every_run() -> None:
    for odd in (b"{}", b'{"n": 77, "s": "x", "b": true'):  # undone after it was written
        found = json_decode.decode(binaries(*[odd, b"{}"] * 1000), SCHEMA)[0]
        assert bytes(found["n"].chunk(0).buffers()[1])[:8000] == bytes(8000)


def test_a_column_that_one_array_cannot_hold_is_an_error_with_the_remedy() -> None:
    half = pa.array(["x" * 1_100_000_000])
    with pytest.raises(PermanentError, match=r"2 rows at once .* 2 GiB .*maxRecords"):
        library.one(pa.chunked_array([half, half]))
