"""A checksum of rows: of what they are, and not of how Arrow holds them.

Two attempts at an epoch give equal rows, but not equal buffers: they divide them into other chunks,
slices begin elsewhere, and what lies under a null is left over from before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_FIXED = (pa.types.is_fixed_size_binary,)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TEXTS = (pa.types.is_string, pa.types.is_binary)
_LARGE_TEXTS = (pa.types.is_large_string, pa.types.is_large_binary)


def content_crc(tables: Sequence[pa.Table]) -> int:
    """CRC-32 of the rows of `tables`, one after the other: columns' names, types and values.

    The tables have the same columns. 0 without rows, whatever the columns. Numbers count by their
    bits: 0.0 is not -0.0.
    """
    full = [table for table in tables if table.num_rows]
    if not full:
        return 0
    crc = crc32("\n".join(f"{f.name}: {f.type}" for f in full[0].schema).encode())
    for number in range(full[0].num_columns):
        crc = _fed(crc, [part for table in full for part in table.column(number).chunks])
    return crc


def _fed(crc: int, arrays: Sequence[pa.Array]) -> int:
    """`crc` after the values of arrays of one type, as if they were one array."""
    kind = arrays[0].type if arrays else None
    if isinstance(kind, pa.BaseExtensionType):
        return _fed(crc, [array.storage for array in arrays])
    if isinstance(kind, pa.DictionaryType):
        return _fed(crc, [array.dictionary_decode() for array in arrays])
    nulls = sum(array.null_count for array in arrays)
    crc = crc32(np.array([sum(map(len, arrays)), nulls]).tobytes(), crc)
    if nulls:
        for array in arrays:
            crc = crc32(_bytes(array.is_valid()), crc)
    values = [array.drop_null() if array.null_count else array for array in arrays]
    values = [array for array in values if len(array)]
    return _of_values(crc, values) if values else crc


def _of_values(crc: int, arrays: Sequence[pa.Array]) -> int:
    """The same without nulls."""
    kind = arrays[0].type
    if pa.types.is_boolean(kind):
        return _crc_of(crc, map(_bytes, arrays))
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or _is(kind, _FIXED):
        return _crc_of(crc, (_fixed(array) for array in arrays))
    if _is(kind, (*_TEXTS, *_LARGE_TEXTS)):
        ends = [_ends(array, 8 if _is(kind, _LARGE_TEXTS) else 4) for array in arrays]
        crc = _crc_of(crc, (np.diff(one).astype(np.int64).tobytes() for one in ends))
        places = zip(arrays, ends, strict=True)
        return _crc_of(crc, (_part(a.buffers()[2], one[0], one[-1]) for a, one in places))
    if _is(kind, _LISTS):
        lengths = (pc.list_value_length(array).to_numpy().astype(np.int64) for array in arrays)
        crc = _crc_of(crc, (one.tobytes() for one in lengths))
        return _fed(crc, [array.flatten() for array in arrays])
    if pa.types.is_struct(kind):
        fields = zip(*(array.flatten() for array in arrays), strict=True)
        for field in fields:
            crc = _fed(crc, field)
        return crc
    texts = (f"{value!r}\n".encode() for array in arrays for value in array.to_pylist())
    return _crc_of(crc, texts)  # maps, unions and views: rare


def _is(kind: pa.DataType, tests: Sequence[Any]) -> bool:
    return any(test(kind) for test in tests)


def _crc_of(crc: int, parts: Iterable[bytes | memoryview]) -> int:
    for part in parts:
        crc = crc32(part, crc)
    return crc


def _bytes(flags: pa.BooleanArray) -> bytes:
    """One byte a value."""
    found: npt.NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return found.tobytes()


def _fixed(array: pa.Array) -> memoryview | bytes:
    width = array.type.bit_width // 8
    return _part(array.buffers()[1], array.offset * width, (array.offset + len(array)) * width)


def _ends(array: pa.Array, width: int) -> npt.NDArray[Any]:
    """Where each text begins in the array's data, and where the last one ends."""
    offsets = array.buffers()[1]
    return np.frombuffer(offsets, f"<i{width}", len(array) + 1, array.offset * width)


def _part(buffer: pa.Buffer | None, start: int, end: int) -> memoryview | bytes:
    return memoryview(buffer)[int(start) : int(end)] if buffer is not None else b""
