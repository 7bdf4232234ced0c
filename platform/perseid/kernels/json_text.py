"""Flat JSON objects to Arrow columns and back, for plain values only.

Plain values are strings without escapes, whole numbers, decimals of few digits, booleans and nulls.
All else, valid or not, is left to the caller's general method: so a record's value never depends on
which of the two methods its batch took.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from perseid.kernels.library import (
    BinaryColumn,
    binary,
    kernels,
    one,
    text_bytes,
    too_much,
    validity,
)

_COLUMNS_MAX = 64  # the kernel keeps a bit for each
_INT32_MAX = 2**31 - 1
_STRING, _INT64, _FLOAT64, _BOOL, _TEXT = 1, 2, 3, 4, 5
_READ = {pa.string(): _STRING, pa.int64(): _INT64, pa.float64(): _FLOAT64, pa.bool_(): _BOOL}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')  # characters that a JSON string must escape
_CELLS = {_STRING: np.int32, _INT64: np.int64, _FLOAT64: np.float64, _BOOL: np.uint8}


class _ReadColumn(ctypes.Structure):
    _fields_ = (
        ("name", c_void_p), ("name_length", c_int64), ("kind", c_int32), ("cells", c_void_p),
        ("data", c_void_p), ("valid", c_void_p), ("end", c_int32),
    )  # fmt: skip


class _WriteColumn(ctypes.Structure):
    _fields_ = (
        ("before", c_void_p), ("before_length", c_int64), ("kind", c_int32), ("cells", c_void_p),
        ("cells_offset", c_int64), ("text", BinaryColumn),
    )  # fmt: skip


def read(texts: pa.BinaryArray, schema: pa.Schema) -> pa.Table | None:
    """A row for each text, without fields that `schema` lacks; None: not all texts are plain."""
    if len(schema) > _COLUMNS_MAX or any(kind not in _READ for kind in schema.types):
        return None
    if any(_ESCAPED.search(name) for name in schema.names):
        return None
    rows = len(texts)
    column = binary(texts)
    size = text_bytes(texts)
    made = [
        _Reading(name, _READ[kind], rows, size)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    structures = (_ReadColumn * len(made))(*[m.structure() for m in made])
    if kernels().perseid_json_read(ctypes.byref(column), rows, structures, len(made)) != rows:
        return None
    arrays = [m.array(s.end) for m, s in zip(made, structures, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class _Reading:
    """The memory of one column that is read."""

    def __init__(self, name: str, kind: int, rows: int, size: int) -> None:
        self._name = f'"{name}":'.encode()
        self._kind, self._rows = kind, rows
        self._valid = np.empty(rows, np.uint8)
        self._data = pa.allocate_buffer(size if kind == _STRING else 0, resizable=True)
        self._cells: Any = np.zeros(rows + (kind == _STRING), _CELLS[kind])  # also under nulls

    def structure(self) -> _ReadColumn:
        name = ctypes.cast(ctypes.c_char_p(self._name), c_void_p)
        return _ReadColumn(
            name, len(self._name), self._kind, self._cells.ctypes.data, self._data.address,
            self._valid.ctypes.data, 0,
        )  # fmt: skip

    def array(self, end: int) -> pa.Array:
        if self._kind == _BOOL:
            return pa.array(self._cells.astype(bool), mask=self._valid == 0)
        valid, cells = validity(self._valid), pa.py_buffer(self._cells)
        if self._kind != _STRING:
            kind = pa.int64() if self._kind == _INT64 else pa.float64()
            return pa.Array.from_buffers(kind, self._rows, [valid, cells])
        self._data.resize(end, shrink_to_fit=True)  # it was as long as the whole batch
        return pa.Array.from_buffers(pa.string(), self._rows, [valid, cells, self._data])


@dataclass(frozen=True, slots=True)
class Field:
    """A column of objects to be written: `before` precedes each of its values.

    `is_json`: its strings are JSON texts already.
    """

    before: bytes
    column: pa.Array | pa.ChunkedArray
    is_json: bool = False


def write(fields: Sequence[Field], rows: int) -> pa.BinaryArray | int:
    """A text for each row: the fields one after the other, and a brace.

    Or the number of the first field that cannot be written, since its type is not plain or one of
    its strings needs an escape.

    Raises:
        PermanentError: the result is too large for one array.
    """
    columns = []
    for number, field in enumerate(fields):
        made = _writing(field)
        if made is None:
            return number
        columns.append(made)
    total = rows + sum(made.bytes_max for made in columns)
    if total > _INT32_MAX:
        raise too_much(
            f"{rows} output records of one operator partition may have {total} bytes of JSON"
        )
    structures = (_WriteColumn * len(columns))(*[made.structure for made in columns])
    offsets = np.empty(rows + 1, np.int32)
    data = pa.allocate_buffer(total, resizable=True)
    length = kernels().perseid_json_write(
        structures, len(columns), rows, offsets.ctypes.data, data.address
    )
    if length < 0:
        return int(-1 - length)
    data.resize(length, shrink_to_fit=False)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


class _Writing:
    """One column to be written, as C sees it, and the most bytes that it needs."""

    def __init__(self, structure: _WriteColumn, bytes_max: int, *kept: Any) -> None:
        self.structure, self.bytes_max, self._kept = structure, bytes_max, kept


def _writing(field: Field) -> _Writing | None:
    array, kind = one(field.column), field.column.type
    if pa.types.is_string(kind):
        code, longest = (_TEXT if field.is_json else _STRING), len("null")
    elif pa.types.is_boolean(kind):
        code, longest = _BOOL, len("false")
    elif pa.types.is_integer(kind) and kind != pa.uint64():
        array, code, longest = array.cast(pa.int64()), _INT64, len(str(-(2**63)))
    else:
        return None
    is_text = pa.types.is_string(kind)
    valid, cells, *_ = array.buffers()
    address = 0 if is_text or cells is None else cells.address
    nulls = valid.address if valid is not None and array.null_count else None
    structure = _WriteColumn(
        ctypes.cast(ctypes.c_char_p(field.before), c_void_p), len(field.before), code,
        address + array.offset * 8 if code == _INT64 else address, array.offset,
        binary(array) if is_text else BinaryColumn(None, None, nulls, array.offset),
    )  # fmt: skip
    more = text_bytes(array) if is_text else 0
    return _Writing(structure, len(array) * (len(field.before) + longest) + more, array, field)
