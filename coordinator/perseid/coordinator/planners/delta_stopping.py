"""When to take an incremental checkpoint: optimal stopping that looks ahead, decided online.

Goes beyond Meteor Shower section 4.3, whose rule is the first minimum of the size. A checkpoint of
changes affects what the next one writes: if it is taken late, the next one has little time left
before its own period's end. So a moment is rated by what the checkpoint writes and by what lies
ahead of it. Both tables come from a profile, in steps of a period:

1. `ahead`, by where in its period a checkpoint was taken: what all later ones write on average,
   less what they write after one at a period's begin;
2. `waiting`, by the current step and by the last checkpoint's place in the previous period: the
   same while this period's checkpoint is not taken yet.

A moment is taken if what it writes plus what is ahead is at most `waiting`. Moments are a period's
begin, the times when the bytes to write are about to grow (`growths` of `shown`), and its end. The
begin allows pairs like the oracle's: right after the last checkpoint one is almost free, and it
leaves the whole next period to choose from.

>>> from random import Random
>>> from perseid.coordinator.planners.random_sizes import draw_changes
>>> before, now = (draw_changes(Random(seed), "bcp") for seed in (1, 2))
>>> taken = played(now, DeltaStopping(before, 200.0))
>>> every = now.checkpoints([200.0 * (1 + period) for period in range(18)])
>>> len(taken), round(sum(p.bytes for p in taken) / sum(p.bytes for p in every), 2)
(18, 0.66)
"""

from __future__ import annotations

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.checkpoint_timing import periods
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.state_moments import growths
from perseid.coordinator.planners.state_sizes import Numbers, Point

STEPS = 50  # of a period
ROUNDS = 100  # of value iteration; each round halves the remaining error, roughly
CLOSE = 1e-4  # of the highest cost of waiting: the allowed error


class DeltaStopping:
    """Learned from `before`, for one checkpoint in each `period_s`. UsageError as in `periods`.

    `worth`: the least saving, as a share of what a period changes. Learning is O(moments * STEPS *
    (operators + ROUNDS)); a decision is O(1).
    """

    def __init__(self, before: Changes, period_s: float, worth: float = 0.0) -> None:
        self.period_s, self.rates = period_s, before.rates
        self._worth_bytes = worth * period_s * sum(self.rates.values())
        starts = periods(before.sizes, period_s)
        starts = starts[1:] or starts  # what the checkpoint before the first period left is unknown
        moments = _written(before, period_s, self.rates, starts)
        self._ahead = np.zeros(STEPS + 1)
        for _ in range(ROUNDS):
            self._waiting = _backwards(moments, self._ahead, len(starts))
            wrong = self._waiting[0] - self._waiting[0, 0] - self._ahead
            self._ahead += wrong / 2  # a half step: pairs would make it oscillate
            if np.abs(wrong).max() <= CLOSE * self._waiting.max():
                break

    def takes(self, last_s: float, offset_s: float, written: float) -> bool:
        """Whether to take a checkpoint now that writes `written` bytes; the last was at `last_s`.

        Both offsets are in seconds from the begin of their periods.
        """
        checks.not_negative("the offset of the last checkpoint", last_s, unit=" s")
        checks.not_negative("the offset in the period", offset_s, unit=" s")
        checks.not_negative("what a checkpoint writes", written)
        step = min(int(min(offset_s / self.period_s, 1.0) * STEPS), STEPS - 1)
        last = round(min(last_s / self.period_s, 1.0) * STEPS)
        saves = self._waiting[step + 1, last] - self._ahead[step] - written
        return bool(saves >= self._worth_bytes)


def played(changes: Changes, policy: DeltaStopping) -> list[Point]:
    """The checkpoints that the policy takes, one in each period; it sees the moments in order.

    The first is decided as if it had a predecessor, because all state must be written once.
    """
    period_s = policy.period_s
    shown = changes.shown(period_s, policy.rates)
    grows = growths(shown)
    taken: list[float] = []
    offset_s = 0.0
    for start_s in periods(changes.sizes, period_s):
        chosen = start_s + period_s
        for moment_s in _moments(grows, start_s, period_s):
            writes = changes.written(taken[-1], [moment_s]) if taken else shown.at([moment_s])
            if policy.takes(offset_s, moment_s - start_s, float(writes[0])):
                chosen = moment_s
                break
        taken.append(chosen)
        offset_s = chosen - start_s
    return changes.checkpoints(taken)


def _moments(grows: Numbers, start_s: float, period_s: float) -> list[float]:
    """A period's moments: its begin and the times before growth, without its end."""
    first = np.searchsorted(grows, start_s, "right")
    return [start_s, *grows[first : np.searchsorted(grows, start_s + period_s)].tolist()]


def _written(
    before: Changes, period_s: float, rates: dict[str, float], starts: list[float]
) -> list[Numbers]:
    """By step, for each moment in it: the bytes written, by the last checkpoint's place."""
    grows = growths(before.shown(period_s, rates))
    lasts = (np.arange(STEPS + 1) / STEPS - 1) * period_s
    found: list[list[Numbers]] = [[] for _ in range(STEPS + 1)]
    for start_s in starts:
        changed_then = before.changed.each(start_s + lasts)
        for time_s in [*_moments(grows, start_s, period_s), start_s + period_s]:
            since = before.changed.each([time_s]) - changed_then
            step = min(int((time_s - start_s) / period_s * STEPS), STEPS)
            found[step].append(np.minimum(since, before.sizes.each([time_s])).sum(axis=0))
    return [np.array(rows).reshape(-1, STEPS + 1) for rows in found]


def _backwards(moments: list[Numbers], ahead: Numbers, periods: int) -> Numbers:
    """`waiting`: a step has a moment as often as the profile shows one in it."""
    waiting = np.empty((STEPS + 1, STEPS + 1))
    waiting[STEPS] = moments[STEPS].mean(axis=0) + ahead[STEPS]
    for step in range(STEPS - 1, -1, -1):
        later = waiting[step + 1]
        saved = np.maximum(later - (moments[step] + ahead[step]), 0.0).sum(axis=0)
        waiting[step] = later - saved / periods
    return waiting
