"""The operators' page, word by word, while records flow: rolling restart, backup, a lost ZooKeeper.

The commands of its blocks are run in their order on the warm cluster. In front of those that
restore, ZooKeeper loses all that it has of the job, and the sinks have gone on since the backup.
The verifier has the last word: nothing lost, nothing doubled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count, islice
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from perseid.records.deployment import REGISTRIES
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from perseid.testing.stack import group_offsets, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin

PAGE = Path(__file__).parents[2] / "compose" / "OPERATIONS.md"
JOB, SOURCE, SINK = "wordcount", "lines", "word-counts"
PROBLEMS_SHOWN = "perseid doctor"  # exits with 1 where it finds something, as on a full disk
COMMAND_MAX_S = 600.0  # `restart` starts two workers in turn, 100 s each on a slow machine
PAUSE_MAX_S = 60.0  # a takeover takes less on two busy cores, and the start of a worker 100 s


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(sh[^\n]*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for k, block in found if k == kind for line in block.splitlines()]


class Operator:
    """Types the page's commands."""

    def __init__(self, running: RunningCluster, folder: Path) -> None:
        command = folder / "bin" / "perseid"
        command.parent.mkdir()
        main = "from perseid.cli.main import main; main()"
        command.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{main}' \"$@\"\n")
        command.chmod(0o755)
        path = f"{command.parent}:{os.environ['PATH']}"
        home = str(running.cluster.data)
        inherited = {k: v for k, v in os.environ.items() if k != REGISTRIES}  # `up` would take it
        self._environment = {**inherited, "PATH": path, "PERSEID_HOME": home}
        self._folder = folder

    def types(self, command: str) -> str:
        ran = subprocess.run(
            ["sh", "-c", command], cwd=self._folder, env=self._environment, check=False,
            capture_output=True, text=True, timeout=COMMAND_MAX_S,
        )  # fmt: skip
        allowed = {0, 1} if command == PROBLEMS_SHOWN else {0}
        assert ran.returncode in allowed, f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}"
        return ran.stdout


@contextmanager
def input_flows(running: RunningCluster) -> Iterator[None]:
    """A hundred lines every tenth of a second, until the block ends."""
    enough = threading.Event()
    seeds = count(1)

    def produce() -> None:
        while not enough.wait(0.1):
            running.produce(SOURCE, lines(100, next(seeds)))

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def longest_pause_s(running: RunningCluster) -> float:
    """Between two records of the sink, by the broker's or producer's time."""
    times = sorted(record.time_ms for record in read_topic(running.kafka, SINK))
    return max(b - a for a, b in zip(times, islice(times, 1, None), strict=False)) / 1000


def alive(registry: Registry) -> set[str | int]:
    """The lives of all workers and coordinators."""
    workers = {worker.incarnation for worker in registry.workers()}
    return {*workers, *(coordinator.pid for coordinator in registry.coordinators())}


def lose(running: RunningCluster, job_uuid: str) -> None:
    """ZooKeeper has nothing of the job any more, nor has the store, nor any host."""
    settings = running.cluster.deployment
    client = KazooClient(settings.zookeeper)
    client.start(20)
    try:
        client.delete(f"{settings.chroot}/jobs/{JOB}", recursive=True)
    finally:
        client.stop()
        client.close()
    until(lambda: not running.job(JOB), 30, "the leader to know nothing of the job")
    owners = Path(settings.state) / job_uuid
    assert owners.is_dir()
    shutil.rmtree(owners)
    shutil.rmtree(Path(settings.store) / "jobs" / JOB)


@pytest.mark.drawn(group="longest")
def test_the_page_is_true(running: RunningCluster, tmp_path: Path) -> None:
    operator = Operator(running, tmp_path)
    with closing(Registry.connect(running.cluster.deployment)) as registry:
        begin, rest = blocks("sh")[:4], blocks("sh")[4:]
        assert begin[-1].startswith("perseid jobs apply")
        for command in begin:
            operator.types(command)
        running.wait_job(JOB, lambda j: j["state"] == "running", "running")
        lives = alive(registry)
        with input_flows(running):
            for command in rest:
                operator.types(command)
        after = alive(registry)
    assert len(after) == len(lives) >= 4
    assert not after & lives  # each has been restarted
    shown = running.wait_caught_up(JOB)
    assert shown["failures"] == 0
    assert not [e for e in shown["events"] if e.startswith("failure")]  # handed over, not lost
    logs = [path.read_text(errors="replace") for path in running.cluster.home.logs.glob("w?.log")]
    assert any("took a checkpoint before it leaves [job=wordcount" in text for text in logs)
    pause_s = longest_pause_s(running)
    print(f"the longest pause of the output: {pause_s:.1f} s")
    assert pause_s < PAUSE_MAX_S

    # More is committed than the backup knows of, and then ZooKeeper is lost.
    running.produce(SOURCE, lines(2_000, 900_001))
    committed = running.wait_caught_up(JOB)
    lose(running, committed["uuid"])
    running.produce(SOURCE, lines(2_000, 900_002))
    for command in blocks("sh restore"):
        operator.types(command)
    restored = running.wait_caught_up(JOB)
    assert restored["committed_epoch"] > committed["committed_epoch"]
    assert restored["generation"] > committed["generation"]
    assert any("restored from checkpoint" in event for event in restored["events"])
    verdict = verify_wordcount(running.kafka, SOURCE, SINK)
    assert verdict.ok, verdict
    ends = TopicAdmin(running.kafka).ends([(SOURCE, p) for p in range(4)])
    until(lambda: group_offsets(running.kafka, f"perseid.{JOB}") == ends, 20, "the group's offsets")
    running.do("jobs", "remove", JOB, "--purge")
