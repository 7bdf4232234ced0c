"""One Kafka as a script uses it: the ports, and the faults of brokers and disks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perseid.testing.kafka_disk import ModelDisk
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.wait import until
from perseid.topics.admin import Partition
from perseid.topics.kafka_transactions import KafkaTransaction
from perseid.topics.ranges import ColumnReader
from perseid.topics.transactions import PartitionBatch, Transaction
from support import kafka_handle, kafka_wire
from support.broker import KafkaServer
from support.conformance import outcome
from support.kafka_handle import Kafka

BATCH_BYTES = 1_000_000
PATIENCE_S = 20.0


def batch(topic: str, *values: bytes, partition: int = 0) -> PartitionBatch:
    return PartitionBatch(topic, partition, [None] * len(values), values)


@dataclass
class KafkaSide(ABC):
    """Scripts make their own topics; a transactional id is made unique by the topic's name."""

    kafka: Kafka

    def acquire(self, name: str) -> Transaction:
        return self.kafka.transactions.acquire(name, BATCH_BYTES, PATIENCE_S)

    def opened(self, name: str, topic: str, *values: bytes) -> Transaction:
        """Returns a transaction with delivered, undecided records."""
        transaction = self.acquire(name)
        transaction.begin()
        self.send(transaction, topic, *values)
        return transaction

    def send(
        self, transaction: Transaction, topic: str, *values: bytes, partition: int = 0
    ) -> object:
        """Sends and flushes; returns first and last offset, or the name of an error of either."""

        def both() -> object:
            transaction.send(batch(topic, *values, partition=partition))
            written = transaction.flush(PATIENCE_S)[topic, partition]
            return (written.first, written.last)

        return outcome(both)

    def commit(self, transaction: Transaction) -> object:
        """Returns the outcome; whether the commit was clean depends on the machine's load."""
        found = outcome(transaction.commit, PATIENCE_S)
        return "committed" if isinstance(found, bool) else found

    def write(self, name: str, topic: str, *values: bytes) -> None:
        """Commits one transaction and waits for its markers."""
        transaction = self.opened(name, topic, *values)
        self.commit(transaction)
        transaction.close()
        self.settle(name)

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int, int]:
        """Returns start, last stable offset and end."""
        place, topics = (topic, partition), self.kafka.topics
        return (
            topics.starts([place])[place], topics.ends([place])[place],
            topics.ends([place], committed=False)[place],
        )  # fmt: skip

    def read(self, topic: str, offset: int, *, wait_s: float = PATIENCE_S) -> object:
        """Returns the values from `offset` on, read by a new reader."""
        reader = self.kafka.reader()
        found = outcome(reader.read_from, topic, 0, offset, max_records=99, timeout_s=wait_s)
        reader.close()
        return [e.value for e in found] if isinstance(found, list) else found

    def between(self, topic: str, start: int, end: int, *, wait_s: float = PATIENCE_S) -> object:
        """Returns the offsets of a range, read by a new reader."""
        reader = self.kafka.reader()
        found = outcome(reader.read_range, topic, 0, start, end, timeout_s=wait_s)
        reader.close()
        return [e.offset for e in found] if isinstance(found, list) else found

    def ranged(self, topic: str, start: int, end: int) -> object:
        """The same with the reader of sources, which keeps its position between two calls."""
        read = self.kafka.sources.read
        return outcome(lambda: [m.offset() for b in read(topic, 0, start, end) for m in b])

    def recreate(self, topic: str) -> None:
        self.kafka.topics.delete([topic])
        until(lambda: self.kafka.topics.create(topic, 1), PATIENCE_S, "the topic can be recreated")

    @abstractmethod
    def flush(self) -> None:
        """Makes everything written so far survive the next power failure."""

    @abstractmethod
    def power_failure(self, ends: Mapping[Partition, int]) -> None:
        """Makes these logs lose all records from these offsets on."""

    @abstractmethod
    def retention(self, topic: str, start: int) -> None:
        """Waits until retention has moved the start to `start`."""

    @abstractmethod
    def settle(self, name: str) -> None:
        """Waits until the id's last transaction has its markers, if it was ended."""

    @abstractmethod
    def short_lived(self, name: str) -> Transaction:
        """Returns a producer whose transactions the broker aborts soon."""

    @abstractmethod
    def time_out(self, name: str) -> None:
        """Waits until the broker has aborted the id's open transaction."""

    @abstractmethod
    def producer(self, name: str) -> tuple[int, int]:
        """Returns the id's current producer id (0 on the model) and epoch."""

    @abstractmethod
    def late_end(self, name: str, producer: tuple[int, int], *, commit: bool) -> str:
        """Delivers an EndTxn of that producer now; returns "taken" or "refused"."""


@dataclass
class ModelSide(KafkaSide):
    """Uses a model of its own."""

    kafka: Kafka = field(default_factory=kafka_handle.fake)

    def __post_init__(self) -> None:
        assert self.kafka.model is not None
        self.model: ModelKafka = self.kafka.model
        self.disk = ModelDisk(self.model)

    def flush(self) -> None:
        self.disk.flush()

    def power_failure(self, ends: Mapping[Partition, int]) -> None:
        for place, end in ends.items():
            self.disk.cut(place, end)

    def retention(self, topic: str, start: int) -> None:
        self.model.clock.sleep(PATIENCE_S)
        self.disk.retain()

    def settle(self, name: str) -> None:
        """Markers are written at once."""

    def short_lived(self, name: str) -> Transaction:
        return self.acquire(name)

    def time_out(self, name: str) -> None:
        self.model.expire(name)

    def producer(self, name: str) -> tuple[int, int]:
        return (0, self.model.epoch(name))

    def late_end(self, name: str, producer: tuple[int, int], *, commit: bool) -> str:
        state = "committed" if commit else "aborted"
        found = outcome(self.model.end_request, name, producer[1], state)
        return "taken" if found is None else "refused"


class BrokerSide(KafkaSide):
    """Uses a broker of its own."""

    def __init__(self, server: KafkaServer) -> None:
        super().__init__(kafka_handle.real(server.bootstrap))
        self.kafka.sources = ColumnReader(server.bootstrap, timeout_s=1.0)
        self.server = server

    def flush(self) -> None:
        """Does nothing: the cut of the next power failure defines what was flushed."""

    def power_failure(self, ends: Mapping[Partition, int]) -> None:
        self.server.power_failure(ends)
        topics = self.kafka.topics
        places = [(topic, 0) for topic in topics.list()]
        until(lambda: isinstance(outcome(topics.ends, places), dict), PATIENCE_S, "all are led")

    def retention(self, topic: str, start: int) -> None:
        until(lambda: self.offsets(topic)[0] == start, PATIENCE_S, f"retention moves to {start}")

    def settle(self, name: str) -> None:
        self._until(name, lambda state: not state.startswith("Prepare"))

    def short_lived(self, name: str) -> Transaction:
        from perseid.topics.batch_producer import BatchProducer

        producer = BatchProducer({
            "bootstrap.servers": self.server.bootstrap, "transactional.id": name, "linger.ms": 0,
            "transaction.timeout.ms": 1000, "socket.timeout.ms": 1000, "message.timeout.ms": 800,
            "log_level": 0,
        })  # fmt: skip
        producer.init_transactions(PATIENCE_S)
        return KafkaTransaction(producer, name)

    def time_out(self, name: str) -> None:
        self._until(name, lambda state: state == "CompleteAbort")

    def producer(self, name: str) -> tuple[int, int]:
        return kafka_wire.describe(self.server.port, name)[1:]

    def late_end(self, name: str, producer: tuple[int, int], *, commit: bool) -> str:
        code = kafka_wire.end_transaction(self.server.port, name, *producer, commit=commit)
        self.settle(name)
        return "taken" if code == 0 else "refused"

    def _until(self, name: str, holds: Callable[[str], bool]) -> None:
        port = self.server.port
        until(lambda: holds(kafka_wire.describe(port, name)[0]), PATIENCE_S, f"{name} is ended")
