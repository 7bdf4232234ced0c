"""The checksum of rows: equal for equal rows however Arrow holds them, and for no others."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.content import content_crc

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [1, -5, 2**62]),
    "int8": (pa.int8(), [1, -5, 0]),
    "float": (pa.float64(), [0.5, -1e300, 0.0]),
    "half": (pa.float16(), [0.5, 1.0, 0.0]),
    "bool": (pa.bool_(), [True, False]),
    "string": (pa.string(), ["", "ab", "ä" * 40]),
    "large": (pa.large_string(), ["", "ab", "c"]),
    "binary": (pa.binary(), [b"", b"\0", b"xy"]),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0"]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-3.00")]),
    "time": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, n, tzinfo=dt.UTC) for n in (1, 2)]),
    "date": (pa.date32(), [dt.date(2026, 1, 1), dt.date(2027, 1, 1)]),
    "null": (pa.null(), [None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "c"]),
    "list": (pa.list_(pa.string()), [[], ["a", None], ["b", "cc", ""]]),
    "fixed list": (pa.list_(pa.int32(), 2), [[1, 2], [3, None]]),
    "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]),
               [{"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 2, "b": ""}]),
    "nested": (pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [[{"a": [1]}], [], [None]]),
    "map": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [("b", None), ("c", 3)], []]),
}  # fmt: skip


def table(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"k": pa.array(values, kind), "n": range(len(values))})


def held_otherwise(chance: Random, given: pa.Table) -> list[pa.Table]:
    """The same rows in other tables, chunks, slices and buffers."""
    cuts = sorted(chance.randrange(len(given) + 1) for _ in range(3))
    bounds = [0, *cuts, len(given)]
    parts = [given.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    ways: list[Callable[[pa.Table], pa.Table]] = [
        lambda part: part,
        lambda part: ipc_table(ipc_bytes(part)),
        lambda part: pa.concat_tables([given[:1], part]).combine_chunks().slice(1),
        lambda part: part.filter(pa.array([True] * len(part), pa.bool_())),
    ]
    changed = [chance.choice(ways)(part) for part in parts]
    if chance.random() < 0.5:
        return [pa.concat_tables(changed)]
    return changed


@pytest.mark.parametrize("name", TYPES)
def test_equal_rows_have_one_checksum_and_other_rows_another(name: str) -> None:
    kind, choices = TYPES[name]
    chance = Random(name)
    seen: dict[int, list[Any]] = {}
    for _ in range(60):
        nulls = chance.choice([0.0, 0.3])
        values = [
            None if chance.random() < nulls else chance.choice(choices)
            for _ in range(chance.randrange(1, 12))
        ]
        given = table(kind, values)
        crc = content_crc([given])
        assert content_crc(held_otherwise(chance, given)) == crc
        assert seen.setdefault(crc, values) == values
    assert len(seen) > (5 if name == "null" else 20)


def test_what_lies_under_a_null_does_not_count() -> None:
    valid = pa.py_buffer(bytes([0b101]))
    one, two = (pa.py_buffer(b"".join(n.to_bytes(8, "little") for n in row))
                for row in ((1, 2, 3), (1, 9, 3)))  # fmt: skip
    arrays = [pa.Array.from_buffers(pa.int64(), 3, [valid, data]) for data in (one, two)]
    found = [content_crc([pa.table({"n": array})]) for array in arrays]
    assert found[0] == found[1] == content_crc([pa.table({"n": pa.array([1, None, 3])})])


def test_names_types_and_order_count_and_no_rows_are_nothing() -> None:
    base = content_crc([pa.table({"a": [1, 2], "b": [3, 4]})])
    others = [
        pa.table({"a": [2, 1], "b": [3, 4]}), pa.table({"a": [1, 2], "c": [3, 4]}),
        pa.table({"b": [3, 4], "a": [1, 2]}), pa.table({"a": [1, 2], "b": [3.0, 4.0]}),
        pa.table({"a": [3, 4], "b": [1, 2]}), pa.table({"a": [1, 2]}),
        pa.table({"a": [1, 2], "b": [3, None]}),
    ]  # fmt: skip
    assert len({base, *(content_crc([one]) for one in others)}) == 1 + len(others)
    assert content_crc([]) == content_crc([pa.table({})]) == 0
    assert content_crc([pa.table({"a": pa.array([], pa.int64())})]) == 0


def test_texts_are_not_joined() -> None:
    found = {content_crc([pa.table({"a": rows})]) for rows in (["ab", "c"], ["a", "bc"], ["abc"])}
    assert len(found) == 3
