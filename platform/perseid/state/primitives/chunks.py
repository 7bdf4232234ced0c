"""Rows with a time, in immutable chunks, in order of arrival.

Rows older than a bound are removed chunk by chunk; chunks after the bound are not read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from perseid.state.primitives.undo import Values

CHUNK_ROWS = 16_384  # smaller neighbours are joined; decisions/0009


@dataclass(frozen=True, slots=True)
class Chunk:
    """One or more rows, their times as integers, and the smallest and largest time.

    The last `new` rows came after the marked backup.
    """

    rows: pa.Table
    times: Values
    first: int
    last: int
    new: int
    bytes: int

    def __len__(self) -> int:
        return len(self.times)

    def marked(self) -> Chunk:
        """The same chunk as part of the backup."""
        return replace(self, new=0)

    def between(self, low: int, high: int) -> pa.Table:
        """The rows with `low <= time < high`."""
        if self.first >= low and self.last < high:
            return self.rows
        if self.last < low or self.first >= high:
            return self.rows.slice(0, 0)
        return self.rows.filter(pa.array((self.times >= low) & (self.times < high)))

    def since(self, bound: int) -> Chunk | None:
        """The chunk without the rows before `bound`; None when nothing is left."""
        if self.first >= bound:
            return self
        if self.last < bound:
            return None
        keep = self.times >= bound
        new = int(np.count_nonzero(keep[len(keep) - self.new :]))
        return chunk(self.rows.filter(pa.array(keep)), self.times[keep], new)


def chunk(rows: pa.Table, times: Values, new: int) -> Chunk:
    return Chunk(rows, times, int(times.min()), int(times.max()), new, int(rows.nbytes))


def cut(rows: pa.Table, times: Values) -> tuple[Chunk, ...]:
    """New rows as chunks, copied: views would keep their whole batch in memory."""
    chunks = []
    for at in range(0, len(rows), CHUNK_ROWS):
        part, end = rows.slice(at, CHUNK_ROWS), rows.slice(at, 0)
        copied = pa.concat_tables([part, end]).combine_chunks()  # a copy, since there are two
        chunks.append(chunk(copied, times[at : at + CHUNK_ROWS].copy(), len(copied)))
    return tuple(chunks)


def joined(chunks: tuple[Chunk, ...], more: tuple[Chunk, ...]) -> tuple[Chunk, ...]:
    """Both, with small neighbours joined."""
    out = list(chunks)
    for part in more:
        if out and len(out[-1]) + len(part) <= CHUNK_ROWS:
            last = out.pop()
            rows = pa.concat_tables([last.rows, part.rows]).combine_chunks()
            times = np.concatenate([last.times, part.times])
            out.append(chunk(rows, times, last.new + part.new))
        else:
            out.append(part)
    return tuple(out)


def since(chunks: tuple[Chunk, ...], bound: int) -> tuple[Chunk, ...]:
    """The chunks without the rows before `bound`."""
    kept = (part.since(bound) for part in chunks)
    return tuple(part for part in kept if part is not None)
