"""Control logs: what LogReader and LogWriter promise, and the token log on top of them."""

from __future__ import annotations

import time

import pytest

from perseid.errors import PermanentError, ReplayDataLost
from perseid.testing.kafka_handle import Kafka
from perseid.topics.chain import Base, Void
from perseid.topics.log import Entry, ProgressLog, TokenLog
from perseid.topics.records import Begin, Claim, PartFailed, Rewind, Token


def test_offsets_are_dense_and_reading_goes_on_where_it_ended(kafka: Kafka) -> None:
    topic = kafka.topic()
    assert [kafka.writer.append(topic, 0, b"%d" % i) for i in range(5)] == [0, 1, 2, 3, 4]
    reader = kafka.reader()
    first = reader.read_from(topic, 0, 1, max_records=1, timeout_s=20)
    assert first == [(1, b"1")]
    rest: list[Entry] = []
    while len(rest) < 3:
        rest += reader.read_from(topic, 0, 2 + len(rest), max_records=9, timeout_s=20)
    assert rest == [(2, b"2"), (3, b"3"), (4, b"4")]
    assert reader.read_from(topic, 0, 5, max_records=9, timeout_s=0.2) == []
    kafka.writer.append(topic, 0, b"5")
    assert reader.read_from(topic, 0, 5, max_records=9, timeout_s=20) == [(5, b"5")]
    assert reader.read_from(topic, 0, 0, max_records=1, timeout_s=20) == [(0, b"0")]


def test_a_range_has_all_its_records(kafka: Kafka) -> None:
    topic = kafka.topic(2)
    for i in range(6):
        kafka.writer.append(topic, 1, b"%d" % i)
    reader = kafka.reader()
    assert [e.offset for e in reader.read_range(topic, 1, 2, 5, timeout_s=20)] == [2, 3, 4]
    assert [e.offset for e in reader.read_range(topic, 1, 5, 6, timeout_s=20)] == [5]
    assert reader.read_range(topic, 1, 3, 3, timeout_s=20) == []


def test_what_retention_removed_is_an_error_not_a_gap(kafka: Kafka) -> None:
    topic = kafka.topic()
    for _ in range(4):
        kafka.writer.append(topic, 0, b"v")
    kafka.topics.delete_records({(topic, 0): 3})
    with pytest.raises(ReplayDataLost) as caught:
        kafka.reader().read_range(topic, 0, 1, 4, timeout_s=20)
    assert (caught.value.needed, caught.value.earliest) == (1, 3)
    with pytest.raises(ReplayDataLost):
        kafka.reader().read_from(topic, 0, 0, max_records=1, timeout_s=20)


def test_an_offset_behind_the_end_is_an_error(kafka: Kafka) -> None:
    topic = kafka.topic()
    with pytest.raises(PermanentError, match="made anew"):
        kafka.reader().read_from(topic, 0, 7, max_records=1, timeout_s=20)


def test_an_append_to_no_topic_is_permanent(kafka: Kafka) -> None:
    with pytest.raises(PermanentError, match="not exist"):
        kafka.writer.append("nowhere", 0, b"v")


def _token(epoch: int, previous: int, *, ce: int = 1) -> Token:
    return Token(ce, "u", epoch, previous, "rev", 1, (), 5)


def test_two_leaders_and_a_late_reader_of_one_token_log(kafka: Kafka) -> None:
    job = f"job-{time.time_ns()}"
    kafka.topics.create(f"perseid.{job}.tokens", 1)
    log = TokenLog(job, kafka.reader(), kafka.writer)
    for record in (
        Claim(1, "a"), Begin(1, "u", 0), _token(1, 1), Claim(2, "b"),
        _token(2, 2), _token(2, 2, ce=2), Rewind(2, "u", 1, 2, "why"), _token(2, 2, ce=2),
    ):  # fmt: skip
        end = log.append(record) + 1
    seen = log.read_to(end, timeout_s=20)
    kinds = "claim begin token claim token rewind token".split()
    assert [s.kind for s in seen] == kinds
    assert (log.chain.tip_epoch, log.chain.tip_offset, log.position) == (2, 7, 8)
    voids: list[Void] = []
    late = TokenLog(job, kafka.reader(), base=Base("u", 1, 2), on_void=voids.append)
    assert [s.offset for s in late.read_to(end, timeout_s=20)] == [2, 3, 5, 6, 7]
    assert [v.offset for v in voids] == [4]
    log.append(_token(3, 7, ce=2))
    (new,) = late.poll(20)
    assert new.token is not None
    assert new.token.epoch == 3


def test_progress_is_read_from_any_offset(kafka: Kafka) -> None:
    job = f"job-{time.time_ns()}"
    kafka.topics.create(f"perseid.{job}.progress", 1)
    log = ProgressLog(job, kafka.reader(), kafka.writer)
    record = PartFailed("u", 1, 2, "op", 0, "disk full")
    assert log.append(record) == 0
    assert log.read_from(0, timeout_s=20) == [(0, record)]
