"""Columns of messages and messages of columns, with a librdkafka that is made of functions here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_int, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perseid.kernels.library import binary, kernels
from perseid.topics import librdkafka
from perseid.topics.librdkafka import _Message

Row = tuple[bytes | None, bytes | None]
ROWS: list[Row] = [
    (b"k", b"v"), (None, b"no key"), (b"", b"empty key"), (b"empty value", b""), (b"none", None),
    (None, None), (b"long", b"x" * 70_000),
]  # fmt: skip
REFUSED = -184  # the client's queue is full
_DESTROY = ctypes.CFUNCTYPE(None, c_void_p)
_TIMESTAMP = ctypes.CFUNCTYPE(c_int64, c_void_p, c_void_p)
_PRODUCE = ctypes.CFUNCTYPE(c_int, c_void_p, c_int32, c_int, ctypes.POINTER(_Message), c_int)


def message(row: Row, offset: int, kept: list[Any], err: int = 0) -> _Message:
    parts = [None if part is None else ctypes.create_string_buffer(part, len(part) or 1)
             for part in row]  # fmt: skip
    kept.extend(parts)
    key, value = (ctypes.addressof(part) if part is not None else None for part in parts)
    return _Message(err=err, payload=value, len=len(row[1] or b""), key=key,
                    key_len=len(row[0] or b""), offset=offset)  # fmt: skip


def test_messages_become_columns_and_events_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []
    messages = [message(row, 10 + i, kept) for i, row in enumerate(ROWS)]
    messages.insert(3, message((None, b"broken"), -1, kept, err=-191))
    timestamp = _TIMESTAMP(lambda at, _kind: 1000 + _Message.from_address(at).offset)
    functions = {"rd_kafka_message_timestamp": ctypes.cast(timestamp, c_void_p).value}
    monkeypatch.setattr(librdkafka, "address_of", functions.__getitem__)
    monkeypatch.setattr(librdkafka, "_events", lambda found: [len(found)])
    addresses = np.array([ctypes.addressof(m) for m in messages], np.uintp)
    records, events = librdkafka._taken(addresses, 4)
    records.values.validate(full=True)
    records.keys.validate(full=True)
    assert [(r.key(), r.value()) for r in records] == ROWS
    assert [(r.partition(), r.offset(), r.timestamp()[1]) for r in records] == [
        (4, 10 + i, 1010 + i) for i in range(len(ROWS))
    ]
    assert str(events) == f"[{len(messages)}]"


def test_each_message_is_released_once() -> None:
    released: list[int] = []
    addresses = np.array([11, 22, 33], np.uintp)
    kernels().perseid_kafka_destroy(addresses.ctypes.data, 3, _DESTROY(released.append))
    assert released == [11, 22, 33]


def produced(rows: list[Row], first: int, end: int, accepted: int) -> tuple[list[Row], int, int]:
    """What a client that accepts so many messages gets of these rows, its answer, the error."""
    got: list[Row] = []

    def produce(_topic: int, _partition: int, _flags: int, batch: Any, count: int) -> int:
        for i in range(count):
            m = batch[i]
            if i >= accepted:
                m.err = REFUSED
                continue
            key, value = (
                None if at is None else ctypes.string_at(at, size)
                for at, size in ((m.key, m.key_len), (m.payload, m.len))
            )
            got.append((key, value))
        return min(count, accepted)

    keys, values = (pa.array([row[i] for row in rows], pa.binary()) for i in (0, 1))
    error = c_int32()
    function: Callable[..., int] = _PRODUCE(produce)
    taken = kernels().perseid_kafka_produce(
        function, None, 1, byref(binary(keys)), byref(binary(values)), first, end, byref(error)
    )
    return got, taken, error.value


@pytest.mark.parametrize(("first", "end"), [(0, 7), (2, 5), (3, 3)])
def test_columns_become_messages(first: int, end: int) -> None:
    assert produced(ROWS, first, end, 99) == (ROWS[first:end], end - first, 0)


def test_the_error_of_the_first_refused_message_is_returned() -> None:
    assert produced(ROWS, 0, 7, 2) == (ROWS[:2], 2, REFUSED)
