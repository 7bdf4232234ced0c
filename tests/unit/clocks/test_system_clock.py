"""The machine's clocks."""

from __future__ import annotations

import time

from perseid.clocks import SystemClock


def test_the_monotonic_clock_counts_what_the_machine_has_slept() -> None:
    """Else a leader that slept would take its lease for good, and a day asleep for no time."""
    before_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    found_s = SystemClock().monotonic_s()
    assert before_s <= found_s <= time.clock_gettime(time.CLOCK_BOOTTIME)
