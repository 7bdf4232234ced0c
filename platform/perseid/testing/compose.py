"""A deployment of compose/compose.yaml for tests, on testcontainers.

PERSEID_IMAGES names the daemon's images; `compose/build-offline` builds them where none can be
pulled. Works with `docker compose` and docker-compose 1.29.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import uuid
import weakref
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from testcontainers.compose import DockerCompose

from perseid.embedded.paths import repository
from perseid.testing.server import free_port
from perseid.testing.stack import COMMAND_S, Ran, Stack
from perseid.testing.wait import until

PREFIX = "PERSEID_IMAGES"
WHY_NOT = "PERSEID_NO_CONTAINERS"  # `perseid test` sets the reason why it has none
HEALTHY_S = 180.0  # a worker on two cores: two Sparks warm up
FILES = ("compose.yaml", "ports.yaml")
COORDINATORS = ("coordinator-1", "coordinator-2")
WORKERS = ("worker-1", "worker-2")
PUBLISHED = ("kafka", "zookeeper", "redis", "prometheus")
STACK = ("kafka", "zookeeper", "redis", *COORDINATORS, *WORKERS)


def folder() -> Path:
    """The folder of compose.yaml: in the work tree, else in the installed package."""
    root = repository()
    return root / "compose" if root is not None else Path(__file__).parents[1] / "compose"


def image() -> str:
    """The image of perseid that the deployment uses."""
    return f"{os.environ.get(PREFIX, '')}perseid:{version('perseid')}"


def why_not() -> str | None:
    """Returns why this machine cannot run perseid's containers; None if it can."""
    if os.environ.get(WHY_NOT):
        return os.environ[WHY_NOT]
    if shutil.which("docker") is None:
        return "there is no docker command"
    asked = _ran("docker", "version", "--format", "{{.Server.Version}}")
    if asked.returncode != 0:
        return "no Docker daemon answers"
    if _compose_command() is None:
        return "there is neither `docker compose` nor docker-compose"
    if _ran("docker", "image", "inspect", image()).returncode != 0:
        return (
            f"there is no image {image()}: compose/build-offline makes those of offline/, which "
            f"{PREFIX}=offline/ takes"
        )
    return None


def _ran(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def _compose_command() -> list[str] | None:
    if _ran("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


class Project(DockerCompose):
    """testcontainers' DockerCompose with its own project name, also for docker-compose 1.29."""

    def __init__(self, files: list[str], settings: dict[str, str]) -> None:
        self.name = f"perseid-{uuid.uuid4().hex[:8]}"
        self._settings = tempfile.NamedTemporaryFile("w", suffix=".env")
        self._values = dict(settings)
        self.change({})
        weakref.finalize(self, self._settings.close)
        super().__init__(folder(), files, wait=False, env_file=self._settings.name)

    @cached_property
    def compose_command_property(self) -> list[str]:
        command = [*(_compose_command() or ["docker", "compose"]), "--project-name", self.name]
        for file in self.compose_file_name or ():
            command += ["--file", file]
        return [*command, "--env-file", self._settings.name]

    def change(self, settings: dict[str, str]) -> None:
        """Rewrites the file of settings."""
        self._values |= settings
        self._settings.seek(0)
        self._settings.truncate()
        self._settings.write("".join(f"{key}={value}\n" for key, value in self._values.items()))
        self._settings.flush()

    def compose(self, *arguments: str) -> str:
        """Runs a compose command on this project; AssertionError with its output if it fails."""
        ran = subprocess.run(
            [*self.compose_command_property, *arguments],
            check=False, capture_output=True, text=True, cwd=self.context, timeout=HEALTHY_S,
        )  # fmt: skip
        assert ran.returncode == 0, f"compose {' '.join(arguments)}: {ran.stdout}{ran.stderr}"
        return ran.stdout


class ComposeStack(Stack):
    """Containers, killed by `docker kill`. Only `restart` starts a killed one again."""

    def __init__(self, more: tuple[str, ...] = (), settings: dict[str, str] | None = None) -> None:
        """`more`: further compose files. Nothing is started yet."""
        self.ports = {name: free_port() for name in PUBLISHED}
        given = {f"PERSEID_{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        given[PREFIX] = os.environ.get(PREFIX, "")
        self.project = Project([*FILES, *more], given | (settings or {}))
        self.kafka = f"localhost:{self.ports['kafka']}"

    def up(self, *services: str, healthy: bool = True) -> None:
        """Starts the services and their dependencies; `healthy`: waits until they are healthy."""
        self.project.compose("up", "-d", "--no-build", *services)
        if healthy:
            self.wait_healthy(*services)

    def change(self, **settings: str) -> None:
        """Changes the environment of compose.yaml; `up` recreates the affected containers."""
        self.project.change(settings)

    def execute(self, name: str, *command: str) -> str:
        """Runs a command in a service's container."""
        return self.docker("exec", self._id(name), *command)

    def down(self) -> None:
        """Removes containers, volumes and networks."""
        self.project.compose("down", "--volumes", "--timeout", "1", "--remove-orphans")

    def wait_healthy(self, *services: str) -> None:
        for name in services:
            until(partial(self._is_healthy, name), HEALTHY_S, f"{name} to be healthy")

    def _is_healthy(self, name: str) -> bool:
        health: str = self.inspect(name)["State"]["Health"]["Status"]
        return health == "healthy"

    def inspect(self, name: str) -> dict[str, Any]:
        """Returns Docker's description of a service's container."""
        found = _ran("docker", "inspect", self._id(name))
        assert found.returncode == 0, found.stderr
        first: dict[str, Any] = json.loads(found.stdout)[0]
        return first

    def _id(self, name: str) -> str:
        found = _ran(
            "docker", "ps", "-a", "-q", "--no-trunc",
            "--filter", f"label=com.docker.compose.project={self.project.name}",
            "--filter", f"label=com.docker.compose.service={name}",
        ).stdout.split()  # fmt: skip
        assert len(found) == 1, f"{len(found)} containers of {name}"
        return found[0]

    def docker(self, *arguments: str) -> str:
        """Runs a docker command; AssertionError with its output if it fails."""
        ran = _ran("docker", *arguments)
        assert ran.returncode == 0, f"docker {' '.join(arguments)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def run(self, *arguments: str, timeout_s: float = COMMAND_S) -> Ran:
        command = ["docker", "exec", "-i", self._id(self._tool()), "perseid", *arguments, "--json"]
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=timeout_s
        )
        document = json.loads(ran.stdout) if ran.stdout.strip() else None
        return Ran(ran.returncode, document, ran.stderr)

    def _tool(self) -> str:
        """Returns a running coordinator's container, in which commands are run."""
        for name in COORDINATORS:
            if self.inspect(name)["State"]["Status"] == "running":
                return name
        raise AssertionError("no coordinator's container runs")

    def apply(self, folder: Path) -> Any:
        """Copies the folder into a container first."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, arcname=folder.name)
        tool = self._id(self._tool())
        copied = subprocess.run(
            ["docker", "exec", "-i", tool, "tar", "-x", "-C", "/tmp", "--no-same-owner"],
            input=packed.getvalue(), check=False, capture_output=True, timeout=COMMAND_S,
        )  # fmt: skip
        assert copied.returncode == 0, copied.stderr.decode()
        return self.do("jobs", "apply", f"/tmp/{folder.name}")

    def worker_of(self, job: str) -> str:
        owner: str = self.wait_job(job, lambda j: bool(j["owner"]), "placed")["owner"]
        return f"worker-{owner.rpartition('-')[0].removeprefix('w')}"

    def leader(self) -> str:
        def look() -> str | None:
            url = (self.run("status").document or {}).get("api") or ""
            found = re.match(r"http://(coordinator-\d):", url)
            return found[1] if found is not None else None

        return until(look, COMMAND_S, "a coordinator to lead")

    def kill(self, name: str) -> None:
        self.docker("kill", self._id(name))

    def restart(self, name: str) -> None:
        self.docker("start", self._id(name))

    def pause(self, name: str) -> None:
        self.docker("pause", self._id(name))

    def resume(self, name: str) -> None:
        self.docker("unpause", self._id(name))

    def disconnect(self, name: str) -> None:
        """Disconnects the container from its network."""
        self.docker("network", "disconnect", self._network(), self._id(name))

    def connect(self, name: str) -> None:
        """Reconnects it, under its name."""
        self.docker("network", "connect", "--alias", name, self._network(), self._id(name))

    def _network(self) -> str:
        return f"{self.project.name}_default"

    def logs(self, name: str) -> str:
        ran = _ran("docker", "logs", "--tail", "2000", self._id(name))
        return ran.stdout + ran.stderr
