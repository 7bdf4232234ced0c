"""A broker that stops (SIGSTOP) while an epoch is committed, and resumes later."""

from __future__ import annotations

import random
import time
from pathlib import Path
from threading import Timer

import pytest

from support import kafka_handle
from support.broker import KafkaServer
from support.committing import Committing

UNDISTURBED = 5  # commits that show how long one takes on this machine
PAUSES_S = (0.05, 0.3, 1.5)


def took_s(job: Committing) -> float:
    """Of the commit of one epoch."""
    began_s = time.monotonic()
    job.commit()
    return time.monotonic() - began_s


def commit_while_it_stops(
    server: KafkaServer, job: Committing, chance: random.Random, usual_s: float
) -> bool:
    """One epoch; the broker stops at a drawn moment, for a drawn time. Whether in the commit."""
    at_s, pause_s = chance.uniform(0, usual_s), chance.choice(PAUSES_S)
    timers = [Timer(at_s, server.pause), Timer(at_s + pause_s, server.resume)]
    for timer in timers:
        timer.start()
    disturbed_s = took_s(job)
    for timer in timers:
        timer.join()
    return disturbed_s > pause_s


@pytest.mark.drawn(group="brokers")
@pytest.mark.parametrize(
    "stops", [10, pytest.param(200, marks=[pytest.mark.matrix, pytest.mark.timeout(1800)])]
)
def test_a_broker_stops_in_a_commit_and_every_record_is_there_once(
    tmp_path: Path, stops: int, seed: int
) -> None:
    chance = random.Random(seed)
    with KafkaServer(tmp_path / "broker") as server:
        job = Committing(kafka_handle.real(server.bootstrap))
        usual_s, stopped = min(took_s(job) for _ in range(UNDISTURBED)), 0
        for _ in range(stops):
            stopped += commit_while_it_stops(server, job, chance, usual_s)
        assert stopped >= stops / 2, f"seed {seed}: only {stopped} stops came within a commit"
        assert job.found() == job.expected(), f"seed {seed}"
