"""`perseid follow` as a process: real ZooKeeper, Kafka and git server, and a kill -9 in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.embedded import Cluster
from perseid.jobs.following import asking
from perseid.records import Deployment, crashpoints
from perseid.records.repository import RepoJob, RepoRecord
from perseid.registry import Registry
from perseid.registry.repository import RepoNodes
from perseid.state.durability.store import open_store
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin
from support.git_server import GitServer, Origin

PATIENCE_S = 60.0
JOB = """\
name: {name}
sources: {{a: {{topic: {topic}, format: json, columns: {{k: string, n: int64}}}}}}
operators: {{o: {{input: a, key: k, use: "m:O"}}}}
sinks: {{s: {{input: o, topic: {name}-out, format: json, key: k}}}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class O(Operator):
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        out.emit(self.total.add(batch["k"], n=batch["n"]))
"""


class Followed:
    """A deployment of its own on the shared services, and the repository that it follows."""

    def __init__(self, cluster: Cluster, server: GitServer, folder: Path) -> None:
        self.data, self.server, self.crashes = folder / "data", server, folder / "crashes"
        self.data.mkdir()
        self.deployment: Deployment = cluster.deployment.model_copy(
            update={"name": f"follow-{os.getpid()}", "store": str(folder / "store")}
        )
        (self.data / "deployment.json").write_text(self.deployment.model_dump_json())
        self.registry = Registry.connect(self.deployment)
        self.topics = TopicAdmin(self.deployment.kafka)
        self.origin = Origin(server.folder / "jobs.git")
        self.tree: dict[str, tuple[str, str]] = {}

    def push(self, name: str, *, topic: str = "follow-in", code: str = CODE) -> None:
        files = {f"{name}/job.yaml": JOB.format(name=name, topic=topic), f"{name}/m.py": code}
        self.tree |= self.origin.files({path: text for path, text in files.items()})

    def commit(self) -> str:
        return self.origin.commit(self.tree)

    def command(self) -> list[str]:
        return [
            sys.executable, "-c", "from perseid.cli.main import main; main()", "follow",
            "--insecure", "--every", "1h",
            "--repo", f"{self.server.url}/jobs.git", "--data", str(self.data),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PERSEID_JOBS_REPO_AUTH": "ann:s3cret", crashpoints.FOLDER: str(self.crashes),
            "TMPDIR": str(self.data),  # where a killed one leaves its copy of the repository
        }  # fmt: skip

    def start(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                self.command(), stdout=file, stderr=file, env=self.environment()
            )

    def record(self) -> RepoRecord | None:
        return asking.record(self.registry)

    def settled_at(self, commit: str) -> bool:
        found = self.record()
        return found is not None and found.commit == commit and not found.unfinished


def test_a_follower_that_is_killed_is_finished_by_the_next(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with GitServer(tmp_path / "served", login="ann:s3cret") as server:
        world = Followed(cluster, server, tmp_path)
        request.addfinalizer(world.registry.close)
        world.topics.create("follow-in", 1)
        for name in ("fo-a", "fo-b"):
            world.push(name)
        world.push("fo-exits", code="import os\nprint(os.environ)\nos._exit(3)\n")
        world.push("fo-early", topic="follow-later")
        first = world.commit()
        log = tmp_path / "log"

        crashpoints.arm(world.crashes, "repository.job-done")
        killed = world.start(log)
        assert killed.wait(PATIENCE_S) == -signal.SIGKILL, log.read_text()
        found = world.record()
        assert found is not None and found.unfinished and found.commit == ""
        assert world.registry.jobs().keys() == {"fo-a"}

        follower = world.start(log)
        request.addfinalizer(follower.kill)
        until(lambda: world.settled_at(first), PATIENCE_S, f"{first} is applied; see {log}")
        results = {job.job: job for job in _jobs(world)}
        assert {name: job.result for name, job in results.items()} == {
            "fo-a": "applied", "fo-b": "applied", "fo-exits": "broken", "fo-early": "refused",
        }  # fmt: skip
        assert "exit code 3" in results["fo-exits"].text
        assert "topic follow-later does not exist" in results["fo-early"].text
        entries = world.registry.jobs()
        assert entries.keys() == {"fo-a", "fo-b"}
        assert {entry.revision for entry in entries.values()} == {first}
        stored = open_store(world.deployment.store).list("archives")
        assert stored == sorted(f"archives/{entry.archive}.tar" for entry in entries.values())

        world.topics.create("follow-later", 1)
        world.push("fo-b", code="def broken(:\n")
        second = world.commit()
        asking.look(world.registry)
        until(lambda: world.settled_at(second), PATIENCE_S, f"{second} is applied; see {log}")
        results = {job.job: job for job in _jobs(world)}
        assert {name: job.result for name, job in results.items()} == {
            "fo-a": "applied", "fo-b": "broken", "fo-exits": "broken", "fo-early": "applied",
        }  # fmt: skip
        assert world.registry.jobs()["fo-b"] == entries["fo-b"]
        who = RepoNodes(world.registry).follower()
        assert who == f"pid {follower.pid} on {os.uname().nodename}"
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(PATIENCE_S) == 0
        assert "environ({" in log.read_text()

        once = subprocess.run(
            [*world.command(), "--once", "--json"], env=world.environment(), check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert once.returncode == 1, once.stderr
        shown = json.loads(once.stdout)
        assert (shown["commit"], shown["state"], len(shown["faults"])) == (second, "applied", 2)
        assert "s3cret" not in f"{world.record()} {log.read_text()}"


def _jobs(world: Followed) -> tuple[RepoJob, ...]:
    found = world.record()
    assert found is not None
    return found.jobs
