"""The quick way of JSON agrees with the general one on all that it takes, and leaves the rest."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import PermanentError
from perseid.kernels import json_text, library
from perseid.worker.formats import decode

SCHEMA = pa.schema(
    [("s", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("b", pa.bool_()),
     ("ä", pa.string())]
)  # fmt: skip
QUIET = st.characters(exclude_characters='"\\', exclude_categories=("Cc", "Cs"))
PLAIN = st.text(QUIET, max_size=9)
FLOATS = st.integers(-(2**40), 2**40) | st.integers(-9999, 9999).map(lambda i: i / 4)
DAMAGE = list(b'"\\{}[],:.-+eE019ntfu \n\t\x00\x1f\x80\xc3\xff')
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "s": st.none() | PLAIN, "n": st.none() | st.integers(-(10**17), 10**17),
        "f": st.none() | FLOATS, "b": st.none() | st.booleans(), "ä": PLAIN,
        "other": st.none() | PLAIN | st.integers(0, 99), "n2": st.booleans(),
    },
)  # fmt: skip
LAYOUTS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])


def binaries(*values: bytes | None) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


@given(st.lists(ROWS, max_size=8), LAYOUTS)
def test_plain_objects_are_what_the_json_module_reads(
    rows: list[dict[str, Any]], separators: tuple[str, str]
) -> None:
    texts = [json.dumps(r, separators=separators, ensure_ascii=False).encode() for r in rows]
    found = json_text.read(binaries(*texts), SCHEMA)
    assert found is not None
    assert found.schema == SCHEMA
    assert found.to_pylist() == [{name: r.get(name) for name in SCHEMA.names} for r in rows]
    found.validate(full=True)


@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_what_is_taken_of_damaged_texts_is_what_arrow_takes(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    texts = [bytearray(json.dumps(r, ensure_ascii=False).encode()) for r in rows]
    for _ in range(data.draw(st.integers(1, 3))):
        text = texts[data.draw(st.integers(0, len(texts) - 1))]
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from(DAMAGE))
    values = [bytes(text) for text in texts]
    found = json_text.read(binaries(*values), SCHEMA)
    if found is not None:
        wanted = decode._json_lines(list(values), SCHEMA)
        assert wanted is not None, values
        assert found.equals(wanted), values


@pytest.mark.parametrize(
    "text",
    [
        b'{"s": "a\\n"}', b'{"s": "a\nb"}', b'{"s": "\x1f"}', b'{"s": "\xff"}',
        b'{"s": "\xed\xa0\x80"}', b'{"s": "\xc0\xaf"}', b'{"s": "\xf4\x90\x80\x80"}',
        b'{"s": "\xe2\x82"}', b'{"s": 1}',
        b'{"n": 1.0}', b'{"n": 1e3}', b'{"n": 01}', b'{"n": -0}', b'{"n": -}', b'{"n": "1"}',
        b'{"n": 1234567890123456789}', b'{"n": 12', b'{"n": 1}}', b'{"n": 1} ', b' {"n": 1}',
        b'{"f": 1.}', b'{"f": .5}', b'{"f": 1e5}', b'{"f": NaN}', b'{"f": 9007199254740993}',
        b'{"f": 0.1234567890123456789}', b'{"b": tru}', b'{"b": 1}', b'{"n": 1, "n": 2}',
        b'{"n" 1}',
        b'{"x": {"y": 1}}', b'{"x": [1]}', b'{"x": 1e5}', b'{"x": 00}', b'{"n": 1,}', b'{,}', b"{",
        b"",
        b"null", b"[]", b'{n: 1}', b'{"n": nul}', b'{"s": "open', b'{"', b'{"s', b'{"s"', b'{"s":',
        None,
    ],
)  # fmt: skip
def test_what_is_out_of_the_ordinary_is_left_to_others(text: bytes | None) -> None:
    assert json_text.read(binaries(b'{"n": 1}', text), SCHEMA) is None


def test_types_and_names_that_need_more_are_left_to_others() -> None:
    for field in (("t", pa.timestamp("us", "UTC")), ('a"b', pa.string()), ("a\\b", pa.string())):
        assert json_text.read(binaries(b'{"a": "b"}'), pa.schema([field])) is None
    wide = pa.schema([(f"c{i}", pa.int64()) for i in range(65)])
    assert json_text.read(binaries(b"{}"), wide) is None
    wide = pa.schema(list(wide)[:64])
    found = json_text.read(binaries(b'{"c63": 7, "c0": 1}'), wide)
    assert found is not None
    assert (found["c63"].to_pylist(), found["c0"].to_pylist()) == ([7], [1])


def test_a_slice_is_read_where_it_lies() -> None:
    texts = binaries(b"not json", b'{"n": 1}', b'{"n": 2}', b"nor this")
    found = json_text.read(texts[1:3], SCHEMA)
    assert found is not None
    assert found["n"].to_pylist() == [1, 2]


@given(st.lists(st.integers(-(2**53), 2**53), max_size=9), st.integers(0, 6))
def test_decimals_are_rounded_as_python_does(numbers: list[int], places: int) -> None:
    texts = [f"{n // 10**places}.{n % 10**places:0{places}}" if places and n >= 0 else str(n)
             for n in numbers]  # fmt: skip
    found = json_text.read(binaries(*[b'{"f": %s}' % t.encode() for t in texts]), SCHEMA)
    if found is not None:
        assert found["f"].to_pylist() == [float(t) for t in texts]
        assert [math.copysign(1, v) for v in found["f"].to_pylist()] == [
            math.copysign(1, float(t)) for t in texts
        ]


COLUMNS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.booleans(),
        st.none() | st.integers(0, 255),
    ),
    max_size=9,
)  # fmt: skip


def fields(table: pa.Table) -> list[json_text.Field]:
    return [
        json_text.Field(b"%s%s: " % (b", " if i else b"{", orjson.dumps(name)), table.column(name))
        for i, name in enumerate(table.column_names)
    ]


@given(COLUMNS, st.integers(0, 3))
def test_written_objects_are_what_was_put_in(rows: list[tuple[Any, ...]], start: int) -> None:
    kinds = (pa.string(), pa.int64(), pa.bool_(), pa.uint8())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    table = pa.table(arrays, names=["s", "n", "b", "u"]).slice(start)
    found = json_text.write(fields(table), table.num_rows)
    wanted = table.to_pylist()
    strings = [row["s"] for row in wanted if row["s"] is not None]
    if any(json.dumps(text, ensure_ascii=False) != f'"{text}"' for text in strings):
        assert found == 0  # the first column needs an escape
    else:
        assert not isinstance(found, int)
        found.validate(full=True)
        assert [orjson.loads(text) for text in found.to_pylist()] == wanted


def test_texts_that_are_json_already_stand_as_they_are() -> None:
    texts = json_text.Field(b'{"f": ', pa.array(["1.5", "null", "[]"]), is_json=True)
    found = json_text.write([texts], 3)
    assert not isinstance(found, int)
    assert found.to_pylist() == [b'{"f": 1.5}', b'{"f": null}', b'{"f": []}']


def test_a_column_of_another_type_is_named() -> None:
    table = pa.table({"n": [1], "f": [1.5], "u": pa.array([1], pa.uint64())})
    assert json_text.write(fields(table), 1) == 1
    assert json_text.write(fields(table.drop(["f"])), 1) == 1


def test_more_than_an_array_holds_is_refused_before_it_is_written() -> None:
    with pytest.raises(PermanentError, match=r"may have 3\d+ bytes of JSON.*maxRecords"):
        json_text.write([json_text.Field(b"x" * 3_000_000_000, pa.array([1]))], 1)


def test_columns_keep_no_more_memory_than_they_need() -> None:
    text = b'{"s": "short", "pad": "%s"}' % (b"x" * 1000)
    texts = binaries(*[text] * 1000)
    before = pa.total_allocated_bytes()
    found = json_text.read(texts, SCHEMA)
    assert found is not None
    assert pa.total_allocated_bytes() - before < 100_000


def test_what_lies_under_nulls_is_the_same_in_every_run() -> None:
    wanted = [bytes(8000)] * 3
    for _ in range(3):
        found = json_text.read(binaries(*[b"{}"] * 1000), SCHEMA)
        assert found is not None
        assert bytes(found["n"].chunk(0).buffers()[1])[:8000] == wanted.pop()


def test_a_column_that_one_array_cannot_hold_is_an_error_with_the_remedy() -> None:
    half = pa.array(["x" * 1_100_000_000])
    with pytest.raises(PermanentError, match=r"2 rows at once .* 2 GiB .*maxRecords"):
        library.one(pa.chunked_array([half, half]))
