"""The thresholds of approximate fault tolerance: errors stay bounded after any number of failures.

AF-Stream section 3.5, read strictly: thresholds start at half of the user's bounds and each failure
halves them, so that the sum of all errors stays below the bounds. What a batch may add is limited
before it runs, not checked afterwards. Divergence is measured against the last durable backup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from perseid.coordinator.planners import checks
from perseid.errors import UsageError

Window = Literal["none", "hopping", "sliding", "decaying"]
WINDOWS: tuple[Window, ...] = get_args(Window)
RECORDS_MAX = 2**53  # above, a float is not exact; no batch has as many


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows: state divergence, unprocessed items, lost output items."""

    theta: float
    l: int  # noqa: E741 (the paper's name, and that of the setting)
    gamma: int

    def __post_init__(self) -> None:
        checks.not_negative("theta", self.theta)
        checks.whole("l", self.l)
        checks.whole("gamma", self.gamma)


@dataclass(frozen=True, slots=True)
class Share:
    """An operator's part of the bounds: one of n copies, stage i of m in a pipeline.

    `beta` is the most output items that one item produces.
    """

    copies: int = 1
    stage: int = 1
    stages: int = 1
    beta: float = 1.0

    def __post_init__(self) -> None:
        checks.whole("copies", self.copies, least=1)
        checks.whole("stages", self.stages, least=1)
        checks.whole("stage", self.stage, least=1)
        if self.stage > self.stages:
            raise UsageError(f"stage {self.stage} of {self.stages}: 1 to {self.stages}")
        checks.finite("beta", self.beta)
        if self.beta < 1:
            raise UsageError(f"beta is {self.beta}: 1 or more")

    @property
    def divisor(self) -> float:
        """Infinite above the range of a float: then no bound leaves anything."""
        try:
            return self.copies * float(self.beta) ** (self.stages - self.stage)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The current thresholds. `exact`: no error is allowed any more."""

    theta: float
    l: int  # noqa: E741
    gamma: int

    @property
    def exact(self) -> bool:
        """An operator without room for one item works exactly; it does not block without limit."""
        return self.l == 0 or self.gamma == 0 or self.theta == 0


def thresholds(
    bounds: Bounds, failures: int, share: Share = Share(), window: Window = "none"
) -> Thresholds:
    """The thresholds after `failures` failures that still count. O(1).

    >>> thresholds(Bounds(8.0, 1000, 1000), failures=2)
    Thresholds(theta=1.0, l=125, gamma=125)
    >>> thresholds(Bounds(8.0, 1000, 1000), failures=2, window="decaying")
    Thresholds(theta=8.0, l=1000, gamma=1000)
    """
    checks.whole("failures", failures)
    checks.one_of("the window", window, WINDOWS)
    # Older errors fade in a decaying window, so nothing is reserved for later.
    halvings = 0 if window == "decaying" else failures + 1
    divisor = share.divisor * 2.0**halvings if halvings < 1000 else math.inf
    return Thresholds(
        bounds.theta / divisor, math.floor(bounds.l / divisor), math.floor(bounds.gamma / divisor)
    )


def failures_that_count(
    failed_at_s: Iterable[float], now_s: float, window: Window, length_s: float
) -> int:
    """Failures whose errors are still in the window: in its hop, or in the last `length_s`.

    O(failures).

    >>> failures_that_count([1.0, 11.0, 12.0], 15.0, "hopping", 10.0)
    2
    >>> failures_that_count([1.0, 11.0, 12.0], 21.5, "sliding", 10.0)
    1
    """
    checks.one_of("the window", window, WINDOWS)
    times_s = list(failed_at_s)
    for at_s in times_s:
        checks.finite("the time of a failure", at_s, unit=" s")
    if window in ("none", "decaying"):
        return len(times_s) if window == "none" else 0
    checks.finite("now", now_s, unit=" s")
    checks.positive("the window's length", length_s, unit=" s")
    # The rest of the hop: a quotient, rounded down, may exceed a float.
    start_s = now_s - (now_s % length_s if window == "hopping" else length_s)
    return sum(start_s <= at_s <= now_s for at_s in times_s)


def records_before_backup(theta: float, divergence: float, alpha: float) -> int:
    """How many records may be processed before a backup must be durable; 0: back up first.

    O(1). RECORDS_MAX at most. `divergence`: from the last durable backup; `alpha`: the most that
    one record adds to it.

    >>> records_before_backup(theta=100.0, divergence=40.0, alpha=25.0)
    2
    """
    checks.not_negative("theta", theta)
    checks.not_negative("the divergence", divergence)
    checks.positive("alpha", alpha)
    return math.floor(min(max(theta - divergence, 0.0) / alpha, RECORDS_MAX))


def compensation(bounds: Bounds, failures: int, alpha: float) -> float:
    """What to add to each counter after these failures, so that none is too small.

    The k-th failure loses at most Theta/2^k + L*alpha/2^k (AF-Stream experiment 3). O(1).

    >>> compensation(Bounds(8.0, 4, 0), failures=2, alpha=1.0)
    9.0
    """
    checks.whole("failures", failures)
    checks.not_negative("alpha", alpha)
    most = bounds.theta + bounds.l * alpha
    checks.finite("theta + l * alpha", most)
    return most * (1 - math.ldexp(1.0, -failures))
