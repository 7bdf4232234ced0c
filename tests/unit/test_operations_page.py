"""The operators' page names metrics and verbs that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from perseid.cli import main
from perseid.coordinator.api import metrics

TEXT = (Path(__file__).parents[2] / "compose" / "OPERATIONS.md").read_text()
INLINE = re.findall(r"`(perseid (?!coordinator|worker)[^`]*)`", TEXT)
BLOCKS = re.findall(r"^```(sh[^\n]*)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
LINES = [(kind, line) for kind, block in BLOCKS for line in block.splitlines()]


def test_metrics_of_the_page_are_there() -> None:
    named = set(re.findall(r"perseid_(?:leader|workers|coordinator|job|operator)\w*", TEXT))
    assert named
    assert named <= {family.name for family in metrics.FAMILIES}


def test_blocks_are_commands_and_only_those_of_docker_are_not_run() -> None:
    for kind, line in LINES:
        assert line.startswith("docker " if kind == "sh docker" else "perseid "), line


@pytest.mark.parametrize("command", sorted({*INLINE, *(n for _, n in LINES if n[0] == "p")}))
def test_verbs_of_the_page_are_there(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    options = [word for word in words if word.startswith("-")]
    verb = words[: 2 if words[0] in {"audits", "decisions", "jobs", "topics", "dlq", "txn"} else 1]
    assert main.run([*verb, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in options:
        assert option in shown, f"{command}: no {option}"
