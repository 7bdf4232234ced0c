"""Asks Spark to check the queries of jobs, for `validate` and `apply`.

Only jobs with SQL need it, and answers are cached: a JVM with Spark takes seconds to start. Without
a Java there is no check: then a worker reports the mistake, as a permanent error, when the job
starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.cli import output
from perseid.embedded.cache import cache_root, short_digest
from perseid.errors import PerseidError, RefusedError

if TYPE_CHECKING:
    from perseid.jobs.operations.classes import Classes
    from perseid.jobs.repository.job_folders import Validated

TIMEOUT_S = 300
_JUDGES = (
    "dataflow/known_columns", "spark/asking", "spark/session", "spark/spark_types", "spark/sql",
    "spark/sql_errors", "spark/sql_input",
)  # fmt: skip

Ask = Callable[[list[list[dict[str, Any]]]], list[list[dict[str, Any]]]]


def check(
    jobs: Sequence[Validated], classes: Mapping[str, Classes], ask: Ask | None = None
) -> None:
    """Raises JobFileErrors for queries that cannot run, and sinks that cannot write their input."""
    from perseid.jobs.model.problems import JobFileErrors, Problem
    from perseid.jobs.model.trees import JOB_FILE
    from perseid.jobs.validation import yamlfile
    from perseid.worker.dataflow import known_columns

    known = [
        known_columns.declared(job.spec, job.tree.files, classes[job.spec.name]) for job in jobs
    ]
    asked = [
        known_columns.questions(known_columns.queries(job.spec, columns))
        for job, columns in zip(jobs, known, strict=True)
    ]
    answers = (ask or _remembered)(asked) if any(asked) else [[] for _ in jobs]
    problems = []
    for job, columns, found in zip(jobs, known, answers, strict=True):
        root = yamlfile.read(job.tree.files[JOB_FILE].decode("utf-8"))
        label = f"{job.tree.name}/{JOB_FILE}"
        wrong: list[known_columns.Found] = []
        for operator, answer in known_columns.answers(found).items():
            if isinstance(answer, str):
                path = ("operators", operator, "sql")
                wrong.append((path, f"{'.'.join(path)}: {answer}"))
            else:
                columns[operator] = answer
        wrong += known_columns.problems(job.spec, job.tree.files, columns)
        problems += [Problem(label, root.line_of(path), text) for path, text in wrong]
    if problems:
        raise JobFileErrors(problems)


def _remembered(asked: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The answers, from Spark where the cache has none."""
    places = [_place(questions) for questions in asked]
    known = [_read(place) for place in places]
    missing = [i for i, found in enumerate(known) if found is None and asked[i]]
    if missing:
        try:
            answers = _spark([asked[i] for i in missing])
        except PerseidError as error:
            output.note(f"perseid: SQL was not checked, a worker does when the job starts: {error}")
            answers = [[] for _ in missing]
        for i, found in zip(missing, answers, strict=True):
            known[i] = found
            if found:
                _write(places[i], found)
    return [found or [] for found in known]


def _spark(asked: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    from perseid.embedded.java import java_home
    from perseid.embedded.parts import spark_environment
    from perseid.embedded.spark_home import spark_home

    environment = {**os.environ, **spark_environment(java_home(), spark_home())}
    environment.pop("SPARK_LOCAL_DIRS", None)  # it would override the folder of the session
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "perseid.worker.spark.asking"], check=False,
            input=json.dumps(asked), capture_output=True, encoding="utf-8", env=environment,
            timeout=TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError(f"Spark did not answer: {error}") from None
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines()
        raise RefusedError(f"Spark did not start: {lines[-1] if lines else ran.returncode}")
    found: list[list[dict[str, Any]]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _place(questions: list[dict[str, Any]]) -> Path:
    """Named after the questions and the code that checks them: another version asks again."""
    from importlib.metadata import version

    from perseid import worker

    folder = Path(worker.__path__[0])
    code = b"".join((folder / f"{name}.py").read_bytes() for name in _JUDGES)
    key = short_digest(json.dumps([questions, version("pyspark"), short_digest(code)]))
    return cache_root() / "queries" / f"{key}.json"


def _read(place: Path) -> list[dict[str, Any]] | None:
    try:
        found: list[dict[str, Any]] = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _write(place: Path, found: list[dict[str, Any]]) -> None:
    with suppress(OSError):  # a cache that is not writable
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(found), encoding="utf-8")
        fresh.replace(place)
