"""Builds the Spark plan of epochs from a job's graph.

Level 0 is the source tasks: one DataFrame with rows of perseid.worker.dataflow.edges, the union of
what Python and Spark SQL produce from each source. Every further level is one shuffle and one
stage. In a single-task plan all levels are one task without a shuffle, and one call of Python if
the job has no SQL. Work that holds state, reads Kafka or encodes rows runs in separate pools of
Python workers (their environment differs), as do single-task plans and jobs with packages of their
own. Each task must find what its predecessor
left: state, positioned consumers, producers (see sticky_workers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perseid.jobs.environments import activating
from perseid.jobs.model.spec import producer
from perseid.jobs.model.spread import spread_of
from perseid.worker.dataflow.edges import DDL
from perseid.worker.dataflow.graph import Graph, metadata_columns
from perseid.worker.dataflow.source import SourcePlan
from perseid.worker.dead_letters import null_keys
from perseid.worker.epoch import flow
from perseid.worker.formats import schemas
from perseid.worker.spark import spark_types, sql, stages

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from perseid.engine.task_report import TaskReport
    from perseid.worker.dataflow.context import FragmentContext

POOL = "PERSEID_POOL"  # environment variable that distinguishes pools of Python workers
STATE_POOL = "state"  # for restores, single-task plans and anchored plans
_one_at_a_time = Lock()
SHUFFLED = "wide "  # prefix of a pool's name in shuffled plans of a local master


@contextmanager
def in_pool(spark: SparkSession, name: str, packages: str = "") -> Iterator[None]:
    """Python functions passed to Spark inside this context run in the workers of pool `name`.

    `packages`: folder of a job's own packages; such a job has workers of its own.
    """
    with _one_at_a_time:  # the environment belongs to the Spark context, which all threads share
        spark.sparkContext.environment[POOL] = name
        spark.sparkContext.environment[activating.VARIABLE] = packages
        yield


class EpochFrames:
    """Builds the DataFrame of an epoch with `splits` source tasks.

    `persisted` frames hold rows of one epoch: a plan with such frames serves one epoch only.
    """

    def __init__(
        self,
        spark: SparkSession,
        context: FragmentContext,
        reports: Accumulator[TaskReport],
        anchor: Callable[[int], DataFrame] | None,
    ) -> None:
        self.spark = spark
        self.context = context
        self.reports = reports
        self.anchor = anchor
        self.spec = flow.spec_of(context.job_folder)
        self.graph: Graph = flow.graph_of(context)
        # Without SQL a single-task epoch is one call of Python, one plan for any number of splits.
        self.is_whole = not any(out.sql for out in self.graph.outlets.values())
        self.persisted: list[DataFrame] = []
        self.pools = ""  # prefix of the pools of a fragment with a split
        self._prefix = ""
        self.plans = {name: read_plan(context, name, spark) for name in flow.own_sources(context)}

    def build(self, splits: int, *, single_task: bool) -> DataFrame:
        """A frame without rows: what its tasks do is the epoch."""
        self.persisted = []
        if single_task and self.is_whole:
            return self._whole()
        self._prefix = "" if single_task or self.anchor is not None else SHUFFLED
        rows = self._sql_of_rows(self._level_0(splits), 0)
        for level in range(1, self.context.layout.levels + 1):
            rows = self._sql_of_rows(self._level(rows, level, single_task), level)
        return rows

    def _whole(self) -> DataFrame:
        self._prefix = ""
        run = partial(stages.run_whole, self.context, tuple(self.plans.values()), self.reports)
        return self._python(self.spark.range(0, 1, 1, 1), run, DDL, STATE_POOL)

    def of_level(self, level: int, width: int) -> DataFrame:
        """One level of a fragment whose rows come and go by buffer topics, in `width` tasks."""
        self._prefix = self.pools if width == 1 else self.pools + SHUFFLED
        numbers = self.spark.range(0, width, 1, width)
        if level == 0:
            plans = tuple(self.plans.values())
            read = partial(stages.read_and_send, self.context, plans, self.reports)
            return self._python(numbers, read, DDL, STATE_POOL)
        run = partial(stages.run_and_send, self.context, level, self.reports)
        return self._python(numbers, run, DDL, STATE_POOL)

    def release(self) -> None:
        """Releases the frames that an epoch has persisted."""
        for frame in self.persisted:
            frame.unpersist()

    def _level_0(self, splits: int) -> DataFrame:
        numbers = self.spark.range(0, splits, 1, splits)
        direct = [p for p in self.plans.values() if not self.graph.outlets[p.name].sql]
        members: list[DataFrame] = []
        if direct:
            read = partial(stages.read_sources, self.context, tuple(direct), self.reports)
            members.append(self._python(numbers, read, DDL, "source"))
        for plan in self.plans.values():
            if plan not in direct:
                members += self._typed_source(numbers, plan)
        if self.graph.feedback:
            back = partial(stages.read_feedback, self.context)
            members.append(self._python(self.spark.range(0, 1, 1, 1), back, DDL, "source"))
        return _union(members)

    def _typed_source(self, numbers: DataFrame, plan: SourcePlan) -> list[DataFrame]:
        read = partial(stages.read_typed, self.context, plan, self.reports)
        ddl = spark_types.struct(stages.typed_schema(plan), plan.name)
        frame = self._python(numbers, read, ddl, "source")
        columns, hidden = plan.schema(), plan.metadata
        if not plan.has_letters:
            return self._from_typed(frame, plan.name, columns, hidden)
        frame = self._persist(frame)
        bad = frame.filter(frame[stages.REFUSED].isNotNull()).select(stages.REFUSED)
        encode = partial(stages.encode_refused, self.context, plan.name)
        letters = self._python(bad, encode, DDL, "encode")
        good = frame.filter(frame[stages.REFUSED].isNull()).drop(stages.REFUSED)
        return [*self._from_typed(good, plan.name, columns, hidden), letters]

    def _from_typed(
        self, frame: DataFrame, node: str, columns: pa.Schema, hidden: tuple[str, ...] = ()
    ) -> list[DataFrame]:
        """Turns `node`'s frame into the output of its SQL operators and rows for other consumers.

        `columns`: those of the node. `hidden`: columns that a query gets only if it names them.
        """
        out = self.graph.outlets[node]
        others = bool(out.shuffles or out.python)
        if len(out.sql) + others > 1:
            frame = self._persist(frame)
        members: list[DataFrame] = []
        if others:
            encode = partial(stages.encode_typed, self.context, node, columns, hidden)
            members.append(self._python(frame, encode, DDL, "encode"))
        for name in out.sql:
            members += self._answered(frame, name, hidden)
        return members

    def _answered(
        self, frame: DataFrame, name: str, hidden: tuple[str, ...] = ()
    ) -> list[DataFrame]:
        """Applies the SQL operator `name` to `frame` and processes its output."""
        operator = self.spec.operators[name]
        assert operator.sql is not None, f"{name} is an SQL operator"
        (view,) = operator.inputs
        found, columns = sql.answer(frame, operator.sql, view, name, hidden)
        return self._from_typed(found, name, columns)

    def _sql_of_rows(self, rows: DataFrame, level: int) -> DataFrame:
        """Replaces rows sent by Python operators to SQL operators by the output of the latter."""
        waiting = [name for name in self.graph.sql_targets if self._after_python(name, level)]
        if not waiting:
            return rows
        rows = self._persist(rows)
        members = [rows.filter(rows.target >= 0)]
        for name in waiting:
            columns = flow.columns_of(self.context, self._upstream(name))
            sent = rows.filter(rows.target == self.graph.sql_targets[name])
            read = partial(stages.decode_rows, self.context, name, columns)
            whose = f"operator {name}: its input {self._upstream(name)}"
            typed = self._python(sent, read, spark_types.struct(columns, whose), "encode")
            members += self._answered(typed, name)
        return _union(members)

    def _after_python(self, name: str, level: int) -> bool:
        """Whether SQL operator `name` reads a Python operator and runs at `level`."""
        operator = self.spec.operators.get(producer(self._upstream(name)))
        return operator is not None and operator.sql is None and self.graph.levels[name] == level

    def _upstream(self, name: str) -> str:
        return next(iter(self.spec.operators[name].inputs.values()))

    def _level(self, rows: DataFrame, level: int, single_task: bool) -> DataFrame:
        run = partial(stages.run_level, self.context, level, self.reports)
        if single_task:
            return self._python(rows.coalesce(1), run, DDL, STATE_POOL)
        width = self.context.width(level, single_task=False)
        if self.anchor is None:
            return self._python(rows.repartitionById(width, rows.slot), run, DDL, STATE_POOL)
        anchored = partial(stages.run_anchored, self.context, level, self.reports)
        groups = rows.groupBy("slot").cogroup(self.anchor(width).groupBy("slot"))
        with in_pool(self.spark, self._prefix + STATE_POOL, self.context.environment):
            return groups.applyInArrow(anchored, DDL)

    def _python(self, frame: DataFrame, function: Any, schema: Any, pool: str) -> DataFrame:
        with in_pool(self.spark, self._prefix + pool, self.context.environment):
            return frame.mapInArrow(function, schema)

    def _persist(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self.persisted.append(kept)
        return kept


def source_plan(context: FragmentContext, name: str) -> SourcePlan:
    """How the source `name` is read, without metadata columns."""
    spec = flow.spec_of(context.job_folder)
    source = spec.sources[name]
    spread = spread_of(spec, flow.whole_layout(context))
    return SourcePlan(
        name=name,
        format=source.format,
        columns=dict(source.columns),
        avro=flow.read_avro(context, source.schema_file),
        metadata=(),
        tolerate=spec.errors.tolerance == "all",
        event_time=source.event_time,
        registry=schemas.address(context.deployment, source.registry) if source.registry else None,
        readers=null_keys.readers(spec, name),
        keeps_keys=any(
            operator.errors == "bisect" and name in operator.inputs.values()
            for operator in spec.operators.values()
        ),
        splits=None if spread is None else spread.splits_of(name),
    )


def read_plan(context: FragmentContext, name: str, spark: SparkSession | None) -> SourcePlan:
    """How the source `name` is read, with what is declared. `spark`: None of a job without SQL."""
    plan, spec = source_plan(context, name), flow.spec_of(context.job_folder)

    def declared(operator: str) -> Collection[str]:
        query = spec.operators[operator].sql
        if query is not None:
            assert spark is not None, f"{operator} is SQL"
            return sql.names(spark, query, operator)
        return flow.operator_class(context.job_folder, operator).metadata

    own = plan.schema().names
    return replace(plan, metadata=metadata_columns(name, spec, own, declared))


def timed_plans(context: FragmentContext) -> list[SourcePlan]:
    """The plans of the sources with event time."""
    return [source_plan(context, name) for name in flow.spec_of(context.job_folder).event_times]


def _union(members: list[DataFrame]) -> DataFrame:
    return reduce(lambda left, right: left.union(right), members)
