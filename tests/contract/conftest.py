"""A real broker for the whole session, and the in-memory one, behind the same handle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perseid.embedded import Cluster
from perseid.testing import kafka_handle
from perseid.testing.kafka_handle import Kafka


@pytest.fixture(scope="session")
def cluster(services: Cluster) -> Cluster:
    """Kafka, ZooKeeper and Redis; nothing here needs coordinators or workers."""
    return services


@pytest.fixture(scope="session")
def _real_kafka(cluster: Cluster) -> Iterator[Kafka]:
    kafka = kafka_handle.real(cluster.deployment.kafka)
    yield kafka
    kafka.ranges.close()
    kafka.sources.close()


@pytest.fixture(params=["fake", "real"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Every test that takes it runs on both."""
    if request.param == "fake":
        return kafka_handle.fake()
    real: Kafka = request.getfixturevalue("_real_kafka")
    return real


@pytest.fixture
def real_kafka(_real_kafka: Kafka) -> Kafka:
    return _real_kafka
