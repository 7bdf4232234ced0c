"""Named points at which a test kills the process that reaches them, like `kill -9`.

A point is armed by a file of its name in the folder that PERSEID_CRASH_POINTS names. The process
that reaches the point deletes the file (only one can) and dies, so a point fires once, in whatever
process. A file with the content "driver" also kills the worker's Spark driver, whose pid is in
PERSEID_DRIVER_PID. A file `point@operator` waits for a task of that operator. Without the first
variable, as everywhere outside tests, `reach` does nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

FOLDER = "PERSEID_CRASH_POINTS"
DRIVER_PID = "PERSEID_DRIVER_PID"

KillTarget = Literal["self", "driver"]

_folder = os.environ.get(FOLDER, "")


def reach(name: str, operator: str = "") -> None:
    """Dies by SIGKILL when `name` is armed, or `name` of `operator`; does nothing otherwise."""
    if not _folder:
        return
    _die_by(os.path.join(_folder, name))
    if operator:
        _die_by(os.path.join(_folder, f"{name}@{operator}"))


def _die_by(path: str) -> None:
    try:
        with open(path) as file:
            target = file.read()
        os.unlink(path)
    except FileNotFoundError:
        return
    if target == "driver" and DRIVER_PID in os.environ:
        os.kill(int(os.environ[DRIVER_PID]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def arm(folder: Path, name: str, target: KillTarget = "self") -> None:
    """Arms `name` for one process started with PERSEID_CRASH_POINTS=folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / f".{name}"
    ready.write_text(target)
    ready.rename(folder / name)


def armed(folder: Path, name: str) -> bool:
    """Whether no process has reached `name` yet."""
    return (folder / name).exists()
