"""Where two sequences of records differ: what an epoch committed, and what an audit has made. Pure.

1. The records that both begin with and both end with are left out; that is most of them.
2. The others are aligned key by key. Where both sides have as many records of a key, the first
   belongs to the first, and so on. Where one side has more, or both have the same records in
   another order, and of records without a key, equal records belong to each other, and what is left
   over in its order.
3. A pair with unequal values is "value". What has no partner is "missing" or "added". Of the equal
   pairs, the fewest are "order" that must move for all to be in order.

So without tolerances there is no difference only if both sequences are the same.

Rejected: a shortest edit script (Myers) alone. It makes a wrong count of every record of a key look
like records that are missing and others that were added, and takes time by the square of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.replay.findings import Difference, Kind, Record
from perseid.replay.tolerances import Tolerances, same

FOUND_MAX = 2_000  # differences of one place that are looked at one by one

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = Mapping[str, object]
Decode = Callable[[bytes | None, bytes | None], Columns | None]

_KINDS: tuple[Kind, ...] = ("value", "missing", "added", "order")
_VALUE, _MISSING, _ADDED, _ORDER = range(4)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Place:
    """Where one epoch of an operator partition wrote to one topic partition.

    Or, in no topic, the primitive `state` of that partition at the checkpoint of the epoch.
    """

    operator: str
    partition: int
    epoch: int
    topic: str
    topic_partition: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records in order. `offsets` is None of records that are in no topic."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    offsets: Int64s | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def record(self, row: int) -> Record:
        offset = None if self.offsets is None else int(self.offsets[row])
        return Record(self.keys[row].as_py(), self.values[row].as_py(), offset)


@dataclass(frozen=True, slots=True)
class Differences:
    """All differences of one place. `found`: the first FOUND_MAX by position.

    `rest`: the keys of all others by kind, one for each difference.
    """

    place: Place
    found: tuple[Difference, ...] = ()
    rest: Mapping[Kind, pa.BinaryArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.found) + sum(map(len, self.rest.values()))

    def count(self, kind: Kind) -> int:
        return sum(d.kind == kind for d in self.found) + len(self.rest.get(kind, ()))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows that belong to each other: `committed[i]` and `made[i]`."""

    committed: Int64s
    made: Int64s
    equal: Bools


def differences(
    place: Place, committed: Rows, made: Rows, decode: Decode | None = None,
    tolerances: Tolerances | None = None,
) -> Differences:  # fmt: skip
    """Compares bitwise, or column by column where there are tolerances and both can be decoded.

    `decode`: the columns of a record, None if it is of another form; it gives plain values, and a
    difference then names the columns that differ.
    """
    head, tail = _same_ends(committed, made)
    one, other = _inner(committed, head, tail), _inner(made, head, tail)
    if not len(one) and not len(other):
        return Differences(place)
    pairs = _aligned(one, other)
    if decode is not None and tolerances:
        pairs = _tolerant(pairs, one, other, decode, tolerances)
    kinds, left, right = _differing(pairs, len(one), len(other))
    first = slice(0, FOUND_MAX)
    found = tuple(
        _difference(place, _KINDS[kind], head, one, other, a, b, decode, tolerances or {})
        for kind, a, b in zip(
            kinds[first].tolist(), left[first].tolist(), right[first].tolist(), strict=True
        )
    )
    return Differences(place, found, _keys_by_kind(one, other, kinds, left, right))


def numbered(one: pa.Array, other: pa.Array) -> tuple[Int64s, Int64s]:
    """A number for each value, the same for equal ones; null is a value."""
    both = pa.chunked_array([one, other]).dictionary_encode("encode")
    numbers = np.concatenate([chunk.indices.to_numpy() for chunk in both.chunks]).astype(np.int64)
    return numbers[: len(one)], numbers[len(one) :]


def numbered_rows(one: Rows, other: Rows) -> tuple[Int64s, Int64s]:
    """A number for each record, the same for those of equal key and value."""
    keys, values = numbered(one.keys, other.keys), numbered(one.values, other.values)
    several = 1 + max(side.max(initial=-1) for side in values)
    return keys[0] * several + values[0], keys[1] * several + values[1]


def _same_ends(one: Rows, other: Rows) -> tuple[int, int]:
    """How many records both begin with, and how many of the others both end with."""
    size = min(len(one), len(other))
    head = _leading(_equal(_part(one, 0, size), _part(other, 0, size)))
    left = size - head
    ends = _part(one, len(one) - left, left), _part(other, len(other) - left, left)
    return head, _leading(_equal(*ends)[::-1])


def _leading(equal: Bools) -> int:
    return len(equal) if equal.all() else int(np.argmin(equal))


def _equal(one: Rows, other: Rows) -> Bools:
    """By row, whether keys and values are the same; null is only equal to null."""
    return _same(one.keys, other.keys) & _same(one.values, other.values)


def _same(one: pa.Array, other: pa.Array) -> Bools:
    same_bytes = pc.fill_null(pc.equal(one, other), False)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    found: Bools = pc.or_(same_bytes, both_null).to_numpy(zero_copy_only=False)
    return found


def _part(rows: Rows, start: int, count: int) -> Rows:
    offsets = None if rows.offsets is None else rows.offsets[start : start + count]
    return Rows(rows.keys.slice(start, count), rows.values.slice(start, count), offsets)


def _inner(rows: Rows, head: int, tail: int) -> Rows:
    return _part(rows, head, len(rows) - head - tail)


def _aligned(one: Rows, other: Rows) -> _Pairs:
    """Step 2."""
    keys_a, keys_b = numbered(one.keys, other.keys)
    rows_a, rows_b = numbered_rows(one, other)
    count = 1 + max(keys_a.max(initial=-1), keys_b.max(initial=-1))
    by_content = _by_content(keys_a, keys_b, rows_a, rows_b, int(count))
    without_key = np.unique(keys_a[_nulls(one.keys)]), np.unique(keys_b[_nulls(other.keys)])
    by_content[np.concatenate(without_key)] = True
    a, b = np.flatnonzero(by_content[keys_a]), np.flatnonzero(by_content[keys_b])
    same_a, same_b = _matched(rows_a[a], rows_b[b])
    same_a, same_b = a[same_a], b[same_b]
    rest_a, rest_b = _without(len(one), same_a), _without(len(other), same_b)
    next_a, next_b = _matched(keys_a[rest_a], keys_b[rest_b])
    left, right = (
        np.concatenate([same_a, rest_a[next_a]]), np.concatenate([same_b, rest_b[next_b]])
    )  # fmt: skip
    return _Pairs(left, right, rows_a[left] == rows_b[right])


def _by_content(a: Int64s, b: Int64s, rows_a: Int64s, rows_b: Int64s, count: int) -> Bools:
    """By key: whether equal records belong to each other, and not the first to the first.

    So it is where one side has more records of the key, or both have the same ones.
    """
    more = np.bincount(a, minlength=count) != np.bincount(b, minlength=count)
    found, where = np.unique(np.concatenate([rows_a, rows_b]), return_inverse=True)
    counts_a = np.bincount(where[: len(a)], minlength=len(found))
    counts_b = np.bincount(where[len(a) :], minlength=len(found))
    others = np.ones(count, bool)
    keys = np.zeros(len(found), np.int64)
    keys[where] = np.concatenate([a, b])
    others[keys[counts_a != counts_b]] = False
    result: Bools = more | others
    return result


def _nulls(array: pa.Array) -> Bools:
    found: Bools = pc.is_null(array).to_numpy(zero_copy_only=False)
    return found


def _matched(one: Int64s, other: Int64s) -> tuple[Int64s, Int64s]:
    """Pairs of rows with the same number: the first with the first, and so on, of each number."""
    _, numbers = np.unique(np.concatenate([one, other]), return_inverse=True)
    sides = numbers[: len(one)], numbers[len(one) :]
    places = [ranks(side) for side in sides]
    several = 1 + max(place.max(initial=0) for place in places)
    left, right = (side * several + place for side, place in zip(sides, places, strict=True))
    _, a, b = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return a, b


def ranks(numbers: Int64s) -> Int64s:
    """How many rows before each have its number."""
    order = np.argsort(numbers, kind="stable")
    inside = numbers[order]
    starts = np.flatnonzero(np.r_[True, inside[1:] != inside[:-1]][: len(inside)])
    lengths = np.diff(np.r_[starts, len(inside)])
    found = np.empty(len(numbers), np.int64)
    found[order] = np.arange(len(inside)) - np.repeat(starts, lengths)
    return found


def _without(count: int, rows: Int64s) -> Int64s:
    keep = np.ones(count, bool)
    keep[rows] = False
    return np.flatnonzero(keep)


def _tolerant(
    pairs: _Pairs, one: Rows, other: Rows, decode: Decode, tolerances: Tolerances
) -> _Pairs:
    equal = pairs.equal.copy()
    for i in np.flatnonzero(~equal).tolist():
        columns = (
            decode(*_octets(one, pairs.committed[i])), decode(*_octets(other, pairs.made[i]))
        )  # fmt: skip
        equal[i] = None not in columns and not _fields(*columns, tolerances)
    return _Pairs(pairs.committed, pairs.made, equal)


def _octets(rows: Rows, row: int | np.int64) -> tuple[bytes | None, bytes | None]:
    return rows.keys[int(row)].as_py(), rows.values[int(row)].as_py()


def _fields(one: Columns | None, other: Columns | None, tolerances: Tolerances) -> tuple[str, ...]:
    """The columns that differ by more than their tolerance; none if one could not be decoded."""
    if one is None or other is None:
        return ()
    return tuple(
        name for name in sorted(one.keys() | other.keys())
        if not _holds(one.get(name, _ABSENT), other.get(name, _ABSENT), name, tolerances)
    )  # fmt: skip


def _holds(one: object, other: object, name: str, tolerances: Tolerances) -> bool:
    allowed = tolerances.get(name)
    return same(one, other) if allowed is None else allowed.holds(one, other)


def _differing(pairs: _Pairs, committed: int, made: int) -> tuple[Int64s, Int64s, Int64s]:
    """Step 3: kind, committed row and made row of each, by position; -1 for no row."""
    left, right = pairs.committed, pairs.made
    differ = ~pairs.equal
    moved = _moved(left[pairs.equal], right[pairs.equal])
    missing, added = _without(committed, left), _without(made, right)
    parts = [
        (_VALUE, left[differ], right[differ]), (_MISSING, missing, np.full(len(missing), -1)),
        (_ADDED, np.full(len(added), -1), added),
        (_ORDER, left[pairs.equal][moved], right[pairs.equal][moved]),
    ]  # fmt: skip
    kinds = np.concatenate([np.full(len(a), kind) for kind, a, _ in parts])
    left, right = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
    order = np.lexsort([kinds, np.where(left >= 0, left, right)])
    return kinds[order], left[order], right[order]


def _moved(left: Int64s, right: Int64s) -> Int64s:
    """The pairs outside the longest run in which both sides rise."""
    order = np.argsort(left)
    rising = right[order]
    if not len(rising) or (np.diff(rising) > 0).all():
        return np.empty(0, np.int64)
    numbers: list[int] = rising.tolist()
    ends: list[int] = []  # the lowest end of a rising run, by its length
    rows: list[int] = []
    before: list[int] = []
    for row, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(rows[length - 1] if length else -1)
        ends[length : length + 1] = [number]
        rows[length : length + 1] = [row]
    kept, row = np.zeros(len(numbers), bool), rows[-1]
    while row >= 0:
        kept[row], row = True, before[row]
    return order[~kept]


def _difference(
    place: Place, kind: Kind, head: int, one: Rows, other: Rows, left: int, right: int,
    decode: Decode | None, tolerances: Tolerances,
) -> Difference:  # fmt: skip
    committed = one.record(left) if left >= 0 else None
    made = other.record(right) if right >= 0 else None
    fields: tuple[str, ...] = ()
    if kind == "value" and decode is not None and committed is not None and made is not None:
        columns = decode(committed.key, committed.value), decode(made.key, made.value)
        fields = _fields(*columns, tolerances)
    return Difference(
        kind, place.operator, place.partition, place.epoch, place.topic, place.topic_partition,
        head + (left if left >= 0 else right), committed, made, fields,
    )  # fmt: skip


def _keys_by_kind(
    one: Rows, other: Rows, kinds: Int64s, left: Int64s, right: Int64s
) -> dict[Kind, pa.BinaryArray]:
    """The keys of all differences after the first FOUND_MAX."""
    found: dict[Kind, pa.BinaryArray] = {}
    for number, kind in enumerate(_KINDS):
        rows = FOUND_MAX + np.flatnonzero(kinds[FOUND_MAX:] == number)
        if len(rows):
            side, at = (other, right) if kind == "added" else (one, left)
            found[kind] = side.keys.take(pa.array(at[rows]))
    return found
