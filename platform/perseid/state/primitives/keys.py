"""Keys of a table: from Arrow columns to distinct keys with hashes.

Distinct keys are in the order of their first appearance. The hash of a key of several fields mixes
those of all fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.errors import BadInputError
from perseid.kernels import slots, texts
from perseid.state.primitives.columns import conform, is_text, stored, type_is
from perseid.state.primitives.index import hash_numbers, hash_texts
from perseid.state.primitives.undo import Slots, Values
from perseid.state.primitives.xxh64 import hashed_bits

UNNAMED = "key"  # the column of a key that was declared by its type alone


@dataclass(frozen=True, slots=True)
class Distinct:
    """Distinct keys. `rows[i]` is the key of input row i; None when no key repeats."""

    arrays: tuple[pa.Array, ...]
    values: tuple[Any, ...]  # in the form of `stored`
    hashes: Slots
    rows: Slots | None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def rows_given(self) -> int:
        """The number of input rows."""
        return len(self) if self.rows is None else len(self.rows)

    def spread(self, of_keys: Values) -> Values:
        """Spreads a value per key to one per input row."""
        return of_keys if self.rows is None else of_keys[self.rows]

    def numbers(self) -> Slots:
        """For each input row the number of its key."""
        return self.spread(np.arange(len(self)))

    def first_rows(self) -> Slots:
        """The first input row of each key."""
        if self.rows is None:
            return np.arange(len(self))
        return first_rows(self.rows, len(self))

    def agree(self, rows: Slots, firsts: Slots) -> bool:
        """Whether the key of each row equals that of the first row with its number, `rows`."""
        first = firsts[rows]
        again = np.flatnonzero(first != np.arange(len(first)))
        first = first[again]
        return all(
            texts.agree(values, again, first) if isinstance(values, pa.Array)
            else bool((values[again] == values[first]).all())
            for values in self.values
        )  # fmt: skip

    def chosen(self, firsts: Slots, rows: Slots) -> Distinct:
        """Only the keys in the rows `firsts`."""
        places = pa.array(firsts)
        values = tuple(
            v.take(places) if isinstance(v, pa.Array) else v[firsts] for v in self.values
        )
        arrays = tuple(array.take(places) for array in self.arrays)
        return Distinct(arrays, values, self.hashes[firsts], rows)

    def last_rows(self) -> Slots | None:
        """The last input row of each key; None when no key repeats."""
        if self.rows is None:
            return None
        last = np.empty(len(self.hashes), np.int64)
        last[self.rows] = np.arange(len(self.rows))  # of a repeated index the last value stays
        return last


class KeyFields:
    """The key columns of one table: their names and types."""

    def __init__(self, key: pa.DataType | Mapping[str, pa.DataType]) -> None:
        self.types: dict[str, pa.DataType] = (
            dict(key) if isinstance(key, Mapping) else {UNNAMED: key}
        )
        if not self.types:
            raise BadInputError("Table(key={}) has no key column; name at least one")
        for name, kind in self.types.items():
            if not usable(kind):
                raise BadInputError(
                    f"key column {name!r} of type {kind}: a key is a string, binary, integer, "
                    "boolean, date, time or timestamp"
                )

    def arrays(self, keys: Any) -> tuple[pa.Array, ...]:
        """`keys` as one array per field, of the declared types and without nulls."""
        arrays = tuple(
            conform(values, kind, f"key column {name!r}")
            for (name, kind), values in zip(self.types.items(), self._fields(keys), strict=True)
        )
        for name, array in zip(self.types, arrays, strict=True):
            if array.null_count:
                row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
                raise BadInputError(
                    f"key column {name!r} is null in row {row}; a table's key cannot be null: "
                    "filter such rows out, or replace the null by a value of your own"
                )
        if len({len(array) for array in arrays}) > 1:
            raise BadInputError(f"key columns {list(self.types)} have different lengths")
        return arrays

    def distinct(self, keys: Any) -> Distinct:
        """The distinct keys among `keys`, in the order of their first appearance.

        Returns a `Distinct` unchanged, so that a caller who needs it too computes it once.
        """
        if isinstance(keys, Distinct):
            return keys
        every = hashed(self.arrays(keys))
        rows, firsts = slots.number(every.hashes)
        if len(firsts) == len(every):
            return every
        if not every.agree(rows, firsts):  # two keys have the same hash
            rows, count = codes(every.arrays)
            firsts = first_rows(rows, count)
        return every.chosen(firsts, rows)

    def known_distinct(self, keys: pa.Table) -> Distinct:
        """Like `distinct`, for a table that a primitive wrote itself."""
        arrays = tuple(conform(keys[name], kind, name) for name, kind in self.types.items())
        return hashed(arrays)

    def _fields(self, keys: Any) -> list[Any]:
        if isinstance(keys, pa.Table | pa.RecordBatch | Mapping):
            names = keys if isinstance(keys, Mapping) else keys.schema.names
            missing = [name for name in self.types if name not in names]
            if missing:
                raise BadInputError(f"key columns {missing} are missing; given: {list(names)}")
            return [keys[name] for name in self.types]
        if len(self.types) > 1:
            raise BadInputError(f"give a table or a dict with the key columns {list(self.types)}")
        return [keys]


def usable(kind: pa.DataType) -> bool:
    """Floats cannot be keys: NaN is not equal to itself."""
    return bool(
        type_is.is_integer(kind)
        or type_is.is_boolean(kind)
        or (type_is.is_temporal(kind) and kind.bit_width in (32, 64))
        or is_text(kind)
    )


def among(types: Mapping[str, pa.DataType], key: Sequence[str]) -> dict[str, pa.DataType] | None:
    """The types of `key`, if all its columns exist and have types that partitions can hash."""
    there = all(name in types and hashed_bits(types[name]) is not None for name in key)
    return {name: types[name] for name in key} if there else None


def first_rows(rows: Slots, count: int) -> Slots:
    """The first input row of each of `count` keys."""
    first = np.empty(count, np.int64)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1)
    return first


def codes(arrays: tuple[pa.Array, ...]) -> tuple[Slots, int]:
    """A number for each row, equal for equal keys, by first appearance; and how many there are."""
    encoded = arrays[0].dictionary_encode()
    for array in arrays[1:]:
        other = array.dictionary_encode()
        pair = numbered(encoded) * max(1, len(other.dictionary)) + numbered(other)
        encoded = pa.array(pair).dictionary_encode()
    return numbered(encoded), len(encoded.dictionary)


def numbered(encoded: pa.DictionaryArray) -> Slots:
    codes: Slots = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def hashed(arrays: tuple[pa.Array, ...]) -> Distinct:
    """Keys that are all different."""
    values = tuple(stored(array) for array in arrays)
    hashes = hash_of(values[0])
    for more in values[1:]:
        hashes = hash_numbers(hashes * 31 + hash_of(more))
    return Distinct(arrays, values, hashes, None)


def hash_of(values: Any) -> Slots:
    return hash_texts(values) if isinstance(values, pa.Array) else hash_numbers(values)
