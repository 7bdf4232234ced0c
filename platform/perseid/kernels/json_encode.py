"""Arrow columns to JSON objects, a batch at a time."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.kernels.library import BinaryColumn, binary, kernels, one, text_ends, too_much

_INT32_MAX = 2**31 - 1
_STRING, _INT64, _BOOL, _JSON = 1, 2, 4, 6


class _Column(ctypes.Structure):
    _fields_ = (
        ("before", c_void_p), ("before_length", c_int64), ("kind", c_int32), ("cells", c_void_p),
        ("cells_offset", c_int64), ("text", BinaryColumn),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A column of objects to be written: `before` precedes each of its values.

    `is_json`: its strings are JSON texts already.
    """

    before: bytes
    column: pa.Array | pa.ChunkedArray
    is_json: bool = False


def is_plain(kind: pa.DataType) -> bool:
    """Whether `encode` takes columns of this type."""
    types = pa.types
    is_number = types.is_integer(kind) and kind != pa.uint64()
    return bool(types.is_string(kind) or types.is_boolean(kind) or is_number)


def encode(fields: Sequence[Field], rows: int) -> pa.BinaryArray:
    """A text for each row: the fields one after the other, and a brace. All types are plain.

    Raises:
        PermanentError: the result is too large for one array.
    """
    columns = [_Cells(field) for field in fields]
    total = rows + sum(column.bytes_max for column in columns)
    if total > _INT32_MAX:
        raise too_much(
            f"{rows} output records of one operator partition may have {total} bytes of JSON"
        )
    structures = (_Column * len(columns))(*[column.structure for column in columns])
    offsets = np.empty(rows + 1, np.int32)
    data = pa.allocate_buffer(total, resizable=True)
    length = kernels().perseid_json_encode(
        structures, len(columns), rows, offsets.ctypes.data, data.address
    )
    data.resize(length, shrink_to_fit=False)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


class _Cells:
    """One column to be written, as C sees it, and the most bytes that it needs."""

    def __init__(self, field: Field) -> None:
        array, kind = one(field.column), field.column.type
        assert is_plain(kind), kind
        is_text, more = pa.types.is_string(kind), 0
        if is_text:
            code, longest = (_JSON if field.is_json else _STRING), len("null")
            more = _text_bytes_max(array, escaped=not field.is_json)
        elif pa.types.is_boolean(kind):
            code, longest = _BOOL, len("false")
        else:
            array, code, longest = array.cast(pa.int64()), _INT64, len(str(-(2**63)))
        valid, cells, *_ = array.buffers()
        address = 0 if is_text or cells is None else cells.address
        nulls = valid.address if valid is not None and array.null_count else None
        self.structure = _Column(
            ctypes.cast(ctypes.c_char_p(field.before), c_void_p), len(field.before), code,
            address + array.offset * 8 if code == _INT64 else address, array.offset,
            binary(array) if is_text else BinaryColumn(None, None, nulls, array.offset),
        )  # fmt: skip
        self.bytes_max = len(array) * (len(field.before) + longest) + more
        self._kept: Any = (array, field)  # the structure points into both


def _text_bytes_max(array: pa.StringArray, *, escaped: bool) -> int:
    """The bytes of all strings together, with their escapes and what lies under nulls."""
    ends, data = text_ends(array), array.buffers()[2]
    size = int(ends[-1] - ends[0])
    if not escaped or not size:
        return size
    escapes: int = kernels().perseid_json_escapes(data.address + int(ends[0]), size)
    return size + escapes
