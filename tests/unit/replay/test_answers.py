"""Answers about epochs that have run again: of records among those of others, and of keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from perseid.errors import RefusedError, UsageError
from perseid.jobs.repository.job_folders import EXAMPLES
from perseid.replay.answers import BY_VALUE, Epoch, of_key, of_record
from perseid.replay.origins import Origin, Written
from perseid.testing.kafka import FakeColumnReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.topics.records import SinkWindow
from perseid.topics.transactions import PartitionBatch
from perseid.worker.sink.sink_outputs import checksum
from support.one_process import Past

TOPIC = "views-by-country"
VIEW = {"user": "ann", "page": "p", "ms": 7}


@pytest.fixture
def epoch(tmp_path: Path) -> Epoch:
    """The second epoch of page views of two countries."""
    past = Past(EXAMPLES / "pageviews", tmp_path)
    users = [{"user": "ann", "country": "at"}, {"user": "bob", "country": "de"}]
    past.epoch({"users": {0: users}, "views": {0: [VIEW]}})
    past.epoch({"views": {0: [VIEW, {**VIEW, "user": "bob"}, VIEW]}})
    return Epoch(past.runner, past.spec, past.reruns(), past.lineage())


class Topic:
    """The sink topic: the records of an operator partition, each after one of another program."""

    def __init__(self, epoch: Epoch, country: str) -> None:
        kafka = ModelKafka()
        FakeTopics(kafka).create(TOPIC, 1, {})
        self.reader = FakeColumnReader(kafka)
        sink = epoch.spec.sinks["countries"]
        (self.task,) = [
            task for task in epoch.layout.of("countries")
            if country in epoch.outputs(task, sink)["country"].to_pylist()
        ]  # fmt: skip
        keys, values = epoch.reruns.written(self.task, sink, epoch.outputs(self.task, sink))
        transaction = FakeTransactions(kafka).acquire("all", 1000, 1.0)
        transaction.begin()
        offsets = []
        for at in range(len(keys)):
            for record in (pa.array([b"other"]), values[at : at + 1]):
                transaction.send(PartitionBatch(TOPIC, 0, keys[at : at + 1], record))
                written = transaction.flush(1.0)[TOPIC, 0]
            offsets.append(written.last)
        transaction.commit(1.0)
        rows = zip(keys.to_pylist(), values.to_pylist(), offsets, strict=True)
        self.records = {key: Written(TOPIC, 0, at, key, value) for key, value, at in rows}
        self.window = SinkWindow(
            TOPIC, 0, offsets[0], offsets[-1], len(keys), checksum(keys, values)
        )

    def origin(self, **changes: int) -> Origin:
        fields = {"first": self.window.first, "last": self.window.last, "count": self.window.count}
        window = SinkWindow(TOPIC, 0, **(fields | changes), checksum=self.window.checksum)
        return Origin("pageviews", 2, "countries", self.task.partition, window)


def test_a_record_among_others_has_its_inputs_and_its_state(epoch: Epoch) -> None:
    topic = Topic(epoch, "at")
    answer = of_record(epoch, topic.records[b"at"], [topic.origin()], topic.reader)
    assert answer is not None
    found = answer.found
    assert [(one.topic, one.ranges) for one in found.inputs] == [("views", ((1, 1), (3, 3)))]
    assert found.key == ({"country": "at"},)
    assert found.before == {"seen": ({"key": "at", "views": 1, "ms": 7},)}
    assert found.after == {"seen": ({"key": "at", "views": 3, "ms": 21},)}
    assert found.notes == ()
    assert [(step.operator, step.how) for step in found.through] == [
        ("countries", "proven"), ("enriched", "proven"),
    ]  # fmt: skip


def test_where_the_checksum_cannot_be_compared_an_equal_record_is_an_answer_with_a_note(
    epoch: Epoch,
) -> None:
    topic = Topic(epoch, "at")
    compacted = topic.origin(count=99)
    answer = of_record(epoch, topic.records[b"at"], [compacted], topic.reader)
    assert answer is not None
    assert answer.found.notes == (BY_VALUE,)


def test_a_record_that_the_epoch_does_not_make_has_no_answer(epoch: Epoch) -> None:
    topic = Topic(epoch, "at")
    record = topic.records[b"at"]
    other = Written(TOPIC, 0, record.offset, b"at", b"other")
    assert of_record(epoch, other, [topic.origin()], topic.reader) is None
    foreign = Written(TOPIC, 0, record.offset - 1, b"at", b"other")
    assert of_record(epoch, foreign, [topic.origin()], topic.reader) is None


def test_a_key_has_its_inputs_and_its_state(epoch: Epoch) -> None:
    found = of_key(epoch, "bob", "enriched").found
    assert [(one.topic, one.ranges) for one in found.inputs] == [("views", ((2, 2),))]
    assert found.before == found.after == {"users": ({"key": "bob", "country": "de"},)}
    assert found.record is None


@pytest.mark.parametrize(
    ("key", "operator", "error", "why"),
    [
        (
            "carl",
            "enriched",
            RefusedError,
            "read no row with the key 'carl', and its state has none",
        ),
        ("x=1", "enriched", RefusedError, "has none"),
        ('{"no": 1}', "enriched", UsageError, "no key column 'no'"),
        ("ann", None, UsageError, "enriched or countries"),
        ("ann", "none", UsageError, "found 'none'"),
    ],
)
def test_a_key_that_is_none_is_refused(
    epoch: Epoch, key: str, operator: str | None, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        of_key(epoch, key, operator)
