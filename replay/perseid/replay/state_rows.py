"""Where two states of one primitive differ: a checkpoint's, and the one an audit has made. Pure.

Decoded rows are compared, so the order of rows, chunks and dictionaries do not matter:

    table, set, timers       by key: another value, missing, added
    value, vector, matrix    by place
    pool, feedback outputs   as a bag: a row that is there less often is missing, more often added

Numbers count by their bits: NaN is NaN, and 0.0 is not -0.0. Columns become numbers, equal for
equal values of either side, and all else is arithmetic on these. Rows are divided by a hash of
their key, so the memory used next to both states is that of BUCKET_ROWS rows, and of what differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.kernels.hashing import xxh64
from perseid.replay.differences import FOUND_MAX, Differences, Place
from perseid.replay.findings import Difference, Kind, Record
from perseid.replay.tolerances import Tolerances
from perseid.state.primitives.columns import is_text

BUCKET_ROWS = 1 << 20  # of both sides, in one step
BAG = "bag"  # the kind of outputs that the next epoch reads
_MIX = np.uint64(0x9E3779B97F4A7C15)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Form:
    """How rows of a primitive are compared: by `key`, or as a whole (`bag`).

    `shown`: the columns that a sample names as its key; those of a bag need not be unique.
    """

    key: tuple[str, ...]
    shown: tuple[str, ...]
    bag: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """Rows that differ: pairs `left[i]`, `right[i]` have one key and other values."""

    left: Ints
    right: Ints
    missing: Ints
    added: Ints


def state_differences(
    place: Place, schema: Mapping[str, Any], committed: pa.Table, made: pa.Table,
    tolerances: Tolerances | None = None,
) -> Differences:  # fmt: skip
    """What differs between two snapshots with the same columns. `schema`: the primitive's.

    `tolerances`: of columns that are not of the key; bags have none.
    """
    form, one, other = _formed(schema, committed, made)
    found = _joined([
        _in_bucket(form, one, other, left, right, tolerances or {})
        for left, right in _buckets(form, one, other)
    ])  # fmt: skip
    return _shown(place, form, one, other, found, tolerances or {})


def same_columns(committed: pa.Table, made: pa.Table) -> bool:
    """Whether both have columns of the same names and types, in any order."""
    return _types(committed) == _types(made)


def _types(rows: pa.Table) -> dict[str, pa.DataType]:
    return {field.name: _decoded_type(field.type) for field in rows.schema}


def _decoded_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _formed(
    schema: Mapping[str, Any], committed: pa.Table, made: pa.Table
) -> tuple[_Form, pa.Table, pa.Table]:
    kind = schema["kind"]
    if kind in ("pool", BAG):
        return _Form(tuple(committed.column_names), tuple(schema["key"]), bag=True), committed, made
    if kind in ("value", "vector", "matrix"):
        places = {"value": (), "vector": ("index",), "matrix": ("row", "column")}[kind]
        width = schema.get("columns", 1)
        form = _Form(places or ("index",), places)
        return form, _placed(form, committed, width), _placed(form, made, width)
    key = tuple(schema["key"])
    return _Form(key, key), committed, made


def _placed(form: _Form, rows: pa.Table, width: int) -> pa.Table:
    """`rows` with their places as key columns."""
    at = np.arange(len(rows))
    columns = [at] if len(form.key) == 1 else [at // width, at % width]
    for name, column in zip(form.key, columns, strict=True):
        rows = rows.append_column(name, pa.array(column))
    return rows


# Buckets ----------------------------------------------------------------------------------------


def _buckets(form: _Form, one: pa.Table, other: pa.Table) -> Iterator[tuple[Ints, Ints]]:
    """The rows of both sides, divided so that rows of one key are in one bucket."""
    count = -(-(len(one) + len(other)) // BUCKET_ROWS)
    hashed = next((n for n in form.key if _hash_of(one.schema.field(n).type)), None)
    if count <= 1 or hashed is None:
        yield np.arange(len(one)), np.arange(len(other))
        return
    left, right = (_hashes(side[hashed]) % np.uint64(count) for side in (one, other))
    for number in range(count):
        yield np.flatnonzero(left == number), np.flatnonzero(right == number)


def _hash_of(kind: pa.DataType) -> Callable[[pa.Array], npt.NDArray[np.uint64]] | None:
    """The hash of columns of a type; None where it has none."""
    kind = _decoded_type(kind)
    if is_text(kind):
        return lambda array: xxh64(array.cast(pa.binary()), np.zeros(len(array), np.uint64))
    if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
        return lambda array: array.fill_null(0).to_numpy().astype(np.uint64) * _MIX >> np.uint64(32)
    return None


def _hashes(column: pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    plain = _plain(column)
    hashed = _hash_of(plain.type)
    assert hashed is not None, "columns of such types are chosen"
    return np.concatenate([np.zeros(0, np.uint64), *map(hashed, plain.chunks)])


# One bucket -------------------------------------------------------------------------------------


def _in_bucket(
    form: _Form, one: pa.Table, other: pa.Table, left: Ints, right: Ints, tolerances: Tolerances
) -> _Found:
    ours, theirs = _rows(one, left), _rows(other, right)
    keys = _numbered(ours, theirs, form.key)
    if form.bag:
        kept, came = _left_over(*keys)
        none = np.zeros(0, np.int64)
        return _Found(none, none, left[kept], right[came])
    place = np.full(int(max(keys[0].max(initial=-1), keys[1].max(initial=-1))) + 1, -1)
    place[keys[1]] = np.arange(len(right))
    partner = place[keys[0]]
    pairs = np.flatnonzero(partner >= 0)
    alone = np.ones(len(right), bool)
    alone[partner[pairs]] = False
    differs = _differing(form, ours, theirs, pairs, partner[pairs], tolerances)
    rows = np.flatnonzero(np.any([np.zeros(len(pairs), bool), *differs.values()], axis=0))
    return _Found(
        left[pairs[rows]], right[partner[pairs[rows]]], left[partner < 0], right[alone]
    )  # fmt: skip


def _differing(
    form: _Form, one: pa.Table, other: pa.Table, left: Ints, right: Ints, tolerances: Tolerances
) -> dict[str, Bools]:
    """By column that is not of the key: which of the pairs differ in it by more than allowed."""
    found = {}
    for name in one.column_names:
        if name in form.key:
            continue
        ours, theirs = _codes(one[name], other[name])
        differs = ours[left] != theirs[right]
        if name in tolerances:
            rows = np.flatnonzero(differs)
            a, b = _values(one[name], left[rows]), _values(other[name], right[rows])
            allows = tolerances[name].holds
            differs[rows] = [not allows(x, y) for x, y in zip(a, b, strict=True)]
        found[name] = differs
    return found


def _left_over(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """The rows of each side for which the other has none, by the numbers of equal rows."""
    return _beyond(left, right), _beyond(right, left)


def _beyond(numbers: Ints, others: Ints) -> Ints:
    size = int(max(numbers.max(initial=-1), others.max(initial=-1))) + 1
    there = np.bincount(others, minlength=size)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    nth = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
    return np.sort(order[nth >= there[ordered]])


def _numbered(one: pa.Table, other: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """A number for each row, equal for rows that are equal in all columns `names`."""
    first, *rest = names
    left, right = _codes(one[first], other[first])
    for name in rest:
        more = _codes(one[name], other[name])
        width = int(max(more[0].max(initial=0), more[1].max(initial=0))) + 1
        left, right = _codes(
            pa.chunked_array([left * width + more[0]]), pa.chunked_array([right * width + more[1]])
        )
    return left, right


def _codes(one: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[Ints, Ints]:
    """A number for each value of both, equal for equal values; nulls have one of their own."""
    both = [*_plain(one).chunks, *_plain(other).chunks]
    if not both:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    encoded = pa.chunked_array(both).dictionary_encode(null_encoding="encode")
    parts = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks]
    codes = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64, copy=False)
    return codes[: len(one)], codes[len(one) :]


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as values that are equal if and only if their bits are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _plain(column.cast(kind.value_type))
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return _mapped(column, lambda chunk: chunk.view(bits), bits)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        bits = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _mapped(column, lambda chunk: chunk.view(bits), bits)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return _mapped(column, lambda c: pa.array(map(repr, c.to_pylist()), pa.string()),
                       pa.string())  # fmt: skip
    return column


def _mapped(
    column: pa.ChunkedArray, change: Callable[[pa.Array], pa.Array], kind: pa.DataType
) -> pa.ChunkedArray:
    return pa.chunked_array([change(chunk) for chunk in column.chunks], kind)


def _joined(parts: Sequence[_Found]) -> _Found:
    """Those of all buckets; the pairs by their rows in the checkpoint."""
    left, right, missing, added = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("left", "right", "missing", "added")
    )
    order = np.argsort(left)
    return _Found(left[order], right[order], np.sort(missing), np.sort(added))


# Samples ----------------------------------------------------------------------------------------


def _shown(
    place: Place, form: _Form, one: pa.Table, other: pa.Table, found: _Found,
    tolerances: Tolerances,
) -> Differences:  # fmt: skip
    pairs = min(len(found.left), FOUND_MAX)
    ours, theirs = _rows(one, found.left[:pairs]), _rows(other, found.right[:pairs])
    at = np.arange(pairs)
    differs = _differing(form, ours, theirs, at, at, tolerances)
    samples = [
        _difference(place, "value", a, b, tuple(n for n, rows in differs.items() if rows[i]))
        for i, (a, b) in enumerate(
            zip(_records(form, ours), _records(form, theirs), strict=True)
        )
    ]  # fmt: skip
    missing = found.missing[: FOUND_MAX - len(samples)]
    samples += [_difference(place, "missing", a, None) for a in _records(form, _rows(one, missing))]
    added = found.added[: FOUND_MAX - len(samples)]
    samples += [_difference(place, "added", None, b) for b in _records(form, _rows(other, added))]
    rest: dict[Kind, pa.BinaryArray] = {
        "value": _keys(form, one, found.left[pairs:]),
        "missing": _keys(form, one, found.missing[len(missing) :]),
        "added": _keys(form, other, found.added[len(added) :]),
    }
    return Differences(place, tuple(samples), {k: keys for k, keys in rest.items() if len(keys)})


def _difference(
    place: Place, kind: Kind, committed: Record | None, made: Record | None,
    fields: tuple[str, ...] = (),
) -> Difference:  # fmt: skip
    return Difference(
        kind, place.operator, place.partition, place.epoch, place.topic, place.topic_partition, 0,
        committed, made, fields, place.state,
    )  # fmt: skip


def _records(form: _Form, rows: pa.Table) -> list[Record]:
    """Key as `perseid state --key` takes it, and the other columns as JSON."""
    hidden = form.shown if form.bag else form.key
    others = rows.select([name for name in rows.column_names if name not in hidden])
    keys = _key_texts(form, rows).to_pylist()
    return [
        Record(key, json.dumps(row, default=_json, ensure_ascii=False).encode())
        for key, row in zip(keys, others.to_pylist(), strict=True)
    ] if others.num_columns else [Record(key, b"{}") for key in keys]  # fmt: skip


def _json(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _keys(form: _Form, rows: pa.Table, places: Ints) -> pa.BinaryArray:
    return _key_texts(form, _rows(rows, places))


def _key_texts(form: _Form, rows: pa.Table) -> pa.BinaryArray:
    if not form.shown or not len(rows):
        return pa.nulls(len(rows), pa.binary())
    texts = [_texts(rows[name]) for name in form.shown]
    if len(texts) == 1:
        return texts[0]
    parts = [
        part
        for number, (name, text) in enumerate(zip(form.shown, texts, strict=True))
        for part in (pa.scalar(f"{',' if number else ''}{name}=".encode(), pa.binary()), text)
    ]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _texts(column: pa.ChunkedArray) -> pa.BinaryArray:
    """Each value of a key as text."""
    kind = _decoded_type(column.type)
    try:
        plain = column.cast(kind)
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        found = (plain if is_bytes else plain.cast(pa.string())).cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = pa.chunked_array([[str(value).encode() for value in column.to_pylist()]])
    return found.combine_chunks()


def _rows(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows in that order. By a mask: `take` joins chunks, which long texts do not allow."""
    if len(rows) == len(table) and np.array_equal(rows, np.arange(len(table))):
        return table
    mask = np.zeros(len(table), bool)
    mask[rows] = True
    found = table.filter(pa.array(mask))
    rank = np.empty(len(rows), np.int64)
    rank[np.argsort(rows)] = np.arange(len(rows))
    return found if np.array_equal(rank, np.arange(len(rows))) else found.take(pa.array(rank))


def _values(column: pa.ChunkedArray, rows: Ints) -> list[Any]:
    found: list[Any] = _rows(pa.table([column], ["value"]), rows)["value"].to_pylist()
    return found
