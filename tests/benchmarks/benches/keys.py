"""Keys uniform over a large state: the records of the state benchmarks, and what they count to.

Key i is i in decimal, filled up to `key_bytes`. A partition first has its share of all keys, once
each (partition p of P those with i mod P = p), so that the whole state is there; then keys drawn
uniformly over all of them. A seed decides the draws. What a job must have counted follows from
the offsets alone and is counted here with NumPy: it shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

BLOCK = 10_000  # draws that one generator makes
_QUEUE_RECORDS_MAX = 400_000
_FLUSH_S = 300.0

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """The records of a topic of `partitions`; `keys` of `key_bytes` each."""

    keys: int
    key_bytes: int = 10
    partitions: int = 4
    seed: int = 1

    def ids(self, partition: int, start: int, end: int) -> Ids:
        """The keys at offsets [start, end) of a partition."""
        own = np.arange(partition, self.keys, self.partitions)
        first = own[start:end]
        draws = [
            self._block(partition, block)
            for block in range(max(start - len(own), 0) // BLOCK, -(-(end - len(own)) // BLOCK))
        ]
        if end <= len(own) or not draws:
            return first
        offset = max(start - len(own), 0) // BLOCK * BLOCK
        begin = max(start - len(own), 0) - offset
        return np.concatenate([first, np.concatenate(draws)[begin : end - len(own) - offset]])

    def counts(self, ends: Mapping[int, int]) -> Ids:
        """How often each key stands in front of these offsets, by partition."""
        found = np.zeros(self.keys, dtype=np.int64)
        for partition, end in ends.items():
            found += np.bincount(self.ids(partition, 0, end), minlength=self.keys)
        return found

    def changed(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> float:
        """The share of all keys that occur between these offsets."""
        seen = np.zeros(self.keys, dtype=bool)
        for partition, end in ends.items():
            seen[self.ids(partition, starts.get(partition, 0), end)] = True
        return float(seen.mean())

    def messages(self, partition: int, start: int, end: int) -> list[dict[str, bytes]]:
        """The same as `produce_batch` takes them."""
        form = b"%%0%dd" % self.key_bytes
        return [{"value": form % key} for key in self.ids(partition, start, end).tolist()]

    def _block(self, partition: int, number: int) -> Ids:
        random = np.random.default_rng([self.seed, partition, number])
        return random.integers(0, self.keys, BLOCK)


def ends_of(keys: Keys, records: int) -> dict[int, int]:
    """By partition the end of every key once and then `records` draws, distributed evenly."""
    return {
        p: len(range(p, keys.keys, keys.partitions)) + records // keys.partitions
        for p in range(keys.partitions)
    }


def write(
    bootstrap: str, topic: str, keys: Keys, starts: Mapping[int, int], ends: Mapping[int, int]
) -> None:
    """Writes the records of [start, end) of each partition, which must end at `start` by now."""
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
        "batch.size": 1_000_000, "queue.buffering.max.messages": 2 * _QUEUE_RECORDS_MAX,
        "queue.buffering.max.kbytes": 2_000_000, "compression.type": "lz4",
    })  # fmt: skip
    for partition, start, end in _turns(starts, ends):
        messages: list[Any] = keys.messages(partition, start, end)
        while messages:
            taken = producer.produce_batch(topic, messages, partition)
            messages = messages[taken:]
            while len(producer) > _QUEUE_RECORDS_MAX:
                producer.poll(0.01)
    left = producer.flush(_FLUSH_S)
    if left:
        raise OSError(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")


def _turns(starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[tuple[int, int, int]]:
    """(partition, start, end), a block at a time from each partition."""
    for ahead in range(0, max(end - starts.get(p, 0) for p, end in ends.items()), BLOCK):
        for partition, end in ends.items():
            start = starts.get(partition, 0) + ahead
            if start < end:
                yield partition, start, min(start + BLOCK, end)
