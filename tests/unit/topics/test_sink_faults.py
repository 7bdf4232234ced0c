"""The sink protocol under any faults: each epoch's outputs once, in order, or a clear refusal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import FencedError, PerseidError, RetryableError
from perseid.testing.kafka import (
    FakeLogReader,
    FakeTopics,
    FakeTransactions,
    Fault,
    ModelKafka,
)
from perseid.topics.ledger import LedgerReader
from perseid.worker.sink.transaction import SinkBatch, SinkIdentity, SinkSession

WHO = SinkIdentity("job", "u", 1, "op", 0, ledger=0, after_epoch=0)
OPERATIONS = ["acquire", "begin", "send", "flush", "commit"]


def cluster() -> ModelKafka:
    kafka = ModelKafka()
    topics = FakeTopics(kafka)
    topics.create("perseid.job.ledger", 1)
    topics.create("out", 2)
    return kafka


def session(kafka: ModelKafka) -> SinkSession:
    topics = FakeTopics(kafka)
    ledger = LedgerReader(FakeLogReader(kafka), topics)
    return SinkSession(WHO, FakeTransactions(kafka), ledger, topics, clock=kafka.clock)


def outputs(epoch: int) -> list[SinkBatch]:
    return [SinkBatch("out", [b"a", b"b", b"a"], [b"%d:%d" % (epoch, i) for i in range(3)])]


def written(kafka: ModelKafka) -> list[bytes]:
    """Committed values of both partitions, each in its order."""
    found = [kafka.readable("out", p, 0, 10**9) for p in range(2)]
    return [r.value or b"" for log in found for r in log]


def expected(epochs: int) -> set[bytes]:
    return {b"%d:%d" % (e, i) for e in range(1, epochs + 1) for i in range(3)}


FAULTS: st.SearchStrategy[Fault] = st.sampled_from(["lost", "unanswered"])


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(OPERATIONS), FAULTS), max_size=12))
def test_unknown_outcomes_lose_and_double_nothing(plan: list[tuple[int, str, Fault]]) -> None:
    kafka = cluster()
    sink = session(kafka)
    for epoch in range(1, 7):
        for _, operation, fault in (p for p in plan if p[0] == epoch):
            kafka.fail(operation, fault)
        sink.commit(epoch, epoch, 1, outputs(epoch))
    values = written(kafka)
    assert sorted(values) == sorted(expected(6))
    for partition in range(2):
        epochs = [
            int((r.value or b"").split(b":")[0]) for r in kafka.readable("out", partition, 0, 99)
        ]
        assert epochs == sorted(epochs)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(OPERATIONS), st.booleans()), max_size=15
)


@given(STEPS)
def test_owners_that_meet_at_any_moment(steps: list[tuple[int, str, bool]]) -> None:
    """Three owners of rising generations; one may act right before any operation of another."""
    kafka = cluster()
    owners = [session(kafka) for _ in range(3)]
    done = [0, 0, 0]

    def act(who: int) -> None:
        epoch = done[who] + 1
        try:
            owners[who].commit(epoch, epoch, who, outputs(epoch), timeout_s=5)
            done[who] = epoch
        except (FencedError, RetryableError):
            pass

    for who, operation, meet in steps:
        if meet:
            kafka.before(operation, lambda: act((who + 1) % 3))  # noqa: B023 - runs within this step
        act(who)
    for _ in range(20):
        act(2)
    values = written(kafka)
    assert len(values) == len(set(values))
    assert set(values) == expected(max(done))
    with pytest.raises(FencedError):
        owners[0].commit(99, 99, 0, outputs(99))


def test_the_time_for_an_epoch_is_bounded_and_the_next_try_finds_out() -> None:
    kafka = cluster()
    sink = session(kafka)
    kafka.fail("commit", "unanswered")
    never: list[Fault] = ["lost"] * 500
    kafka.fail("acquire", "unanswered", *never)
    with pytest.raises(RetryableError, match=r"epoch 1 of perseid.job.1.op.0 .* in 5 s"):
        sink.commit(1, 1, 1, outputs(1), timeout_s=5)
    kafka = cluster()
    sink = session(kafka)
    kafka.fail("commit", "unanswered")
    assert sink.commit(1, 1, 1, outputs(1)).skipped
    assert set(written(kafka)) == expected(1)


def test_a_crash_at_any_operation_is_made_good_by_the_next_owner() -> None:
    class Killed(BaseException):
        """The process is gone."""

    def die() -> None:
        raise Killed

    for operation in OPERATIONS:
        kafka = cluster()
        session(kafka).commit(1, 1, 1, outputs(1))
        kafka.before(operation, die)
        with pytest.raises(Killed):
            session(kafka).commit(2, 2, 1, outputs(2))
        session(kafka).commit(2, 2, 2, outputs(2))
        assert sorted(written(kafka)) == sorted(expected(2)), operation


def test_the_producer_is_kept_from_epoch_to_epoch_and_dropped_after_an_unknown_outcome() -> None:
    kafka = cluster()
    acquired: list[int] = []
    sink = session(kafka)
    for epoch, fault in ((1, None), (2, None), (3, "flush"), (4, None)):
        kafka.before("acquire", lambda e=epoch: acquired.append(e))  # type: ignore[misc]
        if fault is not None:
            kafka.fail(fault, "unanswered")
        sink.commit(epoch, epoch, 1, outputs(epoch))
        kafka.forget_hooks()
    assert acquired == [1, 3]
    other = session(kafka)
    other.commit(5, 5, 1, outputs(5))
    assert sink.commit(5, 5, 1, outputs(5)).skipped
    sink.commit(6, 6, 1, outputs(6))
    assert sorted(written(kafka)) == sorted(expected(6))


def test_every_error_is_one_of_the_tree() -> None:
    kafka = cluster()
    kafka.topics.pop("perseid.job.ledger")
    with pytest.raises(PerseidError, match=r"perseid\.job\.ledger"):
        session(kafka).commit(1, 1, 1, outputs(1))
