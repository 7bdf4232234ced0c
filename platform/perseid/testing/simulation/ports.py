"""Fakes of the ports, with gates around every call and with unknown outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perseid.errors import PerseidError, RetryableError, UndecidedTransaction
from perseid.testing.files import MemoryFiles
from perseid.testing.kafka import (
    FakeBufferWriter,
    FakeColumnReader,
    FakeLogReader,
    FakeLogWriter,
    FakeTopics,
    FakeTransaction,
    SequenceCheck,
)
from perseid.testing.kafka_model import ModelKafka, ModelTransaction
from perseid.testing.simulation.engine import Defect, Simulation
from perseid.testing.simulation.faults import Gates
from perseid.testing.simulation.network import TIMEOUT_S, Cut, Network
from perseid.testing.store import MemoryStore
from perseid.topics.admin import Partition, TopicInfo
from perseid.topics.columns import Records
from perseid.topics.log import Entry
from perseid.topics.transactions import PartitionBatch, Written
from perseid.worker.sink import sink_time

TRANSACTION_S = 10.0  # then the broker aborts it
LATE_S = 8.0  # an effect may come so much later than its error
WAIT_STEP_S = 0.25


class SimulatedBroker:
    """One model broker, and the faults of calls to it."""

    def __init__(
        self, simulation: Simulation, gates: Gates, network: Network, kafka: ModelKafka
    ) -> None:
        self.simulation, self.gates, self.kafka = simulation, gates, kafka
        self.record_s = 0.0  # how long the broker is busy with each record of a transaction
        self.transaction_max_s = 900.0
        self.answer_s: Callable[[str], float] = lambda where: 0.0  # from a call's effect on
        self._network = network
        self._overdue: dict[str, list[Callable[[], None]]] = {}

    def later(self, log: str, effect: Callable[[], None]) -> None:
        """Runs `effect` later, at a random time or directly after the log's next record."""
        if self.gates.toss():
            self._overdue.setdefault(log, []).append(effect)
        else:
            # Often soon: after the error, and before a process has reacted to it.
            self.simulation.after(LATE_S * self.simulation.random.random() ** 4, effect)

    def appended(self, log: str) -> None:
        """Runs the effects that wait for a record of `log`."""
        for effect in self._overdue.pop(log, []):
            effect()

    def call(
        self, where: str, effect: Callable[[], Any], late: Callable[[], None] | None = None
    ) -> Any:
        """Runs `effect` between two gates; `late` is its remaining effect when it is overdue."""
        self.gates.reach(f"before {where}")
        cut = self._network.cut_here("kafka")
        if cut is not None:
            if cut is Cut.ANSWERS:
                effect()
            self.simulation.sleep(TIMEOUT_S)
            raise RetryableError(f"{where}: no answer, the way is cut")
        if self.gates.strikes("kafka_lost"):
            self.simulation.note(f"{where} is lost")
            raise RetryableError(f"{where}: no answer, without effect")
        if late is not None and self.gates.strikes("kafka_late"):
            self.simulation.note(f"{where} will come late")
            self.later(where, late)
            raise RetryableError(f"{where}: no answer, with effect later")
        result = effect()
        if (answer_s := self.answer_s(where)) > 0.0:
            self.simulation.sleep(answer_s)
        if self.gates.strikes("kafka_unanswered"):
            self.simulation.note(f"{where} is done and not answered")
            raise RetryableError(f"{where}: no answer, with effect")
        self.gates.reach(f"after {where}")
        return result

    def ask(self, where: str) -> None:
        """Raises RetryableError when a request that changes nothing gets no answer."""
        if self._network.cut_here("kafka") is not None:
            self.simulation.sleep(TIMEOUT_S)
            raise RetryableError(f"{where}: no answer, the way is cut")


class SimulatedTopics(FakeTopics):
    """`perseid.topics.admin`'s ports."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.kafka)
        self._broker = broker

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        self._broker.ask("describe")
        return super().describe(topics)

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        self._broker.ask("ends")
        return super().ends(partitions, committed=committed)

    def answered_ends(
        self, partitions: Iterable[Partition]
    ) -> tuple[dict[Partition, int], list[PerseidError]]:
        self._broker.ask("ends")
        return super().answered_ends(partitions)

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self._broker.ask("starts")
        return super().starts(partitions)

    def delete_records(self, before: Mapping[Partition, int]) -> None:
        delete = super().delete_records

        def late() -> None:
            with suppress(PerseidError):  # a log may have become shorter, or be another one
                delete(before)

        self._broker.call("delete records", lambda: delete(before), late)


class SimulatedColumnReader(FakeColumnReader):
    """`perseid.topics.ranges.ColumnReader`."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.kafka)
        self._broker = broker

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        self._broker.gates.reach("read")
        self._broker.ask("read")
        return super().read(topic, partition, start, end)

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        self._broker.gates.reach("before identities")
        self._broker.ask("identities")
        return super().identities(topics)


class SimulatedTransactions:
    """`perseid.topics.transactions.Transactions`. `muted`: whether it is a defect to use them."""

    def __init__(self, broker: SimulatedBroker, muted: Callable[[], bool] = lambda: False) -> None:
        self._broker, self._muted = broker, muted

    def prepare(self, transactional_id: str, batch_bytes: int) -> None:
        """Connecting takes no time here."""

    def longest_s(self) -> float:
        return self._broker.transaction_max_s

    def acquire(
        self, transactional_id: str, batch_bytes: int, timeout_s: float,
        lasting_s: float | None = None,
    ) -> SimulatedTransaction:  # fmt: skip
        kafka = self._broker.kafka
        if self._muted():
            raise Defect(f"a replica fences the producer of {transactional_id}")
        epoch = self._broker.call("acquire", lambda: kafka.fence(transactional_id))
        return SimulatedTransaction(
            self._broker, transactional_id, epoch, lasting_s or TRANSACTION_S
        )


class SimulatedTransaction:
    """One producer epoch. A late commit decides whatever its producer epoch has open by then."""

    def __init__(
        self, broker: SimulatedBroker, transactional_id: str, epoch: int, lasting_s: float
    ) -> None:
        self._broker, self._id, self._epoch = broker, transactional_id, epoch
        self._lasting_s, self._records = lasting_s, 0
        self._inner = FakeTransaction(broker.kafka, transactional_id, epoch)
        self._watched: ModelTransaction | None = None  # by the broker, which will abort it

    def begin(self) -> None:
        self._broker.call("begin", self._inner.begin)

    def _expire(self, opened: ModelTransaction) -> None:
        if opened.state == "open":
            self._broker.gates.hit("transaction expired")
            self._broker.kafka.expire(self._id)

    def send(self, batch: PartitionBatch) -> None:
        self._records += len(batch.values)
        self._broker.call("send", lambda: self._send(batch))

    def _send(self, batch: PartitionBatch) -> None:
        self._inner.send(batch)
        opened = self._broker.kafka.transaction(self._id, self._epoch)
        if opened is not self._watched:
            self._watched = opened
            self._broker.simulation.after(self._lasting_s, lambda: self._expire(opened))

    def flush(self, timeout_s: float) -> Mapping[Partition, Written]:
        busy_s, self._records = self._records * self._broker.record_s, 0
        if busy_s > 0:
            self._broker.simulation.sleep(min(busy_s, timeout_s))
        if busy_s > timeout_s:
            self._broker.gates.hit("too slow a broker")
            raise RetryableError(f"{self._id}: records were not delivered in {timeout_s} s")
        if busy_s > sink_time.FIRST_S:
            self._broker.gates.hit("slow, and given longer")
        found: Mapping[Partition, Written] = self._broker.call(
            "flush", lambda: self._inner.flush(timeout_s)
        )
        return found

    def commit(self, timeout_s: float) -> bool:
        self._broker.call("commit", lambda: self._inner.commit(timeout_s), self._commit_late)
        self._broker.appended("commit")
        return True

    def idle_s(self) -> float | None:
        """0 for a slow broker, which takes records all the time; one that is cut off takes none."""
        return 0.0 if self._broker.record_s else None

    def _commit_late(self) -> None:
        try:
            self._inner.commit(0.0)
        except RetryableError:
            self._broker.gates.hit("commit refused")
            return  # a newer producer has fenced it
        self._broker.gates.hit("late commit")
        self._broker.simulation.note(f"late commit of {self._id}")

    def close(self) -> None:
        """A dead producer's transaction stays open."""


class SimulatedLogWriter:
    """`perseid.topics.log.LogWriter`."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker, self._inner = broker, FakeLogWriter(broker.kafka)

    def append(self, topic: str, partition: int, value: bytes) -> int:
        def effect() -> int:
            return self._inner.append(topic, partition, value)

        where = f"append to {topic.rpartition('.')[2]}"
        offset: int = self._broker.call(where, effect, lambda: self._append_late(effect))
        self._broker.appended(where)
        return offset

    def _append_late(self, effect: Callable[[], int]) -> None:
        try:
            offset = effect()
        except RetryableError:
            return  # its log has lost records before it, so the broker refuses
        self._broker.gates.hit("late record")
        self._broker.simulation.note(f"late record at {offset}")

    def close(self) -> None:
        """Nothing is open."""


class SimulatedBufferWriter(FakeBufferWriter):
    """`perseid.topics.buffers.BufferWriter`: each record may be lost, unanswered or late."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.kafka)
        self._broker = broker

    def _appending(
        self, sequence: SequenceCheck, place: Partition, value: bytes
    ) -> Callable[[], int]:
        effect = super()._appending(sequence, place, value)

        def late() -> None:
            with suppress(RetryableError):  # its log has lost records before it
                effect()

        return lambda: int(self._broker.call("append to buffer", effect, late))


class SimulatedLogReader(FakeLogReader):
    """Reads wait for undecided transactions in steps, as a consumer does."""

    def __init__(self, broker: SimulatedBroker) -> None:
        super().__init__(broker.kafka)
        self._broker = broker

    def read_range(
        self, topic: str, partition: int, start: int, end: int, *, timeout_s: float
    ) -> list[Entry]:
        self._broker.gates.reach("read")
        self._broker.ask("read")
        simulation = self._broker.simulation
        deadline_s = simulation.now_s + timeout_s
        log = self._broker.kafka.log(topic, partition)
        while start <= log.end and log.stable_end < end:
            if simulation.now_s > deadline_s:
                raise UndecidedTransaction(f"{topic}[{partition}]: {end} was not readable")
            simulation.sleep(WAIT_STEP_S)
        return super().read_range(topic, partition, start, end, timeout_s=0.0)


class SimulatedFiles(MemoryFiles):
    """The files of one host."""

    def __init__(self, gates: Gates) -> None:
        super().__init__()
        self._gates = gates

    def write_new(self, path: str, chunks: Iterable[Any]) -> bool:
        self._gates.reach("before write")
        if self._gates.strikes("files_fail"):
            raise RetryableError(f"cannot write {path}: no space left")
        made = super().write_new(path, chunks)
        self._gates.reach("after write")
        return made

    def link(self, source: str, target: str) -> bool:
        self._gates.reach("before link")
        made = super().link(source, target)
        self._gates.reach("after link")
        return made

    def rename(self, source: str, target: str) -> bool:
        self._gates.reach("before rename")
        done = super().rename(source, target)
        self._gates.reach("after rename")
        return done

    def delete(self, path: str) -> None:
        self._gates.reach("before delete")
        super().delete(path)


class SimulatedStore(MemoryStore):
    """The checkpoint store."""

    def __init__(self, gates: Gates) -> None:
        super().__init__()
        self._gates = gates

    def write(self, path: str, chunks: Iterable[Any]) -> tuple[int, int]:
        self._gates.reach("before upload")
        if self._gates.strikes("store_fail"):
            raise RetryableError(f"the store does not take {path}")
        found = super().write(path, chunks)
        self._gates.reach("after upload")
        return found

    def read(self, path: str) -> memoryview:
        self._gates.reach("before download")
        return super().read(path)

    def delete(self, path: str) -> None:
        self._gates.reach("before delete of a checkpoint")
        super().delete(path)
