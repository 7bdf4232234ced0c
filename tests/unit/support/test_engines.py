"""Wall clocks of processes under test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.engines import WallClock

ENDS_S = 60.0
# No server listens there, which the client reports while it waits.
WAITING = """
import os, sys
from confluent_kafka import Consumer, TopicPartition

def on_error(_):
    print("waits", flush=True)

consumer = Consumer({
    "bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, "error_cb": on_error,
})
consumer.assign([TopicPartition("t", 0, 0)])
consumer.consume(1, float(sys.argv[1]))
os._exit(0)
"""


@contextmanager
def waiting(clock: WallClock, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for so long, by the Kafka client, and then ends."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(seconds)],
        env={**os.environ, **clock.environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("ahead_s", [30 * 86_400, -3_600])
def test_the_kafka_client_waits_as_long_under_a_clock_that_is_wrong(
    tmp_path: Path, ahead_s: int
) -> None:
    clock = WallClock(tmp_path)
    clock.set(ahead_s)
    with waiting(clock, 2.0) as process:
        assert process.wait(ENDS_S) == 0
