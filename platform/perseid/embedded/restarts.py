"""How long a supervisor waits before it starts its child again. Pure."""

from __future__ import annotations

# A child that lived this long was healthy: its death is a new story.
HEALTHY_AFTER_S = 10.0
# First restart at once (that is what recovery time is made of), then slower, so that a child that
# cannot start does not take the machine away from those that run.
DELAYS_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)


def early_deaths(before: int, lived_s: float) -> int:
    """Deaths in a row that came early, counting the one after `lived_s` seconds."""
    return 1 if lived_s >= HEALTHY_AFTER_S else before + 1


def delay_s(deaths_in_a_row: int) -> float:
    """The pause after that many early deaths in a row."""
    return DELAYS_S[min(max(deaths_in_a_row - 1, 0), len(DELAYS_S) - 1)]
