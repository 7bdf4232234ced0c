"""A real broker for the whole session, and the in-memory one, with the same handle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perseid.embedded import Cluster
from perseid.embedded.java import java_home
from perseid.embedded.parts import spark_environment
from perseid.embedded.spark_home import spark_home
from support import kafka_handle
from support.kafka_handle import Kafka


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


@pytest.fixture
def in_spark(tmp_path: Path) -> Callable[..., Any]:
    """Runs a script that opens a Spark session, in an empty folder, with a text as its input.

    What it printed last, a line of JSON, is what it found. `host`: environment variables.
    """
    environment = {**os.environ, **spark_environment(java_home(), spark_home())}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])  # where `support` is
    environment.pop("SPARK_LOCAL_DIRS", None)  # it would win over the folder of the session

    def run(script: str, given: str, *, timeout_s: float = 150, **host: str) -> Any:
        ran = subprocess.run(
            [sys.executable, "-c", script], check=False, input=given, capture_output=True,
            encoding="utf-8", cwd=tmp_path, env={**environment, **host}, timeout=timeout_s,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout.splitlines()[-1])

    return run
