"""Paths of a cluster's files: the data folder, its content, and the root of its state logs.

    <data>/deployment.json  settings every process reads      <data>/ports.json  ports, chosen once
    <data>/run/             processes, with pids              <data>/logs/       one per process
    <data>/{kafka,zookeeper,redis,spark,store}                data of the parts

State logs are on /dev/shm where that is a tmpfs of useful size, because they are synced at every
epoch and their loss only costs a restore from the checkpoint.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perseid.embedded.cache import short_digest
from perseid.errors import RefusedError
from perseid.records import Deployment

SHM = Path("/dev/shm")
# Containers get 64 MB by default, which one job's state would fill: then the disk is used.
SHM_BYTES_MIN = 1 << 30


def locate(data: Path | None = None) -> Path:
    """The data folder: `data`, else $PERSEID_HOME, else .perseid at the repository's root.

    An installed package has no repository; then $XDG_STATE_HOME/perseid. Always absolute.
    """
    if data is not None:
        return data.expanduser().resolve()
    home = os.environ.get("PERSEID_HOME")
    if home:
        return Path(home).expanduser().resolve()
    root = repository()
    if root is not None:
        return root / ".perseid"
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().resolve() / "perseid"


def repository() -> Path | None:
    """The root of the work tree of this module, None when it is installed."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "perseid").is_file() else None


@dataclass(frozen=True, slots=True)
class Home:
    """The paths inside one data folder."""

    data: Path

    @property
    def deployment(self) -> Path:
        return self.data / "deployment.json"

    @property
    def ports(self) -> Path:
        return self.data / "ports.json"

    @property
    def outside(self) -> Path:
        return self.data / "outside.json"

    @property
    def run(self) -> Path:
        return self.data / "run"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def make(self) -> None:
        """Makes the folders that every process expects."""
        for folder in (self.data, self.run, self.logs, self.data / "store"):
            folder.mkdir(parents=True, exist_ok=True)


def deployment(data: Path | None = None) -> Deployment:
    """The settings of the cluster in `data`; refused when nothing was ever started there."""
    home = Home(locate(data))
    if not home.deployment.is_file():
        raise RefusedError(f"no cluster in {home.data}: type `perseid up`")
    return Deployment.load(home.deployment)


def state_root(data: Path, shm: Path = SHM, mounts: Path = Path("/proc/mounts")) -> Path:
    """The root of the state logs of the cluster in `data`; the same answer at every call."""
    if not _is_large_tmpfs(shm, mounts):
        return data / "state"
    return shm / f"perseid-{short_digest(str(data))}"


def _is_large_tmpfs(folder: Path, mounts: Path) -> bool:
    try:
        fields = [line.split() for line in mounts.read_text().splitlines()]
        found = os.statvfs(folder)
    except OSError:
        return False
    tmpfs = any(len(f) > 2 and f[1] == str(folder) and f[2] == "tmpfs" for f in fields)
    large = found.f_blocks * found.f_frsize >= SHM_BYTES_MIN
    return tmpfs and large and os.access(folder, os.W_OK)
