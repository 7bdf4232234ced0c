"""Control logs: tokens and progress on top of LogReader and LogWriter."""

from __future__ import annotations

import time

from perseid.testing.kafka_handle import Kafka
from perseid.topics.chain import Base, Void
from perseid.topics.log import ProgressLog, TokenLog
from perseid.topics.records import Begin, Claim, PartFailed, Rewind, Token


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
