"""Replaces dead letters that are too large for their topic by pointers to the record. Pure.

A record that its source's topic accepted may not fit into the dead-letter topic once it has headers
that describe the error. The job must continue nevertheless, so the letter is truncated: it keeps
the record's place, the reason, and the first bytes of its contents and texts. Extra headers hold
the original sizes; `perseid dlq redrive` reads the record from its source topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.topics.transactions import SinkBatch
from perseid.worker.sink.sink_outputs import record_batch_bytes

VALUE_BYTES = "perseid.pointer.value.bytes"  # headers of pointers: the original sizes
KEY_BYTES = "perseid.pointer.key.bytes"
# bytes kept of value, key and each text: the first row of limits that fits
HEADS_BYTES = (1024, 256, 64, 0)
_WHOLE = frozenset(f"__connect.errors.{name}" for name in ("topic", "partition", "offset"))

Headers = Sequence[tuple[str, bytes]]
Record = tuple[bytes | None, bytes | None, Headers]


def fitted(letters: SinkBatch, bytes_max: int) -> SinkBatch:
    """The letters, with pointers for those that exceed `bytes_max` as a record batch."""
    keys, values = letters.keys.to_pylist(), letters.values.to_pylist()
    each = letters.headers or [()] * len(values)
    records = list(zip(keys, values, each, strict=True))
    if all(record_batch_bytes(*record) <= bytes_max for record in records):
        return letters
    found = [
        record if record_batch_bytes(*record) <= bytes_max else pointer(record, bytes_max)
        for record in records
    ]
    return SinkBatch(
        letters.topic, [k for k, _, _ in found], [v for _, v, _ in found],
        [h for _, _, h in found], letters=True,
    )  # fmt: skip


def pointer(letter: Record, bytes_max: int) -> Record:
    """The pointer for a letter that is too large; it fits if `bytes_max` is above about 1 KiB."""
    found = letter
    for head in HEADS_BYTES:
        found = _cut(letter, head)
        if record_batch_bytes(*found) <= bytes_max:
            break
    return found


def _cut(letter: Record, head: int) -> Record:
    key, value, headers = letter
    kept = [(n, v if n in _WHOLE else _text(v, head)) for n, v in headers]
    kept.append((VALUE_BYTES, str(len(value or b"")).encode()))
    if key is not None and len(key) > head:
        kept.append((KEY_BYTES, str(len(key)).encode()))
        key = key[:head] if head else None
    return key, (value[:head] if head else None) if value is not None else None, kept


def _text(text: bytes, head: int) -> bytes:
    """Text of at most max(head, 64) bytes (plus "..."), cut between characters."""
    if len(text) <= max(head, 64):
        return text
    return text[:head].decode(errors="ignore").encode() + b"..."
