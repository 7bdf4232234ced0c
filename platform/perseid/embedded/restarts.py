"""The pause before a supervisor restarts its child. Pure."""

from __future__ import annotations

# A child that lived this long was healthy: its death starts a new count.
HEALTHY_AFTER_S = 10.0
# First restart at once (it determines the recovery time), then slower, so that a child that cannot
# start leaves the cores to running processes.
DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)


def early_deaths(before: int, lived_s: float) -> int:
    """Consecutive early deaths, counting the one after `lived_s` seconds."""
    return 1 if lived_s >= HEALTHY_AFTER_S else before + 1


def delay_s(deaths_in_a_row: int) -> float:
    """The pause after that many consecutive early deaths."""
    return DELAYS_S[min(max(deaths_in_a_row - 1, 0), len(DELAYS_S) - 1)]
