"""Named points at which a test kills the process that reaches them, as `kill -9` would.

A point is armed by a file named after it in the folder that PERSEID_CRASH_POINTS names. The process
that reaches the point takes the file away (only one can) and dies, so a point fires once, whatever
process it is in. Without the variable, which is how everything runs outside tests, `reach` is one
dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

_FOLDER = os.environ.get("PERSEID_CRASH_POINTS", "")


def reach(name: str) -> None:
    """Dies by SIGKILL when `name` is armed; does nothing otherwise."""
    if not _FOLDER:
        return
    try:
        os.unlink(os.path.join(_FOLDER, name))
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def arm(folder: Path, name: str) -> None:
    """Arms `name` for one process started with PERSEID_CRASH_POINTS=folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


def armed(folder: Path, name: str) -> bool:
    """Whether nobody has reached `name` yet."""
    return (folder / name).exists()
