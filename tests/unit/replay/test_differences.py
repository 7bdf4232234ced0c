"""Where two sequences of records differ: what must hold of any two, and a plain slow model."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.replay import differences as module
from perseid.replay.differences import Differences, Place, Rows, differences
from perseid.replay.findings import Record
from perseid.replay.tolerances import Tolerance

PLACE = Place("sums", 2, 7, "out", 1)
Pair = tuple[bytes | None, bytes | None]

KEYS = st.sampled_from([b"a", b"b", b"c", b"", None])
VALUES = st.sampled_from([b"1", b"2", b"3", b"", None])
SEQUENCES = st.lists(st.tuples(KEYS, VALUES), max_size=14)


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[Pair], list[Pair]]:
    """A sequence, and the same after a few edits."""
    one = draw(SEQUENCES)
    other = list(one)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(other)))
        match draw(st.sampled_from(["insert", "delete", "change", "move"])):
            case "insert":
                other.insert(at, draw(st.tuples(KEYS, VALUES)))
            case "delete":
                del other[at : at + 1]
            case "change" if at < len(other):
                other[at] = other[at][0], draw(VALUES)
            case "move" if at < len(other):
                other.insert(draw(st.integers(0, len(other) - 1)), other.pop(at))
    return one, other


BOTH = st.tuples(SEQUENCES, SEQUENCES) | edited()


def rows(pairs: list[Pair], first: int | None = 0) -> Rows:
    """Offsets are positions, plus `first`."""
    offsets = None if first is None else np.arange(len(pairs)) + first
    keys, values = (pa.array([pair[i] for pair in pairs], pa.binary()) for i in range(2))
    return Rows(keys, values, offsets)


def found(one: list[Pair], other: list[Pair]) -> Differences:
    return differences(PLACE, rows(one), rows(other))


def at(record: Record | None) -> int:
    assert record is not None
    assert record.offset is not None
    return record.offset


@given(BOTH)
def test_what_holds_of_any_two_sequences(both: tuple[list[Pair], list[Pair]]) -> None:
    one, other = both
    result = found(one, other)
    assert (len(result) == 0) == (one == other)
    left, right = set(range(len(one))), set(range(len(other)))
    lacking: defaultdict[bytes | None, set[str]] = defaultdict(set)
    for d in result.found:
        if d.kind != "added":
            assert d.position == at(d.committed)
            assert one[d.position] == (d.committed.key, d.committed.value)  # type: ignore[union-attr]
            left.remove(d.position)
        if d.kind != "missing":
            assert other[at(d.made)] == (d.made.key, d.made.value)  # type: ignore[union-attr]
            right.remove(at(d.made))
        match d.kind, d.committed, d.made:
            case "value", Record() as committed, Record() as made:
                assert (committed.key, committed.value != made.value) == (made.key, True)
            case "order", Record() as committed, Record() as made:
                assert (committed.key, committed.value) == (made.key, made.value)
            case "missing", Record() as committed, None:
                lacking[committed.key].add(d.kind)
            case "added", None, Record() as made:
                assert d.position == made.offset
                lacking[made.key].add(d.kind)
            case _:
                pytest.fail(f"{d} has other records than its kind")
    assert [one[i] for i in sorted(left)] == [other[i] for i in sorted(right)]
    assert all(len(kinds) == 1 for kinds in lacking.values())
    assert [d.position for d in result.found] == sorted(d.position for d in result.found)


def plain(one: list[Pair], other: list[Pair]) -> Counter[str]:
    """How many differences of each kind: step by step, one record at a time."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    counts: Counter[str] = Counter()
    equal: list[tuple[int, int]] = []
    for key in {k for k, _ in one} | {k for k, _ in other}:
        a = [i for i, (k, _) in enumerate(one) if k == key]
        b = [i for i, (k, _) in enumerate(other) if k == key]
        same = Counter(one[i] for i in a) == Counter(other[i] for i in b)
        if key is None or same or len(a) != len(b):
            for i in list(a):
                partner = next((j for j in b if one[i] == other[j]), None)
                if partner is not None:
                    equal.append((i, partner))
                    a.remove(i)
                    b.remove(partner)
        for i, j in zip(a, b, strict=False):
            if one[i] == other[j]:
                equal.append((i, j))
            else:
                counts["value"] += 1
        counts["missing"] += max(0, len(a) - len(b))
        counts["added"] += max(0, len(b) - len(a))
    longest: list[int] = []
    equal.sort()
    for row, (_, j) in enumerate(equal):
        before = (longest[r] for r in range(row) if equal[r][1] < j)
        longest.append(1 + max(before, default=0))
    counts["order"] += len(equal) - max(longest, default=0)
    return counts


@settings(max_examples=200)
@given(BOTH)
def test_the_differences_are_those_of_the_model(both: tuple[list[Pair], list[Pair]]) -> None:
    expected = plain(*both)
    result = found(*both)
    assert {k: result.count(k) for k in module._KINDS} == {k: expected[k] for k in module._KINDS}


def kinds(one: list[Pair], other: list[Pair]) -> list[tuple[str, int]]:
    return [(d.kind, d.position) for d in found(one, other).found]


def of_key(key: bytes | None, *values: int) -> list[Pair]:
    return [(key, b"%d" % value) for value in values]


def test_a_count_that_is_off_by_one_is_of_other_values_and_not_of_other_records() -> None:
    result = kinds(of_key(b"k", 1, 2, 3, 4), of_key(b"k", 2, 3, 4, 5))
    assert result == [("value", 0), ("value", 1), ("value", 2), ("value", 3)]


def test_a_lost_record_shifts_no_others() -> None:
    assert kinds(of_key(b"k", 1, 2, 3, 4, 5), of_key(b"k", 1, 2, 4, 5)) == [("missing", 2)]
    assert kinds(of_key(None, 1, 2, 3, 4, 5), of_key(None, 2, 3, 5)) == [
        ("missing", 0), ("missing", 3),
    ]  # fmt: skip
    shifted = kinds(of_key(None, 1, 2, 3, 4), of_key(None, 2, 3, 4, 5))
    assert shifted == [("value", 0)]  # without a key, equal records belong to each other


def test_one_record_of_another_place_is_one_difference_of_order() -> None:
    assert kinds(of_key(b"k", 1, 2, 3, 4, 5), of_key(b"k", 2, 3, 4, 1, 5)) == [("order", 0)]
    across = [*of_key(b"a", 1), *of_key(b"b", 1, 2)]
    assert kinds(across, [across[1], across[0], across[2]]) in ([("order", 0)], [("order", 1)])


def test_positions_count_the_records_that_both_begin_with() -> None:
    same = of_key(b"s", *range(100))
    [one] = found([*same, (b"k", b"1"), *same], [*same, (b"k", b"2"), *same]).found
    assert (one.kind, one.position) == ("value", 100)
    assert (one.operator, one.partition, one.epoch, one.topic, one.topic_partition) == (
        "sums", 2, 7, "out", 1,
    )  # fmt: skip


def test_slices_and_records_without_offsets_are_compared_by_what_they_are() -> None:
    long = rows([(b"x", b"y"), (b"k", b"1"), (b"k", None), (b"x", b"y")], 40)
    assert long.offsets is not None
    part = Rows(long.keys[1:3], long.values[1:3], long.offsets[1:3])
    assert not len(differences(PLACE, part, rows([(b"k", b"1"), (b"k", None)], None)))
    [one] = differences(PLACE, part, rows([(b"k", b"1"), (b"k", b"")], None)).found
    assert (one.committed, one.made) == (Record(b"k", None, 42), Record(b"k", b"", None))


def test_all_are_counted_and_a_bounded_number_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOUND_MAX", 3)
    decoded: list[bytes | None] = []

    def decode(key: bytes | None, value: bytes | None) -> dict[str, object]:
        decoded.append(value)
        return {"n": value}

    one: list[Pair] = [*((b"a%d" % i, b"1") for i in range(6)), (b"gone", b"1")]
    other: list[Pair] = [*((b"a%d" % i, b"2") for i in range(6)), (b"new", b"1"), (b"new", b"2")]
    result = differences(PLACE, rows(one), rows(other), decode)
    assert [d.fields for d in result.found] == [("n",)] * 3
    assert len(decoded) == 6
    assert len(result) == 9
    assert {kind: sorted(keys.to_pylist()) for kind, keys in result.rest.items()} == {
        "value": [b"a3", b"a4", b"a5"], "missing": [b"gone"], "added": [b"new", b"new"],
    }  # fmt: skip
    assert (result.count("value"), result.count("added"), result.count("order")) == (6, 2, 0)


def as_json(key: bytes | None, value: bytes | None) -> dict[str, object] | None:
    try:
        document = json.loads(value or b"")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def sums(*some: tuple[bytes, float]) -> list[Pair]:
    return [(key, json.dumps({"key": key.decode(), "sum": n, "unit": "m"}).encode())
            for key, n in some]  # fmt: skip


def test_the_columns_that_differ_are_named() -> None:
    one = [*sums((b"a", 1.0)), (b"b", b'{"sum": 1, "old": null}'), (b"c", b"no json")]
    other = [*sums((b"a", 2.0)), (b"b", b'{"sum": 1.0, "new": null}'), (b"c", b"{}")]
    result = differences(PLACE, rows(one), rows(other), as_json)
    assert [d.fields for d in result.found] == [("sum",), ("new", "old", "sum"), ()]


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 9), st.integers(-3, 3))))
def test_within_the_tolerance_records_are_equal(some: list[tuple[bytes, int, int]]) -> None:
    one, other = sums(*((k, n) for k, n, _ in some)), sums(*((k, n + off) for k, n, off in some))
    limit = {"sum": Tolerance("absolute", 1)}
    result = differences(PLACE, rows(one), rows(other), as_json, limit)
    within = [abs(off) <= 1 for _, _, off in some]
    if all(within) and Counter(one) != Counter(other):
        assert not result.count("value") + result.count("missing") + result.count("added")
    assert all(d.fields == ("sum",) for d in result.found if d.kind == "value")
    for d in result.found:
        if d.kind == "value" and d.committed is not None and d.made is not None:
            values = [json.loads(r.value or b"")["sum"] for r in (d.committed, d.made)]
            assert abs(values[0] - values[1]) > 1


def test_a_tolerance_is_of_its_column_and_of_records_of_a_known_form() -> None:
    limit = {"sum": Tolerance("relative", 0.1)}
    one = [*sums((b"a", 100.0), (b"b", 100.0)), (b"c", b"x")]
    other = [*sums((b"a", 101.0), (b"b", 200.0)), (b"c", b"y")]
    other[0] = (b"a", (other[0][1] or b"").replace(b"unit", b"Unit"))
    result = differences(PLACE, rows(one), rows(other), as_json, limit)
    assert [(d.kind, d.position, d.fields) for d in result.found] == [
        ("value", 0, ("Unit", "unit")), ("value", 1, ("sum",)), ("value", 2, ()),
    ]  # fmt: skip
