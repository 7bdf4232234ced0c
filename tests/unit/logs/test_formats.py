"""Log entries as text and as JSON: one line each, whatever is in a name, a message or an error."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid import logs
from perseid.errors import UsageError

FORGED = 'x\n2026-11-23 04:00:00,000 INFO perseid: forged\r\x1b[2J\u2028{"time": "2026'
BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test binds is no other test's."""
    monkeypatch.delenv(logs.FORMAT, raising=False)
    logs.bind()
    yield
    logs.bind()
    logs.bind_process(coordinator_epoch=None)


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("perseid.test").makeRecord(
        "perseid.test", logging.WARNING, __file__, 1, message, args, None, extra=extra
    )
    return made


def as_json(made: logging.LogRecord) -> dict[str, object]:
    (line,) = logs.formatter("json", "w1").format(made).splitlines()
    found: dict[str, object] = json.loads(line)
    return found


def as_text(made: logging.LogRecord) -> str:
    return logs.formatter("text", "w1").format(made)


def failed(text: str) -> logging.LogRecord:
    made = record("it failed")
    try:
        raise ValueError(text)
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_a_json_entry_has_time_process_message_and_subject() -> None:
    logs.bind_process(coordinator_epoch=5)
    with logs.about(job="shop", generation=3, epoch=17):
        found = as_json(record("%d rows", 7, operator="sums", partition=0))
    assert datetime.fromisoformat(str(found.pop("time"))).tzinfo is not None
    assert found == {
        "level": "WARNING", "logger": "perseid.test", "process": "w1", "pid": os.getpid(),
        "message": "7 rows", "job": "shop", "generation": 3, "epoch": 17, "operator": "sums",
        "partition": 0, "coordinator_epoch": 5,
    }  # fmt: skip


def test_a_text_entry_has_the_same_after_its_message() -> None:
    with logs.about(job="shop", epoch=17):
        shown = as_text(record("it runs", partition=0))
    assert shown.endswith(" WARNING perseid.test: it runs [job=shop epoch=17 partition=0]")
    assert as_text(record("it runs")).endswith(": it runs")


def test_what_is_no_field_is_never_written() -> None:
    made = record("a row", payload="secret", value={"card": "secret"})
    assert "secret" not in as_text(made) + json.dumps(as_json(made))


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(BREAKS))))
def test_any_name_and_message_is_one_line(text: str) -> None:
    made = record("of %s", text, job=text)
    assert len(as_text(made).splitlines()) == 1
    found = as_json(made)
    assert (found["message"], found["job"]) == (f"of {text}", text)


def test_a_name_can_neither_forge_an_entry_nor_move_the_cursor() -> None:
    shown = as_text(record("topic %s", FORGED, job=FORGED))
    assert "\\n2026-11-23 04:00:00,000 INFO perseid: forged\\r\\x1b[2J\\u2028" in shown
    assert shown.isprintable()
    assert as_text(record("m", job="a b] [job=other")).endswith('[job="a b] [job=other"]')


def test_a_traceback_is_indented_and_its_text_cannot_begin_an_entry() -> None:
    first, *rest = as_text(failed(FORGED)).split("\n")
    assert first.endswith("it failed")
    assert rest[0].strip() == "Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert FORGED in str(as_json(failed(FORGED))["exception"])


def test_another_thread_carries_on_what_it_is_reported_and_nothing_else() -> None:
    logs.bind(job="shop", epoch=1)
    with ThreadPoolExecutor(1) as pool:
        carried = pool.submit(logs.carried(lambda: as_json(record("m")))).result()
        alone = pool.submit(lambda: as_json(record("m"))).result()
    assert (carried["job"], carried["epoch"]) == ("shop", 1)
    assert "job" not in alone
    logs.bind(job="other")
    assert "epoch" not in as_json(record("m"))


def test_a_format_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logs.chosen_format() == "text"
    monkeypatch.setenv(logs.FORMAT, "json")
    assert (logs.chosen_format(), logs.chosen_format("text")) == ("json", "text")
    monkeypatch.setenv(logs.FORMAT, "xml")
    with pytest.raises(UsageError, match="'xml': expected text or json"):
        logs.chosen_format()


def test_a_line_for_another_processes_file() -> None:
    found = json.loads(logs.line("perseid.supervisor", "w1", "pid 7 died", "json"))
    assert (found["process"], found["message"], found["level"]) == ("w1", "pid 7 died", "INFO")
    assert logs.line("perseid.supervisor", "w1", "pid 7 died").endswith(": pid 7 died\n")


PROCESS = """
import logging, threading
from perseid import logs
logs.set_up("w7")
logging.getLogger("perseid.worker").info("begins")
def dies(): raise ValueError("in a thread")
thread = threading.Thread(target=dies); thread.start(); thread.join()
raise ValueError("in the end")
"""


def test_all_that_a_process_writes_is_json_also_uncaught_errors() -> None:
    environment = {**os.environ, logs.FORMAT: "json", logs.LEVEL: "info"}
    ran = subprocess.run([sys.executable, "-c", PROCESS], env=environment, capture_output=True,
                         text=True, check=False, timeout=30)  # fmt: skip
    entries = [json.loads(line) for line in ran.stderr.splitlines()]
    assert entries[0]["message"] == "begins"
    assert [e["level"] for e in entries] == ["INFO", "CRITICAL", "CRITICAL"]
    assert {e["process"] for e in entries} == {"w7"}
    assert ["in a thread" in e.get("exception", "") for e in entries] == [False, True, False]
    assert "in the end" in entries[2]["exception"]
    assert ran.returncode == 1


@pytest.mark.parametrize(
    ("engine", "name", "value", "shown"),
    [
        ("coordinator", logs.FORMAT, "yaml", "log format 'yaml'"),
        ("worker", logs.LEVEL, "loud", "PERSEID_LOG='LOUD'"),
    ],
)
def test_engines_refuse_what_is_no_setting(engine: str, name: str, value: str, shown: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"perseid.{engine}", "--deployment", "none.json", "--id", "x1"],
        env={**os.environ, name: value}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, shown in ran.stderr) == (2, True), ran.stderr
