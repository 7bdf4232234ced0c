"""From which input records an epoch made some rows: the way back through its trace. Pure.

1. Rows of a keyed operator's output have its keys in their columns. Its partition runs again on the
   input rows with these keys alone, from its state before the epoch: if that makes the rows, no
   row of another key was needed. Otherwise its keys are searched (`narrowing`).
2. Its input rows with these keys are rows of a source, or of an operator on a lower level.
   Stateless operators and combiners between are run again on fewer rows (`narrowing`).
3. A row of a source has its topic, partition and offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perseid.jobs.model.layout import is_keyed, written_streams
from perseid.jobs.model.spec import output_of, producer
from perseid.replay.narrowing import (
    Bools,
    How,
    Narrowed,
    contains,
    distinct,
    has_columns,
    members,
    narrowed,
    same_rows,
    texts,
    with_keys,
)
from perseid.replay.traces import SourceRows
from perseid.worker.dataflow.partition import partitions
from perseid.worker.dead_letters import null_keys

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec, OperatorSpec
    from perseid.replay.traces import Trace

SAMPLES_MAX = 10  # rows that are shown of each source
_WORST: tuple[How, ...] = ("proven", "searched", "whole")

Pick = Callable[[pa.Table], Bools]
Tables = Mapping[str, pa.Table]


class Reruns(Protocol):
    """Runs parts of the epoch again, on other rows, without effect."""

    def passed(
        self, source: SourceRows | pa.Table, path: tuple[str, ...], consumer: str, origin: int
    ) -> pa.Table:
        """What reaches `consumer`, before it is combined, through stateless operators' streams."""
        ...

    def combined(self, consumer: str, table: pa.Table, origin: int) -> pa.Table:
        """As `consumer`'s combiner has it, or the same rows if it has none."""
        ...

    def processed(self, task: Task, inputs: Tables) -> Tables:
        """The outputs of a keyed operator partition, from its state before the epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One operator partition on the way. `keys`: None for all; `rows`: that it read, by input."""

    operator: str
    partition: int
    keys: pa.Table | None
    rows: Mapping[str, int]
    how: How


@dataclass(frozen=True, slots=True)
class Records:
    """Input records of one source partition. `rows`: some of them, in the order of `offsets`."""

    source: str
    topic: str
    partition: int
    offsets: npt.NDArray[np.int64]
    rows: pa.Table


@dataclass
class Lineage:
    """The way back from some rows; one of `of_record` and `of_key` is called once.

    `more`: a new budget for a search (`narrowing.narrowed`). `steps`: in the order of the way.
    """

    trace: Trace
    spec: JobSpec
    layout: Layout
    reruns: Reruns
    more: Callable[[], Callable[[], bool]]
    steps: list[Step] = field(default_factory=list)
    fed_back: set[str] = field(default_factory=set)  # operators whose last epoch was read
    _rows: dict[tuple[str, int], Bools] = field(default_factory=dict)  # of sources, by split
    _outputs: dict[int, dict[str, Bools]] = field(default_factory=dict)  # wanted, by gid

    def of_output(self, task: Task, output: str, rows: Bools) -> None:
        """Of rows that a keyed operator partition has emitted."""
        self._want(task.gid, output, rows)
        self._go_back()

    def of_key(self, task: Task, keys: pa.Table) -> None:
        """Of what a keyed operator partition made of these keys."""
        self._into(task, keys, "proven")
        self._go_back()

    def of_written(self, task: Task, output: str, pick: Pick) -> None:
        """Of rows that a writer's partition has written, which `pick` finds."""
        streams = written_streams(self.spec, task.operator)
        port = [output_of(stream) for stream in streams].index(output)
        rows, how = self._arrivals(task, port, streams[port], pick, None)
        self.steps.append(Step(task.operator, task.partition, None, {output: rows}, how))
        self._go_back()

    def records(self) -> list[Records]:
        """The input records that were found."""
        found: dict[tuple[str, str, int], list[tuple[npt.NDArray[np.int64], pa.Table]]] = {}
        for (name, split), rows in sorted(self._rows.items()):
            source, start = self.trace.sources[name, split], 0
            for run in source.runs:
                mine = np.flatnonzero(rows[start : start + len(run.offsets)])
                if len(mine):
                    shown = source.table.take(pa.array(start + mine[:SAMPLES_MAX]))
                    place = name, run.topic, run.partition
                    found.setdefault(place, []).append((run.offsets[mine], shown))
                start += len(run.offsets)
        return [
            Records(*place, np.concatenate([offsets for offsets, _ in parts]),
                    pa.concat_tables([rows for _, rows in parts]).slice(0, SAMPLES_MAX))
            for place, parts in sorted(found.items())
        ]  # fmt: skip

    # Keyed operators ----------------------------------------------------------------------------

    def _want(self, gid: int, output: str, rows: Bools) -> None:
        known = self._outputs.setdefault(gid, {})
        known[output] = known[output] | rows if output in known else rows

    def _go_back(self) -> None:
        """From the highest level down: then all that is wanted of a partition is known."""
        while self._outputs:
            gid = max(self._outputs, key=lambda one: (self.layout.task(one).level, one))
            task = self.layout.task(gid)
            keys, how = self._keys_of(task, self._outputs.pop(gid))
            self._into(task, keys, how)

    def _keys_of(self, task: Task, rows: Mapping[str, Bools]) -> tuple[pa.Table | None, How]:
        """Step 1: the keys whose input rows make these outputs; None for all that there are."""
        key = self.spec.operators[task.operator].key
        made = self.trace.outputs[task.gid]
        targets = {name: made[name].filter(pa.array(mask)) for name, mask in rows.items()}
        inputs = self.trace.inputs(task.gid, self.spec.operators[task.operator].inputs)

        def makes(keys: pa.Table) -> dict[str, pa.Table]:
            mine = {name: with_keys(table, keys) for name, table in inputs.items()}
            found = self.reruns.processed(task, mine)
            return {name: found[name] for name in targets}

        if all(has_columns(table, key) for table in targets.values()):
            keys = distinct(pa.concat_tables([t.select(key) for t in targets.values()]))
            again = makes(keys)
            if all(again[name].equals(table) for name, table in targets.items()):
                return keys, "proven"  # and no other row of these keys
            if contains(_named(again), _named(targets)):
                return keys, "proven"
        every = _keys(inputs.values(), key)
        if every is None:
            return None, "whole"
        wanted = _named(targets)

        def of_wanted(some: Bools) -> Counter[bytes]:
            return _named(makes(every.filter(pa.array(some)))) & wanted

        found = narrowed(len(every), wanted, of_wanted, (), self.more())
        chosen = None if found.how == "whole" else every.filter(pa.array(found.rows))
        return chosen, found.how

    def _into(self, task: Task, keys: pa.Table | None, how: How) -> None:
        """Step 2, for each input of a keyed operator partition."""
        operator = self.spec.operators[task.operator]

        def pick(table: pa.Table) -> Bools:
            if keys is None or not has_columns(table, keys.column_names):
                return np.full(len(table), keys is None)
            return members(table, keys)

        counts: dict[str, int] = {}
        hows = [how]
        for port, (name, stream) in enumerate(operator.inputs.items()):
            if name in operator.feedback:
                tables = self.trace.tables(task.gid, port).values()
                counts[name] = sum(int(pick(table).sum()) for table in tables)
                self.fed_back |= {producer(stream)} if counts[name] else set()
                continue
            counts[name], found = self._arrivals(task, port, stream, pick, keys)
            hows.append(found)
        worst = max(hows, key=_WORST.index)
        self.steps.append(Step(task.operator, task.partition, keys, counts, worst))

    # Edges --------------------------------------------------------------------------------------

    def _arrivals(
        self, task: Task, port: int, stream: str, pick: Pick, keys: pa.Table | None
    ) -> tuple[int, How]:
        """Notes from which rows those come that `pick` finds at an input; their number."""
        base, path = self._path(stream)
        count, worst = 0, 0
        for origin, table in self.trace.tables(task.gid, port).items():
            rows = pick(table)
            if rows.any():
                count += int(rows.sum())
                wanted = table.filter(pa.array(rows))
                found = self._narrowed(task, base, path, origin, wanted, pick, keys)
                worst = max(worst, _WORST.index(found.how))
                self._take(base, origin, found.rows)
        return count, _WORST[worst]

    def _narrowed(
        self, task: Task, base: str, path: tuple[str, ...], origin: int, wanted: pa.Table,
        pick: Pick, keys: pa.Table | None,
    ) -> Narrowed:  # fmt: skip
        """Of the rows of `base` in task `origin`, those that became `wanted`."""
        consumer, source = task.operator, self._base(base, origin)
        rows = source if isinstance(source, pa.Table) else source.table
        edge = self.reruns.passed(source, path, consumer, origin)
        reached = self._own(task, pick(edge), edge)
        combined = self.reruns.combined(consumer, edge.filter(pa.array(reached)), origin)
        if not same_rows(combined, wanted):  # a combiner that mixes keys
            return Narrowed(self._own(task, np.ones(len(rows), bool), rows), "whole")
        if not path:
            return Narrowed(reached, "proven")

        def makes(some: Bools) -> Counter[bytes]:
            found = self.reruns.passed(_some(source, some), path, consumer, origin)
            return texts(found.filter(pa.array(self._own(task, pick(found), found))))

        guesses = _guesses(edge, rows, reached, keys)
        return narrowed(
            len(rows), texts(edge.filter(pa.array(reached))), makes, guesses, self.more()
        )

    def _own(self, task: Task, picked: Bools, table: pa.Table) -> Bools:
        """Those that go to the partition of `task`."""
        operator = self.spec.operators.get(task.operator)
        if operator is None or not is_keyed(operator) or not has_columns(table, operator.key):
            return picked
        count = len(self.layout.of(task.operator))
        own: Bools = picked & (partitions(table, operator.key, count) == task.partition)
        own[null_keys.rows_of(table, operator.key)] = False  # they are dead letters
        return own

    def _path(self, stream: str) -> tuple[str, tuple[str, ...]]:
        """The source or keyed operator's stream from which `stream` comes, and streams between."""
        path: list[str] = []
        while True:
            operator = self._stateless(stream)
            if operator is None:
                return stream, tuple(reversed(path))
            path.append(stream)
            stream = next(iter(operator.inputs.values()))

    def _stateless(self, stream: str) -> OperatorSpec | None:
        operator = self.spec.operators.get(producer(stream))
        return operator if operator is not None and not is_keyed(operator) else None

    def _base(self, base: str, origin: int) -> SourceRows | pa.Table:
        """The rows of a source's split, or of a keyed operator's partition."""
        if base in self.spec.sources:
            return self.trace.sources[base, origin]
        return self.trace.outputs[origin][output_of(base)]

    def _take(self, base: str, origin: int, rows: Bools) -> None:
        if base in self.spec.sources:
            known = self._rows.get((base, origin))
            self._rows[base, origin] = rows if known is None else known | rows
        else:
            self._want(origin, output_of(base), rows)


def _guesses(
    edge: pa.Table, rows: pa.Table, reached: Bools, keys: pa.Table | None
) -> Iterator[Bools]:
    """Rows in the same places as at the edge, then rows that have the keys already."""
    if len(edge) == len(rows):
        yield reached
    if keys is not None and has_columns(rows, keys.column_names):
        try:
            yield members(rows, keys)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # another type: another column
            return


def _some(source: SourceRows | pa.Table, rows: Bools) -> SourceRows | pa.Table:
    if isinstance(source, pa.Table):
        return source.filter(pa.array(rows))
    return SourceRows(source.table.filter(pa.array(rows)), (), source.metadata)


def _keys(tables: Iterable[pa.Table], key: tuple[str, ...]) -> pa.Table | None:
    """The different keys of an operator's inputs; None without rows."""
    found = [table.select(key) for table in tables if table.num_rows]
    return distinct(pa.concat_tables(found)) if found else None


def _named(tables: Tables) -> Counter[bytes]:
    """The rows of several outputs as texts."""
    found: Counter[bytes] = Counter()
    for name, table in tables.items():
        found.update({f"{name} ".encode() + text: n for text, n in texts(table).items()})
    return found


def same(keys: pa.Array, values: pa.Array, key: bytes | None, value: bytes | None) -> Bools:
    """Which records have this key and value; no key and an empty one differ."""
    found = np.ones(len(values), bool)
    for column, wanted in ((keys, key), (values, value)):
        null = column.is_null().to_numpy(zero_copy_only=False)
        if wanted is None:
            found &= null
        else:
            equal = pc.fill_null(pc.equal(column, pa.scalar(wanted, pa.binary())), False)
            found &= equal.to_numpy(zero_copy_only=False)
    return found
