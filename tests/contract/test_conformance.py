"""The conformance suite as a whole: how many scripts, and that they reach all of the models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from perseid.testing.counters import FakeCounters, FakeRedis
from perseid.testing.kafka import (
    FakeColumnReader,
    FakeLogReader,
    FakeLogWriter,
    FakeMessage,
    FakeRangeReader,
    FakeTopics,
    FakeTransaction,
    FakeTransactions,
)
from perseid.testing.kafka_disk import ModelDisk
from perseid.testing.kafka_model import ModelKafka, ModelLog
from perseid.testing.registry import FakeCoordination, FakeZooKeeper
from perseid.testing.znodes import Tree
from support.conformance import kafka, kafka_side, redis, redis_side, zookeeper
from support.conformance import zookeeper_side as zoo_side

SUITES: list[tuple[list[Any], Callable[[], Any]]] = [
    (list(kafka.SCRIPTS), kafka_side.ModelSide),
    (list(zookeeper.SCRIPTS), zoo_side.FakeSide),
    (list(redis.SCRIPTS), redis_side.FakeSide),
]
MODELS = [
    FakeColumnReader, FakeLogReader, FakeLogWriter, FakeMessage, FakeRangeReader, FakeTopics,
    FakeTransaction, FakeTransactions, ModelDisk, ModelKafka, ModelLog, FakeCoordination,
    FakeZooKeeper, Tree, FakeCounters, FakeRedis,
]  # fmt: skip
# How tests plant faults in a model, which has no counterpart in a server.
PLANTED = {
    "ModelKafka.fail", "ModelKafka.before", "ModelKafka.forget_hooks",
    "FakeCoordination.expire",  # suspend, the server's clock and resume in one call
    "ModelDisk.power_failure",  # draws where to cut; the scripts name the place
}  # fmt: skip


def public_methods(model: type) -> dict[str, Any]:
    members = inspect.getmembers(model, inspect.isfunction)
    return {name: found for name, found in members if not name.startswith("_")}


def test_there_are_enough_scripts_with_names_of_their_own() -> None:
    names = [script.name for scripts, _ in SUITES for script in scripts]
    assert len(names) == len(set(names)) >= 60
    assert all(script.expected for scripts, _ in SUITES for script in scripts)


def test_scripts_reach_every_method_of_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[str] = set()

    def noting(name: str, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            reached.add(name)
            return method(*arguments, **named)

        return call

    wanted = set()
    for model in MODELS:
        for name, method in public_methods(model).items():
            wanted.add(f"{model.__name__}.{name}")
            monkeypatch.setattr(model, name, noting(f"{model.__name__}.{name}", method))
    for scripts, side in SUITES:
        for script in scripts:
            script.observe(side())
    assert wanted - PLANTED - reached == set()
    assert PLANTED <= wanted
