"""The compiled library and the C structures that its functions take."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_void_p
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.errors import PermanentError
from perseid.kernels import build


class BinaryColumn(ctypes.Structure):
    """`binary_column` of kernels.h. Points into an Arrow array, which must outlive it."""

    _fields_ = (
        ("offsets", c_void_p), ("data", c_void_p), ("valid", c_void_p), ("valid_offset", c_int64),
    )  # fmt: skip


@cache
def kernels() -> ctypes.CDLL:
    """The library of these sources; its functions release Python's lock.

    Raises:
        PermanentError: it is not compiled.
    """
    path = build.library()
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise PermanentError(
            f"the compiled kernels cannot be loaded ({error}); compile them with `python -m "
            "perseid.kernels.build`, or install perseid again"
        ) from error
    pointer, count = c_void_p, c_int64
    columns = POINTER(BinaryColumn)
    signatures: dict[str, tuple[type | None, tuple[type, ...]]] = {
        "perseid_murmur2": (None, (columns, count, pointer)),
        "perseid_xxh64": (None, (columns, count, pointer)),
        "perseid_running_sums": (count, (pointer, pointer, count, pointer, pointer)),
        "perseid_slots_find": (None, (pointer, pointer, count, pointer, count, pointer, pointer)),
        "perseid_slots_insert": (None, (pointer, pointer, count, pointer, pointer, count)),
        "perseid_slots_number": (count, (pointer, count, pointer, count, pointer, pointer)),
        "perseid_texts_take": (None, (pointer, pointer, pointer, count, pointer, pointer)),
        "perseid_texts_equal": (
            None, (pointer, pointer, pointer, pointer, count, columns, pointer, pointer),
        ),
        "perseid_texts_agree": (c_int32, (columns, pointer, pointer, count)),
        "perseid_json_decode": (count, (columns, count, pointer, c_int32, pointer)),
        "perseid_json_escapes": (count, (pointer, count)),
        "perseid_json_encode": (count, (pointer, c_int32, count, pointer, pointer)),
        "perseid_kafka_measure": (count, (pointer, count, POINTER(count), POINTER(count))),
        "perseid_kafka_copy": (None, (pointer, count, *(pointer,) * 9)),
        "perseid_kafka_destroy": (None, (pointer, count, pointer)),
        "perseid_kafka_watch": (None, (pointer,)),
        "perseid_kafka_newest": (pointer, ()),
        "perseid_kafka_produce": (
            count, (pointer, pointer, c_int32, columns, columns, count, count, POINTER(c_int32)),
        ),
    }  # fmt: skip
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


def binary(array: pa.Array) -> BinaryColumn:
    """A string or binary array as C sees it."""
    assert pa.types.is_string(array.type) or pa.types.is_binary(array.type), array.type
    valid, offsets, data = array.buffers()
    return BinaryColumn(
        offsets.address + array.offset * 4 if offsets is not None else _NOTHING,
        data.address if data is not None else _NOTHING,
        valid.address if valid is not None and array.null_count else None,
        array.offset,
    )


def one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array.

    Raises:
        PermanentError: it is too large for one array.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    except pa.ArrowInvalid as error:
        what = f"{len(column)} rows at once have {column.nbytes} bytes in one column"
        raise too_much(what) from error


def text_bytes(array: pa.Array) -> int:
    """The bytes of all strings or binaries together, including those under nulls."""
    ends = text_ends(array)
    return int(ends[-1] - ends[0])


def text_ends(array: pa.Array) -> npt.NDArray[np.int32]:
    """Where each string or binary begins in the array's data, and where the last one ends."""
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)


def validity(flags: npt.NDArray[np.uint8]) -> pa.Buffer | None:
    """Arrow's bitmap from one byte per row, 1 for a value; None when every row has a value."""
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))


def too_much(what: str) -> PermanentError:
    """The error for data that one Arrow array cannot hold."""
    smaller = "give the job smaller epochs (`epoch: {maxRecords: ...}`)"
    return PermanentError(f"{what}, and 2 GiB are possible: {smaller}")


def all_bytes(array: pa.BinaryArray) -> bytes | memoryview:
    """The concatenated bytes of all values; a null has none."""
    if array.null_count:
        array = pc.fill_null(array, b"")
    ends, data = text_ends(array), array.buffers()[2]
    return memoryview(data)[int(ends[0]) : int(ends[-1])] if data is not None else b""


_ZERO = (c_uint8 * 8)()  # the only offset of an array without rows
_NOTHING = ctypes.addressof(_ZERO)
