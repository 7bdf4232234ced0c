"""Log files that stay small while their process writes: `<name>.log`, then `.log.1` to `.log.3`.

A process keeps its file open, and those of others than ours know no signal to open another one. But
all append to it. So what is written is copied away, and the file is emptied under its writer, who
goes on at its new end. A line that is written in between, for microseconds, is lost.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
OLD_FILES = 3  # so a process has 64 MiB at most, and what it writes between two looks


def rotate(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Empties a log that has become too large, behind a copy; whether it was."""
    try:
        if path.stat().st_size <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(OLD_FILES - 1, 0, -1):
        if old(path, number).exists():
            old(path, number).replace(old(path, number + 1))
    with path.open("rb") as source, old(path, 1).open("wb") as target:
        source.seek(max(0, path.stat().st_size - bytes_max))  # of a flood its end
        shutil.copyfileobj(source, target)
        os.truncate(path, 0)
    return True


def old(path: Path, number: int) -> Path:
    """The copy before (1), the one before that (2), and so on."""
    return path.with_name(f"{path.name}.{number}")
