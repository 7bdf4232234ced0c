"""Which of Spark's errors are of the data, whose query it was, and what is reported of it."""

from __future__ import annotations

import pytest

from perseid.errors import RetryableError
from perseid.errors.carried import describe
from perseid.worker.spark.sql_errors import of_query, on_data

TOKEN = "drawn-for-this-life"
QUERIES = {"a": "SELECT CAST(w AS INT) AS n FROM input", "b": "SELECT\n  w, 1 / n AS c FROM input"}
CAST = (
    "Job aborted due to stage failure: Lost task 0.3: org.apache.spark.SparkNumberFormatException: "
    "[CAST_INVALID_INPUT] The value 'secret [X_Y] of' of the type \"STRING\" cannot be cast to "
    '"INT" because it is malformed. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\n'
    "SELECT CAST(w AS INT) AS n FROM input\n       ^^^^^^\n\n\tat org.apache"
)
DIVIDED = (
    "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 2, position 6) ==\n"
    "...1 / n AS c FROM input\n     ^^^^^\n"
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CAST, "operator a: its SQL raised CAST_INVALID_INPUT (SQLSTATE 22018) at line 1, "
               "position 8, on a record of epoch 7 "),
        (DIVIDED, "operator b: its SQL raised DIVIDE_BY_ZERO (SQLSTATE 22012) at line 2, posi"),
        ("[USER_RAISED_EXCEPTION] secret SQLSTATE: P0001", "operator a or b: its SQL raised USER_"),
    ],
)  # fmt: skip
def test_what_data_made_is_reported_without_the_data(text: str, shown: str) -> None:
    reported = on_data(text, QUERIES, 7, TOKEN)
    assert reported is not None
    assert str(reported).startswith(shown)
    assert "secret" not in str(reported)


@pytest.mark.parametrize(
    "text",
    [
        "java.net.ConnectException: Connection refused",
        "[EXECUTOR_LOST] it went away. SQLSTATE: 58030",
        "[A] first. SQLSTATE: 58030\n[B] then. SQLSTATE: 4",
        f"[PYTHON] {describe(RetryableError('[X] SQLSTATE: 22018'), TOKEN)} SQLSTATE: 22000",
    ],
)
def test_everything_else_may_pass(text: str) -> None:
    assert on_data(text, QUERIES, 7, TOKEN) is None


def test_a_job_without_sql_has_no_error_of_sql() -> None:
    assert on_data(CAST, {}, 7, TOKEN) is None


def test_a_query_that_cannot_be_resolved() -> None:
    shown = str(of_query("a", "\n[UNRESOLVED_COLUMN] `nope` cannot be resolved.\n'Project ['nope]"))
    assert shown.startswith("SQL of operator a: [UNRESOLVED_COLUMN] `nope` cannot be resolved. Exp")
    assert "'Project" not in shown
