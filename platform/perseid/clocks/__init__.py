"""Time as a port. Decisions take `now` as an argument; their callers have a `Clock`.

Two times, never mixed: `monotonic_s` for durations and timeouts of this process, `wall_ms` only for
dates that are shown or stored. No decision compares wall clocks of two hosts.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

# Includes the time while the machine sleeps: leases expire and state ages then, too.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """`monotonic_s` must never go back; `sleep` must never return early."""

    def monotonic_s(self) -> float: ...
    def wall_ms(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic_s(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def growing_s(failures: int, first_s: float, most_s: float) -> float:
    """The pause after `failures` consecutive failures: `first_s`, then doubled up to `most_s`."""
    return min(most_s, first_s * 2.0 ** min(failures - 1, 60))  # a float ends at 1,024 doublings


def time_text(wall_ms: int) -> str:
    """Milliseconds since 1970 as an ISO time in UTC; beyond the calendar as they are."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return f"{wall_ms} ms"


class ManualClock:
    """A clock for tests, moved by hand; `sleep` moves it."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = start_s

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return int(self._now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds
