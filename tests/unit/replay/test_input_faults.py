"""Whether an audit can read what the epochs read: by the topics, and by how a run ended."""

from __future__ import annotations

import pytest

from perseid.errors import (
    InputChanged,
    LogTruncated,
    PermanentError,
    PerseidError,
    ReplayDataLost,
    RetryableError,
    TopicIdentityChanged,
)
from perseid.errors.carried import describe, parse
from perseid.replay import input_faults
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.topics.records import SourceRange, Token


def carried(error: PerseidError) -> PerseidError:
    """As the driver gets it from a task."""
    found = parse(f"Spark's text: {describe(error, 'secret')} and more", "secret")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "gone", "changed"),
    [
        (ReplayDataLost("t", 0, 5, 9), True, False),
        (LogTruncated("t", 0, 5, 3), True, False),
        (TopicIdentityChanged("t", "a", "b"), True, False),
        (InputChanged("epoch 3, split 0: the input has changed"), False, True),
        (PermanentError("another"), False, False),
        (RetryableError("ReplayDataLost is named later"), False, False),
    ],
)
def test_how_a_run_ended(error: PerseidError, gone: bool, changed: bool) -> None:
    for found in (error, carried(error)):
        assert input_faults.is_gone(found) is gone
        assert input_faults.has_changed(found) is changed


@pytest.fixture
def topics() -> FakeTopics:
    kafka = ModelKafka()
    found = FakeTopics(kafka)
    found.create("t", 2, {})
    for _ in range(10):
        kafka.append(("t", 0), None, b"row")
        kafka.append(("t", 1), None, b"row")
    return found


def token(topics: FakeTopics, epoch: int, start: int, end: int, partition: int = 0) -> Token:
    read = SourceRange("s", "t", topics.identities(["t"])["t"], partition, start, end)
    return Token(1, "u", epoch, 0, "r", 1, ((read,),), 1_000)


def test_what_is_there_is_no_fault(topics: FakeTopics) -> None:
    read = [token(topics, 1, 2, 5), token(topics, 2, 5, 9), token(topics, 3, 0, 4, partition=1)]
    topics.delete_records({("t", 0): 2})
    assert input_faults.missing(read, topics) == ""


def test_trimmed_records_are_named(topics: FakeTopics) -> None:
    read = [token(topics, 1, 2, 5), token(topics, 2, 5, 9)]
    topics.delete_records({("t", 0): 3})
    assert "t[0] begins at offset 3" in input_faults.missing(read, topics)
    assert input_faults.missing(read[1:], topics) == ""
    assert input_faults.missing([token(topics, 1, 2, 2)], topics) == "", "it read nothing"


def test_a_topic_that_is_gone_or_new_is_named(topics: FakeTopics) -> None:
    read = [token(topics, 1, 2, 5)]
    topics.delete(["t"])
    assert "does not exist any more" in input_faults.missing(read, topics)
    topics.create("t", 2, {})
    assert "created again" in input_faults.missing(read, topics)
