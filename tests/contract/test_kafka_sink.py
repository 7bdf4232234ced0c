"""The sink protocol: an epoch's outputs are there once, through any number of attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.errors import FencedError, LedgerGap, PermanentError, RetryableError
from perseid.topics import names
from perseid.topics.partitioner import partitions
from perseid.topics.transactions import octets
from perseid.worker.sink.sink_outputs import checksum
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession
from support.kafka_handle import Kafka


def session(kafka: Kafka, who: SinkIdentity) -> SinkSession:
    """A writer of its own process: it remembers nothing."""
    return SinkSession(who, kafka.transactions, kafka.ledger(), kafka.topics)


def identity(kafka: Kafka, **changes: object) -> SinkIdentity:
    return replace(
        SinkIdentity(kafka.job(), "u", 1, "op", 0, ledger=1, after_epoch=10),
        **changes,  # type: ignore[arg-type]
    )


def outputs(topic: str, *values: bytes) -> list[SinkBatch]:
    return [SinkBatch(topic, [b"k"] * len(values), values)]


def test_an_epoch_is_written_and_its_windows_are_in_the_ledger(kafka: Kafka) -> None:
    topic, who = kafka.topic(4), identity(kafka)
    keys: list[bytes | None] = [b"key%d" % (i % 50) for i in range(3000)]
    values = [b"value%d" % i for i in range(3000)]
    sink = session(kafka, who)
    done = sink.commit(11, 100, 1, [SinkBatch(topic, keys, values)])
    assert (done.skipped, done.attempts) == (False, 1)
    where = partitions(octets(keys), 4).tolist()
    for partition in range(4):
        expected = [v for v, p in zip(values, where, strict=True) if p == partition]
        assert kafka.values(topic, partition) == expected
    assert sum(w.count for w in done.windows) == 3000
    for window in done.windows:
        rows = [i for i, p in enumerate(where) if p == window.partition]
        wanted = checksum(octets([keys[i] for i in rows]), octets([values[i] for i in rows]))
        assert window.checksum == wanted
    record = kafka.ledger().last(names.ledger(who.job), 1, timeout_s=20)
    assert record is not None
    assert (record.epoch, record.generation, record.token_offset) == (11, 1, 100)
    assert record.outputs == done.windows
    sink.close()


def test_a_committed_epoch_is_skipped_by_a_later_attempt(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    first = session(kafka, who)
    done = first.commit(11, 100, 1, outputs(topic, b"a"))
    assert first.commit(11, 100, 1, outputs(topic, b"a")).skipped
    again = session(kafka, who).commit(11, 100, 2, outputs(topic, b"a"))
    assert (again.skipped, again.windows) == (True, done.windows)
    assert kafka.values(topic) == [b"a"]


def test_a_dead_letter_of_a_record_without_a_value_has_none_either(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    values, headers = [b"a", None, b"c", None], [[("h", b"x")]] * 4
    sink = session(kafka, who)
    done = sink.commit(11, 100, 1, [SinkBatch(topic, [b"k"] * 4, values, headers)])
    end = kafka.topics.ends([(topic, 0)], committed=False)[topic, 0]
    found = [m.value() for batch in kafka.ranges.read(topic, 0, 0, end) for m in batch]
    assert found == values
    assert [window.count for window in done.windows] == [4]
    sink.close()


def test_an_epoch_without_outputs_is_noted(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    sink = session(kafka, who)
    assert not sink.commit(11, 100, 1, []).skipped
    assert not sink.commit(12, 101, 1, outputs(topic, b"a")).skipped
    assert kafka.values(topic) == [b"a"]


def test_a_gap_stops_and_writes_nothing(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    sink = session(kafka, who)
    with pytest.raises(LedgerGap, match="ends with epoch 10, and epoch 12"):
        sink.commit(12, 100, 1, outputs(topic, b"a"))
    sink.commit(11, 100, 1, outputs(topic, b"a"))
    with pytest.raises(LedgerGap):
        session(kafka, who).commit(13, 102, 1, outputs(topic, b"b"))
    assert kafka.values(topic) == [b"a"]


def test_an_epoch_without_records_is_in_the_ledger_too(kafka: Kafka) -> None:
    """As most epochs of dead letters are: who resumes after one must know that it is over."""
    topic, who = kafka.topic(), identity(kafka)
    sink = session(kafka, who)
    assert not sink.commit(11, 100, 1, []).skipped
    assert session(kafka, who).commit(11, 100, 2, []).skipped
    with pytest.raises(LedgerGap):
        session(kafka, who).commit(13, 102, 2, outputs(topic, b"b"))
    assert not session(kafka, who).commit(12, 101, 2, outputs(topic, b"a")).skipped
    assert kafka.values(topic) == [b"a"]


def test_a_lower_generation_is_fenced(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    zombie, owner = session(kafka, who), session(kafka, who)
    zombie.commit(11, 100, 1, outputs(topic, b"a"))
    owner.commit(12, 101, 2, outputs(topic, b"b"))
    with pytest.raises(FencedError, match="generation 2, this writer 1"):
        zombie.commit(13, 102, 1, outputs(topic, b"zombie"))
    owner.commit(13, 102, 2, outputs(topic, b"c"))
    assert kafka.values(topic) == [b"a", b"b", b"c"]


def test_a_zombie_of_another_job_uuid_is_fenced_too(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    session(kafka, who).commit(11, 100, 1, outputs(topic, b"old"))
    new_job = replace(who, job_uuid="v", after_epoch=11)
    session(kafka, new_job).commit(12, 101, 2, outputs(topic, b"new"))
    with pytest.raises(FencedError):
        session(kafka, who).commit(12, 101, 1, outputs(topic, b"zombie"))
    assert kafka.values(topic) == [b"old", b"new"]


def test_a_new_layout_resumes_after_the_old_one(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    session(kafka, who).commit(11, 100, 1, outputs(topic, b"a"))
    wider = replace(who, layout=2, after_epoch=11)
    session(kafka, wider).commit(12, 101, 2, outputs(topic, b"b"))
    other = replace(who, layout=2, after_epoch=11, partition=1, ledger=0)
    session(kafka, other).commit(12, 101, 2, outputs(topic, b"c"))
    assert kafka.values(topic) == [b"a", b"b", b"c"]


def test_the_same_epoch_of_another_token_is_refused(kafka: Kafka) -> None:
    topic, who = kafka.topic(), identity(kafka)
    session(kafka, who).commit(11, 100, 1, outputs(topic, b"a"))
    with pytest.raises(PermanentError, match="issued again"):
        session(kafka, who).commit(11, 105, 2, outputs(topic, b"b"))


def test_headers_and_records_without_key(kafka: Kafka) -> None:
    topic, who = kafka.topic(2), identity(kafka)
    headers = [[("perseid.epoch", b"11"), ("perseid.seq", b"%d" % i)] for i in range(3)]
    batch = SinkBatch(topic, [None] * 3, [b"a", b"b", b"c"], headers)
    (window,) = session(kafka, who).commit(11, 100, 1, [batch]).windows
    (messages,) = kafka.ranges.read(topic, window.partition, window.first, window.last + 1)
    assert [m.headers() for m in messages] == headers
    assert [m.key() for m in messages] == [None] * 3


def test_two_sinks_in_one_transaction(kafka: Kafka) -> None:
    one, two, who = kafka.topic(), kafka.topic(), identity(kafka)
    batches = outputs(one, b"a") + outputs(two, b"b", b"c") + outputs(one, b"d")
    done = session(kafka, who).commit(11, 100, 1, batches)
    assert {w.topic: w.count for w in done.windows} == {one: 2, two: 2}
    assert kafka.values(one) == [b"a", b"d"]
    assert kafka.values(two) == [b"b", b"c"]


def test_an_oversize_record_is_named_and_nothing_is_written(kafka: Kafka) -> None:
    topic, who = kafka.topic(1, max_message_bytes="5000"), identity(kafka)
    sink = session(kafka, who)
    with pytest.raises(PermanentError, match=rf"topic {topic} with key b'k' needs \d+ bytes.*5000"):
        sink.commit(11, 100, 1, outputs(topic, b"small", b"x" * 5000))
    sink.commit(11, 100, 1, outputs(topic, *[b"%d" % i * 1000 for i in range(9)]))
    assert kafka.values(topic) == [b"%d" % i * 1000 for i in range(9)]


def test_an_unknown_sink_topic_is_named(kafka: Kafka) -> None:
    with pytest.raises(RetryableError, match="sink topic nowhere does not exist"):
        session(kafka, identity(kafka)).commit(11, 100, 1, outputs("nowhere", b"a"), timeout_s=0.0)
