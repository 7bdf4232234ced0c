"""What `validate` and `apply` make of the answers of Spark to the queries of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.cli import queries
from perseid.errors import RefusedError
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_jobs
from perseid.jobs.repository import job_folders
from perseid.worker.dataflow import known_columns

JOB = """
name: sales
sources:
  o: {topic: t, format: json, columns: {id: int64, raw: binary}}
operators:
  first: {input: o, sql: "SELECT * FROM input"}
  second: {input: first, sql: "SELECT id FROM input"}
  keyed: {input: second, key: usr, use: "library:CountByKey"}
sinks:
  a: {input: first, topic: a, format: json}
  b: {input: keyed, topic: b, format: json, key: usr}
"""
Questions = list[list[dict[str, Any]]]


def answer(operator: str, columns: pa.Schema | None, refused: str | None = None) -> dict[str, Any]:
    text = None if columns is None else known_columns.text_of(columns)
    return {"operator": operator, "columns": text, "refused": refused}


def check(folder: Path, text: str, ask: queries.Ask | None) -> str:
    """What is reported of the job; empty when nothing is wrong."""
    (folder / "job.yaml").write_text(text)
    with job_folders.validated(job_folders.find(str(folder))) as jobs:
        try:
            queries.check(jobs, load_jobs(jobs), ask)
        except JobFileErrors as error:
            return str(error)
    return ""


def test_what_a_query_makes_of_its_input_is_held_against_what_follows(tmp_path: Path) -> None:
    asked: Questions = []
    first = pa.schema([("id", pa.int64()), ("raw", pa.binary())])

    def ask(found: Questions) -> Questions:
        asked.extend(found)
        return [[answer("first", first), answer("second", pa.schema([("id", pa.int64())]))]]

    shown = check(tmp_path, JOB, ask).splitlines()
    ((one, other),) = asked
    assert (one["view"], one["is_source"], one["reads"]) == ("input", True, None)
    assert known_columns.columns_of(one["columns"]).equals(first)
    assert (other["columns"], other["is_source"], other["reads"]) == (None, False, "first")
    assert len(shown) == 2
    assert "job.yaml:8: operators.keyed.key: found 'usr', expected a column of second's" in shown[0]
    assert "job.yaml:10: sinks.a: of first: output column 'raw' of type binary has no" in shown[1]


def test_a_query_that_cannot_run_is_reported_with_its_line(tmp_path: Path) -> None:
    shown = check(tmp_path, JOB, lambda _: [[answer("first", None, "SQL of operator first: no")]])
    assert "job.yaml:6: operators.first.sql: SQL of operator first: no" in shown
    assert len(shown.splitlines()) == 1  # nothing of what follows it


def test_a_job_without_sql_starts_no_spark_and_its_sinks_are_looked_at(tmp_path: Path) -> None:
    def ask(_: Questions) -> Questions:
        raise AssertionError("no Spark is asked")

    text = """
name: copy
sources: {o: {topic: t, format: json, columns: {id: int64, raw: binary}}}
sinks: {a: {input: o, topic: a, format: json}}
"""
    assert "sinks.a: of o: output column 'raw' of type binary" in check(tmp_path, text, ask)


def test_what_was_asked_once_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path / "cache"))
    asked: Questions = []

    def spark(found: Questions) -> Questions:
        asked.extend(found)
        return [[answer("first", None, "no")]]

    monkeypatch.setattr(queries, "_spark", spark)
    (tmp_path / "job").mkdir()
    assert "no" in check(tmp_path / "job", JOB, None)
    assert "no" in check(tmp_path / "job", JOB, None)
    assert len(asked) == 1
    check(tmp_path / "job", JOB.replace("SELECT id", "SELECT raw"), None)
    assert len(asked) == 2


def test_without_a_java_the_job_is_valid_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spark(_: Questions) -> Questions:
        raise RefusedError("no Java 17 or 21 found")

    monkeypatch.setenv("PERSEID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(queries, "_spark", spark)
    (tmp_path / "job").mkdir()
    assert check(tmp_path / "job", JOB, None) == ""
    assert "SQL was not checked, a worker does when the job starts" in capsys.readouterr().err
