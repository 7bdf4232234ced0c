import json
import subprocess
import sys
import time
from importlib.metadata import version

import pytest

from perseid.cli import main
from perseid.errors import (
    DamagedFile,
    PerseidError,
    RefusedError,
    ReplayDataLost,
    RetryableError,
    UsageError,
    exit_code,
)

VERBS = (
    "up", "down", "status", "init", "demo", "logs", "bench", "test", "version",
    "jobs apply", "jobs diff", "jobs list", "jobs show", "jobs start", "jobs stop", "jobs remove",
    "jobs validate", "topics list", "topics create", "topics tail", "topics produce",
    "dlq list", "dlq show", "dlq redrive", "txn list", "txn abort", "doctor",
    "replay", "explain", "audits keys", "audits sign", "audits verify", "audits show",
    "restart", "rebalance", "backup", "restore", "decisions list", "decisions replay",
    "chaos kill", "chaos pause", "chaos partition", "chaos fill",
    "plan replication", "plan adapt", "plan fidelity", "plan recovery", "plan thresholds",
    "plan checkpoint", "plan placement", "plan mttf",
)  # fmt: skip


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (RefusedError("x"), 3),
        (RetryableError("x"), 1),
        (ReplayDataLost("t", 0, 1, 2), 1),
        (DamagedFile("x"), 1),
    ],
)
def test_exit_codes(error: PerseidError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*verb.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example" in shown
    assert "--json" in shown


@pytest.mark.parametrize(
    "line", ["nope", "jobs", "jobs nope", "version --nope", "up --workers many", "up --workers -1"]
)
def test_bad_usage_exits_with_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("perseid: ")
    assert shown.out == ""


def test_an_error_with_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version", "--json", "--nope"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["error"]["kind"] == "UsageError"
    assert "--nope" in found["error"]["message"]


@pytest.mark.parametrize("verb", ["bench", "test"])
def test_an_installed_package_refuses_what_a_checkout_has(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "repository", lambda: None)
    assert main.run([verb, "--json"]) == 3
    assert f"`./perseid {verb}`" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([]) == 0
    assert "Usage: perseid" in capsys.readouterr().out


def test_version_names_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version", "--json"]) == 0
    assert {"perseid", "pyspark", "python"} <= json.loads(capsys.readouterr().out).keys()


def test_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == f"perseid {version('perseid')}\n"


def test_help_loads_no_heavy_client_and_is_quick() -> None:
    code = (
        "import sys; from perseid.cli.main import run; run(['--help']); "
        "heavy = {'pyspark', 'pyarrow', 'confluent_kafka', 'kazoo', 'pandas', 'fastapi', "
        "'matplotlib', 'numpy'}; "
        "print('loaded:', *sorted(heavy & set(sys.modules)))"
    )
    started_s = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.splitlines()[-1] == "loaded:"
    assert time.monotonic() - started_s < 5  # a loaded machine; alone it is 0.15 s
