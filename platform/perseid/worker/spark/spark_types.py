"""Converts between Arrow's column types and Spark's. Pure.

Spark has timestamps in microseconds only, and returns them in its session's time zone, which is UTC
(`perseid.worker.spark.session`). A type that either side lacks is refused with the column's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.jobs.model.problems import listed

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ZONE = "UTC"
ALLOWED = "string, binary, boolean, number, date, timestamp, array, map or struct"


def into(schema: pa.Schema, whose: str) -> pa.Schema:
    """The columns in the types that Spark takes; convert with `pa.Table.cast(..., safe=False)`.

    Raises BadInputError for a column of `whose` whose type Spark lacks.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(struct(schema, whose), timezone=ZONE).remove_metadata()


def struct(schema: pa.Schema, whose: str) -> StructType:
    """The columns in Spark's types; raises as `into` does."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    def kind(field: pa.Field) -> DataType:
        try:
            return from_arrow_type(field.type)
        except PySparkException:
            raise BadInputError(
                f"{whose}: column {field.name!r} has type {field.type}, which Spark SQL does not "
                f"have; expected {ALLOWED}; cast it in the operator before"
            ) from None

    return StructType([StructField(f.name, kind(f), f.nullable) for f in schema])


def out_of(found: StructType, whose: str) -> pa.Schema:
    """The columns of a query's result in Arrow's types.

    Raises BadInputError for a column of `whose` whose type Arrow lacks, and for duplicate names.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    twice = {name for name in found.names if found.names.count(name) > 1}
    if twice:
        raise BadInputError(
            f"{whose}: two columns of its output are called {listed(twice)}; write `AS NAME` "
            "after one of them"
        )
    fields = []
    for field in found:
        try:
            kind = to_arrow_type(field.dataType, timezone=ZONE)
        except PySparkException:
            raise BadInputError(
                f"{whose}: column {field.name!r} of its output has type "
                f"{field.dataType.simpleString()}, which cannot leave Spark SQL; expected "
                f"{ALLOWED}; write `CAST({field.name} AS STRING) AS {field.name}`"
            ) from None
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)
