"""`python -m perseid.worker.spark.asking`: checks the SQL queries of jobs with Spark.

Reads a list of jobs, each a list of queries, as JSON from standard input. Writes the answers in the
same order to the last line of standard output: columns, or why the query cannot run. It is a
process of its own since a JVM writes much to its output, and since the caller may need Spark for
nothing else.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perseid.errors import BadInputError
from perseid.worker.dataflow.known_columns import columns_of, text_of
from perseid.worker.dataflow.source import METADATA
from perseid.worker.spark import spark_types, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask(spark: SparkSession, asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to the queries of one job."""
    known: dict[str, pa.Schema] = {}
    found = []
    for question in asked:
        name, refused = question["operator"], None
        columns = columns_of(question["columns"]) if question["columns"] else None
        columns = columns or known.get(question["reads"] or "")
        if columns is not None:
            try:
                known[name] = _answered(spark, question, columns)
            except BadInputError as error:
                refused = str(error)
        text = text_of(known[name]) if name in known else None
        found.append({"operator": name, "columns": text, "refused": refused})
    return found


def _answered(spark: SparkSession, question: dict[str, Any], columns: pa.Schema) -> pa.Schema:
    hidden = [m for m in METADATA if question["is_source"] and m not in columns.names]
    for name in hidden:
        columns = columns.append(pa.field(name, METADATA[name]))
    operator = question["operator"]
    frame = spark.createDataFrame([], spark_types.struct(columns, f"input of operator {operator}"))
    found, answer = sql.answer(frame, question["sql"], question["view"], operator, hidden)
    try:
        found._jdf.queryExecution().executedPlan()
    except Exception as error:  # some errors occur only in planning
        reason = str(error).partition("\n")[0]
        raise BadInputError(f"SQL of operator {operator}: {reason}; correct the query") from None
    return answer


def main() -> None:
    from perseid.worker.spark.session import open_session

    jobs = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="perseid-asking-") as folder:
        spark = open_session("local[1]", 1, "perseid-asking", Path(folder))
        found = [ask(spark, queries) for queries in jobs]
        spark.stop()
    sys.stdout.write(f"\n{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
