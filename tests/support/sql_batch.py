"""An operator's SQL on the records of a source, as an epoch runs it: on Spark, without Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.topics.columns import Records
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow.source import METADATA, SourcePlan, SplitCount, read_split
from perseid.worker.formats import encode
from perseid.worker.spark import spark_types, sql, stages
from perseid.worker.spark.frames import in_pool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_ID = "uuid"
DDL = "query int, row binary"
Batches = Iterable[pa.RecordBatch]


class _Held:
    """Ranges of one partition in memory."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def prepare(self, _starts: Mapping[tuple[str, int], int]) -> None:
        """Nothing to open."""

    def read(self, _topic: str, _partition: int, _start: int, _end: int) -> Iterator[Records]:
        yield self._records

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, TOPIC_ID)


def source(
    spark: SparkSession, plan: SourcePlan, records: Records, queries: Iterable[str]
) -> tuple[DataFrame, SourcePlan]:
    """Returns the source's frame with the metadata columns that the queries name, and its plan."""
    named = frozenset().union(*(sql.names(spark, query, "o") for query in queries))
    own = plan.schema().names
    plan = replace(plan, metadata=tuple(m for m in METADATA if m in named and m not in own))
    end = int(records.offsets[-1]) + 1
    place = SourceRange(plan.name, "topic", TOPIC_ID, records.partition, 0, end)
    token = Token(1, "u", 7, 3, "r", 1, ((place,),), 1_000)
    table = pa.concat_tables(read_split(_Held(records), plan, token, 0, SplitCount()))
    read = partial(_read, plan, table)
    with in_pool(spark, "source"):
        frame = spark.range(0, 1, 1, 1).mapInArrow(
            read, spark_types.struct(stages.typed_schema(plan), plan.name)
        )
    return frame, plan


def values(answers: Sequence[tuple[DataFrame, pa.Schema]]) -> list[list[bytes]]:
    """Returns the rows of each answer as a JSON sink writes them."""
    (first, _), *_ = answers
    with in_pool(first.sparkSession, "encode"):
        members = [
            frame.mapInArrow(partial(_written, number, columns), DDL)
            for number, (frame, columns) in enumerate(answers)
        ]
    union = reduce(lambda left, right: left.union(right), members)
    found: list[list[bytes]] = [[] for _ in answers]
    for query, row in union.collect():
        found[query].append(bytes(row))
    return found


def _read(plan: SourcePlan, table: pa.Table, batches: Batches) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from stages._typed(table, stages.typed_schema(plan)).to_batches()


def _written(number: int, columns: pa.Schema, batches: Batches) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        table = stages._cast(pa.Table.from_batches(found), columns)
        rows = encode.json_values(table)
        numbers = pa.array([number] * len(rows), pa.int32())
        yield pa.RecordBatch.from_arrays([numbers, rows], names=["query", "row"])
