"""CI.md: its workflows are YAML, publish the reports, and type commands that exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from perseid.cli.main import app
from perseid.replay import reports
from perseid.replay.findings import EXIT, EXIT_REFUSED

PAGE = (Path(__file__).parents[3] / "replay" / "CI.md").read_text(encoding="utf-8")
WORKFLOWS = [
    YAML(typ="safe").load(block)
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]
AUDIT, DEPLOY, GITLAB = WORKFLOWS


def _steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    (job,) = workflow["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def _lines() -> list[str]:
    runs = [step["run"] for w in (AUDIT, DEPLOY) for step in _steps(w) if "run" in step]
    text = "\n".join([*runs, *GITLAB["audit"]["script"]])
    return [line for line in text.splitlines() if line.startswith("perseid ")]


def test_the_page_has_the_commands_of_audits_and_deploys() -> None:
    verbs = {" ".join(line.split()[1:3]) for line in _lines()}
    assert verbs == {"jobs validate", "replay orders", "jobs show", "jobs apply"}


@pytest.mark.parametrize("line", _lines())
def test_every_command_is_one_that_perseid_takes(line: str) -> None:
    command: Any = typer.main.get_command(app)
    _, *words = shlex.split(line)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    given = command.make_context(line, words).params  # a usage error for a word that is unknown
    assert {"data", "as_json"} <= given.keys()


def test_reports_are_published_also_after_a_failure() -> None:
    after = [step for step in _steps(AUDIT) if str(step.get("if", "")).startswith("always()")]
    named = {form.file for form in reports.FORMS.values() if form.file in json.dumps(after)}
    assert named == {"audit.md", "audit.junit.xml"}
    (upload,) = (step for step in after if "upload-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "audit", "the folder of --report"


def test_workflows_have_no_rights_but_those_they_name() -> None:
    for workflow in (AUDIT, DEPLOY):
        (job,) = workflow["jobs"].values()
        assert workflow["permissions"] == {}
        assert job["permissions"]["contents"] == "read"
        for step in _steps(workflow):
            assert "inputs" not in step.get("run", ""), "text of a user in a shell"


def test_the_table_has_every_exit_code_of_an_audit() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d) \|", PAGE, re.MULTILINE)}
    assert codes == {*EXIT.values(), EXIT_REFUSED, 1}
