import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from perseid.cli import output


@dataclass(frozen=True)
class Row:
    name: str
    path: Path


def test_a_document_is_json_of_dataclasses_paths_and_tuples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.document({"rows": (Row("a", Path("/x")),), "kinds": frozenset({"k"})})
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"rows": [{"name": "a", "path": "/x"}], "kinds": ["k"]}
    assert shown.err == ""


def test_tables_keep_brackets_and_show_none_as_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(["name", "master"], [["w1", "local[2,4]"], ["w2", None]])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["name", "master"], ["w1", "local[2,4]"], ["w2", "-"]]


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.note("waiting")
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "waiting\n")
