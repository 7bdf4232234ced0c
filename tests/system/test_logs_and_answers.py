"""What people see of damaged entries, and of sink topics that were made again or are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from perseid.registry import paths
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin

JOB = """\
name: {name}
sources:
  orders: {{topic: {name}-orders, format: json, columns: {{id: int64}}}}
sinks:
  ids: {{input: orders, topic: {name}-ids, format: json}}
"""
PARTITIONS = 2
SEEN_S = 120.0


class Job:
    """One that copies numbers, and what it was given."""

    def __init__(self, running: RunningCluster, folder: Path, name: str) -> None:
        self.running, self.name, self.sink = running, name, f"{name}-ids"
        self.given: list[int] = []
        folder.mkdir()
        (folder / "job.yaml").write_text(JOB.format(name=name))
        running.topic(f"{name}-orders", PARTITIONS)
        running.do("jobs", "apply", str(folder))

    def give(self, count: int = 100) -> None:
        more = range(len(self.given), len(self.given) + count)
        self.running.produce(f"{self.name}-orders", [b'{"id": %d}' % n for n in more])
        self.given += more

    def found(self) -> list[int]:
        """In the sink, in order."""
        return sorted(row["id"] for row in self.running.rows(self.sink))

    def check(self) -> dict[str, Any]:
        """All that was given is in the sink, once; the job's view then."""
        shown = self.running.wait_caught_up(self.name)
        assert self.found() == self.given
        return shown


def faults(running: RunningCluster) -> list[str]:
    found: list[str] = (running.run("status").document or {}).get("faults", [])
    return found


def finding(running: RunningCluster, check: str) -> dict[str, Any]:
    findings = running.run("doctor").document["findings"]
    (found,) = [one for one in findings if one["check"] == check]
    return dict(found)


@contextmanager
def damaged(running: RunningCluster, path: str) -> Iterator[None]:
    """Half of what ZooKeeper has there."""
    settings = running.cluster.deployment
    with closing(KazooClient(settings.zookeeper)) as client:
        client.start(20)
        place = f"{settings.chroot}{path}"
        whole: bytes = client.get(place)[0]
        client.set(place, whole[: len(whole) // 2])
        try:
            yield
        finally:
            client.set(place, whole)
            client.stop()


@pytest.mark.drawn(group="field")
def test_a_damaged_entry_and_a_sink_made_again_stop_no_other_job(
    running: RunningCluster, tmp_path: Path
) -> None:
    job = Job(running, tmp_path / "recreated", "recreated")
    neighbour = Job(running, tmp_path / "neighbour", "neighbour")
    path = paths.spec(job.name)
    with damaged(running, path):
        reported = until(
            lambda: [f for f in faults(running) if f.startswith(f"job {job.name}: ")],
            SEEN_S, "the damaged entry to be reported",
        )  # fmt: skip
        assert path in reported[0]
        found = finding(running, f"entry of job {job.name}")
        assert (found["level"], found["expected"]) == ("problem", "a readable entry")
        for each in (job, neighbour):
            each.give()
            each.check()
    assert not [f for f in faults(running) if f.startswith(f"job {job.name}: ")]

    topics = TopicAdmin(running.kafka)
    topics.delete([job.sink])
    topics.create(job.sink, PARTITIONS)
    running.do("jobs", "stop", job.name)
    running.do("jobs", "start", job.name, "--no-wait")
    job.give()
    failed = running.wait_job(job.name, lambda j: j["state"] == "failed", "failed")
    lost = f"{job.sink}["
    text = failed["error"]["text"]
    assert lost in text
    assert "] ends at 0, and the ledger has outputs of epoch " in text
    assert f"job {job.name} failed: {text}" in faults(running)
    assert finding(running, f"job {job.name}")["level"] == "problem"
    assert job.found() == []
    neighbour.give()
    neighbour.check()
    running.do("jobs", "start", job.name, "--from", "scratch")
    assert job.check()["state"] == "running"
    for each in (job, neighbour):
        running.do("jobs", "remove", each.name, "--purge")


@pytest.mark.drawn(group="field")
def test_a_sink_topic_that_is_unknown_for_a_while_is_waited_for(
    running: RunningCluster, tmp_path: Path
) -> None:
    """Nothing was written to it; then a broker that knows nothing of it looks the same."""
    job = Job(running, tmp_path / "unknown", "unknown")
    running.wait_caught_up(job.name)
    topics = TopicAdmin(running.kafka)
    topics.delete([job.sink])
    until(lambda: job.sink not in topics.describe([job.sink]), SEEN_S, "the topic to be gone")
    job.give()
    answer = f"sink topic {job.sink} does not exist; create it with `perseid topics create"
    waits = running.wait_job(
        job.name, lambda j: any(answer in event for event in j["events"]), "shown as waiting"
    )
    assert waits["state"] == "running"
    assert "waits, and the job fails if the broker repeats this for 30 s" in waits["events"][-1]
    topics.create(job.sink, PARTITIONS)
    shown = job.check()
    assert (shown["state"], shown["failures"]) == ("running", 0)
    running.do("jobs", "remove", job.name, "--purge")
