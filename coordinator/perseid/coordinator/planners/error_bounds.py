"""Computes the bounds Theta, L and Gamma from the allowed error, for two kinds of operators.

AF-Stream appendix A. Theorem 1: beyond its own error a Count-Min sketch overestimates by at most
Theta + alpha * L. Theorem 2: a ripple join loses at most Theta + L * beta + Gamma sampled items.
All functions are O(1).
"""

from __future__ import annotations

import math

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.thresholds import Bounds
from perseid.errors import UsageError


def for_count_min(error: float, threshold: float, alpha: float) -> Bounds:
    """Keys below (1 - epsilon - error) * threshold are reported no more often than by the sketch.

    A key is a heavy hitter from `threshold` on; `alpha` is the most that one record adds; both are
    in the unit of the counters. Half of the error goes to Theta, half to L.

    >>> for_count_min(0.15, threshold=10e6, alpha=1500.0)
    Bounds(theta=750000.0, l=500, gamma=500)
    """
    _check(error, threshold=threshold, alpha=alpha)
    allowed = error * threshold
    items = _items("threshold / alpha", allowed / 2 / alpha)
    return Bounds(allowed / 2, items, items)


def count_min_margin(bounds: Bounds, epsilon: float, threshold: float, alpha: float) -> float:
    """Keys below it are falsely reported with at most the sketch's own probability (theorem 1).

    The paper's example, 3.5 MB:

    >>> margin = count_min_margin(Bounds(1e5, 1000, 0), 0.5, threshold=10 * 2**20, alpha=1500)
    >>> round(margin / 2**20, 1)
    3.5
    """
    checks.within("epsilon", epsilon, 0.0, 1.0)
    checks.positive("threshold", threshold)
    checks.positive("alpha", alpha)
    checks.finite("alpha * l", alpha * bounds.l)
    return (1 - epsilon) * threshold - bounds.theta - alpha * bounds.l


def for_ripple_join(error: float, sampled: int, beta: float) -> Bounds:
    """The half-width of the confidence interval grows by `error` at most, e.g. 0.01 for 1 %.

    `sampled`: items of a window; an item joins with at most `beta` others. Theta, L and Gamma get a
    third each of the allowed loss.
    """
    _check(error, sampled=sampled, beta=beta)
    lost = sampled * (1 - (1 + error) ** -2)
    each = _items("sampled", lost / 3)
    return Bounds(each, _items("sampled / beta", lost / 3 / beta), each)


def ripple_join_growth(bounds: Bounds, sampled: int, beta: float) -> float:
    """How much the interval grows: sqrt(n / (n - Theta - L * beta - Gamma)) - 1 (theorem 2).

    The paper's example, from z/10,000 to z/9,989:

    >>> int(10_000 / (1 + ripple_join_growth(Bounds(1e5, 1000, 1000), 10**8, 100.0)))
    9989
    """
    checks.whole("sampled", sampled, least=1)
    checks.positive("beta", beta)
    left = sampled - bounds.theta - bounds.l * beta - bounds.gamma
    if left <= 0:
        raise UsageError(f"the bounds allow to lose all of {sampled} sampled items: {bounds}")
    return math.sqrt(sampled / left) - 1


def _check(error: float, **more: float) -> None:
    if not 0 < error < 1:
        raise UsageError(f"an error of {error}: between 0 and 1, e.g. 0.01 for 1 %")
    for name, value in more.items():
        checks.positive(name, value)


def _items(what: str, number: float) -> int:
    checks.finite(what, number)  # a quotient of two floats may be infinite
    return math.floor(number)
