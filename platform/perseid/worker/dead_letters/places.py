"""Places of the rows of one split of a source in its topic, for errors and dead letters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one source partition: the offset and key of each.

    No keys if such a row can become no dead letter.
    """

    topic: str
    partition: int
    offsets: npt.NDArray[np.int64]
    keys: pa.BinaryArray | None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one record, with its key."""

    topic: str
    partition: int
    offset: int
    key: bytes | None

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the rows of `runs` in order, or only of those with the indices `rows`."""

    runs: tuple[Run, ...]
    rows: npt.NDArray[np.int64] | None = None

    def of(self, row: int) -> Place:
        """The place of row `row`."""
        at = row if self.rows is None else int(self.rows[row])
        for run in self.runs:
            if at < len(run.offsets):
                key = None if run.keys is None else run.keys[at].as_py()
                return Place(run.topic, run.partition, int(run.offsets[at]), key)
            at -= len(run.offsets)
        raise AssertionError("a row after the last one")

    def without(self, rows: npt.NDArray[np.int64]) -> Places:
        """The places without those of these rows."""
        every = self.rows
        if every is None:
            every = np.arange(sum(len(run.offsets) for run in self.runs))
        return Places(self.runs, np.delete(every, rows))
