"""Control logs: tokens and progress on top of LogReader and LogWriter."""

from __future__ import annotations

import time

from perseid.topics import codec
from perseid.topics.chain import Accepted, Base, Chain, Void
from perseid.topics.log import ProgressLog
from perseid.topics.records import Begin, Claim, PartFailed, Rewind, Token
from support.kafka_handle import Kafka


def _token(epoch: int, previous: int, *, ce: int = 1) -> Token:
    return Token(ce, "u", epoch, previous, "rev", 1, (), 5)


def test_two_leaders_and_a_late_reader_of_one_token_log(kafka: Kafka) -> None:
    topic = f"perseid.job-{time.time_ns()}.tokens"
    kafka.topics.create(topic, 1)
    for record in (
        Claim(1, "a"), Begin(1, "u", 0), _token(1, 1), Claim(2, "b"),
        _token(2, 2), _token(2, 2, ce=2), Rewind(2, "u", 1, 2, "why"), _token(2, 2, ce=2),
    ):  # fmt: skip
        end = kafka.writer.append(topic, 0, codec.encode(record)) + 1

    def fed(chain: Chain, start: int) -> list[Accepted | Void]:
        entries = kafka.reader().read_range(topic, 0, start, end, timeout_s=20)
        return [chain.feed(e.offset, codec.decode_token(topic, e.offset, e.value)) for e in entries]

    chain = Chain()
    kinds = [seen.kind for seen in fed(chain, 0) if isinstance(seen, Accepted)]
    assert kinds == "claim begin token claim token rewind token".split()
    assert (chain.tip_epoch, chain.tip_offset) == (2, 7)
    late = fed(Chain(Base("u", 1, 2)), 2)
    assert [s.offset for s in late if isinstance(s, Accepted)] == [2, 3, 5, 6, 7]
    assert [s.offset for s in late if isinstance(s, Void)] == [4]


def test_progress_is_read_from_any_offset(kafka: Kafka) -> None:
    job = f"job-{time.time_ns()}"
    kafka.topics.create(f"perseid.{job}.progress", 1)
    log = ProgressLog(job, kafka.reader(), kafka.writer)
    record = PartFailed("u", 1, 2, "op", 0, "disk full")
    assert log.append(record) == 0
    assert log.read_from(0, timeout_s=20) == [(0, record)]
