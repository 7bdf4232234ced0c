"""State under another parallelism: all parts of an operator in, one partition's state out. Pure.

1. Rows go to the partition of the operator's key, from the old partitions in order. A row found in
   a partition to which its key does not belong is not stored by that key: PermanentError.
2. State without a key is left to the operator: its `rescale` gets the old partitions with all of
   their state, after the rows of the new one were distributed.
3. On a feedback edge, an operator's output of its last epoch is input of the next. The output of
   old partition i goes to i * new // old, so consumers get it in the order of the old partitions,
   and by its key as always.

Every new partition reads all old parts, one after the other, and keeps its own share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from perseid.errors import PermanentError
from perseid.jobs.operator import Identity, opened, rescales
from perseid.records.redaction import redacted
from perseid.state.durability.merging import STATE, emitted
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.primitive import bind, declared, keyless
from perseid.state.primitives.xxh64 import hashed_bits
from perseid.worker.dataflow import operators
from perseid.worker.dataflow.partition import partitions

if TYPE_CHECKING:
    from perseid.jobs.model.spec import OperatorSpec
    from perseid.jobs.operator import Operator


@dataclass(frozen=True)
class Share:
    """One partition of an operator under the new layout.

    `key`: the operator's. `make(partition, parallelism)`: a new instance, without state.
    """

    operator: str
    key: tuple[str, ...]
    partition: int
    parallelism: int
    make: Callable[[int, int], Operator]

    def instance(self) -> Operator:
        """A new instance of this partition, without state."""
        return self.make(self.partition, self.parallelism)

    def of(self, parts: Iterable[Mapping[str, Any]], count: int, epoch: int) -> dict[str, Any]:
        """This partition's sections, from those of the `count` old partitions in order.

        Raises:
            PermanentError: state that cannot be redistributed, or `rescale` raised.
        """
        mine = self.instance()
        live = bind(mine)
        asks = rescales(type(mine))
        if not asks:
            self._check_keys(type(mine))
        rows: dict[str, list[pa.Table]] = {name: [] for name in live}
        outputs: dict[str, list[pa.Table]] = {}
        before: list[Operator] = []
        for number, sections in enumerate(parts):
            tables = {n: ipc_table(sections[STATE + n]) for n in live if STATE + n in sections}
            for name, table in tables.items():
                columns = live[name].shard_key(self.key)
                if columns is not None:
                    rows[name].append(self._mine(name, table, tuple(columns), number, count))
            if number * self.parallelism // count == self.partition:
                for section, output in emitted(sections).items():
                    outputs.setdefault(section, []).append(ipc_table(output))
            if asks:
                before.append(self._restored(number, count, tables))
        for name, found in rows.items():
            if found:
                live[name].restore(pa.concat_tables(found))
        if asks:
            operators.rescale(mine, before, epoch)
        state = {STATE + name: ipc_bytes(p.snapshot()) for name, p in live.items()}
        return state | {section: ipc_bytes(joined(found)) for section, found in outputs.items()}

    def _check_keys(self, kind: type[Operator]) -> None:
        """`jobs apply` refuses such classes; checked here again so that no state is lost."""
        lost = keyless(kind, self.key)
        if lost:
            raise PermanentError(
                f"operator {self.operator}: {', '.join(lost)} of {kind.__name__} cannot be "
                f"redistributed by {', '.join(self.key)}; give the class a method rescale(self, "
                "old), or go back to the previous parallelism"
            )

    def _mine(
        self, name: str, rows: pa.Table, columns: tuple[str, ...], number: int, count: int
    ) -> pa.Table:
        """The rows of an old partition that belong to this one."""
        wrong = np.flatnonzero(partitions(rows, columns, count) != number)
        if len(wrong):
            key = redacted(rows.select(list(columns)).slice(int(wrong[0]), 1))
            raise PermanentError(
                f"operator {self.operator}: {name} has a key {key} in partition {number} of "
                f"{count}, where rows of this key do not come: {name} is not kept by the "
                f"operator's key, {', '.join(self.key)}. Go back to `parallelism: {count}`, or "
                f"name the column of {name} otherwise and give the operator a method "
                "rescale(self, old)"
            )
        return rows.filter(pa.array(partitions(rows, columns, self.parallelism) == self.partition))

    def _restored(self, number: int, count: int, tables: dict[str, pa.Table]) -> Operator:
        """The operator of an old partition with its state."""
        operator = self.make(number, count)
        for name, primitive in bind(operator).items():
            if name in tables:
                primitive.restore(tables[name])
        return operator


def share_of(
    job: str, name: str, spec: OperatorSpec, kind: type[Operator], partition: int
) -> Share:
    """The share of one partition of the operator `name` of `job`."""

    def make(number: int, parallelism: int) -> Operator:
        return opened(kind, Identity(job, name, number, parallelism), spec.with_)

    return Share(name, spec.key, partition, spec.parallelism, make)


def check_types(operator: str, key: tuple[str, ...], kind: type[Operator], rows: pa.Schema) -> None:
    """PermanentError when rows are distributed differently from the state of their key.

    The hash of a number depends on its type, and a primitive accepts several types. The state of a
    single partition cannot show this. Checked before any partition runs the epoch.
    """
    for name, primitive in declared(kind).items():
        for column, kept in zip(key, (primitive.shard_key(key) or {}).values(), strict=False):
            given = rows.field(column).type
            if hashed_bits(given) != hashed_bits(kept):
                raise PermanentError(
                    f"operator {operator}: key column {column} comes as {given}, and {name} keeps "
                    f"it as {kept}: by these two a key belongs to different partitions, and the "
                    f"state was distributed as {kept}. Cast the column before the operator, as in "
                    f"CAST({column} AS BIGINT), and apply the job again"
                )


def joined(emitted: list[pa.Table]) -> pa.Table:
    """Outputs, concatenated; those of partitions that emitted nothing have no columns."""
    return pa.concat_tables([t for t in emitted if t.num_columns] or [pa.table({})])
