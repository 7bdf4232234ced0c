"""Rows of an epoch as the sets of a buffer topic, and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from perseid.errors import DamagedFile
from perseid.state.primitives.arrow import ipc_table
from perseid.state.primitives.content import content_crc
from perseid.topics import names
from perseid.topics.buffers import Blobs
from perseid.topics.sets import Place
from perseid.worker.dataflow.edges import Row

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout
    from perseid.topics.admin import Partition


class Fragment(Protocol):
    """`FragmentContext`, or what the simulation has in its place."""

    @property
    def job(self) -> str: ...
    @property
    def job_uuid(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def revision(self) -> str: ...
    @property
    def layout(self) -> Layout: ...


def place_of(job: str, layout: Layout, gid: int) -> Partition:
    """The topic and partition of the rows for that operator partition."""
    task = layout.task(gid)
    return names.buffer(job, task.operator, layout.number), task.partition


@dataclass(frozen=True, slots=True)
class OutgoingSet:
    """What one task sends one operator partition. `rows_crc`: of all its rows."""

    target: int
    input: int
    origin: int
    blobs: tuple[Any, ...]
    rows_crc: int


def outgoing(rows: Iterable[Row]) -> Iterator[OutgoingSet]:
    """The sets of `rows`, which have all their chunks."""
    found: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.target, row.input, row.origin), []).append(row)
    for place, chunks in sorted(found.items()):
        blobs = tuple(row.blob for row in sorted(chunks, key=lambda row: row.chunk))
        yield OutgoingSet(*place, blobs, _crc(blobs))


def incoming(target: int, found: Mapping[Place, Blobs], where: str) -> list[Row]:
    """The rows for the operator partition with the gid `target`.

    `where`: topic, partition and epoch. DamagedFile when rows are not those that were sent.
    """
    rows: list[Row] = []
    for (input_, origin), one in sorted(found.items()):
        crc = _crc(one.blobs)
        if crc != one.rows_crc:
            raise DamagedFile(
                f"{where}: the rows of input {input_} from origin {origin} have the CRC {crc:08x}, "
                f"and were sent with {one.rows_crc:08x}"
            )
        blobs = list(map(pa.py_buffer, one.blobs))
        rows += [Row(target, input_, origin, n, blob, len(blobs)) for n, blob in enumerate(blobs)]
    return rows


def _crc(blobs: Iterable[Any]) -> int:
    return content_crc([ipc_table(blob) for blob in blobs if len(blob)])
