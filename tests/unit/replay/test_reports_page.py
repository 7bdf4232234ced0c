"""REPORTS.md: its verifier verifies, its tables have the fields, its commands exist."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from perseid.cli.main import app
from perseid.replay import reports, signing
from perseid.replay.findings import (
    Audit,
    Bisection,
    Cause,
    Compared,
    ComparedState,
    Difference,
    Record,
    Step,
)
from support.audit_reports import example

PAGE = (Path(__file__).parents[3] / "replay" / "REPORTS.md").read_text()
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
REPORT = reports.as_json(example())


@pytest.fixture
def verified(tmp_path: Path) -> Any:
    """Runs the page's verifier, which knows nothing of perseid, on a file's text."""
    (tmp_path / "verify.py").write_text(BLOCKS["python"])
    key = signing.new_key(tmp_path)

    def run(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "audit.dsse.json").write_text(text)
        command = [sys.executable, "-I", "verify.py", "audit.dsse.json", "audit.pub"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run, json.loads(signing.sign(REPORT, key))


def test_the_verifier_is_short_and_needs_cryptography_alone() -> None:
    assert len(BLOCKS["python"].splitlines()) <= 30
    assert "perseid" not in BLOCKS["python"].replace("vnd.perseid", "").replace("of perseid", "")


def test_the_verifier_prints_a_report_that_is_valid(verified: Any) -> None:
    run, envelope = verified
    found = run(json.dumps(envelope))
    assert (found.returncode, found.stdout, found.stderr) == (0, REPORT, "")


def test_the_verifier_refuses_what_is_broken(verified: Any) -> None:
    run, envelope = verified
    foreign = signing.sign(REPORT, Ed25519PrivateKey.from_private_bytes(bytes(32)))
    payload = envelope["payload"]
    for text, error in (
        (json.dumps(envelope | {"payload": payload[:100] + "AAAA" + payload[104:]}), "not valid"),
        (foreign, "not valid"),
        (json.dumps(envelope | {"signatures": []}), "not valid"),
        (json.dumps(envelope | {"payloadType": "text/plain"}), "not a report"),
        (json.dumps(envelope)[:200], "no envelope"),
        (json.dumps(envelope | {"payload": "!"}), "no envelope"),
        (REPORT, "no envelope"),
        ("[]", "no envelope"),
    ):
        found = run(text)
        assert (found.returncode, found.stdout) == (1, ""), text[:80]
        assert error in found.stderr and "Traceback" not in found.stderr


def test_the_page_has_each_field_of_the_format() -> None:
    page = PAGE.partition("## The JSON format")[2].partition("## Decisions")[0]
    tables = re.findall(r"^\| field .*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    named = [
        {name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        for rows in tables
    ]
    assert named == [
        {field.name for field in fields(one)}
        for one in (Audit, Compared, ComparedState, Cause, Difference, Bisection, Step)
    ]
    last = page.strip().splitlines()[-1]
    assert {field.name for field in fields(Record)} <= set(re.findall(r"`(\w+)`", last))


def test_the_commands_of_the_page_exist() -> None:
    commands = re.findall(r"^    perseid (audits [^#\n>]+)", PAGE, re.MULTILINE)
    assert [line.split()[1] for line in commands] == ["keys", "sign", "verify", "show"]
    group: Any = typer.main.get_command(app)
    for line in commands:
        words = shlex.split(line)
        verb = group.commands["audits"].commands[words[1]]
        known = {name for option in verb.params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
