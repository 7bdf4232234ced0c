"""Growing columns: the values of a table, by slot.

A column of a fixed-width type is a NumPy array and, once a null was written, a mask; all other
types are arrays of Python objects. Capacity grows by half, so a put costs amortised constant time.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import BadInputError

type_is = pa.types
Slots = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[Any]]


def storage(kind: pa.DataType) -> np.dtype[Any]:
    """The NumPy type that holds `kind`; `object` when none does."""
    if type_is.is_integer(kind) or type_is.is_floating(kind) or type_is.is_boolean(kind):
        return cast(np.dtype[Any], np.dtype(kind.to_pandas_dtype()))
    if type_is.is_temporal(kind) and kind.bit_width in (32, 64):
        return np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
    return np.dtype(object)


def conform(values: Any, kind: pa.DataType, what: str) -> pa.Array:
    """`values` (Arrow array, chunked or not, or a sequence) as one array of `kind`."""
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        elif not isinstance(values, pa.Array):
            values = from_python(values, kind)
        if isinstance(values, pa.ChunkedArray):  # combine_chunks of no chunks, or of too much
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], kind)
        return values if values.type == kind else values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadInputError(f"{what}: expected {kind}, got something else: {error}") from error


def from_python(values: Any, kind: pa.DataType) -> pa.Array:
    """A sequence of Python values as Arrow; its type is `kind` unless a cast must check it."""
    if type_is.is_integer(kind):
        inferred = pa.array(values)
        if type_is.is_floating(inferred.type):  # given the type, Arrow would cut off the fraction
            return inferred
    return pa.array(values, type=kind)


def numbers(values: pa.Array) -> Values:
    """A fixed-width array as its storage numbers, nulls as zero."""
    if type_is.is_temporal(values.type):
        values = values.view(pa.from_numpy_dtype(storage(values.type)))
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(0).cast(values.type))
    return cast(Values, values.to_numpy(zero_copy_only=False))


def objects(values: pa.Array) -> Values:
    """Any array as Python objects, nulls as None."""
    kind = values.type
    if type_is.is_string(kind) or type_is.is_binary(kind):
        return cast(Values, values.to_numpy(zero_copy_only=False))
    out = np.empty(len(values), dtype=object)
    out[:] = values.to_pylist()
    return out


def stored(values: pa.Array) -> Values:
    """Any array as a column holds it, but for which are null."""
    return objects(values) if storage(values.type).hasobject else numbers(values)


class Column:
    """Values of one type by slot. Slots never written hold zero, or null for objects."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._storage = storage(kind)
        self._is_object = self._storage.hasobject
        self._values: Values = np.zeros(0, self._storage)
        self._nulls: Values | None = None
        self._widths: Values | None = np.zeros(0, np.int64) if self._is_object else None
        self._bytes = 0

    @property
    def is_number(self) -> bool:
        return bool(type_is.is_integer(self.kind) or type_is.is_floating(self.kind))

    @property
    def row_bytes(self) -> int:
        """Bytes of each row; what varies with the value is in `variable_bytes`."""
        return 4 if self._is_object else self._storage.itemsize

    @property
    def variable_bytes(self) -> int:
        return self._bytes

    def grow(self, capacity: int) -> None:
        self._values = grown(self._values, capacity)
        if self._nulls is not None:
            self._nulls = grown(self._nulls, capacity)
        if self._widths is not None:
            self._widths = grown(self._widths, capacity)

    def put(self, slots: Slots, values: pa.Array, as_stored: Values | None = None) -> None:
        """Writes `values` (of this column's type) into `slots`, which are different.

        `as_stored`: what `stored` says of them, when the caller has it already.
        """
        self._values[slots] = stored(values) if as_stored is None else as_stored
        if self._is_object:
            self._weigh(slots, values)
            return
        if values.null_count and self._nulls is None:
            self._nulls = np.zeros(len(self._values), bool)
        if self._nulls is not None:
            self._nulls[slots] = (
                values.is_null().to_numpy(zero_copy_only=False) if values.null_count else False
            )

    def put_null(self, slots: Slots) -> None:
        self.put(slots, pa.nulls(len(slots), self.kind))

    def sums(self, slots: Slots, amounts: Values) -> Values:
        """What `add` would write: values plus amounts. A null counts as zero."""
        old = self._values[slots]
        if self._nulls is not None:
            old = np.where(self._nulls[slots], self._storage.type(0), old)
        new = old + amounts
        if np.issubdtype(self._storage, np.integer):
            refuse_overflow(old, amounts, new, self.kind)
        return cast(Values, new)

    def put_numbers(self, slots: Slots, values: Values) -> None:
        self._values[slots] = values
        if self._nulls is not None:
            self._nulls[slots] = False

    def equal(self, slots: Slots, values: Values) -> Values:
        """Whether `slots` hold `values` (as stored, none of them null)."""
        return cast(Values, self._values[slots] == values)

    def take(self, slots: Slots | slice) -> pa.Array:
        """The values of `slots` as Arrow."""
        values = self._values[slots]
        mask = None if self._nulls is None else self._nulls[slots]
        if self._is_object:
            return pa.array(values, type=self.kind, from_pandas=False)
        if type_is.is_temporal(self.kind):
            plain = pa.array(values, type=pa.from_numpy_dtype(self._storage), mask=mask)
            return plain.view(self.kind)
        return pa.array(values, type=self.kind, mask=mask)

    def clear(self, slots: Slots) -> None:
        """Lets go of the values of slots that are no longer used."""
        if self._is_object:
            self._values[slots] = None
        if self._widths is not None:
            self._bytes -= int(self._widths[slots].sum())
            self._widths[slots] = 0

    def keep(self, slots: Slots) -> None:
        """Moves the values of `slots` to the front, in that order, and drops all others."""
        self._values = self._values[slots]
        if self._nulls is not None:
            self._nulls = self._nulls[slots]
        if self._widths is not None:
            self._widths = self._widths[slots]

    def _weigh(self, slots: Slots, values: pa.Array) -> None:
        assert self._widths is not None
        kind = values.type
        if type_is.is_string(kind) or type_is.is_binary(kind):
            widths = numbers(pc.binary_length(values)).astype(np.int64)
        else:
            widths = np.full(len(values), values.nbytes // max(1, len(values)), np.int64)
        self._bytes += int(widths.sum()) - int(self._widths[slots].sum())
        self._widths[slots] = widths


def grown(values: Values, capacity: int) -> Values:
    """A copy of `values` with room for `capacity`, new places zero or None."""
    objects_held = values.dtype.hasobject
    out = np.empty(capacity, object) if objects_held else np.zeros(capacity, values.dtype)
    out[: len(values)] = values
    return out


def refuse_overflow(old: Values, amounts: Values, new: Values, kind: pa.DataType) -> None:
    """Integer sums must not wrap around silently."""
    if np.issubdtype(new.dtype, np.signedinteger):
        wrapped = ((old ^ new) & (amounts ^ new)) < 0
    else:
        wrapped = new < old
    if wrapped.any():
        at = int(np.flatnonzero(wrapped)[0])
        raise BadInputError(
            f"adding {amounts[at]} to {old[at]} does not fit into {kind}; declare a wider column"
        )
