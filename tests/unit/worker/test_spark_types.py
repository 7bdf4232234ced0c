"""Arrow's column types as Spark takes them, and Spark's as they come out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from perseid.errors import BadInputError
from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.worker.dataflow.source import METADATA
from perseid.worker.spark import spark_types


def test_declared_types_go_in_and_come_out_as_they_are() -> None:
    schema = pa.schema(list(ARROW_TYPES.items()))
    assert spark_types.into(schema, "source s").equals(schema)
    assert spark_types.out_of(spark_types.struct(schema, "s"), "o").equals(schema)


def test_times_of_any_unit_go_in_as_microseconds() -> None:
    schema = pa.schema([
        *METADATA.items(), ("plain", pa.timestamp("ns")), ("far", pa.timestamp("s", "Asia/Tokyo")),
        ("large", pa.large_string()),
    ])  # fmt: skip
    found = spark_types.into(schema, "source s")
    assert found.field("timestamp").type == pa.timestamp("us", "UTC")
    assert found.field("far").type == pa.timestamp("us", "UTC")
    assert found.field("plain").type == pa.timestamp("us")
    assert found.field("large").type == pa.string()
    schema.empty_table().cast(found, safe=False)


def test_what_spark_has_no_type_for_names_the_column() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.uint64())])
    with pytest.raises(BadInputError, match="op p: column 'b' has type uint64, which Spark SQL "):
        spark_types.into(schema, "op p")


def test_what_cannot_leave_spark_names_the_column_and_the_cast() -> None:
    months = spark.StructType([spark.StructField("i", spark.YearMonthIntervalType())])
    text = r"'i' of its output has type interval year to month, .*`CAST\(i AS STRING\) AS i`"
    with pytest.raises(BadInputError, match=text):
        spark_types.out_of(months, "SQL of operator o")


def test_two_columns_of_one_name_are_reported() -> None:
    twice = spark.StructType([spark.StructField("a", spark.LongType())] * 2)
    with pytest.raises(BadInputError, match="two columns of its output are called a; write `AS "):
        spark_types.out_of(twice, "SQL of operator o")
