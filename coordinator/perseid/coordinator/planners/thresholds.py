"""The thresholds of approximate fault tolerance, so that errors stay bounded after any failures.

AF-Stream section 3.5, read strictly (reliability.md section 6): thresholds start at half of the
user's bounds and each failure halves them, so that all errors together stay below the bounds. What
a batch may add is limited before it runs, not checked afterwards. Divergence is measured against
the last backup that is durable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perseid.errors import UsageError

Window = Literal["none", "hopping", "sliding", "decaying"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the user allows: state divergence, unprocessed items, lost output items."""

    theta: float
    l: int  # noqa: E741 (the paper's name, and that of the setting)
    gamma: int

    def __post_init__(self) -> None:
        for name, value in (("theta", self.theta), ("l", self.l), ("gamma", self.gamma)):
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{name} is {value}: 0 or more")


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of the bounds an operator has: one of n copies, stage i of m in a pipeline.

    `beta` is the most output items that one item produces.
    """

    copies: int = 1
    stage: int = 1
    stages: int = 1
    beta: float = 1.0

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise UsageError(f"copies is {self.copies}: 1 or more")
        if not 1 <= self.stage <= self.stages:
            raise UsageError(f"stage {self.stage} of {self.stages}: 1 to {max(self.stages, 1)}")
        if not (math.isfinite(self.beta) and self.beta >= 1):
            raise UsageError(f"beta is {self.beta}: 1 or more")

    @property
    def divisor(self) -> float:
        return self.copies * self.beta ** (self.stages - self.stage)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What holds now. `exact`: nothing may be lost any more, and nothing may wait for it either."""

    theta: float
    l: int  # noqa: E741
    gamma: int

    @property
    def exact(self) -> bool:
        """An operator without room for one item works exactly; it does not block for ever."""
        return self.l == 0 or self.gamma == 0 or self.theta == 0


def thresholds(
    bounds: Bounds, failures: int, share: Share = Share(), window: Window = "none"
) -> Thresholds:
    """After so many failures that still count. O(1).

    >>> thresholds(Bounds(8.0, 1000, 1000), failures=2)
    Thresholds(theta=1.0, l=125, gamma=125)
    >>> thresholds(Bounds(8.0, 1000, 1000), failures=2, window="decaying")
    Thresholds(theta=8.0, l=1000, gamma=1000)
    """
    if failures < 0:
        raise UsageError(f"failures is {failures}: 0 or more")
    # Errors of before fade by themselves in a decaying window, so nothing is kept back for later.
    halvings = 0 if window == "decaying" else failures + 1
    divisor = share.divisor * 2.0**halvings if halvings < 1000 else math.inf
    return Thresholds(
        bounds.theta / divisor, math.floor(bounds.l / divisor), math.floor(bounds.gamma / divisor)
    )


def failures_that_count(
    failed_at_s: Iterable[float], now_s: float, window: Window, length_s: float
) -> int:
    """Failures whose errors are still in the window: of its hop, or of the last `length_s`.

    O(failures).

    >>> failures_that_count([1.0, 11.0, 12.0], 15.0, "hopping", 10.0)
    2
    >>> failures_that_count([1.0, 11.0, 12.0], 21.5, "sliding", 10.0)
    1
    """
    if window == "decaying":
        return 0
    if window == "none":
        return len(list(failed_at_s))
    if not (math.isfinite(length_s) and length_s > 0):
        raise UsageError(f"a window of {length_s} s: more than 0")
    start_s = math.floor(now_s / length_s) * length_s if window == "hopping" else now_s - length_s
    return sum(start_s <= at_s <= now_s for at_s in failed_at_s)


def records_before_backup(theta: float, divergence: float, alpha: float) -> int:
    """How many records may be processed before a backup must be durable; 0: back up first.

    `divergence` is from the last durable backup, `alpha` the most that one record adds to it.

    >>> records_before_backup(theta=100.0, divergence=40.0, alpha=25.0)
    2
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise UsageError(f"alpha is {alpha}: more than 0")
    if divergence >= theta:
        return 0
    return math.floor((theta - divergence) / alpha)


def compensation(bounds: Bounds, failures: int, alpha: float) -> float:
    """What to add to each counter after these failures, so that none is too small.

    The k-th failure loses at most Theta/2^k + L*alpha/2^k (AF-Stream experiment 3).

    >>> compensation(Bounds(8.0, 4, 0), failures=2, alpha=1.0)
    9.0
    """
    return sum((bounds.theta + bounds.l * alpha) / 2.0**k for k in range(1, failures + 1))
