"""Identifies a process: a pid alone is not enough, because the kernel reuses it.

A `Mark` is pid + start time. Zombies count as dead: they hold no port and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mark:
    """One life of one process. `started` is in clock ticks since boot."""

    pid: int
    started: int


def mark(pid: int) -> Mark | None:
    """The mark of a living process, None when there is none."""
    found = _state_and_start(pid)
    return Mark(pid, found[1]) if found is not None and found[0] not in "ZX" else None


def alive(who: Mark | None) -> bool:
    return who is not None and mark(who.pid) == who


def _state_and_start(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    # The name in parentheses may itself contain spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])
