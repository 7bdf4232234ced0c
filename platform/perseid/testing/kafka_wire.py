"""Two Kafka requests that no client sends when asked: those of a retry that comes late.

The client repeats EndTxn by itself when an answer is missing; a request that was on its way for
long can so arrive after the next transaction has begun. Only by bytes can that be provoked.
"""

from __future__ import annotations

import socket
import struct

_DESCRIBE_TRANSACTIONS, _END_TXN = 65, 26
_TIMEOUT_S = 10.0


def late_end(port: int, transactional_id: str, *, commit: bool) -> int:
    """EndTxn (version 1, the old protocol) of the id's present producer; the broker's error code."""
    producer, epoch = _producer(port, transactional_id)
    return end_transaction(port, transactional_id, producer, epoch, commit=commit)


def producer_of(port: int, transactional_id: str) -> tuple[int, int]:
    """Producer id and epoch that the transactional id has now."""
    return _producer(port, transactional_id)


def end_transaction(
    port: int, transactional_id: str, producer: int, epoch: int, *, commit: bool
) -> int:
    """EndTxn of that producer epoch; 0 when the broker took it."""
    body = _string(transactional_id) + struct.pack(">qh?", producer, epoch, commit)
    answer = _ask(port, struct.pack(">hhi", _END_TXN, 1, 1) + _string("late") + body)
    code: int = struct.unpack(">h", answer[8:10])[0]  # correlation id, throttle time
    return code


def _producer(port: int, transactional_id: str) -> tuple[int, int]:
    encoded = transactional_id.encode()
    body = bytes([2, len(encoded) + 1]) + encoded + b"\0"  # compact array of one, no tags
    header = struct.pack(">hhi", _DESCRIBE_TRANSACTIONS, 0, 1) + _string("late") + b"\0"
    answer = _ask(port, header + body)
    at = 4 + 1 + 4 + 1 + 2  # correlation id, tags, throttle time, array length, error code
    at += answer[at]  # the id, whose compact length counts itself
    at += answer[at]  # the state's name
    at += 4 + 8  # timeout and start time
    producer, epoch = struct.unpack(">qh", answer[at : at + 10])
    return int(producer), int(epoch)


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
