"""Where the rows of one split of a source stand in its topic: for whoever must name one. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one source partition, one after the other: the offset of each, and its key.

    No keys where nobody would make a letter of such a row.
    """

    topic: str
    partition: int
    offsets: npt.NDArray[np.int64]
    keys: pa.BinaryArray | None


@dataclass(frozen=True, slots=True)
class Place:
    """One record, with its own key."""

    topic: str
    partition: int
    offset: int
    key: bytes | None

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Places:
    """The rows of `runs` in their order, or only those in the places `rows` of them."""

    runs: tuple[Run, ...]
    rows: npt.NDArray[np.int64] | None = None

    def of(self, row: int) -> Place:
        """Of the row in this place."""
        at = row if self.rows is None else int(self.rows[row])
        for run in self.runs:
            if at < len(run.offsets):
                key = None if run.keys is None else run.keys[at].as_py()
                return Place(run.topic, run.partition, int(run.offsets[at]), key)
            at -= len(run.offsets)
        raise AssertionError("a row behind the last one")

    def without(self, rows: npt.NDArray[np.int64]) -> Places:
        """But for these rows."""
        every = self.rows
        if every is None:
            every = np.arange(sum(len(run.offsets) for run in self.runs))
        return Places(self.runs, np.delete(every, rows))
