"""The windows over the panes of a key, and when they end. Pure, vectorised.

A pane is a piece of time that is entirely inside or outside of every window. So a row is added to
one pane, however many windows contain it, and a window folds its panes once, when it ends ("No
pane, no gain", Li et al., SIGMOD Record 2005). A pane of a session is as long as its gap: two rows
in it belong to one session. Times are milliseconds; windows are `start <= time < end`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from perseid.jobs.library.times import spans
from perseid.state.primitives.pairs import spread
from perseid.state.primitives.undo import Slots, Values


@dataclass(frozen=True, slots=True)
class Panes:
    """Panes sorted by key, a number counted from 0, then start; first and last time in each.

    `row`: the position of each in the state's table.
    """

    row: Slots
    key: Slots
    start: Slots
    first: Slots
    last: Slots


@dataclass(frozen=True, slots=True)
class Frames:
    """Windows by key and start: window i has the panes `lows[i]:highs[i]`, at least one."""

    lows: Slots
    highs: Slots
    start: Slots
    end: Slots

    def at(self, rows: Slots | Values) -> Frames:
        return Frames(self.lows[rows], self.highs[rows], self.start[rows], self.end[rows])

    def ended(self, low: int, high: int) -> Frames:
        """Those with `low < end <= high`."""
        return self.at((self.end > low) & (self.end <= high))


class Kind(Protocol):
    """A kind of windows. `keep`: how long after its end a window can be corrected, in ms.

    `history`: the age of the oldest rows that a window needs; for sessions, which have no limit,
    the minimum.
    """

    keep: int
    history: int

    def mark(self, watermark: int) -> int:
        """The time up to which all ended windows can be emitted: at most the watermark."""

    def pane(self, times: Slots) -> Slots:
        """The start of each row's pane."""

    def counts(self, times: Slots, mark: int) -> Values:
        """Which rows can still count when windows up to `mark` have been emitted."""

    def frames(self, panes: Panes, low: int, high: int) -> Frames:
        """The windows with `low < end <= high`."""

    def over(self, panes: Panes, mark: int) -> Values:
        """Which panes no window needs any more after `mark`, corrections included."""


class Aligned:
    """Windows of `size` that start at every multiple of `step`; tumbling: `step` is `size`."""

    def __init__(self, size: int, step: int, correct: int) -> None:
        self._size, self._step, self._pane = size, step, math.gcd(size, step)
        self.keep = -(-correct // self._pane) * self._pane
        self.history = size + correct

    def mark(self, watermark: int) -> int:
        return watermark - watermark % self._pane  # windows end only at these times

    def pane(self, times: Slots) -> Slots:
        return times - times % self._pane

    def counts(self, times: Slots, mark: int) -> Values:
        return self._last_end(times) > mark - self.keep

    def frames(self, panes: Panes, low: int, high: int) -> Frames:
        step, size = self._step, self._size
        last = np.minimum(panes.start // step, (high - size) // step)  # the windows' numbers
        first = np.maximum((panes.start - size) // step, (low - size) // step) + 1
        rows, number = spread(first, np.maximum(first, last + 1))
        order = np.lexsort((rows, number, panes.key[rows]))
        rows, number = rows[order], number[order]
        key = panes.key[rows]
        new = np.flatnonzero(np.diff(key, prepend=-1) | np.diff(number, prepend=0))
        ends = np.append(new[1:], len(rows))
        start = number[new] * step
        return Frames(rows[new], rows[ends - 1] + 1 if len(new) else new, start, start + size)

    def over(self, panes: Panes, mark: int) -> Values:
        return self._last_end(panes.start) <= mark - self.keep

    def _last_end(self, times: Slots) -> Slots:
        return times // self._step * self._step + self._size


class Sliding:
    """A window for each time of a row: the rows of its key not older than `size`, and itself."""

    def __init__(self, size: int, correct: int) -> None:
        self._size, self.keep, self.history = size, correct, size + correct

    def mark(self, watermark: int) -> int:
        return watermark

    def pane(self, times: Slots) -> Slots:
        return times

    def counts(self, times: Slots, mark: int) -> Values:
        return times + self._size > mark - self.keep

    def frames(self, panes: Panes, low: int, high: int) -> Frames:
        rows = np.flatnonzero((panes.start >= low) & (panes.start < high))
        end = panes.start[rows] + 1
        start = end - self._size
        lows, highs = spans(panes.key, panes.start, panes.key[rows], start, end - 1)
        return Frames(lows, highs, start, end)

    def over(self, panes: Panes, mark: int) -> Values:
        return panes.start + self._size <= mark - self.keep


class Session:
    """Rows of a key with less than `gap` between neighbours; ends `gap` after the last one.

    A session that can be corrected is kept one gap longer: a late row may continue it.
    """

    def __init__(self, gap: int, correct: int) -> None:
        self._gap, self._correct = gap, correct
        self.keep = correct + gap if correct else 0
        self.history = gap + correct

    def mark(self, watermark: int) -> int:
        return watermark

    def pane(self, times: Slots) -> Slots:
        return times - times % self._gap

    def counts(self, times: Slots, mark: int) -> Values:
        return times + self._gap > mark - self._correct if self._correct else times >= mark

    def frames(self, panes: Panes, low: int, high: int) -> Frames:
        return self._all(panes).ended(low, high)

    def over(self, panes: Panes, mark: int) -> Values:
        sessions = self._all(panes)
        gone = sessions.end <= mark - self.keep
        found: Values = np.repeat(gone, sessions.highs - sessions.lows)
        return found

    def _all(self, panes: Panes) -> Frames:
        apart = panes.first[1:] - panes.last[:-1] >= self._gap
        new = np.flatnonzero(np.append(True, (np.diff(panes.key) != 0) | apart)[: len(panes.key)])
        stops = np.append(new[1:], len(panes.key))[: len(new)]
        return Frames(new, stops, panes.first[new], panes.last[stops - 1] + self._gap)
