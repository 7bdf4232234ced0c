"""When to take a checkpoint of changes, decided as it goes: optimal stopping that looks ahead.

Beyond Meteor Shower section 4.3, whose rule is the first minimum of the size. A checkpoint of
changes decides what the next one writes: taken late, it leaves the next little time before its own
period's end. So a moment is worth what the checkpoint writes and what is ahead of it then. Both
tables come from a profile, in steps of a period:

1. `ahead`, by where in its period a checkpoint was taken: what all later ones write, on average,
   less what they write behind one at a period's begin;
2. `waiting`, by where in the period we are and where in the one before the last checkpoint was: the
   same while this period's is still to be taken.

A moment is taken if what it writes and what is ahead of it are no more than waiting. Moments are a
period's begin, where what a checkpoint would write is about to grow (`growths` of `shown`), and a
period's end. The begin makes pairs as the oracle has them: right behind the last checkpoint one is
almost free, and it leaves the whole next period to choose from.

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

STEPS = 50    # of a period
ROUNDS = 100  # of value iteration; each halves what is left to correct, about
CLOSE = 1e-4  # of the dearest wait: what may be left to correct


class DeltaStopping:
    """Learned from `before`, for checkpoints once in `period_s`. UsageError as `periods` has it.

    `worth`: what a moment has to save, at least, of what a period changes. To learn is
    O(moments * STEPS * (operators + ROUNDS)); a decision is O(1).
    """

    def __init__(self, before: Changes, period_s: float, worth: float = 0.0) -> None:
        self.period_s, self.rates = period_s, before.rates
        self._worth_bytes = worth * period_s * sum(self.rates.values())
        starts = periods(before.sizes, period_s)
        starts = starts[1:] or starts  # nothing is known of what the first one's last has left
        moments = _written(before, period_s, self.rates, starts)
        self._ahead = np.zeros(STEPS + 1)
        for _ in range(ROUNDS):
            self._waiting = _backwards(moments, self._ahead, len(starts))
            wrong = self._waiting[0] - self._waiting[0, 0] - self._ahead
            self._ahead += wrong / 2  # half way: pairs would make it swing
            if np.abs(wrong).max() <= CLOSE * self._waiting.max():
                break

    def takes(self, last_s: float, offset_s: float, written: float) -> bool:
        """Whether to take one now that writes so much, when the last was at `last_s` in its period.

        Both offsets in seconds from the begin of their periods.
        """
        checks.not_negative("the offset of the last checkpoint", last_s, unit=" s")
        checks.not_negative("the offset in the period", offset_s, unit=" s")
        checks.not_negative("what a checkpoint writes", written)
        step = min(int(min(offset_s / self.period_s, 1.0) * STEPS), STEPS - 1)
        last = round(min(last_s / self.period_s, 1.0) * STEPS)
        saves = self._waiting[step + 1, last] - self._ahead[step] - written
        return bool(saves >= self._worth_bytes)


def played(changes: Changes, policy: DeltaStopping) -> list[Point]:
    """The checkpoints that the policy takes, one a period; it sees each moment as it comes.

    The first is decided as if it had a predecessor: all of a state has to be written once.
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
    """A period's: its begin and where there is growth ahead, not its end."""
    first = np.searchsorted(grows, start_s, "right")
    return [start_s, *grows[first : np.searchsorted(grows, start_s + period_s)].tolist()]


def _written(
    before: Changes, period_s: float, rates: dict[str, float], starts: list[float]
) -> list[Numbers]:
    """By step, for each moment there: what one writes, by the last one's place in its period."""
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
    """`waiting`: a moment comes as often as the profile has seen one in its step."""
    waiting = np.empty((STEPS + 1, STEPS + 1))
    waiting[STEPS] = moments[STEPS].mean(axis=0) + ahead[STEPS]
    for step in range(STEPS - 1, -1, -1):
        later = waiting[step + 1]
        saved = np.maximum(later - (moments[step] + ahead[step]), 0.0).sum(axis=0)
        waiting[step] = later - saved / periods
    return waiting
