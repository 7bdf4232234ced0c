"""What passed between the tasks of one epoch, as `one_process` keeps it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.worker.dataflow.edges import inputs, one_table

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.worker.dataflow.edges import Row
    from perseid.worker.dead_letters.places import Run


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The accepted records of a source in one split, as rows, and their places in that order.

    `metadata`: columns that only readers which declare them get.
    """

    table: pa.Table
    runs: Sequence[Run]
    metadata: tuple[str, ...] = ()


@dataclass
class Trace:
    """What passed between the tasks of one epoch. By gid, unless it is named.

    `sources`: by name and split. `arrived`: what reached a partition. `outputs`: of keyed
    operators, by output.
    """

    order: EpochOrder
    sources: dict[tuple[str, int], SourceRows] = field(default_factory=dict)
    arrived: dict[int, list[Row]] = field(default_factory=dict)
    outputs: dict[int, Mapping[str, pa.Table]] = field(default_factory=dict)

    def tables(self, gid: int, port: int) -> dict[int, pa.Table]:
        """What reached an input of a partition, by origin (`edges.Row`)."""
        mine = [row for row in self.arrived.get(gid, ()) if row.input == port]
        names = ("",) * (port + 1)
        return {
            origin: inputs((row for row in mine if row.origin == origin), names)[""]
            for origin in sorted({row.origin for row in mine})
        }

    def inputs(self, gid: int, names: Iterable[str]) -> dict[str, pa.Table]:
        """All that reached a partition, by input; without columns where nothing came."""
        return {
            name: one_table(name, [t for t in self.tables(gid, port).values() if t.num_columns])
            for port, name in enumerate(names)
        }
