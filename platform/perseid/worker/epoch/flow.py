"""Turns a node's output table into rows of the next stages, through stateless Python operators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from perseid.errors import BadInputError, PermanentError
from perseid.jobs.environments.loading import forget, load
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spec import output_of, producer
from perseid.jobs.model.spread import spread_of
from perseid.jobs.operator import Emitter, Identity, Operator, combines, opened, outputs_of
from perseid.jobs.validation import parse
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.context import is_small
from perseid.worker.dataflow.edges import Route, Row, deal
from perseid.worker.dataflow.failures import named
from perseid.worker.dataflow.operators import call, combine
from perseid.worker.dataflow.partition import partitions
from perseid.worker.dead_letters import null_keys, refused
from perseid.worker.dead_letters.places import Places
from perseid.worker.dead_letters.poison import Sieve, guarded, sieve_of
from perseid.worker.formats import encode, event_time
from perseid.worker.recovery.resplit import Share, check_types, share_of

if TYPE_CHECKING:
    from pathlib import Path

    from perseid.jobs.model.layout import Layout, Task
    from perseid.jobs.model.spec import JobSpec
    from perseid.topics.records import Token
    from perseid.worker.dataflow.context import FragmentContext


FOLDERS_MAX = 64  # job revisions whose modules are kept; far more than run in one process
_met: dict[Path, None] = {}  # in the order of their arrival


@lru_cache(maxsize=8)
def spec_of(folder: Path) -> JobSpec:
    """The job in an unpacked archive; the folder's name is its hash, so it never changes."""
    return parse.load(folder)


def graph_of(context: FragmentContext) -> graph.Graph:
    return _graph(context.job_folder, context.layout.number)


@lru_cache(maxsize=8)
def _graph(folder: Path, number: int) -> graph.Graph:
    """By the layout's number: to hash the layout for each call would cost a small task too much."""
    return graph.build(spec_of(folder), _layout(folder, number))


def whole_layout(context: FragmentContext) -> Layout:
    """All operator partitions of the job; the context's layout has those of the fragment."""
    return _layout(context.job_folder, context.layout.number)


@lru_cache(maxsize=8)
def _layout(folder: Path, number: int) -> Layout:
    return layouts.build(spec_of(folder), number)


def own_sources(context: FragmentContext) -> tuple[str, ...]:
    """The sources that the fragment reads: all, or those of which its split has a part."""
    spec = spec_of(context.job_folder)
    spread = spread_of(spec, whole_layout(context))
    if spread is None or context.split is None:
        return tuple(spec.sources)
    among = spread.shares[context.split].among
    return tuple(name for name in spec.sources if name in among)


@lru_cache(maxsize=1024)
def operator_class(folder: Path, name: str) -> type[Operator]:
    _meet(folder)
    return load(spec_of(folder).operators[name], folder)


def _meet(folder: Path) -> None:
    """Forgets the modules of the oldest revision when a process has loaded FOLDERS_MAX of them."""
    if folder not in _met and len(_met) >= FOLDERS_MAX:
        oldest = next(iter(_met))
        del _met[oldest]
        forget(oldest)
        operator_class.cache_clear()  # classes of the other folders are loaded again
    _met.setdefault(folder)


def instance(context: FragmentContext, name: str, partition: int) -> Operator:
    """A new operator object of `name` with its parameters and partition set."""
    spec = spec_of(context.job_folder).operators[name]
    identity = Identity(context.job, name, partition, spec.parallelism)
    return opened(operator_class(context.job_folder, name), identity, spec.with_)


def share(context: FragmentContext, task: Task) -> Share:
    """The share of its operator that `task` has, for a restore from another layout."""
    spec = spec_of(context.job_folder).operators[task.operator]
    kind = operator_class(context.job_folder, task.operator)
    return share_of(context.job, task.operator, spec, kind, task.partition)


def sieve(context: FragmentContext, name: str, partition: int) -> Sieve | None:
    """Finds poison records of `name`; None when a poison record stops the job."""
    combined = combines(operator_class(context.job_folder, name))
    return sieve_of(spec_of(context.job_folder), name, partition, combined=combined)


def accepts(context: FragmentContext, name: str) -> Callable[[Emitter], None] | None:
    """Raises for emitted rows that a sink cannot write, if the operator bisects; else None.

    The input row that makes the operator emit such a row then becomes a dead letter. Only Avro
    needs the check: its columns accept only some values of their Arrow type.
    """
    spec = spec_of(context.job_folder)
    schemas = [
        (output_of(sink.input), read_avro(context, sink.schema_file))
        for sink in spec.sinks.values()
        if producer(sink.input) == name and sink.format == "avro"
    ]
    if spec.operators[name].errors != "bisect" or not schemas:
        return None

    def check(out: Emitter) -> None:
        for output, schema in schemas:
            for table in out.emitted(output):
                encode.values(table, "avro", schema)

    return check


def read_avro(context: FragmentContext, name: str | None) -> Any:
    """The parsed schema file of the job's folder; None without one."""
    return json.loads((context.job_folder / name).read_text()) if name else None


def emitter(context: FragmentContext, name: str) -> Emitter:
    found = operator_class(context.job_folder, name)
    return Emitter(name, found.output, found.outputs)


def columns_of(context: FragmentContext, stream: str) -> pa.Schema:
    """The columns that a Python operator declares for one of its outputs."""
    schema = outputs_of(operator_class(context.job_folder, producer(stream)))[output_of(stream)]
    if schema is None:
        raise BadInputError(
            f"operator {stream} is read by an operator that must know its columns in an epoch "
            'without rows: add `output = pa.schema([("column", pa.string())])` to its class'
        )
    return schema


def rows_of(
    context: FragmentContext,
    token: Token,
    stream: str,
    table: pa.Table,
    origin: int,
    *,
    sql: bool = True,
    places: Places | None = None,
    metadata: tuple[str, ...] = (),
) -> Iterator[Row]:
    """All rows for the next stages that `stream` becomes, barriers included.

    `sql` False: the SQL operators that read the stream's frame directly need no rows. `places`:
    where the rows are in their topic, for a source that this task reads. `metadata`: columns of a
    source's table that only consumers which declare them get.
    """
    edges = graph_of(context)
    out = edges.outlets[stream]
    for consumer, route in out.shuffles:
        given = declared(context, consumer, table, metadata)
        yield from _shuffled(context, token, stream, consumer, route, given, origin, places)
    for name in out.sql if sql else ():
        target = edges.sql_targets[name]
        yield from deal(table, Route((target,), 0, ()), origin, all_to(0, table))
    for name in out.python:
        given = declared(context, name, table, metadata)
        results, letters = run_stateless(context, token, name, given, origin, places)
        for node in edges.streams(name):
            yield from rows_of(context, token, node, results[output_of(node)], origin)
        if letters is not None:
            yield from letter_rows(context, letters, name, origin)


def refuse_undelivered(context: FragmentContext, rows: Iterable[Row]) -> None:
    """PermanentError for rows that were to reach an SQL operator before this level.

    The queries of a level answer together, so none gets what comes of another one's result.
    """
    targets = {row.target for row in rows if row.target < 0}
    names = [name for name, target in graph_of(context).sql_targets.items() if target in targets]
    if names:
        raise PermanentError(
            f"operator {names[0]}: its query reads what a Python operator makes of another query's "
            "result, and that query reads a Python operator too; such rows do not reach it. Make "
            "one query of both, write one of them in Python, or put an operator with a key between"
        )


def declared(
    context: FragmentContext, consumer: str, table: pa.Table, metadata: tuple[str, ...]
) -> pa.Table:
    """`table` without the metadata columns that `consumer` has not declared.

    A source's writer has the source's name, so it gets none of them.
    """
    operator = spec_of(context.job_folder).operators.get(consumer) if metadata else None
    wanted: set[str] = set()
    if operator is not None:
        wanted = {*operator_class(context.job_folder, consumer).metadata, *operator.key}
    left_out = [name for name in metadata if name not in wanted]
    return table.drop_columns(left_out) if left_out else table


def run_stateless(
    context: FragmentContext,
    token: Token,
    name: str,
    table: pa.Table,
    origin: int,
    places: Places | None = None,
) -> tuple[dict[str, pa.Table], pa.Table | None]:
    """Runs the stateless Python operator `name` on one split or partition.

    Returns its outputs, and its dead letters if it bisects.
    """
    with named(f"operator {name}, partition {origin}, epoch {token.epoch},"):
        return _run_stateless(context, token, name, table, origin, places)


def _run_stateless(
    context: FragmentContext,
    token: Token,
    name: str,
    table: pa.Table,
    origin: int,
    places: Places | None,
) -> tuple[dict[str, pa.Table], pa.Table | None]:
    out = emitter(context, name)
    check = accepts(context, name)

    def attempt(inputs: dict[str, pa.Table]) -> None:
        out.tables()  # drops the rows of an earlier attempt
        call(instance(context, name, origin), token, inputs, out)
        if check is not None:
            check(out)

    letters = guarded(attempt, {"input": table}, sieve(context, name, origin), places)
    return out.tables(), letters


def letter_rows(
    context: FragmentContext, letters: pa.Table | None, name: str, origin: int
) -> Iterator[Row]:
    """The dead letters (`perseid.worker.dead_letters.refused`) of one sender, as one set.

    `name`: of the sender in `Graph.letters`; what sends none is not there.
    """
    sender = graph_of(context).letters.get(name)
    if letters is None or not letters.num_rows:
        letters = refused.NONE
    assert sender is not None or not letters.num_rows, f"{name} has dead letters and no writer"
    if sender is not None:
        yield from deal(letters, sender.route, sender.origin(origin), all_to(0, letters))


def _shuffled(
    context: FragmentContext,
    token: Token,
    stream: str,
    consumer: str,
    route: Route,
    table: pa.Table,
    origin: int,
    places: Places | None,
) -> Iterator[Row]:
    # without a key: in a small epoch all rows go to consumer 0, else to one chosen by origin
    if not route.key:
        first = graph_of(context).levels[producer(stream)] == 0 and is_small(token)
        index = 0 if first else origin % len(route.targets)
        yield from deal(table, route, origin, all_to(index, table))
        return
    letters: list[pa.Table | None] = []
    if table.num_rows:
        without = null_keys.rows_of(table, route.key)
        if len(without):
            letters.append(_without_keys(context, token, stream, consumer, table, without, origin))
            table = event_time.without(table, without.tolist())
            places = None if places is None else places.without(without)
    if combines(operator_class(context.job_folder, consumer)):
        table, found = _combined(context, token, consumer, table, origin, places)
        letters.append(found)
    name = graph.letters_of_keyed(stream, consumer)
    yield from letter_rows(context, refused.joined(*letters), name, origin)
    if context.rescaled and table.num_rows:
        kind = operator_class(context.job_folder, consumer)
        check_types(consumer, route.key, kind, table.schema)
    parts = partitions(table, route.key, len(route.targets))
    yield from deal(table, route, origin, parts)


def _without_keys(
    context: FragmentContext,
    token: Token,
    stream: str,
    consumer: str,
    table: pa.Table,
    rows: npt.NDArray[np.int64],
    origin: int,
) -> pa.Table | None:
    """Dead letters of the rows without a key; None for a source's rows (`source` makes theirs)."""
    spec = spec_of(context.job_folder)
    if producer(stream) in spec.sources:
        return None
    operator = spec.operators[consumer]
    at_level_0 = graph_of(context).levels[producer(stream)] == 0
    tolerates = operator.errors == "bisect" or (spec.errors.tolerance == "all" and at_level_0)
    by = null_keys.KeyedBy(consumer, operator.key, tolerates)
    if not tolerates:
        raise null_keys.of_operator(
            table, int(rows[0]), by, stream, token.epoch, of_source=at_level_0
        )
    input_ = next(name for name, node in operator.inputs.items() if node == stream)
    return null_keys.letters(table, rows, by, input_, origin)


def _combined(
    context: FragmentContext,
    token: Token,
    consumer: str,
    table: pa.Table,
    origin: int,
    places: Places | None,
) -> tuple[pa.Table, pa.Table | None]:
    """Runs the consumer's `combine` once per producing task: the combined rows and dead letters.

    Without rows the columns of its result are unknown, so the result has none.
    """
    if not table.num_rows:
        return pa.table({}), None
    found = sieve_of(spec_of(context.job_folder), consumer, origin, combined=False)
    with named(f"operator {consumer}, epoch {token.epoch}: its combine of split {origin}"):
        return combine(lambda: instance(context, consumer, origin), token, table, found, places)


def all_to(index: int, table: pa.Table) -> Any:
    """The consumer index of every row when all rows go to one consumer."""
    return np.full(table.num_rows, index, dtype=np.int64)
