"""Kafka and ZooKeeper with three members, of which one or two are killed.

Epochs are committed and judged record by record: with one broker away it works, with two nothing
is acknowledged, and afterwards nothing is missing and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.errors import RetryableError
from perseid.registry.port import ConflictError, Create, SessionState, UnknownOutcomeError
from perseid.registry.zookeeper import KazooCoordination
from perseid.testing.wait import until
from support import kafka_handle
from support.committing import Committing
from support.ensembles import KafkaEnsemble, ZooKeeperEnsemble

SESSION_S = 4.0
PATIENCE_S = 60.0
# A member alone asks for an election again and again, at last each 60 s (ZooKeeper's
# `maxNotificationInterval`), and the other one may have to wait for that.
ELECTION_S = 150.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaEnsemble]:
    with KafkaEnsemble(tmp_path_factory.mktemp("brokers")) as ensemble:
        yield ensemble


@pytest.mark.drawn(group="brokers")
def test_brokers_are_killed_and_restarted_one_after_the_other(brokers: KafkaEnsemble) -> None:
    job = Committing(kafka_handle.real(brokers.bootstrap))
    job.commit()
    for broker in brokers.members:
        broker.kill()
        job.commit()
        broker.start()
        brokers.await_in_sync()
        broker.stop()
        job.commit()
        broker.start()
        brokers.await_in_sync()
        job.commit()
    assert job.found() == job.expected()


@pytest.mark.matrix  # what is not acknowledged is waited for, for two minutes
def test_with_two_of_three_brokers_dead_nothing_is_acknowledged(brokers: KafkaEnsemble) -> None:
    job = Committing(kafka_handle.real(brokers.bootstrap))
    job.commit()
    for broker in brokers.members[1:]:
        broker.kill()
    assert not job.try_once()
    for broker in brokers.members[1:]:
        broker.launch()
    for broker in brokers.members[1:]:
        broker.await_answers()
    job.commit()
    job.commit()
    assert job.found() == job.expected()


@pytest.mark.drawn(group="brokers")
def test_zookeeper_serves_with_two_of_three_and_writes_nothing_with_one(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        session = KazooCoordination(ensemble.hosts, "/ensemble", SESSION_S)
        session.start(PATIENCE_S)
        states: list[SessionState] = []
        session.on_session(states.append)
        first, second, third = ensemble.members
        session.write(Create("/before", b"1"))

        def written(path: str) -> bool:
            try:
                session.write(Create(path, b"1"))
            except ConflictError:  # the one without an answer had an effect
                return True
            except UnknownOutcomeError:
                return present(path)
            return True

        def present(path: str) -> bool:
            try:
                return session.get(path) is not None
            except RetryableError:
                return False

        first.kill()
        until(lambda: present("/before"), PATIENCE_S, "two of three to answer")
        until(lambda: written("/with-two"), PATIENCE_S, "two of three to take a write")
        second.kill()
        until(lambda: SessionState.SUSPENDED in states, PATIENCE_S, "the session to be suspended")
        with pytest.raises((UnknownOutcomeError, RetryableError)):
            session.write(Create("/with-one", b"1"))
        states.clear()
        second.start()
        until(lambda: present("/with-two"), ELECTION_S, "the quorum to be there again")
        until(lambda: written("/with-one"), PATIENCE_S, "the quorum to take a write")
        assert session.get("/before") is not None
        session.close()
        assert third.alive
