"""Parts of an epoch, run again on other rows (`explaining.Reruns`) or under a debugger."""

from __future__ import annotations

import pdb
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from perseid.jobs.model.spec import output_of, producer
from perseid.jobs.operator import Emitter, combines
from perseid.replay.explaining import same
from perseid.replay.traces import SourceRows
from perseid.state.primitives.primitive import bind, declared
from perseid.worker.dataflow.operators import call, combine
from perseid.worker.dead_letters import null_keys
from perseid.worker.dead_letters.poison import guarded, sieve_of
from perseid.worker.epoch import flow
from perseid.worker.formats import event_time

if TYPE_CHECKING:
    from perseid.jobs.model.layout import Task
    from perseid.jobs.model.spec import SinkSpec
    from perseid.jobs.operator import Operator
    from perseid.replay.narrowing import Bools
    from perseid.replay.one_process import OneProcess
    from perseid.state.primitives.primitive import Primitive

State = Mapping[str, pa.Table]  # by primitive


class EpochReruns:
    """Of the last epoch that `runner` has run. State logs are read, and never written."""

    def __init__(self, runner: OneProcess) -> None:
        self._runner, self._context = runner, runner.context
        self._order = runner.executor.trace.order
        self._before: dict[int, State] = {}  # by gid

    def passed(
        self, source: SourceRows | pa.Table, path: tuple[str, ...], consumer: str, origin: int
    ) -> pa.Table:
        context, token = self._context, self._order.token
        first = producer(path[0]) if path else consumer
        if isinstance(source, SourceRows):
            table = flow.declared(context, first, source.table, source.metadata)
        else:
            table = source
        for stream in path:
            name = producer(stream)
            found, _ = flow.run_stateless(context, token, name, table, origin)
            table = found[output_of(stream)]
        return table

    def _combines(self, consumer: str) -> bool:
        operator = flow.spec_of(self._context.job_folder).operators.get(consumer)
        if operator is None or not operator.key:
            return False
        return combines(flow.operator_class(self._context.job_folder, consumer))

    def combined(self, consumer: str, table: pa.Table, origin: int) -> pa.Table:
        if not self._combines(consumer) or not table.num_rows:
            return table
        spec = flow.spec_of(self._context.job_folder)
        without = null_keys.rows_of(table, spec.operators[consumer].key)
        rows = event_time.without(table, without.tolist()) if len(without) else table
        sieve = sieve_of(spec, consumer, origin, combined=False)
        found, _ = combine(
            lambda: flow.instance(self._context, consumer, origin), self._order.token, rows, sieve
        )
        return found

    def processed(self, task: Task, inputs: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        out = flow.emitter(self._context, task.operator)

        def attempt(rows: dict[str, pa.Table]) -> None:
            out.tables()  # drops the rows of an earlier attempt
            operator, live = self._at_its_start(task)
            call(operator, self._order.token, rows, out, live)

        guarded(attempt, dict(inputs), flow.sieve(self._context, task.operator, task.partition))
        return out.tables()

    def debug(self, task: Task, inputs: Mapping[str, pa.Table], debugger: pdb.Pdb) -> None:
        """Runs the operator's epoch, and stops at the first line of its `process`."""
        operator, live = self._at_its_start(task)
        method = operator.process

        def process(batch: Any, out: Emitter) -> None:
            debugger.runcall(method, batch, out)

        operator.process = process  # type: ignore[method-assign]
        out = flow.emitter(self._context, task.operator)
        call(operator, self._order.token, dict(inputs), out, live)

    def state(self, task: Task, *, after: bool) -> State:
        """All state of a keyed operator partition before or after the epoch."""
        epoch = self._order.token.epoch
        if after:
            return self._state(task, epoch)
        if task.gid not in self._before:
            self._before[task.gid] = self._state(task, epoch - 1)
        return self._before[task.gid]

    def state_key(self, task: Task, name: str) -> tuple[str, ...]:
        """The key columns of a state; none of one without a key."""
        kind = flow.operator_class(self._context.job_folder, task.operator)
        return tuple(declared(kind)[name].schema().get("key") or ())

    def written(self, task: Task, sink: SinkSpec, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Keys and values of the records that `sink` makes of rows."""
        batch = self._runner.executor.batch(task, self._order, sink, rows)
        return batch.keys, batch.values

    def written_as(
        self, task: Task, sink: SinkSpec, rows: pa.Table, key: bytes | None, value: bytes | None
    ) -> Bools:
        """Which of `rows` become this record."""
        if not rows.num_rows:
            return np.zeros(0, bool)
        return same(*self.written(task, sink, rows), key, value)

    def _at_its_start(self, task: Task) -> tuple[Operator, dict[str, Primitive]]:
        """A new instance with the state before the epoch."""
        operator = flow.instance(self._context, task.operator, task.partition)
        live = bind(operator)
        before = self.state(task, after=False)
        for name, primitive in live.items():
            primitive.restore(before[name])
        return operator, live

    def _state(self, task: Task, epoch: int) -> State:
        state = self._runner.executor.new_state(task)
        state.bring_to(epoch)
        return {name: primitive.snapshot() for name, primitive in state.live.items()}
