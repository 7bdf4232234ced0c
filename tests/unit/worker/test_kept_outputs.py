"""An audit's sink: its files have what a sink would have sent, and nothing is acquired or sent."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from perseid.errors import PermanentError
from perseid.testing.kafka import FakeLogReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.topics import names
from perseid.topics.ledger import LedgerReader
from perseid.topics.transactions import SinkBatch
from perseid.worker.sink.kept_outputs import KeptOutputs, kept
from perseid.worker.sink.sink_outputs import checksum
from perseid.worker.sink.transaction import SinkIdentity, SinkSession


class Refusing(FakeTransactions):
    """An audit has no use for it."""

    def prepare(self, *_: object) -> None:
        raise AssertionError("a producer was prepared")

    def acquire(self, *_: object) -> None:  # type: ignore[override]
        raise AssertionError("a transactional id was acquired")


@pytest.fixture
def kafka() -> ModelKafka:
    found = ModelKafka()
    topics = FakeTopics(found)
    topics.create("a", 3, {})
    topics.create("b", 1, {})
    topics.create(names.ledger("job"), 1, {})
    return found


def session(kafka: ModelKafka, transactions: FakeTransactions) -> SinkSession:
    topics = FakeTopics(kafka)
    who = SinkIdentity("job", "u", 1, "op", 0, 0, 0)
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    return SinkSession(who, transactions, ledger, topics, clock=kafka.clock)


def outputs(chance: Random) -> list[SinkBatch]:
    def batch(topic: str, letters: bool) -> SinkBatch:
        count = chance.randrange(1, 20)
        keys = [b"%d" % chance.randrange(9) if chance.random() < 0.8 else None
                for _ in range(count)]  # fmt: skip
        values: list[bytes | None] = [b"v%d" % chance.randrange(99) for _ in range(count)]
        if letters:
            values[0] = None
        return SinkBatch(topic, keys, values, letters=letters)

    return [batch("a", letters=False), batch("b", letters=True)]


@pytest.mark.parametrize("seed", range(5))
def test_the_files_have_what_a_sink_commits(kafka: ModelKafka, tmp_path: Path, seed: int) -> None:
    given = outputs(Random(seed))
    mine = KeptOutputs(session(kafka, Refusing(kafka)), tmp_path)
    mine.prepare()
    made = mine.compare(1, given)
    written = session(kafka, FakeTransactions(kafka)).commit(1, 5, 1, given).windows
    assert [(m.topic, m.partition, m.count, m.checksum) for m in made] == [
        (w.topic, w.partition, w.count, w.checksum) for w in written
    ]
    found = kept(tmp_path, 1, "op", 0)
    assert {place: checksum(*rows) for place, rows in found.items()} == {
        (w.topic, w.partition): w.checksum for w in written
    }
    assert mine.compare(1, given) == made, "the epoch ran again"
    assert kept(tmp_path, 1, "op", 0).keys() == found.keys()


def test_an_epoch_without_outputs_has_no_file(kafka: ModelKafka, tmp_path: Path) -> None:
    mine = KeptOutputs(session(kafka, Refusing(kafka)), tmp_path)
    assert mine.compare(1, []) == ()
    assert list(tmp_path.iterdir()) == []
    assert kept(tmp_path, 1, "op", 0) == {}


def test_it_never_commits(kafka: ModelKafka, tmp_path: Path) -> None:
    mine = KeptOutputs(session(kafka, Refusing(kafka)), tmp_path)
    with pytest.raises(PermanentError, match="commits nothing"):
        mine.commit(1, 5, 1, outputs(Random(1)), checkpoint=False)
    mine.close()
