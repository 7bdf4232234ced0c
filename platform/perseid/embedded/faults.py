"""Faults of the network and of the disk. Kill and pause are methods of `Cluster`.

A partition drops the packets of one loopback port, so both sides keep connections that deliver
nothing: as with a broken switch, and unlike a kill, which closes them. It needs root and iptables.
A full disk is a ballast file that leaves so many bytes free.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perseid.errors import RefusedError
from perseid.records import Deployment

BALLAST = "perseid-ballast"
_MARK = "perseid-chaos"


def port_of(deployment: Deployment, part: str) -> int:
    """The loopback port that a partition of `part` cuts."""
    addresses = {
        "kafka": deployment.kafka.rpartition(":")[2],
        "zookeeper": deployment.zookeeper.rpartition(":")[2],
        "redis": deployment.redis.rpartition(":")[2].partition("/")[0],
    }
    if part not in addresses:
        raise RefusedError(f"{part!r} cannot be cut off: there are {', '.join(addresses)}")
    return int(addresses[part])


def rules(port: int) -> list[list[str]]:
    """Arguments of iptables that drop all loopback packets to and from the port."""
    return [
        ["INPUT", "-i", "lo", "-p", "tcp", side, str(port), "-m", "comment", "--comment", _MARK,
         "-j", "DROP"]
        for side in ("--dport", "--sport")
    ]  # fmt: skip


@contextmanager
def partition(deployment: Deployment, part: str) -> Iterator[int]:
    """Cuts `part` off from all other processes while the block runs."""
    port = port_of(deployment, part)
    instead = f"`perseid chaos pause {part}` needs neither and looks much the same to the others"
    if os.geteuid() != 0:
        raise RefusedError(f"cutting a port off needs root: {instead}")
    if shutil.which("iptables") is None:
        raise RefusedError(
            f"cutting a port off needs iptables (Debian: `apt-get install iptables`): {instead}"
        )
    placed: list[list[str]] = []
    try:
        for rule in rules(port):
            _iptables("-I", rule, instead)
            placed.append(rule)
        yield port
    finally:
        for rule in placed:
            _iptables("-D", rule, instead)


def _iptables(action: str, rule: list[str], instead: str) -> None:
    ran = subprocess.run(
        ["iptables", "-w", action, *rule], check=False, capture_output=True, text=True
    )
    if ran.returncode != 0:
        raise RefusedError(f"iptables does not work here ({ran.stderr.strip()}): {instead}")


def folder_of(deployment: Deployment, data: Path, place: str) -> Path:
    """The folder of `chaos fill`, given by a name or a path."""
    named = {"state": Path(deployment.state), "kafka": data / "kafka", "logs": data / "logs"}
    if "://" not in deployment.store:
        named["store"] = Path(deployment.store)
    folder = named.get(place, Path(place))
    if not folder.is_dir():
        raise RefusedError(f"{place!r} is no folder; name one, or one of {', '.join(named)}")
    return folder


def fill(folder: Path, free_bytes: int) -> int:
    """Writes a ballast file that leaves `free_bytes` on the folder's disk; returns its size."""
    release(folder)
    found = os.statvfs(folder)
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    size = blocks * found.f_frsize - free_bytes
    if size <= 0:
        raise RefusedError(f"{folder} has less than that free already: {blocks * found.f_frsize} B")
    descriptor = os.open(folder / BALLAST, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        release(folder)
        raise RefusedError(f"{folder} cannot be filled: {error}") from None
    finally:
        os.close(descriptor)
    return size


def release(folder: Path) -> int:
    """Removes the ballast; returns its size in bytes."""
    ballast = folder / BALLAST
    try:
        size = ballast.stat().st_size
        ballast.unlink()
    except FileNotFoundError:
        return 0
    return size
