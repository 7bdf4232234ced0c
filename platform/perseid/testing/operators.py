"""Runs one operator partition of a job folder without Kafka and Spark.

    spent = Harness(Path("my-job"), "spent")
    assert spent.epoch({"customer": ["ann"], "amount": [3]}) == [{"customer": "ann", "total": 3}]

State goes through the same deltas as in a worker, so `crash` tests that an operator keeps all that
it needs in its primitives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from perseid.errors import UsageError
from perseid.jobs import loading, parse
from perseid.jobs.operator import Emitter, Identity, Operator, combines
from perseid.state import Primitive, bind

Rows: TypeAlias = "pa.Table | Mapping[str, Sequence[Any]]"
EPOCH_MS = 500


class Harness:
    """Partition 0 of 1 of one Python operator; epochs are numbered from 1."""

    def __init__(self, folder: Path, operator: str) -> None:
        job = parse.load(folder)
        spec = job.operators.get(operator)
        if spec is None or spec.use is None:
            python = [n for n, o in job.operators.items() if o.use is not None]
            raise UsageError(f"{folder} has no Python operator {operator!r}; it has {python}")
        self._spec = spec
        self._identity = Identity(job.name, operator, 0, 1)
        self._class = loading.load(spec, folder)
        self._deltas: list[dict[str, pa.Table]] = []
        self.number = 0
        self._operator, self._state = self._fresh()

    def epoch(self, rows: Rows | Mapping[str, Rows], splits: int = 1) -> list[dict[str, Any]]:
        """One epoch; what it emitted. `inputs:` in job.yaml: a dict of rows by input name.

        `splits` deals the input to that many source tasks, each with a combiner of its own.
        """
        self.number += 1
        self._operator.enter(self.number, self.number * EPOCH_MS)
        out = Emitter(self._identity.operator, self._class.output)
        self._operator.process(self._input(rows, splits), out)
        found = {n: d for n, p in self._state.items() if (d := p.delta()) is not None}
        self._deltas.append(found)
        for primitive in self._state.values():
            primitive.commit()
        emitted = out.table()
        return emitted.to_pylist() if emitted is not None else []

    def crash(self) -> None:
        """Throws the instance away and rebuilds its state from the deltas, as a worker would."""
        self._operator, self._state = self._fresh()
        for deltas in self._deltas:
            for name, delta in deltas.items():
                self._state[name].apply(delta)

    def _fresh(self) -> tuple[Operator, dict[str, Primitive]]:
        operator = self._class()
        operator.open(self._identity, dict(self._spec.with_))
        return operator, bind(operator)

    def _input(self, rows: Any, splits: int) -> Any:
        names = list(self._spec.inputs)
        if names == ["input"]:
            return self._combined(_table(rows), splits)
        if set(rows) != set(names):
            raise UsageError(f"expected rows for each of the inputs {names}, found {list(rows)}")
        found = {name: _table(rows[name]) for name in names}
        return found if len(names) > 1 else {n: self._combined(t, splits) for n, t in found.items()}

    def _combined(self, rows: pa.Table, splits: int) -> pa.Table:
        if not combines(self._class):
            return rows
        size = max(1, -(-rows.num_rows // splits))
        parts = [rows.slice(at, size) for at in range(0, max(rows.num_rows, 1), size)]
        return pa.concat_tables([self._operator.combine(part) for part in parts])


def _table(rows: Rows) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
