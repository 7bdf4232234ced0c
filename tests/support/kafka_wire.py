"""Kafka requests that clients do not send on demand: late retries of EndTxn, and quotas.

The client repeats EndTxn by itself when an answer is missing; a request that is delayed can so
arrive after the next transaction has begun. Only raw bytes can provoke that.
"""

from __future__ import annotations

import socket
import struct

_DESCRIBE_TRANSACTIONS, _END_TXN, _ALTER_CLIENT_QUOTAS = 65, 26, 49
_TIMEOUT_S = 10.0


def describe(port: int, transactional_id: str) -> tuple[str, int, int]:
    """Returns the state of the id's last transaction, and the id's producer id and epoch."""
    encoded = transactional_id.encode()
    body = bytes([2, len(encoded) + 1]) + encoded + b"\0"  # compact array of one, no tags
    header = struct.pack(">hhi", _DESCRIBE_TRANSACTIONS, 0, 1) + _string("late") + b"\0"
    answer = _ask(port, header + body)
    at = 4 + 1 + 4 + 1 + 2  # correlation id, tags, throttle time, array length, error code
    at += answer[at]  # the id, whose compact length counts itself
    state = answer[at + 1 : at + answer[at]].decode()
    at += answer[at] + 4 + 8  # the state, timeout and start time
    producer, epoch = struct.unpack(">qh", answer[at : at + 10])
    return state, int(producer), int(epoch)


def end_transaction(
    port: int, transactional_id: str, producer: int, epoch: int, *, commit: bool
) -> int:
    """Sends EndTxn of that producer epoch; returns 0 when the broker accepts it."""
    body = _string(transactional_id) + struct.pack(">qh?", producer, epoch, commit)
    answer = _ask(port, struct.pack(">hhi", _END_TXN, 1, 1) + _string("late") + body)
    code: int = struct.unpack(">h", answer[8:10])[0]  # correlation id, throttle time
    return code


def limit_producers(port: int, client_id: str, bytes_s: float | None) -> int:
    """Limits producers with that client id to `bytes_s`, None: no limit; returns 0 when done."""
    entity = struct.pack(">i", 1) + _string("client-id") + _string(client_id)
    change = struct.pack(">d?", bytes_s or 0.0, bytes_s is None)
    changes = struct.pack(">i", 1) + _string("producer_byte_rate") + change
    body = struct.pack(">i", 1) + entity + changes + b"\0"  # apply, do not only validate
    answer = _ask(port, struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 1) + _string("quota") + body)
    code: int = struct.unpack(">h", answer[12:14])[0]  # correlation id, throttle time, length
    return code


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
            part = connection.recv(65_536)
            if not part:
                raise ConnectionError("the broker closed the connection")
            answer += part
    return answer[4:]
