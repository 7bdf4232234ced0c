"""A broker loses the end of a ledger, and a sink meets the gap: it stops before it commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.errors import LedgerGap, PermanentError
from perseid.testing.kafka import (
    FakeLogReader,
    FakeTopics,
    FakeTransaction,
    FakeTransactions,
    ModelKafka,
)
from perseid.testing.kafka_disk import ModelDisk
from perseid.topics.ledger import LedgerReader
from perseid.topics.transactions import PartitionBatch
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession

JOB, LEDGER = "job", ("perseid.job.ledger", 0)
EMPTY = 40  # epochs: more than are looked at first
WHO = SinkIdentity(JOB, "u", 1, "op", 0, ledger=0, after_epoch=10)


@pytest.fixture
def kafka() -> ModelKafka:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    topics.create(LEDGER[0], 1, {})
    topics.create("out", 1, {})
    return kafka


def session(kafka: ModelKafka) -> SinkSession:
    topics = FakeTopics(kafka)
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    return SinkSession(WHO, FakeTransactions(kafka), ledger, topics)


def rows(value: bytes) -> list[SinkBatch]:
    return [SinkBatch("out", [b"k"], [value])]


def lose_from(kafka: ModelKafka, end: int) -> None:
    ModelDisk(kafka).cut(LEDGER, end)


def test_of_what_a_session_has_written_itself(kafka: ModelKafka) -> None:
    sink = session(kafka)
    sink.commit(11, 100, 1, rows(b"a"))
    end = kafka.log(*LEDGER).end
    sink.commit(12, 101, 1, rows(b"b"))
    lose_from(kafka, end)
    with pytest.raises(LedgerGap, match="ends with epoch 11, and epoch 13"):
        sink.commit(13, 102, 1, rows(b"c"))


def test_of_what_it_has_only_read(kafka: ModelKafka) -> None:
    """Another process has committed the epoch; simulation seed 21609."""
    first, second = session(kafka), session(kafka)
    first.commit(11, 100, 1, rows(b"a"))
    end = kafka.log(*LEDGER).end
    first.commit(12, 101, 1, rows(b"b"))
    assert second.commit(12, 101, 2, rows(b"b")).skipped
    lose_from(kafka, end)
    with pytest.raises(PermanentError, match="took a record at offset"):
        second.commit(13, 102, 2, rows(b"c"))


def test_where_only_the_marker_of_the_commit_is_left(
    kafka: ModelKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power went between record and commit; simulation seed 58753."""
    session(kafka).commit(11, 100, 1, rows(b"a"))
    sink = session(kafka)  # of a producer that has lost all its records the broker knows nothing
    end = kafka.log(*LEDGER).end
    commit = FakeTransaction.commit

    def torn(self: FakeTransaction, timeout_s: float) -> bool:
        lose_from(kafka, end)
        return commit(self, timeout_s)

    monkeypatch.setattr(FakeTransaction, "commit", torn)
    sink.commit(12, 101, 1, rows(b"b"))
    monkeypatch.undo()
    assert kafka.log(*LEDGER).end == end + 1
    with pytest.raises(PermanentError, match=f"record at offset {end + 1}, and had .* up to"):
        sink.commit(13, 102, 1, rows(b"c"))
    assert [r.value for r in kafka.readable("out", 0, 0, 100)] == [b"a", b"b"]


def test_where_the_ledger_has_its_old_end_again(kafka: ModelKafka) -> None:
    """An attempt that was aborted has filled the hole; simulation seed 22747."""
    sink = session(kafka)
    sink.commit(11, 100, 1, rows(b"a"))
    before = kafka.log(*LEDGER).end
    sink.commit(12, 101, 1, rows(b"b"))
    after = kafka.log(*LEDGER).end
    lose_from(kafka, before)
    attempt = FakeTransactions(kafka).acquire(WHO.transactional_id, 1, 1.0)
    attempt.begin()
    attempt.send(PartitionBatch(*LEDGER, [None], [b"never committed"]))
    sink.close()
    FakeTransactions(kafka).acquire(WHO.transactional_id, 1, 1.0)  # aborts the attempt
    assert kafka.log(*LEDGER).end == after
    with pytest.raises(LedgerGap, match="ends with epoch 11, and epoch 13"):
        sink.commit(13, 102, 1, rows(b"c"))
    values = [r.value for r in kafka.readable("out", 0, 0, 100)]
    assert values == [b"a", b"b"]


@pytest.mark.parametrize("again", [False, True])
def test_where_only_the_sink_topic_has_lost_it(kafka: ModelKafka, again: bool) -> None:
    """A process that has written nothing yet knows it from the ledger; `again`: made once more."""
    session(kafka).commit(11, 100, 1, rows(b"a"))
    if again:
        topics = FakeTopics(kafka)
        topics.delete(["out"])
        topics.create("out", 1, {})
    else:
        ModelDisk(kafka).cut(("out", 0), 0)
    fresh = session(kafka)
    for _ in range(2):  # for good
        with pytest.raises(PermanentError, match=r"out\[0\] ends at 0, and the ledger has outputs"):
            fresh.commit(12, 101, 2, rows(b"b"))
    assert kafka.log("out", 0).end == 0


@pytest.mark.parametrize("by_whom", ["by the process before", "by this process"])
def test_where_epochs_without_output_are_after_it(kafka: ModelKafka, by_whom: str) -> None:
    """The last epoch is one of a checkpoint, or its rows all went elsewhere."""
    before = session(kafka)
    before.commit(11, 100, 1, rows(b"a"))
    fresh = session(kafka)
    empty = before if by_whom == "by the process before" else fresh
    for epoch in range(12, 12 + EMPTY):
        empty.commit(epoch, 100 + epoch, 1, [])
    before.close()
    ModelDisk(kafka).cut(("out", 0), 0)
    with pytest.raises(PermanentError, match=r"out\[0\] ends at 0, .* outputs of epoch 11 up to 0"):
        fresh.commit(12 + EMPTY, 101 + 12 + EMPTY, 2, rows(b"b"))
    assert kafka.log("out", 0).end == 0


def test_where_another_job_has_written_it(kafka: ModelKafka) -> None:
    """One that was started from scratch may have its sink topic made again."""
    session(kafka).commit(11, 100, 1, rows(b"a"))
    topics = FakeTopics(kafka)
    topics.delete(["out"])
    topics.create("out", 1, {})
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    other = SinkSession(replace(WHO, job_uuid="v"), FakeTransactions(kafka), ledger, topics)
    assert not other.commit(11, 200, 2, rows(b"b")).skipped


def test_a_sink_topic_that_is_not_there_is_waited_for(kafka: ModelKafka) -> None:
    """Half a minute; a broker that starts does not know all topics yet."""
    topics = FakeTopics(kafka)
    topics.delete(["out"])
    ledger, clock = LedgerReader(FakeLogReader(kafka), topics), kafka.clock
    sink = SinkSession(WHO, FakeTransactions(kafka), ledger, topics, clock=clock)
    started_s = clock.monotonic_s()
    with pytest.raises(PermanentError, match=r"topic out does not exist.*same answer for 30 s"):
        sink.commit(11, 100, 1, rows(b"a"))
    assert 30 <= clock.monotonic_s() - started_s < 31
    with pytest.raises(PermanentError, match="same answer for 30 s"):
        sink.commit(11, 100, 1, rows(b"a"))  # by another attempt of the task
    assert clock.monotonic_s() - started_s < 31
    topics.create("out", 1, {})
    assert not sink.commit(11, 100, 2, rows(b"a")).skipped
