"""An operator's SQL that raises on a real Spark: whose it is, and no word of the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ON_DATA = {
    "SELECT CAST(w AS INT) AS c FROM input": "CAST_INVALID_INPUT (SQLSTATE 22018) at line 1, posi",
    "SELECT\n  w, 1 / n AS c FROM input": "DIVIDE_BY_ZERO (SQLSTATE 22012) at line 2, position 6,",
    "SELECT n + 9223372036854775807 AS c FROM input": "ARITHMETIC_OVERFLOW (SQLSTATE 22003) at",
    "SELECT raise_error(w) AS c FROM input": "USER_RAISED_EXCEPTION (SQLSTATE P0001), on",
    "SELECT from_json(w, 'a INT', map('mode', 'FAILFAST')) AS c FROM input": "MALFORMED_RECORD_IN",
}
OF_QUERY = {
    "SELECT nope FROM input": "A column, variable, or function parameter with name `nope` cannot",
    "SELECT w w w FROM input": "Syntax error at or near 'w'",
}
# Runs each query as an epoch's plan is run; answers with what was reported of it.
SCRIPT = """
import json, os, sys
from pathlib import Path
os.dup2(os.open("log", os.O_CREAT | os.O_WRONLY), 2)
from pyspark.errors import AnalysisException
from perseid.worker.spark import sql_errors
from perseid.worker.spark.session import open_session

spark = open_session("local[1]", 1, "sql", Path("spark"))
rows = spark.createDataFrame([("SECRET@x", 1), ("SECRET@x", 0)], "w string, n bigint")
rows.createOrReplaceTempView("input")
answers, other = [], {"p": "SELECT a FROM b"}
for query in json.load(sys.stdin):
    try:
        plan = spark.sql(query)._jdf.queryExecution().executedPlan()
        plan.clone().executeCollectPublic()
    except AnalysisException as error:
        answers.append(str(sql_errors.of_query("o", str(error))))
    except Exception as error:
        answers.append(str(sql_errors.on_data(str(error), {"o": query, **other}, 7, "t")))
    else:
        answers.append("nothing was wrong")
print("\\n" + json.dumps(answers))
spark.stop()
"""


@pytest.mark.security("5.15")
def test_what_is_reported_names_the_operator_and_never_the_record(
    in_spark: Callable[[str, str], Any], tmp_path: Path
) -> None:
    answers = in_spark(SCRIPT, json.dumps([*ON_DATA, *OF_QUERY]))
    wanted = [*ON_DATA.values(), *OF_QUERY.values()]
    wrong = [pair for pair in zip(wanted, answers, strict=True) if pair[0] not in pair[1]]
    assert wrong == []
    placed = [text for text in answers if " at line " in text]
    assert len(placed) == 3
    assert all(text.startswith("operator o: its SQL raised ") for text in placed)
    log = (tmp_path / "log").read_text()
    assert log.count("aborting job") == len(ON_DATA)
    assert "SECRET" not in "".join(answers) + log
