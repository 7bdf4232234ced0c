"""A job's classes against its job.yaml: what validation says about them."""

from __future__ import annotations

from pathlib import Path

from perseid.jobs import parse
from perseid.jobs.classes import load_checked
from perseid.jobs.problems import JobFileErrors

JOB = """\
name: job
sources: {{in: {{topic: in, format: json, columns: {{k: string, ms: int64}}{source}}}}}
operators: {{o: {{input: in, use: "m:O"{operator}}}}}
sinks: {{s: {{input: o, topic: out, format: json, order: free}}}}
"""
CODE = """\
from perseid.jobs import Operator

class O(Operator):
    def process(self, batch, out):
        out.emit(batch)

    def on_epoch_end(self, out):
        pass
"""


def said(tmp_path: Path, code: str, operator: str = ", key: k", source: str = "") -> list[str]:
    """What is wrong with the class; nothing when it fits."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))  # a folder's modules are loaded once
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.format(source=source, operator=operator))
    (folder / "m.py").write_text(code)
    try:
        load_checked(parse.load(folder), folder)
    except JobFileErrors as error:
        return [problem.text for problem in error.problems]
    return []


TIMERS = """\
from perseid.jobs import Operator, Timers, pa

class O(Operator):
    waiting = Timers(key=pa.string())

    def process(self, batch, out):
        out.emit(batch)

    def on_timer(self, due, out):
        pass
"""
TIMED = ", eventTime: {column: ms}"


def test_timers_need_a_method_and_a_clock(tmp_path: Path) -> None:
    assert said(tmp_path, TIMERS, source=TIMED) == []
    assert said(tmp_path, TIMERS.replace("string()", 'string(), time="token"')) == []
    (text,) = said(tmp_path, TIMERS)
    assert "O.waiting waits for event time, and no source has one" in text
    (text,) = said(tmp_path, TIMERS.replace("on_timer", "on_time"), source=TIMED)
    assert "O has Timers (waiting) and no method on_timer(self, due, out); add it" in text
    (text,) = said(tmp_path, TIMERS.replace("    waiting", "    # waiting"), source=TIMED)
    assert "O has a method on_timer and no Timers; write `timers = Timers" in text
    (text,) = said(tmp_path, TIMERS, operator="", source=TIMED)
    assert "keeps state (waiting), which needs a key" in text


def test_on_epoch_end_needs_a_key(tmp_path: Path) -> None:
    assert said(tmp_path, CODE) == []
    (text,) = said(tmp_path, CODE, operator="")
    assert "operators.o: O has a method on_epoch_end, which needs a key" in text
    assert "write `key: COLUMN`" in text
