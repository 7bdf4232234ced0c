"""SQL of a job file, given to a real Spark: queries of the operator's input pass, nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

TRANSIENT = [
    "SELECT explode(split(value, ' ')) AS word FROM input",
    "SELECT value FROM input WHERE length(value) > 3",
    "WITH long AS (SELECT value FROM input WHERE value > 'b') SELECT upper(value) u FROM long",
    "SELECT v FROM (SELECT value AS v FROM input) t",
    "SELECT value, part FROM input LATERAL VIEW explode(split(value, ',')) t AS part",
    "SELECT CASE WHEN value LIKE 'a%' THEN 1 ELSE 2 END AS kind FROM input",
    "select value from input -- all of them, with rand() and now()",
    "SELECT value FROM input WHERE value LIKE '%buy now%' AND value RLIKE 'v.*'",
    "SELECT 'rand()' AS a, 'current_date' AS b, 2 * 3 AS c FROM input /* count(*) */",
    "SELECT cast('epoch' AS timestamp) AS a, 'DATE ''today''' AS b FROM input",
    "SELECT unix_timestamp(value) AS a, date_format(DATE '2026-01-01', 'y') AS b FROM input",
    "WITH input AS (SELECT value AS v FROM input) SELECT v FROM input",
    "SELECT i.value, offset FROM INPUT AS i",
    "SELECT now FROM (SELECT value AS now FROM input) t",
]
REFUSED = {
    "ADD JAR 'https://elsewhere/x.jar'": "AddJar",
    "SET spark.sql.canary=1": "SetCommand",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING csv SELECT value FROM input": "InsertIntoDir",
    "WITH t AS (SELECT 1) INSERT INTO u SELECT * FROM t": "Insert",
    "FROM input INSERT OVERWRITE TABLE u SELECT value": "Insert",
    "CREATE TEMPORARY FUNCTION f AS 'X' USING JAR '/tmp/x.jar'": "CreateFunction",
    "CREATE TABLE t AS SELECT * FROM input": "Create",
    "DROP VIEW input": "Drop",
    "SHOW TABLES": "Show",
    "SELECT * FROM csv.`/etc/passwd`": "csv",
    "SELECT value FROM input WHERE value IN (SELECT * FROM text.`/etc/passwd`)": "subquery",
    "SELECT value FROM input WHERE value > (SELECT max(value) FROM input)": "subquery",
    "SELECT value FROM inputs": "it reads 'inputs', expected its input; write `FROM input`",
    "SELECT id FROM range(5)": "it contains Range",
    "SELECT 1 AS one": "it contains OneRowRelation",
    "SELECT a.value FROM input a, input b": "Join",
    "SELECT value, now() AS t FROM input": "clock, or who and where it runs (now)",
    "SELECT value FROM input WHERE current_date = DATE '2026-01-01'": "(current_date)",
    "SELECT unix_timestamp() AS t FROM input": "(current_timestamp)",
    "SELECT current_user() AS t, current_catalog() c FROM input": "(current_catalog, current_user",
    "SELECT '🚀' AS r, TIMESTAMP 'now' AS t FROM input": "it reads the clock (TIMESTAMP 'now')",
    "SELECT date 'Today' AS t FROM input": "it reads the clock (date 'Today')",
    "SELECT cast(concat('to', 'day') AS date) AS t FROM input": "it reads the clock ('today')",
    "SELECT value, rand() AS r FROM input": "deterministic",
    "SELECT uuid() AS r FROM input": "deterministic",
    "SELECT shuffle(array(1, 2)) AS r FROM input": "deterministic",
    "SELECT spark_partition_id() AS r, input_file_name() AS f FROM input": "deterministic",
    "SELECT value, row_number() OVER (ORDER BY value) AS n FROM input": "Window",
    "SELECT value FROM input ORDER BY value LIMIT 1": "Limit",
    "SELECT value, value FROM input": "two columns of its output are called value; write `AS NAME`",
    "SELECT make_interval(1) AS i FROM input": "column 'i' of its output has type interval, which",
    "SELECT INTERVAL '1' YEAR AS i FROM input": "write `CAST(i AS STRING) AS i`",
    "SELECT * EXCEPT (offset) FROM input": "`offset` cannot be resolved",
    "WITH f AS (SELECT * FROM text.`http://10.0.0.1/`) SELECT * FROM f": "text",
    "SELECT TRANSFORM(value) USING 'sh' AS x FROM input": "Transform",
    "SELECT count(*) FROM input": "Aggregate",
    "SELECT DISTINCT value FROM input": "Distinct",
    "SELECT reflect('java.lang.System', 'getenv', 'PATH') AS x FROM input": "deterministic",
    "SELECT java_method('java.lang.System', 'getenv', 'PATH') AS x FROM input": "deterministic",
}
# Reads statements, answers with what was errors of each, and whether one of them was run.
SCRIPT = """
import json, sys
from pathlib import Path
from perseid.errors import BadInputError
from perseid.worker.spark import sql
from perseid.worker.spark.session import open_session

spark = open_session("local[1]", 1, "sql", Path("spark"))
rows = spark.createDataFrame([("a b", 1)], "value string, offset long")
errors = []
for statement in json.load(sys.stdin):
    try:
        sql.names(spark, statement, "o")
        sql.answer(rows, statement, "input", "o", ["offset"])
        errors.append(None)
    except BadInputError as error:
        errors.append(str(error))
ran = spark.conf.get("spark.sql.canary", None) is not None
print("\\n" + json.dumps([errors, ran]))
spark.stop()
"""


@pytest.mark.security("5.7", "5.11", "5.13")
def test_only_queries_of_the_input_are_given_to_spark(in_spark: Callable[[str, str], Any]) -> None:
    errors, one_was_run = in_spark(SCRIPT, json.dumps([*TRANSIENT, *REFUSED]))
    assert dict(zip(TRANSIENT, errors, strict=False)) == dict.fromkeys(TRANSIENT)
    answers = dict(zip(REFUSED, errors[len(TRANSIENT) :], strict=True))
    wrong = {sql: text for sql, text in answers.items() if REFUSED[sql] not in (text or "")}
    assert wrong == {}
    assert not one_was_run


# Gives each query of the shipped jobs to Spark, in front of its input's columns.
SHIPPED = """
import json
from pathlib import Path
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.jobs.environments.loading import load
from perseid.jobs.operator import outputs_of
from perseid.jobs.model.spec import output_of, producer
from perseid.worker.spark import spark_types, sql
from perseid.worker.spark.session import open_session
from perseid.worker.dataflow.source import SourcePlan

spark = open_session("local[1]", 1, "sql", Path("spark"))

def columns(job, folder, name):
    if name in job.sources:
        source = job.sources[name]
        avro = json.loads((folder / source.schema_file).read_text()) if source.schema_file else None
        return SourcePlan(name, source.format, dict(source.columns), avro, (), False).schema()
    return outputs_of(load(job.operators[producer(name)], folder))[output_of(name)]

named = {}
for example in job_folders.examples():
    folder = job_folders.example(example)
    job = parse.load(folder)
    for name, operator in job.operators.items():
        if operator.sql is None:
            continue
        ((view, read),) = operator.inputs.items()
        rows = spark.createDataFrame([], spark_types.struct(columns(job, folder, read), name))
        named[f"{example}.{name}"] = sql.answer(rows, operator.sql, view, name)[1].names
print("\\n" + json.dumps(named))
spark.stop()
"""


def test_spark_takes_the_sql_of_every_shipped_job(in_spark: Callable[[str, str], Any]) -> None:
    assert in_spark(SHIPPED, "") == {
        "grep.matching": ["value"],
        "heavy-hitters.words": ["word"],
        "incidents.jams": ["segment", "incident", "ms", "end", "vehicles", "speed", "slowest"],
        "sessions.busy": ["user", "start", "views"],
        "top-words.words": ["word", "scope"],
        "wordcount.words": ["word"],
    }
