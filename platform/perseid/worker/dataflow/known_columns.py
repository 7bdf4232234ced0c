"""The columns of the streams of a job, as far as they are known before it runs. Pure.

Sources and Python operators declare theirs; only Spark knows the columns of a query's result. The
caller that has asked it (`perseid.worker.spark.asking`) adds the answers here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.model.problems import listed
from perseid.jobs.model.spec import JobSpec, SourceSpec, output_of, producer
from perseid.jobs.operator import Operator, outputs_of
from perseid.jobs.validation import key_types
from perseid.worker.dataflow.source import SourcePlan
from perseid.worker.formats import encode

Files = Mapping[str, bytes]
Columns = dict[str, pa.Schema]  # by stream
Answer: TypeAlias = pa.Schema | str  # the columns of a query's result, or why it has none
Found = tuple[tuple[str, ...], str]  # place in job.yaml, and the problem


@dataclass(frozen=True)
class Query:
    """The SQL of an operator and the columns of its input; `reads`: the query that it reads.

    `is_source`: its input has metadata columns too.
    """

    operator: str
    sql: str
    view: str
    columns: pa.Schema | None
    reads: str | None
    is_source: bool


def declared(spec: JobSpec, files: Files, classes: Mapping[str, type[Operator]]) -> Columns:
    """The columns of sources, and of Python operators that declare them."""
    found = {}
    for name, source in spec.sources.items():
        columns = _of_source(name, source, files)
        if columns is not None:
            found[name] = columns
    for name, kind in classes.items():
        for output, columns in outputs_of(kind).items():
            if columns is not None:
                found[f"{name}.{output}"] = columns
                if output_of(name) == output:
                    found[name] = columns
    return found


def _of_source(name: str, source: SourceSpec, files: Files) -> pa.Schema | None:
    avro = None
    if source.schema_file is not None:
        if source.schema_file not in files:
            return None  # the registry's; unknown before `apply` asks it
        avro = json.loads(files[source.schema_file])
    return SourcePlan(name, source.format, dict(source.columns), avro, (), False).schema()


def queries(spec: JobSpec, known: Columns) -> list[Query]:
    """The queries whose input is known, each after the query that it reads."""
    found: dict[str, Query] = {}
    waiting = {n: o for n, o in spec.operators.items() if o.sql is not None}
    while True:
        ready = [
            n for n, o in waiting.items()
            if all(stream in known or stream in found for stream in o.inputs.values())
        ]  # fmt: skip
        if not ready:
            return list(found.values())
        for name in ready:
            operator = waiting.pop(name)
            ((view, stream),) = operator.inputs.items()
            reads = stream if stream in found else None
            found[name] = Query(
                name, operator.sql or "", view, known.get(stream), reads, stream in spec.sources
            )


def questions(queries: Sequence[Query]) -> list[dict[str, Any]]:
    """The queries of a job as JSON."""
    return [
        {
            "operator": q.operator, "sql": q.sql, "view": q.view, "reads": q.reads,
            "is_source": q.is_source,
            "columns": None if q.columns is None else text_of(q.columns),
        }
        for q in queries
    ]  # fmt: skip


def answers(found: Sequence[dict[str, Any]]) -> dict[str, Answer]:
    """The answers by operator; none for a query that reads one that cannot run."""
    return {
        a["operator"]: a["refused"] or columns_of(a["columns"])
        for a in found if a["refused"] or a["columns"]
    }  # fmt: skip


def text_of(columns: pa.Schema) -> str:
    return base64.b64encode(columns.serialize().to_pybytes()).decode()


def columns_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def problems(spec: JobSpec, files: Files, known: Columns) -> Iterator[Found]:
    """Columns that sinks cannot write, and keys that are no usable columns of a query."""
    for name, sink in spec.sinks.items():
        avro = None
        if sink.schema_file is not None and sink.format == "avro":
            avro = json.loads(files[sink.schema_file]) if sink.schema_file in files else None
        if sink.input not in known or (sink.format == "avro" and avro is None):
            continue
        try:
            encode.check(known[sink.input], sink.format, sink.key, avro)
        except BadInputError as error:
            yield ("sinks", name), f"sinks.{name}: of {sink.input}: {error}"
    for name, operator in spec.operators.items():
        for stream in operator.inputs.values():
            asked = spec.operators.get(producer(stream))
            if asked is None or asked.sql is None or stream not in known:
                continue
            for column in operator.key:
                yield from _key(name, column, stream, known[stream])


def _key(operator: str, column: str, stream: str, columns: pa.Schema) -> Iterator[Found]:
    path, where = ("operators", operator, "key"), f"operators.{operator}.key"
    if column not in columns.names:
        yield (
            path,
            (
                f"{where}: found {column!r}, expected a column of {stream}'s query "
                f"({listed(columns.names)}); choose one of them"
            ),
        )
    elif not key_types.usable(columns.field(column).type):
        yield (
            path,
            (
                f"{where}: column {column!r} of {stream} has type {columns.field(column).type}, "
                f"expected {key_types.EXPECTED}; {key_types.CAST}"
            ),
        )
