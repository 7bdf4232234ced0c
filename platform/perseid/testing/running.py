"""The embedded cluster as a test uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from perseid.embedded import Cluster
from perseid.testing.stack import COMMAND_S, Ran, Stack
from perseid.testing.wait import until

if TYPE_CHECKING:
    import httpx

_MAIN = "from perseid.cli.main import main; main()"  # as the `perseid` script
ANSWER_S = 3.0
WORKERS_S = 300.0  # a new one next to a busy one, on the same two slow cores


class RunningCluster(Stack):
    """A cluster and a test's actions on it; supervisors restart what is killed."""

    look_s = 0.1

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kafka = cluster.deployment.kafka

    def run(self, *arguments: str, timeout_s: float = COMMAND_S) -> Ran:
        """`perseid ARGUMENTS --json` on this cluster."""
        command = [sys.executable, "-c", _MAIN, *arguments, "--json"]
        ran = subprocess.run(
            [*command, "--data", str(self.cluster.data)],
            check=False, capture_output=True, text=True, timeout=timeout_s,
        )  # fmt: skip
        document = json.loads(ran.stdout) if ran.stdout.strip() else None
        return Ran(ran.returncode, document, ran.stderr)

    def apply(self, folder: Path) -> Any:
        return self.do("jobs", "apply", str(folder))

    def worker_of(self, job: str) -> str:
        owner: str = self.wait_job(job, lambda j: bool(j["owner"]), "placed")["owner"]
        return owner.rpartition("-")[0]

    def leader(self) -> str:
        from perseid.registry import Registry

        def look() -> str | None:
            leader = registry.leader()
            pid = leader.pid if leader is not None else None
            return next((p.name for p in self.cluster.processes() if p.pid == pid), None)

        with closing(Registry.connect(self.cluster.deployment)) as registry:
            return until(look, WORKERS_S, "a coordinator to lead")

    def kill(self, name: str) -> None:
        self.cluster.kill(name)

    def restart(self, name: str) -> None:
        self.cluster.wait_alive(name)

    def pause(self, name: str) -> None:
        self.cluster.pause(name)

    def resume(self, name: str) -> None:
        self.cluster.resume(name)

    def view(self) -> dict[str, Any]:
        """As of `perseid status`, by the leader; without jobs while none answers."""
        import httpx

        from perseid.registry import Registry

        with closing(Registry.connect(self.cluster.deployment)) as registry:
            leader = registry.leader()
        with suppress(httpx.HTTPError):
            answer = self._http.get(f"{leader.url}/api/v1/status") if leader is not None else None
            if answer is not None and answer.status_code == httpx.codes.OK:
                found = answer.json()
                return {"jobs": found["jobs"], "looked_ms": found["leader"]["looked_ms"]}
        return {"jobs": [], "looked_ms": None}

    @cached_property
    def _http(self) -> httpx.Client:
        import httpx

        nothing_left_open = httpx.Limits(max_keepalive_connections=0)
        return httpx.Client(timeout=ANSWER_S, trust_env=False, limits=nothing_left_open)

    def keep_tokens(self, job: str) -> None:
        """Switches the trimming of tokens off, for a test that reads all of them."""
        from perseid.clocks import SystemClock
        from perseid.jobs.operations import backup
        from perseid.registry import Registry

        with closing(Registry.connect(self.cluster.deployment)) as registry:
            until(lambda: registry.plan(job) is not None, WORKERS_S, f"a plan of {job}")
            backup.mark(registry, job, SystemClock().wall_ms(), whole=True)

    def logs(self) -> dict[Path, str]:
        """Returns the logs of coordinators and workers so far, by file."""
        found = [path for path in self.cluster.home.logs.glob("[cw]*.log") if path.is_file()]
        return {path: path.read_text(errors="replace") for path in found}

    def below(self, name: str, command: str) -> list[psutil.Process]:
        """Returns live descendants of `name` with `command` in their command line."""
        found = []
        for process in psutil.Process(self.cluster.pid(name)).children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # ending, a zombie or gone
                if command in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def wait_workers(self, count: int) -> None:
        """Waits until so many are live, so that a killed job can move at once."""
        from perseid.registry import Registry

        with closing(Registry.connect(self.cluster.deployment)) as registry:
            until(lambda: len(registry.workers()) >= count, WORKERS_S, f"{count} live workers")

    def kill_owner(self, name: str) -> str:
        """Kills the worker that runs the job, as soon as there is one; returns its incarnation."""
        owner: str = self.wait_job(name, lambda j: bool(j["owner"]), "placed")["owner"]
        self.kill(owner.rpartition("-")[0])
        return owner

    def take_over(self, name: str) -> None:
        """Kills the worker that runs the job; returns when another one has caught up."""
        owner = self.kill_owner(name)
        self.wait_job(name, lambda j: j["owner"] != owner, "taken over")
        self.wait_caught_up(name)
