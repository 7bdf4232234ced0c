"""The transaction port of the sink protocol, its batches, and the acquiring of many ids.

Kafka's transactions as a client with the old protocol sees them: a missing answer may mean either
outcome, and the producer must not be used again after one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from perseid.topics.admin import Partition

SPARES_MAX = 16  # connected producers that wait for their next epoch

Headers = Sequence[tuple[str, bytes]]
Octets: TypeAlias = Sequence[bytes | None] | pa.BinaryArray


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Records for one sink topic, in order. `headers`, if given, has one list for each record.

    Keys and values may be given as sequences of bytes; they are stored as binary arrays. A value is
    null only in the dead letter of a record without a value. `letters`: the records are dead
    letters.
    """

    topic: str
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Sequence[Headers] | None = None
    letters: bool = False

    def __init__(
        self, topic: str, keys: Octets, values: Octets, headers: Sequence[Headers] | None = None,
        *, letters: bool = False,
    ) -> None:  # fmt: skip
        _set(self, topic=topic, keys=octets(keys), values=octets(values), headers=headers,
             letters=letters)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartitionBatch:
    """Records for one topic partition, in order; at least one."""

    topic: str
    partition: int
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: Sequence[Headers] | None = None

    def __init__(
        self, topic: str, partition: int, keys: Octets, values: Octets,
        headers: Sequence[Headers] | None = None,
    ) -> None:  # fmt: skip
        _set(self, topic=topic, partition=partition, keys=octets(keys), values=octets(values),
             headers=headers)  # fmt: skip

    def records(self) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
        """Key, value and headers of each, one by one."""
        headers = self.headers or [()] * len(self.values)
        return zip(self.keys.to_pylist(), self.values.to_pylist(), headers, strict=True)


def octets(values: Octets) -> pa.BinaryArray:
    """Values as a binary array."""
    return values if isinstance(values, pa.Array) else pa.array(values, pa.binary())


def _set(batch: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(batch, name, value)


@dataclass(frozen=True, slots=True)
class Written:
    """Offsets of the first and last record that a transaction wrote to a topic partition."""

    first: int
    last: int


class Transaction(Protocol):
    """A Kafka producer that holds a transactional id, for one transaction or several in a row.

    Every method may raise RetryableError: the outcome is then unknown. After any error only `close`
    may be called.
    """

    def begin(self) -> None: ...

    def send(self, batch: PartitionBatch) -> None:
        """Queues the records. At most one batch for a topic partition between two flushes."""
        ...

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        """Waits until all is delivered; returns where the records since the last flush are."""
        ...

    def idle_s(self) -> float | None:
        """How long ago the broker last took records of this transaction; None if it never did."""
        ...

    def commit(self, timeout_s: float) -> bool:
        """True if another `begin` may follow: no request of this transaction can still arrive."""
        ...

    def close(self) -> None:
        """Releases the producer. Must not commit; now or the next acquire aborts what is open."""
        ...


class Transactions(Protocol):
    """Creates transactions by transactional id."""

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Connects ahead of the next acquire. Must not fence other producers and must not block.

        If more than SPARES_MAX producers wait, the oldest are released.
        """
        ...

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> Transaction:  # fmt: skip
        """Fences all holders of the id, aborts what they left open, then returns.

        No batch of records will be larger than `batch_bytes`, which a topic limits. The broker
        aborts a transaction that is open for longer than `lasting_s`; None: the default.
        """
        ...

    def longest_s(self) -> float:
        """How long the broker lets a transaction be open at most; TransientAnswer if unknown."""
        ...


def acquired(
    transactions: Transactions, ids: Sequence[str], batch_bytes: int, timeout_s: float
) -> Iterator[Transaction]:
    """Acquires each id in turn and closes it before the next one; producers connect together."""
    for start in range(0, len(ids), SPARES_MAX):
        some = ids[start : start + SPARES_MAX]
        for name in some:
            transactions.prepare(name, batch_bytes)
        for name in some:
            with closing(transactions.acquire(name, batch_bytes, timeout_s)) as transaction:
                yield transaction
