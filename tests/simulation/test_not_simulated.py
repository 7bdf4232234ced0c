"""Two planted bugs of which the simulated protocol has no part, and what finds them instead.

The simulated processes look again and again, as the real ones do too: a watch only makes them look
sooner. And the simulated job refuses no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from perseid.engine.epoch import Partitions
from perseid.engine.order import EpochOrder
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import MAIN, ErrorsSpec
from perseid.records import Deployment
from perseid.registry import zookeeper
from perseid.registry.zookeeper import _StandingWatch
from perseid.testing import registry
from perseid.testing.kafka import FakeLogReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.testing.simulation.job import Shape
from perseid.testing.wait import WaitedInVain
from perseid.topics import names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Token
from perseid.topics.transactions import PartitionBatch
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row
from perseid.worker.dead_letters import refused
from perseid.worker.epoch import flow
from perseid.worker.epoch.tasks import TaskExecutor
from perseid.worker.sink.transaction import SinkIdentity, SinkSession
from support.conformance import zookeeper_side
from support.conformance.zookeeper import SCRIPTS
from support.conformance.zookeeper_side import FakeSide

# Watches -----------------------------------------------------------------------------------------

Planted = Callable[[], AbstractContextManager[Any]]


def no_model_watch_is_armed_again() -> AbstractContextManager[Any]:
    return patch.object(registry._Watch, "call", lambda self: self.callback())


def test_a_watch_that_is_not_armed_again_breaks_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model and server answer the same script: `tests/contract/test_conformance_zookeeper.py`."""
    monkeypatch.setattr(zookeeper_side, "PATIENCE_S", 0.05)
    (script,) = [s for s in SCRIPTS if s.name.startswith("a_watch_stands")]
    assert script.observe(FakeSide()) == list(script.expected)
    with no_model_watch_is_armed_again(), pytest.raises(WaitedInVain):
        script.observe(FakeSide())


class OneShot:
    """kazoo's part: a watch is called once, and the server has it when the answer comes."""

    def __init__(self) -> None:
        self.watches: set[Callable[[Any], None]] = set()

    def exists_async(self, _path: str, watch: Callable[[Any], None]) -> None:
        self.watches.add(watch)

    def get_children_async(self, _path: str, watch: Callable[[Any], None]) -> OneShot:
        self.watches.add(watch)
        return self

    def rawlink(self, answered: Callable[[OneShot], None]) -> None:
        answered(self)

    def successful(self) -> bool:
        return True

    def change(self) -> None:
        fired, self.watches = self.watches, set()
        for watch in fired:
            watch(self)

    type = "CHANGED"


def calls_of_three_changes() -> int:
    called: list[str] = []
    client = OneShot()
    _StandingWatch(client, "/w", lambda: called.append("")).arm()
    for _ in range(3):
        client.change()
    return len(called)


def test_the_real_watch_arms_kazoos_again() -> None:
    assert calls_of_three_changes() == 4  # and once when it is armed first
    with patch.object(zookeeper._StandingWatch, "_fired", lambda self, _: self._callback()):
        assert calls_of_three_changes() == 2


# Dead letters ------------------------------------------------------------------------------------

DEAD = "dead"
ERRORS = ErrorsSpec(tolerance="all", deadletter_topic=DEAD)
SPEC = Shape(totals=1, relays=0).spec.model_copy(update={"errors": ERRORS})
LAYOUT = build(SPEC, 1)
LEDGER = names.ledger(SPEC.name)
CONTEXT = FragmentContext(
    deployment=Deployment(kafka="k", zookeeper="z", redis="r", store="s", state="t", logs="l"),
    job=SPEC.name, job_uuid="u", generation=1, incarnation="w", revision="r", archive="a",
    folder=str(Path(__file__).parent), layout=LAYOUT, base_epoch=0, lanes=2, one_task_each=False,
    rescaled=False,
)  # fmt: skip


class Dies(BaseException):
    """The process ends here."""


def letters_are_committed_first() -> AbstractContextManager[Any]:
    """Dead letters go out in a transaction of their own, before that of output and ledger."""
    write: Any = SinkSession._write

    def mutant(self: SinkSession, transaction: Any, *rest: Any) -> Any:
        send = transaction.send

        def sent(batch: PartitionBatch) -> None:
            send(batch)
            if batch.topic == DEAD:
                transaction.commit(1.0)
                transaction.begin()

        transaction.send = sent
        return write(self, transaction, *rest)

    return patch.object(SinkSession, "_write", mutant)


def letters_are_committed_last() -> AbstractContextManager[Any]:
    """Dead letters go out in a transaction of their own, after that of output and ledger."""
    write: Any = SinkSession._write

    def mutant(self: SinkSession, transaction: Any, *rest: Any) -> Any:
        *more, batches = rest
        letters = [b for b in batches if b.topic == DEAD]
        done = write(self, transaction, *more, [b for b in batches if b.topic != DEAD])
        transaction.begin()
        for batch in letters:
            transaction.send(batch)
        transaction.commit(1.0)
        return done

    return patch.object(SinkSession, "_write", mutant)


def broker() -> ModelKafka:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    for topic in (DEAD, LEDGER, *(sink.topic for sink in SPEC.sinks.values())):
        topics.create(topic, len(LAYOUT.tasks))
    return kafka


def run_epoch(kafka: ModelKafka, epoch: int) -> None:
    """An attempt in a process of its own: one row of output, and one that was refused."""
    (task,) = LAYOUT.of("totals")
    assert task.ledger is not None
    place = task.operator, task.partition, task.ledger
    who = SinkIdentity(SPEC.name, "u", 1, *place, after_epoch=0)
    topics = FakeTopics(kafka)
    reader = LedgerReader(FakeLogReader(kafka), topics)
    session = SinkSession(who, FakeTransactions(kafka), reader, topics)
    row = refused.Refused("left", 0, epoch, None, b"bad%d" % epoch, "ValueError", "it is bad")
    output = pa.table({"key": [f"good{epoch}"], "n": [1], "total": [1]})
    order = EpochOrder(Token(1, "u", epoch, 0, "r", 1, (), 1_000), epoch, None)
    process: Partitions[Row] = Partitions(TaskExecutor(CONTEXT))
    process._commit(order, task, {MAIN: output}, refused.to_table([row]), session)


def wrong_deaths() -> Iterator[int]:
    """Kills an attempt at each call of the broker, and tries again; where that was not enough."""
    with patch.object(flow, "spec_of", lambda _: SPEC):
        for call in range(1, 100):
            kafka = broker()
            with patch.object(kafka, "does", dying(kafka, call)):
                try:
                    run_epoch(kafka, 1)
                except Dies:
                    died = True
                else:
                    died = False
            run_epoch(kafka, 1)
            run_epoch(kafka, 2)
            if {committed(kafka, topic) for topic in kafka.topics} != {2}:
                yield call
            if not died:
                assert call > 2 * len(["acquire", "begin", "send", "flush", "commit"])
                return


def committed(kafka: ModelKafka, topic: str) -> int:
    """Records, of all partitions."""
    logs = enumerate(kafka.topics[topic].logs)
    return sum(len(kafka.readable(topic, number, 0, log.end)) for number, log in logs)


def dying(kafka: ModelKafka, last: int) -> Callable[..., Any]:
    """`kafka.does` that ends the process before each call (odd numbers), or after it."""
    does, calls = kafka.does, 0

    def counted(operation: str, effect: Callable[[], Any]) -> Any:
        nonlocal calls
        calls += 2
        if calls - 1 == last:
            raise Dies
        result = does(operation, effect)
        if calls == last:
            raise Dies
        return result

    return counted


def test_dead_letters_are_there_once_wherever_a_process_dies() -> None:
    assert list(wrong_deaths()) == []


@pytest.mark.parametrize("planted", [letters_are_committed_first, letters_are_committed_last])
def test_dead_letters_outside_the_transaction_are_found(planted: Planted) -> None:
    with planted():
        assert list(wrong_deaths()) != []
