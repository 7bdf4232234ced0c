"""Log files that stay small while their process writes: `<name>.log`, then `.log.1` to `.log.3`.

A process keeps its file open, and foreign ones know no signal to open another one, but all append.
So the content is copied, and the file is truncated while its writer keeps it open and appends at
the new end. A line that is written in between, for microseconds, is lost.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES_MAX = 16 << 20
OLD_FILES = 3  # so a process has 64 MiB at most, plus what it writes between two checks


def rotate(path: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Copies and truncates a log that has become too large; returns whether it did.

    A log that cannot be copied, as when the disk is full, stays unchanged until a later check.
    """
    try:
        if path.stat().st_size <= bytes_max:
            return False
        if old(path, 1).exists():  # else a failed attempt has already made room
            for number in range(OLD_FILES - 1, 0, -1):
                if old(path, number).exists():
                    old(path, number).replace(old(path, number + 1))
        with path.open("rb") as source, old(path, 1).open("wb") as target:
            source.seek(max(0, path.stat().st_size - bytes_max))  # of a very large log its end
            shutil.copyfileobj(source, target)
            target.flush()
            os.truncate(path, 0)
    except FileNotFoundError:
        return False  # it has not been written yet, or the folder is being removed
    except OSError:
        with suppress(OSError):
            old(path, 1).unlink()  # it is incomplete
        return False
    return True


def old(path: Path, number: int) -> Path:
    """The newest copy (1), the one before that (2), and so on."""
    return path.with_name(f"{path.name}.{number}")
