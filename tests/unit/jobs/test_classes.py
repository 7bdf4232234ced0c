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
    (tmp_path / "job.yaml").write_text(JOB.format(source=source, operator=operator))
    (tmp_path / "m.py").write_text(code)
    try:
        load_checked(parse.load(tmp_path), tmp_path)
    except JobFileErrors as error:
        return [problem.text for problem in error.problems]
    return []


def test_on_epoch_end_needs_a_key(tmp_path: Path) -> None:
    assert said(tmp_path, CODE) == []
    (text,) = said(tmp_path, CODE, operator="")
    assert "operators.o: O has a method on_epoch_end, which needs a key" in text
    assert "write `key: COLUMN`" in text
