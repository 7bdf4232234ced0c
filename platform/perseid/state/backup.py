"""What keyed rows were at the marked backup, as far as they changed since.

Only switched-on divergence pays for it: `note` is called at a commit, with the keys that the epoch
changed, and writes nothing into the rows themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from perseid.state.columns import Column
from perseid.state.divergence import Distance, differences, distance, same_bits
from perseid.state.keys import KeyFields
from perseid.state.rows import KeyedRows
from perseid.state.undo import Cells, Slots, Values

THERE = "there"
DIFFERS = "differs"


class RowsBackup:
    """Of every key that changed since the mark: its row then, and how far it is from that now.

    A key that is not there, and a null, count as zero; whether rows are the same is told exactly.
    """

    def __init__(self, keys: KeyFields, types: dict[str, pa.DataType]) -> None:
        self._types = types
        self._numeric = [name for name, kind in types.items() if Column(kind).is_number]
        apart = {apart_of(name): pa.float64() for name in self._numeric}
        flags = {THERE: pa.bool_(), DIFFERS: pa.bool_()}
        then = {then_of(name): kind for name, kind in types.items()}
        self._then = KeyedRows(keys, {**then, **apart, **flags})

    def distance(self, kind: Distance) -> float:
        """Of the last commit from the mark; O(keys changed since the mark)."""
        everything = self._then.all_slots()
        if kind is Distance.KEYS:
            return float(self._then.columns[DIFFERS].cells(everything).values.sum())
        columns = [self._then.columns[apart_of(name)] for name in self._numeric]
        return distance(kind, [column.cells(everything).values for column in columns])

    def note(self, rows: KeyedRows) -> None:
        """Takes in what changed since the last commit, just before that is forgotten."""
        written, gone = rows.written(), rows.gone()
        base = rows.is_base(written)
        self._measure_gone(self._remember(rows, gone, there=True))
        for slots, there in ((written[base], True), (written[~base], False)):
            self._measure(self._remember(rows, slots, there=there), rows, slots)

    def _remember(self, rows: KeyedRows, slots: Slots, *, there: bool) -> Slots:
        """Where the keys of `slots` are kept; first with their rows of the last commit.

        `there`: whether that commit had them.
        """
        keys = rows.keys_of(slots)
        mine = self._then.find(keys)
        new = self._then.insert(keys, mine)
        for name in self._types:
            column = self._then.columns[then_of(name)]
            if there:
                column.put(mine[new], rows.columns[name].committed(slots[new]))
            else:
                column.put_null(mine[new])
        self._then.columns[THERE].put_numbers(mine[new], np.full(len(new), there))
        return mine

    def _measure(self, mine: Slots, rows: KeyedRows, slots: Slots) -> None:
        differs = ~self._then.columns[THERE].cells(mine).values
        for name in self._types:
            now = rows.columns[name].cells(slots)
            then = self._then.columns[then_of(name)].cells(mine)
            differs |= ~same(now, then)
            if name in self._numeric:
                apart = differences(now.values, then.values)
                self._then.columns[apart_of(name)].put_numbers(mine, apart)
        self._then.columns[DIFFERS].put_numbers(mine, differs)

    def _measure_gone(self, mine: Slots) -> None:
        for name in self._numeric:
            then = self._then.columns[then_of(name)].cells(mine).values
            apart = differences(np.zeros_like(then), then)
            self._then.columns[apart_of(name)].put_numbers(mine, apart)
        self._then.columns[DIFFERS].put_numbers(mine, self._then.columns[THERE].cells(mine).values)


def then_of(name: str) -> str:
    return f"then {name}"


def apart_of(name: str) -> str:
    return f"apart {name}"


def same(now: Cells, then: Cells) -> Values:
    """Where two columns hold the same; two nulls are the same."""
    one, other = nulls_of(now), nulls_of(then)
    if now.values.dtype.hasobject:
        pairs: Any = zip(now.values.tolist(), then.values.tolist(), strict=True)
        return np.fromiter((a == b for a, b in pairs), bool, len(one))
    return (one & other) | (~(one | other) & same_bits(now.values, then.values))


def nulls_of(cells: Cells) -> Values:
    return np.zeros(len(cells.values), bool) if cells.nulls is None else cells.nulls
