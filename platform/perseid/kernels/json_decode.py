"""JSON objects to Arrow columns, record by record as far as the kernel is sure of them.

It is sure of strings, numbers that one rounding gives exactly, booleans, nulls, times of day in
ISO 8601, and of nested values in fields that no column has. All other records, valid or not, are
left to the caller's general method. A record's row does not depend on which of the two read it.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.kernels.library import binary, kernels, text_bytes, validity

_COLUMNS_MAX = 64  # the kernel keeps a bit for each
_STRING, _INT64, _FLOAT64, _BOOL, _TIMESTAMP = 1, 2, 3, 4, 5
_KINDS = {
    pa.string(): _STRING, pa.binary(): _STRING, pa.int64(): _INT64, pa.float64(): _FLOAT64,
    pa.bool_(): _BOOL, pa.timestamp("us", "UTC"): _TIMESTAMP,
}  # fmt: skip
_CELLS = {_STRING: np.int32, _FLOAT64: np.float64, _BOOL: np.uint8}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')  # characters that a JSON string must escape


class _Column(ctypes.Structure):
    _fields_ = (
        ("name", c_void_p), ("name_length", c_int64), ("kind", c_int32), ("cells", c_void_p),
        ("data", c_void_p), ("valid", c_void_p), ("end", c_int32),
    )  # fmt: skip


def decode(texts: pa.BinaryArray, schema: pa.Schema) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """A row for each text that the kernel reads, and the indices of the others.

    Fields that `schema` lacks are left out.
    """
    rows = len(texts)
    if len(schema) > _COLUMNS_MAX or any(kind not in _KINDS for kind in schema.types):
        return schema.empty_table(), np.arange(rows)
    if any(_ESCAPED.search(name) for name in schema.names):
        return schema.empty_table(), np.arange(rows)
    size, taken = text_bytes(texts), np.empty(rows, np.bool_)
    columns = [_Cells(field, rows, size) for field in schema]
    structures = (_Column * len(columns))(*[column.structure() for column in columns])
    found = kernels().perseid_json_decode(
        byref(binary(texts)), rows, structures, len(columns), taken.ctypes.data
    )
    arrays = [c.array(found, s.end) for c, s in zip(columns, structures, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    return table, np.flatnonzero(~taken)


class _Cells:
    """The memory of one column that is read, of `rows` rows and `size` bytes of text at most."""

    def __init__(self, field: pa.Field, rows: int, size: int) -> None:
        self._name = f'"{field.name}":'.encode()
        self._type, self._kind = field.type, _KINDS[field.type]
        is_text = self._kind == _STRING
        self._valid = np.empty(rows, np.uint8)
        self._data = pa.allocate_buffer(size if is_text else 0, resizable=True)
        self._cells: Any = np.empty(rows + is_text, _CELLS.get(self._kind, np.int64))

    def structure(self) -> _Column:
        name = ctypes.cast(ctypes.c_char_p(self._name), c_void_p)
        return _Column(
            name, len(self._name), self._kind, self._cells.ctypes.data, self._data.address,
            self._valid.ctypes.data, 0,
        )  # fmt: skip

    def array(self, rows: int, end: int) -> pa.Array:
        """The first `rows` cells; strings have `end` bytes."""
        valid = self._valid[:rows]
        if self._kind == _BOOL:
            return pa.array(self._cells[:rows].astype(bool), mask=valid == 0)
        buffers = [validity(valid), pa.py_buffer(self._cells)]
        if self._kind == _STRING:
            self._data.resize(end, shrink_to_fit=True)  # it was as long as the whole batch
            buffers.append(self._data)
        return pa.Array.from_buffers(self._type, rows, buffers)
