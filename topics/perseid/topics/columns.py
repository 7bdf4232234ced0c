"""Records of one partition as columns, as sources read them: no Python object for each record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with the methods of the client's message."""

    _partition: int
    _offset: int
    _time_ms: int
    _key: bytes | None
    _value: bytes | None

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time_ms

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


@dataclass(frozen=True, slots=True)
class Records:
    """Records in the order of their offsets; `timestamps` are milliseconds since 1970."""

    partition: int
    values: pa.BinaryArray
    keys: pa.BinaryArray
    offsets: Int64s
    timestamps: Int64s

    @classmethod
    def empty(cls, partition: int) -> Records:
        return cls.of(partition, [])

    @classmethod
    def of(
        cls, partition: int, rows: Iterable[tuple[int, int, bytes | None, bytes | None]]
    ) -> Records:
        """From (offset, timestamp, key, value)."""
        listed = list(rows)
        return cls(
            partition,
            pa.array([value for _, _, _, value in listed], pa.binary()),
            pa.array([key for _, _, key, _ in listed], pa.binary()),
            np.array([offset for offset, *_ in listed], np.int64),
            np.array([time_ms for _, time_ms, *_ in listed], np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, row: int) -> Record:
        return Record(
            self.partition, int(self.offsets[row]), int(self.timestamps[row]),
            self.keys[row].as_py(), self.values[row].as_py(),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Record]:
        return map(self.__getitem__, range(len(self)))

    def split(self, end: int) -> tuple[Records, Records]:
        """The records below the offset `end`, and the others."""
        cut = int(np.searchsorted(self.offsets, end))
        return self._rows(0, cut), self._rows(cut, len(self))

    def without(self, rows: Iterable[int]) -> Records:
        """All records except those at these positions."""
        keep = np.ones(len(self), bool)
        keep[list(rows)] = False
        mask = pa.array(keep)
        return Records(
            self.partition, self.values.filter(mask), self.keys.filter(mask), self.offsets[keep],
            self.timestamps[keep],
        )  # fmt: skip

    def _rows(self, start: int, end: int) -> Records:
        return Records(
            self.partition, self.values[start:end], self.keys[start:end], self.offsets[start:end],
            self.timestamps[start:end],
        )  # fmt: skip
