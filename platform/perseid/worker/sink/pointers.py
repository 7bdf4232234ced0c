"""Dead letters that are larger than their topic takes: a pointer to the record goes in their place.

A record that its source's topic took may not fit into the dead-letter topic, with the headers that
say what is wrong with it. The job must go on all the same, so the letter is cut: it keeps where the
record is and why it was refused, and the heads of its bytes and texts. Headers of their own tell
how large the whole was; `perseid dlq redrive` then takes the record from its source topic. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.topics.transactions import SinkBatch
from perseid.worker.sink.sink_outputs import record_batch_bytes

VALUE_BYTES = "perseid.pointer.value.bytes"  # headers of pointers: how large the whole was
KEY_BYTES = "perseid.pointer.key.bytes"
HEADS_BYTES = (1024, 256, 64, 0)  # of value, key and each text: the first that fits
_WHOLE = frozenset(f"__connect.errors.{name}" for name in ("topic", "partition", "offset"))

Headers = Sequence[tuple[str, bytes]]
Record = tuple[bytes | None, bytes | None, Headers]


def fitted(letters: SinkBatch, bytes_max: int) -> SinkBatch:
    """The letters, with pointers for those that need more than `bytes_max` as a record batch."""
    keys, values = letters.keys.to_pylist(), letters.values.to_pylist()
    told = letters.headers or [()] * len(values)
    records = list(zip(keys, values, told, strict=True))
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
    """What stands for a letter that is too large; above about 1 KiB of `bytes_max` it fits."""
    found = letter
    for head in HEADS_BYTES:
        found = _cut(letter, head)
        if record_batch_bytes(*found) <= bytes_max:
            break
    return found


def _cut(letter: Record, head: int) -> Record:
    key, value, headers = letter
    told = [(n, v if n in _WHOLE else _text(v, head)) for n, v in headers]
    told.append((VALUE_BYTES, str(len(value or b"")).encode()))
    if key is not None and len(key) > head:
        told.append((KEY_BYTES, str(len(key)).encode()))
        key = key[:head] if head else None
    return key, (value[:head] if head else None) if value is not None else None, told


def _text(text: bytes, head: int) -> bytes:
    """Text of at most so many bytes, without half a character, and none below 64."""
    if len(text) <= max(head, 64):
        return text
    return text[:head].decode(errors="ignore").encode() + b"..."
