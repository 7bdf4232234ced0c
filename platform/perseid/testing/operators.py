"""Runs one Python operator of a job folder without Kafka and Spark.

    spent = Harness(Path("my-job"), "spent", parallelism=2)
    assert spent.epoch({"customer": ["ann"], "amount": [3]}) == [{"customer": "ann", "total": 3}]
    spent.advance("1h")
    spent.crash()
    assert spent.rows("state") == [{"key": "ann", "total": 3}]

The engine's own step (`perseid.engine.epoch.process`) runs the operators over the worker's
`PartitionState` and its state log, on files in memory: so permitted actions and the state after a
crash are the same as in a job. An operator that reads a clock or draws a random number of its own
is refused (`perseid.testing.impure`).
`perseid.testing.operator_checks` has the checks that every operator should pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from perseid.engine.epoch import process
from perseid.engine.order import EpochOrder
from perseid.errors import UsageError
from perseid.jobs.environments import loading
from perseid.jobs.model import units
from perseid.jobs.model.spec import MAIN
from perseid.jobs.operator import Identity, Operator, combines, opened, outputs_of
from perseid.jobs.validation import parse
from perseid.state.durability import blob
from perseid.state.durability.log import StateLog
from perseid.state.durability.merging import STATE
from perseid.state.primitives.arrow import ipc_table
from perseid.state.primitives.primitive import bind
from perseid.testing.files import MemoryFiles
from perseid.testing.impure import pure
from perseid.topics.records import Token
from perseid.worker.checkpoint.parts import write_snapshot
from perseid.worker.dataflow.operators import combine
from perseid.worker.dataflow.partition import partitions
from perseid.worker.dead_letters import null_keys
from perseid.worker.dead_letters.poison import sieve_of
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.formats import event_time
from perseid.worker.recovery.migration import Migration
from perseid.worker.recovery.resplit import share_of

Rows: TypeAlias = "pa.Table | Mapping[str, Sequence[Any]]"
Inputs: TypeAlias = "Rows | Mapping[str, Rows] | None"
Outputs: TypeAlias = dict[str, pa.Table]
EPOCH_MS = 500
ROOT = "/state"


@dataclass(frozen=True)
class Snapshot:
    """The state at the end of `epoch`: the content of a checkpoint, one file per partition."""

    epoch: int
    now: int
    parts: tuple[blob.Sections, ...]


class Harness:
    """All partitions of one Python operator; epochs are numbered from 1 and take 500 ms each.

    `now` is the token time of the last epoch (ms since 1970) and may be set; `watermark` that of
    the next tokens. `outputs` are the last epoch's rows by output, `letters` its dead letters, if
    the operator bisects. `files` is the host's disk, which crashes when a test requests it.
    """

    def __init__(self, folder: Path, operator: str, *, parallelism: int = 1) -> None:
        job = parse.load(folder)
        spec = job.operators.get(operator)
        if spec is None or spec.use is None:
            python = [n for n, o in job.operators.items() if o.use is not None]
            raise UsageError(f"{folder} has no Python operator {operator!r}; it has {python}")
        self.folder, self.name, self.spec, self.parallelism = folder, operator, spec, parallelism
        self.operator_class = loading.load(spec, folder)
        self.number = 0
        self.now = 0
        self.watermark: int | None = None
        self.outputs: dict[str, list[dict[str, Any]]] = {}
        self.letters: list[dict[str, Any]] = []
        self._job = job
        self._issued = 0  # tokens ever made: their unique offsets
        self._begin([{}] * parallelism)

    # Time ---------------------------------------------------------------------------------------

    def advance(self, duration: str) -> None:
        """Advances the time of the next epoch: "10s", "5m", "1h"."""
        self.now += round(units.seconds(duration) * 1000)

    def epoch(self, rows: Inputs = None, splits: int = 1) -> list[dict[str, Any]]:
        """Runs one epoch; returns the rows of the main output, partition after partition.

        With `inputs:` in job.yaml: a dict of rows by input name. `splits` distributes the input
        over that many source tasks, each with a combiner of its own. Without rows: an idle job's
        epoch.
        """
        tables = self._tables(rows)
        self.letters = []
        now = self.now + EPOCH_MS
        token = Token(1, "harness", self.number + 1, self._issued, "r", 1, (), now, self.watermark)
        with pure(self.name):
            dealt = {
                name: self._dealt(token, name, table, splits) for name, table in tables.items()
            }
            found = [
                self._run(token, index, {name: parts[index] for name, parts in dealt.items()})
                for index in range(self.parallelism)
            ]
        self.number, self.now, self._issued = token.epoch, now, self._issued + 1
        self._times[self.number] = now, self.watermark
        if not self.spec.key:
            self._start()  # a worker keeps no instance of a stateless operator
        self.outputs = {
            name: [row for outputs in found for row in outputs[name].to_pylist()]
            for name in outputs_of(self.operator_class)
        }
        return self.outputs[MAIN]

    # State --------------------------------------------------------------------------------------

    def state(self, name: str) -> pa.Table:
        """Returns the content of the primitive `name` in all partitions."""
        known = list(self._states[0].live)
        if name not in known:
            raise UsageError(f"operator {self.name} has no state {name!r}; it has {known}")
        for state in self._states:
            state.bring_to(self.number)  # one that only returned a retained output lags
        return pa.concat_tables([state.live[name].snapshot() for state in self._states])

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Returns `state` as a list of rows."""
        found: list[dict[str, Any]] = self.state(name).to_pylist()
        return found

    @property
    def state_names(self) -> tuple[str, ...]:
        """Returns the primitives that the operator declares."""
        return tuple(self._states[0].live)

    def crash(self, epoch: int | None = None) -> None:
        """Kills all processes; new ones restore the end of `epoch` from the state log.

        Without `epoch` the last one. Later epochs are rolled back, as are time and watermark: both
        are set to their values at the end of `epoch`.
        """
        wanted = self.number if epoch is None else epoch
        if not self._base <= wanted <= self.number:
            raise UsageError(f"epoch {wanted} is not in {self._base}..{self.number}")
        self.files.restart()
        if wanted < self.number:
            self.now, self.watermark = self._times[wanted]
        self.number = wanted
        self._start()

    def snapshot(self) -> Snapshot:
        """Returns the current state, as a checkpoint has it."""
        parts = []
        for state in self._states:
            order = state.part_order(self._job.name, 1, self.number, self._issued, None)
            write_snapshot(state.log, order)
            parts.append(state.log.snapshot(self.number).sections)
        return Snapshot(self.number, self.now, tuple(parts))

    def restore(self, snapshot: Snapshot) -> None:
        """Moves to another host, which has only `snapshot`, perhaps of another parallelism.

        A snapshot of an earlier revision (another `Harness`) is converted by `Operator.migrate`.
        """
        self.number, self.now = snapshot.epoch, snapshot.now
        count = len(snapshot.parts)
        parts = [
            Migration(self._instance(index, count)).run(sections, self.number)
            for index, sections in enumerate(snapshot.parts)
        ]
        if count != self.parallelism:
            spec = self.spec.model_copy(update={"parallelism": self.parallelism})
            shares = [
                share_of(self._job.name, self.name, spec, self.operator_class, index)
                for index in range(self.parallelism)
            ]
            parts = [share.of(parts, count, self.number) for share in shares]
        self._begin(parts)

    # How ----------------------------------------------------------------------------------------

    def _begin(self, parts: Iterable[Mapping[str, Any]]) -> None:
        self.files = MemoryFiles()
        self._base = self.number
        self._times = {self.number: (self.now, self.watermark)}
        self.files.make_directory(ROOT, parents=True)
        for index, sections in enumerate(parts):
            log = self._log(index)
            log.create()
            log.write_snapshot(self.number, 1, self._issued, sections)
        self._start()

    def _start(self) -> None:
        """Starts new processes: instances with the state from the log."""
        self._states = []
        for index in range(self.parallelism):
            operator = self._instance(index)
            combined = combines(self.operator_class)
            sieve = sieve_of(self._job, self.name, index, combined=combined)
            state = PartitionState(operator, bind(operator), self._log(index), sieve)
            state.bring_to(self.number)
            self._states.append(state)

    def _log(self, index: int) -> StateLog:
        identity = blob.Identity("harness", 1, self.name, index)
        return StateLog(self.files, f"{ROOT}/{self.name}-{index}", identity)

    def _instance(self, partition: int, parallelism: int | None = None) -> Operator:
        size = self.parallelism if parallelism is None else parallelism
        identity = Identity(self._job.name, self.name, partition, size)
        return opened(self.operator_class, identity, self.spec.with_)

    def _run(self, token: Token, index: int, inputs: dict[str, pa.Table]) -> Outputs:
        order = EpochOrder(token, token.previous_offset + 1, None, generation=1)
        result = process(self._states[index], self.name, order, inputs)
        if result.letters is not None:
            self.letters += result.letters.to_pylist()
        return result.outputs

    def _tables(self, rows: Inputs) -> dict[str, pa.Table]:
        names = list(self.spec.inputs)
        if rows is None:
            return {name: pa.table({}) for name in names}
        if names == ["input"]:
            return {"input": _table(rows)}
        if not isinstance(rows, Mapping) or set(rows) != set(names):
            found = list(rows) if isinstance(rows, Mapping) else "a table"
            raise UsageError(f"expected rows for each of the inputs {names}, found {found}")
        return {name: _table(rows[name]) for name in names}

    def _with_keys(self, token: Token, name: str, rows: pa.Table, split: int) -> pa.Table:
        """Returns the rows that have a key; the others are dead letters, or stop the job."""
        without = null_keys.rows_of(rows, self.spec.key)
        if not len(without):
            return rows
        tolerates = self.spec.errors == "bisect" or self._job.errors.tolerance == "all"
        by = null_keys.KeyedBy(self.name, self.spec.key, tolerates)
        if not tolerates:
            raise null_keys.of_operator(
                rows, int(without[0]), by, self.spec.inputs[name], token.epoch, of_source=True
            )
        self.letters += null_keys.letters(rows, without, by, name, split).to_pylist()
        return event_time.without(rows, without.tolist())

    def _combined(self, token: Token, rows: pa.Table, split: int) -> pa.Table:
        if not rows.num_rows:
            return pa.table({})
        sieve = sieve_of(self._job, self.name, split, combined=False)
        found, letters = combine(lambda: self._instance(split), token, rows, sieve)
        self.letters += [] if letters is None else letters.to_pylist()
        return found

    def _dealt(self, token: Token, name: str, rows: pa.Table, splits: int) -> list[pa.Table]:
        """Returns the rows of each partition, after combiners and shuffle."""
        size = max(1, -(-rows.num_rows // splits))
        cut = [rows.slice(at, size) for at in range(0, rows.num_rows, size)] or [rows]
        cut = [self._with_keys(token, name, part, i) for i, part in enumerate(cut)]
        if combines(self.operator_class) and rows.num_rows:
            made = [self._combined(token, part, i) for i, part in enumerate(cut)]
            cut = [part for part in made if part.num_columns] or made[:1]
        if self.parallelism == 1 or not rows.num_rows:
            return [pa.concat_tables(cut), *([rows] * (self.parallelism - 1))]
        owners = [partitions(part, self.spec.key, self.parallelism) for part in cut]
        return [
            pa.concat_tables(
                [part.filter(pa.array(at == index)) for part, at in zip(cut, owners, strict=True)]
            )
            for index in range(self.parallelism)
        ]


def sections_as_rows(sections: blob.Sections) -> dict[str, list[dict[str, Any]]]:
    """Returns the content of a snapshot's part by primitive, for tests that inspect one."""
    return {
        name.removeprefix(STATE): ipc_table(data).to_pylist() for name, data in sections.items()
    }


def _table(rows: Any) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
