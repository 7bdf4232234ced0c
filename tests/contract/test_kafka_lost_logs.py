"""Control and sink topics that were deleted and made again, on a real broker and on the model."""

from __future__ import annotations

import pytest

from perseid.coordinator.events import Event, ProgressLost, ProgressSeen
from perseid.coordinator.watching import ProgressWatcher
from perseid.engine.last_word import LastWord
from perseid.errors import PermanentError, RetryableError
from perseid.testing.wait import until
from perseid.topics import names
from perseid.topics.log import ProgressLog
from perseid.topics.records import FragmentState
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.kafka_handle import Kafka

RUNNING = FragmentState("u", 1, "w", "running", 0)
FAILED = FragmentState("u", 1, "w", "failed", 0, "RetryableError", "away")
PATIENCE_S = 60.0


def make_again(kafka: Kafka, topic: str) -> None:
    kafka.topics.delete([topic])
    until(lambda: kafka.topics.create(topic, 1), PATIENCE_S, "the topic can be recreated")


def append(kafka: Kafka, job: str, record: FragmentState) -> None:
    """Until a producer is taken: an earlier one may be refused once."""

    def appended() -> bool:
        try:
            ProgressLog(job, writer=kafka.writer).append(record)
        except RetryableError:
            return False
        return True

    until(appended, PATIENCE_S, "the record is taken")


@pytest.mark.parametrize("records", [1, 9])
def test_a_leader_notices_a_progress_topic_that_was_made_again(kafka: Kafka, records: int) -> None:
    """Shorter than before or longer."""
    job, seen, clock_s = kafka.job(), list[Event](), [0.0]
    kafka.topics.create(names.progress(job), 1)
    for _ in range(3):
        append(kafka, job, RUNNING)
    watcher = ProgressWatcher(
        job, 0, kafka.reader(), kafka.topics, seen.append, lambda _: None, lambda: clock_s[0]
    )

    def has(kind: type[Event], count: int) -> bool:
        clock_s[0] += 10.0
        watcher.turn()
        return sum(isinstance(event, kind) for event in seen) == count

    until(lambda: has(ProgressSeen, 3), PATIENCE_S, "the earlier report is seen")
    make_again(kafka, names.progress(job))
    for _ in range(records):
        append(kafka, job, FAILED)
    until(lambda: has(ProgressLost, 1), PATIENCE_S, "the watcher reports that it lost something")
    assert watcher.stopped


def test_a_workers_last_word_is_reported_again_in_a_topic_that_was_made_again(kafka: Kafka) -> None:
    job = kafka.job()
    kafka.topics.create(names.progress(job), 1)
    word = LastWord(job, ProgressLog(job, writer=kafka.writer), kafka.topics, kafka.reader)
    word.append(RUNNING)
    assert not word.look(FAILED)
    make_again(kafka, names.progress(job))
    until(lambda: word.look(FAILED), PATIENCE_S, "it is reported again")
    assert not word.look(FAILED)
    assert len(kafka.values(names.progress(job))) == 1


def test_a_new_process_notices_a_sink_topic_that_was_made_again(kafka: Kafka) -> None:
    job, topic = kafka.job(), kafka.topic()
    who = SinkIdentity(job, "u", 1, "op", 0, ledger=0, after_epoch=10)

    def session() -> SinkSession:
        return SinkSession(who, kafka.transactions, kafka.ledger(), kafka.topics)

    first = session()
    first.commit(11, 100, 1, [SinkBatch(topic, [b"k"], [b"a"])])
    first.close()
    make_again(kafka, topic)
    fresh = session()
    with pytest.raises(PermanentError, match="ends at 0, and the ledger has outputs of epoch 11"):
        fresh.commit(12, 101, 2, [SinkBatch(topic, [b"k"], [b"b"])])
    assert kafka.values(topic) == []
