"""Signals to exactly the intended process, and the end of all its descendants.

Signals go only to the process that still has its `Mark`, pid and start time. All processes below a
supervisor also carry a tag in their environment, so that the children of a dead parent (a JVM,
Spark's Python workers, which make process groups of their own) are found and killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from perseid.records.marks import Mark, alive, mark

TAG = "PERSEID_PROCESS"


def send(who: Mark | None, number: int) -> bool:
    """Sends a signal to `who`; False when it is gone."""
    if who is None or not alive(who):
        return False
    try:
        os.kill(who.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(who: Mark | None, timeout_s: float) -> bool:
    """Waits until `who` is gone; False when it still lives at the end."""
    deadline = time.monotonic() + timeout_s
    while alive(who):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def tag(data: Path, process: str) -> str:
    """The value of TAG in the environment of `process` and of everything below it."""
    return f"{data}#{process}"


def tagged(value: str) -> Iterator[int]:
    """Living processes whose environment has TAG=`value`, other than the caller.

    If `value` ends with '#', all processes of that data folder are found.
    """
    start = f"{TAG}={value}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone meanwhile, or another user's
        wanted = (v.startswith(start) if value.endswith("#") else v == start for v in environment)
        if any(wanted) and mark(int(entry.name)) is not None:
            yield int(entry.name)


def sweep(value: str, timeout_s: float = 5.0) -> int:
    """Kills every process tagged `value`, also those forked meanwhile; returns how many."""
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while found := list(tagged(value)):
        for pid in found:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return len(killed)
