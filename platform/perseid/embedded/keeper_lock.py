"""Exactly one keeper: it holds a file lock, which the kernel releases when it dies.

Supervisors check the lock periodically; one that finds it free starts a new keeper. Several may do
so at once: a keeper that does not get the lock exits.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

from perseid.embedded.paths import Home
from perseid.embedded.table import read_specs

LOCK = "keeper.lock"


def take(home: Home) -> int | None:
    """The descriptor that holds the lock as long as it is open, None when another has it."""
    descriptor = os.open(home.run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(home: Home, descriptor: int) -> bool:
    """Whether `descriptor` is still this folder's lock: the folder may have been removed."""
    try:
        there = (home.run / LOCK).stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def start_keeper(home: Home) -> None:
    """Starts a keeper in the background, detached from us; returns when it has forked off."""
    subprocess.run(
        [sys.executable, "-m", "perseid.embedded.keeper", str(home.data)],
        stdin=subprocess.DEVNULL,
        check=True,
        cwd=home.data,
        timeout=60,
    )


def revive(home: Home) -> None:
    """Starts a keeper when there is none though the cluster should run."""
    if not read_specs(home):
        return
    free = take(home)
    if free is not None:
        os.close(free)
        start_keeper(home)
