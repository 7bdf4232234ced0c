"""What one column held at its last commit, so that an epoch can be rolled back.

The first write to a slot since the commit saves the old value, which `add` has read anyway. So a
thousand writes in an epoch need no more memory than one of each slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Slots = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class Cells:
    """Values, a null mask, and widths of objects; the latter two may be None."""

    values: Values
    nulls: Values | None
    widths: Values | None

    def at(self, slots: Slots | slice) -> Cells:
        nulls = None if self.nulls is None else self.nulls[slots]
        widths = None if self.widths is None else self.widths[slots]
        return Cells(self.values[slots], nulls, widths)

    def copy(self) -> Cells:
        return self.at(np.arange(len(self.values)))

    def write(self, slots: Slots, old: Cells) -> None:
        """Puts `old` into `slots`; it may have been saved before the column had a null mask."""
        self.values[slots] = old.values
        if self.nulls is not None:
            self.nulls[slots] = False if old.nulls is None else old.nulls
        if self.widths is not None:
            self.widths[slots] = old.widths


class Undo:
    """The saved cells of one column since its last commit, each slot once."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Slots, Cells]] = []
        self._is_saved: Values = np.zeros(0, bool)

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def save(self, slots: Slots, now: Cells) -> Cells:
        """Returns the contents of `slots`, and saves those that were not saved before."""
        old = now.at(slots)
        if len(self._is_saved) < len(now.values):
            self._reach(len(now.values))
        saved = self._is_saved[slots]
        if saved.any():
            fresh = np.flatnonzero(~saved)
            self._keep(slots[fresh], old.at(fresh))
        else:
            self._keep(slots, old)
        return old

    def save_all(self, now: Cells) -> None:
        """Saves every slot."""
        self._reach(len(now.values))
        left = np.flatnonzero(~self._is_saved)
        self._keep(left, now.at(left))

    def slots(self) -> Slots:
        """The saved slots."""
        return np.concatenate([np.zeros(0, np.int64), *(slots for slots, _ in self._pieces)])

    def rewind(self, cells: Cells) -> None:
        """Sets `cells`, the column's present ones, to their values at the commit."""
        for slots, old in self._pieces:
            cells.write(slots, old)

    def committed(self, slots: Slots, now: Cells) -> Cells:
        """What the distinct `slots` held at the commit."""
        out = now.at(slots)
        if not len(slots):
            return out
        place = np.zeros(len(now.values), np.int64)
        place[slots] = np.arange(len(slots))
        for saved, old in self._pieces:
            places = place[saved]
            asked = np.flatnonzero(slots[places] == saved)
            out.write(places[asked], old.at(asked))
        return out

    def forget(self) -> None:
        for slots, _ in self._pieces:
            self._is_saved[slots] = False
        self._pieces.clear()

    def _keep(self, slots: Slots, old: Cells) -> None:
        if len(slots):
            self._is_saved[slots] = True
            self._pieces.append((slots, old))

    def _reach(self, count: int) -> None:
        """Extends the mask to the slots below `count`."""
        self._is_saved = np.concatenate(
            [self._is_saved, np.zeros(count - len(self._is_saved), bool)]
        )
