"""What one column held at its last commit, so that an epoch can be taken back.

Each write first saves what it will overwrite: an array of slots and the old values, which `add` has
gathered anyway. Going through the saved pieces from the newest to the oldest gives the committed
values again. Pieces that sum up to more than the column are folded into one image of it, so a
thousand writes in an epoch cost no more memory than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

Slots = np.ndarray[Any, np.dtype[np.int64]]
Values = np.ndarray[Any, np.dtype[Any]]

IMAGE_MIN = 4096  # below it pieces are cheaper to keep than to fold


@dataclass(slots=True)
class Cells:
    """Values, which of them are null, and widths of objects; the latter two where there are any."""

    values: Values
    nulls: Values | None
    widths: Values | None

    def at(self, slots: Slots | slice) -> Cells:
        return Cells(*(None if p is None else p[slots] for p in self._parts()))  # type: ignore[arg-type]

    def copy(self) -> Cells:
        return Cells(*(None if p is None else p.copy() for p in self._parts()))  # type: ignore[arg-type]

    def write(self, slots: Slots | slice, old: Cells) -> None:
        """Puts `old` into `slots`; parts that it lacks were not there yet, so all is zero."""
        self.values[slots] = old.values
        if self.nulls is not None:
            self.nulls[slots] = False if old.nulls is None else old.nulls
        if self.widths is not None:
            self.widths[slots] = old.widths

    def _parts(self) -> tuple[Values | None, ...]:
        return self.values, self.nulls, self.widths


class Undo:
    """The saved pieces of one column since its last commit."""

    def __init__(self) -> None:
        self._pieces: list[tuple[Slots, Cells]] = []
        self._saved = 0
        self._image: Cells | None = None  # of all slots that were there when it was made

    def __bool__(self) -> bool:
        return self._image is not None or bool(self._pieces)

    def save(self, slots: Slots, now: Cells) -> Cells:
        """Remembers and returns what `slots` hold. A slot may come any number of times."""
        old = now.at(slots)
        if self._image is None:
            self._pieces.append((slots, old))
            self._saved += len(slots)
            if self._saved > max(len(now.values), IMAGE_MIN):
                self.save_all(now)
        return old

    def save_all(self, now: Cells) -> None:
        """Remembers every slot."""
        if self._image is None:
            image = now.copy()
            self.rewind(image)
            self._image, self._pieces = image, []

    def rewind(self, cells: Cells) -> None:
        """Makes `cells`, a column's present ones, what they were at the commit."""
        if self._image is not None:
            cells.write(slice(0, len(self._image.values)), self._image)
        for slots, old in reversed(self._pieces):
            cells.write(slots, old)

    def committed(self, slots: Slots, now: Cells) -> Cells:
        """What `slots` (sorted, different) held at the commit."""
        if self._image is not None:
            return self._image.at(slots)
        out = now.at(slots)
        for changed, old in reversed(self._pieces):
            places = np.searchsorted(slots, changed)
            places[places == len(slots)] = 0
            asked = slots[places] == changed if len(slots) else np.zeros(len(changed), bool)
            out.write(places[asked], old.at(cast(Slots, asked)))
        return out

    def slots(self) -> Slots | None:
        """Which slots were saved, sorted; None stands for all of them."""
        if self._image is not None:
            return None
        if not self._pieces:
            return np.zeros(0, np.int64)
        return cast(Slots, np.unique(np.concatenate([slots for slots, _ in self._pieces])))

    def forget(self) -> None:
        self._pieces, self._saved, self._image = [], 0, None
