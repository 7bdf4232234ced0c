"""A deployment as users' tests get it: containers where Docker works, else the embedded cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perseid.testing.stack import Stack, example
from perseid.testing.verify import verify_wordcount
from perseid.testing.wait import until

RECORDS = 300_000
RATE = 12_000


def wait_at_work(stack: Stack, job: str, epochs: int = 3) -> None:
    """Until it has committed some more epochs."""
    committed = stack.job(job).get("committed_epoch") or 0
    stack.wait_job(job, lambda j: (j["committed_epoch"] or 0) > committed + epochs, "at work")


@pytest.mark.timeout(900)
def test_kills_of_worker_leader_and_broker_lose_and_double_nothing(
    perseid_stack: Stack, tmp_path: Path, seed: int
) -> None:
    stack = perseid_stack
    job, source, sink = "stacked", "stack-lines", "stack-counts"
    stack.topic(source)
    folder = example(tmp_path / job, "wordcount", {
        "name: wordcount": f"name: {job}", "topic: lines": f"topic: {source}",
        "topic: word-counts": f"topic: {sink}", 'period: "30s"': 'period: "5s"',
    })  # fmt: skip
    stack.apply(folder)
    feeding = subprocess.Popen([
        sys.executable, "-m", "perseid.testing.generator", "--kafka", stack.kafka,
        "--topic", source, "--records", str(RECORDS), "--rate", str(RATE), "--seed", str(seed),
    ], stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        for victim in ("worker", "leader", "kafka"):
            wait_at_work(stack, job)
            name = {"worker": stack.worker_of(job), "leader": stack.leader()}.get(victim, victim)
            stack.kill(name)
            stack.restart(name)
        assert until(lambda: feeding.poll() is not None, 120, "the input to be written")
        assert feeding.returncode == 0
    finally:
        feeding.kill()
    stack.wait_caught_up(job, timeout_s=240)
    verdict = verify_wordcount(stack.kafka, source, sink)
    assert verdict.ok, verdict
    assert verdict.records == RECORDS
    stack.do("jobs", "remove", job)
