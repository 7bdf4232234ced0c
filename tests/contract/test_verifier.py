"""The verifier on a real broker: planted faults are reported, the uncommitted is not seen."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from perseid.embedded import Cluster
from perseid.testing.verify import Verdict, read, verify_multiset, verify_wordcount
from perseid.testing.verify.read import ReadError, read_topic
from perseid.topics.admin import TopicAdmin

LINES = [b"a b a", b"b c", b"a"]
Counts = list[tuple[str, int]]
GOOD: Counts = [("a", 2), ("b", 1), ("c", 1), ("b", 2), ("a", 3)]
Faults = tuple[int, int, int, int]


@pytest.fixture
def topic(cluster: Cluster) -> Callable[[], str]:
    """Makes topics with two partitions."""
    admin = TopicAdmin(cluster.deployment.kafka)

    def make() -> str:
        name = f"verified-{uuid.uuid4().hex[:8]}"
        admin.create(name, 2)
        return name

    return make


def faults(verdict: Verdict) -> Faults:
    return (verdict.lost, verdict.duplicated, verdict.reordered, verdict.wrong)


def send(bootstrap: str, topic: str, records: list[tuple[str | None, bytes]]) -> None:
    """Records of a key to the partition of its first letter, in order."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for key, value in records:
        producer.produce(topic, value, key, partition=ord((key or "a")[0]) % 2)
    assert producer.flush(30) == 0


def counts(found: Counts) -> list[tuple[str | None, bytes]]:
    return [(word, json.dumps({"word": word, "n": n}).encode()) for word, n in found]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(GOOD, (0, 0, 0, 0), id="good"),
        pytest.param(GOOD[:-1], (1, 0, 0, 0), id="lost"),
        pytest.param([*GOOD, ("a", 3)], (0, 1, 0, 0), id="duplicated"),
        pytest.param([GOOD[0], ("a", 1), *GOOD[1:]], (0, 0, 1, 0), id="reordered"),
        pytest.param([*GOOD, ("a", 4)], (0, 0, 0, 1), id="wrong"),
    ],
)
def test_planted_faults_in_counts(
    cluster: Cluster, topic: Callable[[], str], output: Counts, expected: Faults
) -> None:
    kafka, source, sink = cluster.deployment.kafka, topic(), topic()
    send(kafka, source, [(None, line) for line in LINES])
    send(kafka, sink, counts(output))
    verdict = verify_wordcount(kafka, source, sink)
    assert faults(verdict) == expected
    assert (verdict.records, verdict.output_records) == (len(LINES), len(output))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([1, 2, 3], (0, 0, 0, 0), id="good"),
        pytest.param([1, 3], (1, 0, 0, 0), id="lost"),
        pytest.param([1, 2, 3, 2], (0, 1, 0, 0), id="duplicated"),
        pytest.param([2, 1, 3], (0, 0, 1, 0), id="reordered"),
        pytest.param([1, 2, 3, 9], (0, 0, 0, 1), id="wrong"),
    ],
)
def test_planted_faults_in_ids(
    cluster: Cluster, topic: Callable[[], str], output: list[int], expected: Faults
) -> None:
    kafka, source, sink = cluster.deployment.kafka, topic(), topic()
    send(kafka, source, [("k", b'{"id": %d}' % i) for i in (1, 2, 3)])
    send(kafka, sink, [("k", b'{"id": %d}' % i) for i in output])
    assert faults(verify_multiset(kafka, source, sink)) == expected


def test_aborted_records_are_not_seen_and_open_ones_hide_what_is_after_them(
    cluster: Cluster, topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_DECIDED_S", 1.0)
    kafka, source, sink = cluster.deployment.kafka, topic(), topic()
    send(kafka, source, [(None, line) for line in LINES])
    writer = Producer({"bootstrap.servers": kafka, "transactional.id": f"t-{sink}"})
    writer.list_topics(timeout=10)
    writer.init_transactions(30)
    for output, commit in ((GOOD[:2], False), (GOOD, True), ([("a", 9)], None)):
        writer.begin_transaction()
        for key, value in counts(output):
            writer.produce(sink, value, key, partition=ord((key or "a")[0]) % 2)
        writer.flush(30)
        if commit is not None:
            (writer.commit_transaction if commit else writer.abort_transaction)(30)
    assert faults(verify_wordcount(kafka, source, sink)) == (0, 0, 0, 0)
    writer.abort_transaction(30)


def test_a_commit_whose_markers_are_not_written_yet_is_waited_for(
    cluster: Cluster, topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, sink = cluster.deployment.kafka, topic()
    send(kafka, sink, [("b", b"0")])
    writer = Producer({"bootstrap.servers": kafka, "transactional.id": f"t-{sink}"})
    writer.init_transactions(30)
    writer.begin_transaction()
    for value in (b"1", b"2"):
        writer.produce(sink, value, b"b", partition=0)
    writer.flush(30)
    ends_seen: list[int | None] = []

    class Late(Consumer):
        """The markers come when the reader has got an end for the first time."""

        def consume(self, *args: Any, **kwargs: Any) -> list[Message]:
            batch: list[Message] = super().consume(*args, **kwargs)
            ends = [message.offset() for message in batch if message.error() is not None]
            if ends and not ends_seen:
                writer.commit_transaction(30)
            ends_seen.extend(ends)
            return batch

    monkeypatch.setattr(read, "Consumer", Late)
    assert [record.value for record in read_topic(kafka, sink)] == [b"0", b"1", b"2"]
    assert ends_seen == [1, 4, 0]  # held up, after the markers, and the empty other partition


def test_a_missing_topic_is_an_error_and_no_verdict(
    cluster: Cluster, topic: Callable[[], str]
) -> None:
    with pytest.raises(ReadError, match="not-there"):
        list(read_topic(cluster.deployment.kafka, "not-there"))
    assert list(read_topic(cluster.deployment.kafka, topic())) == []
