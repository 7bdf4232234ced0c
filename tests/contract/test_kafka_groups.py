"""Offsets of a consumer group by one fenced writer: the model and the broker alike."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from perseid.embedded import Cluster
from perseid.errors import FencedError, RetryableError
from perseid.testing.stack import group_offsets
from perseid.topics.admin import Partition, TopicAdmin
from perseid.topics.groups import GroupWriter, KafkaGroupWriter
from support.groups import ModelGroups

GROUP = f"perseid.group-{uuid.uuid4().hex[:8]}"
TOPIC = "grouped"


@dataclass(frozen=True)
class Side:
    """Writers of GROUP, and what it holds."""

    writer: Callable[[], GroupWriter]
    offsets: Callable[[], Mapping[Partition, int]]


@pytest.fixture(params=["fake", "real"])
def side(request: pytest.FixtureRequest) -> Side:
    if request.param == "fake":
        model = ModelGroups()
        return Side(lambda: model.writer(GROUP), lambda: model.offsets.get(GROUP, {}))
    kafka = request.getfixturevalue("cluster").deployment.kafka
    TopicAdmin(kafka).create(TOPIC, 3)
    return Side(
        lambda: KafkaGroupWriter(kafka, GROUP, f"{GROUP}.offsets"),
        lambda: group_offsets(kafka, GROUP),
    )


def test_a_new_writer_shuts_out_the_old_one(side: Side) -> None:
    old, new = side.writer(), side.writer()
    with pytest.raises(RetryableError, match="acquired"):
        old.commit({(TOPIC, 0): 1})
    old.acquire()
    old.commit({(TOPIC, 0): 1, (TOPIC, 1): 2})
    old.commit({(TOPIC, 0): 5})
    assert side.offsets() == {(TOPIC, 0): 5, (TOPIC, 1): 2}
    new.acquire()
    with pytest.raises(FencedError, match="newer writer"):
        old.commit({(TOPIC, 0): 3})
    with pytest.raises(RetryableError):  # not by itself once more
        old.commit({(TOPIC, 0): 3})
    new.commit({(TOPIC, 0): 9, (TOPIC, 2): 4})
    assert side.offsets() == {(TOPIC, 0): 9, (TOPIC, 1): 2, (TOPIC, 2): 4}
    old.acquire()
    with pytest.raises(FencedError):
        new.commit({(TOPIC, 0): 10})
    assert side.offsets()[TOPIC, 0] == 9


def test_a_group_is_forgotten_with_its_offsets(services: Cluster) -> None:
    admin = TopicAdmin(services.deployment.kafka)
    admin.create(TOPIC, 3)
    group = f"{GROUP}-gone"
    writer = KafkaGroupWriter(services.deployment.kafka, group, f"{group}.offsets")
    writer.acquire()
    writer.commit({(TOPIC, 0): 1})
    assert group_offsets(services.deployment.kafka, group) == {(TOPIC, 0): 1}
    admin.delete_group(group)
    admin.delete_group(group)  # it is gone
    assert group_offsets(services.deployment.kafka, group) == {}
