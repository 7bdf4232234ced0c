"""Jobs that are applied to a fake ZooKeeper and a model Kafka; no coordinator runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perseid.clocks import ManualClock
from perseid.errors import RefusedError
from perseid.jobs.operations import applying, steering
from perseid.jobs.operations.applying import Change, Cluster
from perseid.jobs.operations.gated import Approval, Gating
from perseid.jobs.repository import job_folders
from perseid.records import JobEntry, JobFailures, JobStatus, Plan
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Delete
from perseid.state.durability.store import LocalStore
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper

JOB = """\
name: {name}
parallelism: 2
sources:
  a: {{topic: in, format: json, columns: {{k: string, n: int64}}}}
operators:
  o: {{input: a, key: k, use: "m:O"}}
sinks:
  s: {{input: o, topic: {topic}, format: json, key: k{more}}}
errors: {{tolerance: all}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class O(Operator):
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        out.emit(self.total.add(batch["k"], n=batch["n"]))
"""


class World:
    """A cluster without processes; `answer` is its coordinator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zookeeper = FakeZooKeeper()
        self.registry = Registry(self.zookeeper.session())
        self.topics = FakeTopics(ModelKafka())
        self.topics.create("in", 4)
        self.clock = ManualClock()
        self.store = LocalStore(folder / "store")
        self.cluster = Cluster(self.registry, self.topics, self.store, self.clock)

    def write(self, name: str = "job", topic: str = "out", more: str = "", code: str = CODE) -> str:
        folder = self.folder / "repo" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(JOB.format(name=name, topic=topic, more=more))
        (folder / "m.py").write_text(code)
        return str(folder)

    @contextmanager
    def prepared(
        self, repo: str, gate: int = 0, approval: Approval | None = None
    ) -> Iterator[list[Change]]:
        with job_folders.validated(job_folders.find(repo)) as jobs:
            yield applying.prepare(self.cluster, jobs, Gating(gate, approval))

    def apply(self, repo: str, gate: int = 0, approval: Approval | None = None) -> Change:
        with self.prepared(repo, gate, approval) as changes:
            (wanted,) = changes
            applying.perform(self.cluster, wanted)
            return wanted

    def entry(self, name: str = "job") -> JobEntry:
        stored = self.registry.job_entry(name)
        assert stored is not None
        return stored.value

    def answer(self, state: str, name: str = "job", error: dict[str, str] | None = None) -> None:
        """What the coordinator would write about the entry as it is now."""
        entry = self.entry(name)
        status = JobStatus(entry.uuid, state, 1, entry.counter, 0, error)
        self.put(paths.status(name), codec.encode(status))

    def plan(self, archive: str, name: str = "job") -> None:
        entry = self.entry(name)
        plan = Plan.fused(name, entry.uuid, 1, "w1", entry.revision, archive, 1, 0, 0)
        self.put(paths.plan(name), codec.encode(plan))

    def fail(self, count: int, counter: int, text: str) -> None:
        """So often in a row, the first time five seconds ago."""
        now_ms = self.clock.wall_ms()
        uuid = self.entry().uuid
        failures = JobFailures(uuid, count, now_ms, text, now_ms - 5000, counter)
        self.put(paths.failures("job"), codec.encode(failures))

    def put(self, path: str, data: bytes) -> None:
        if self.registry.coordination.get(path) is not None:
            self.registry.coordination.write(Delete(path))
        self.registry.coordination.write(Create(path, data))

    def stop(self, *, checkpoint: bool = False) -> None:
        wanted = steering.stop(self.registry, self.clock, "job", checkpoint=checkpoint)
        steering.put(self.registry, *wanted)

    def gone(self, name: str = "job") -> None:
        self.registry.coordination.write(Delete(paths.spec(name)))


def refusal(
    world: World, repo: str, gate: int = 0, approval: Approval | None = None
) -> str:
    """The reason for which `repo` is refused; nothing is written."""
    before = dict(world.registry.jobs()), world.topics.list(), world.store.list()
    with pytest.raises(RefusedError) as caught, world.prepared(repo, gate, approval):
        raise AssertionError("not reached")
    assert (dict(world.registry.jobs()), world.topics.list(), world.store.list()) == before
    return str(caught.value)
