"""`perseid jobs apply --gate audit --approve FILE`: what is asked for, and what users are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.cli import approvals
from perseid.errors import BadInputError, RefusedError, UsageError
from perseid.jobs.operations.gated import Gating
from perseid.records import ApprovedCause
from perseid.replay import reports, signing
from support.audit_reports import example

ARCHIVE = "a1" * 32


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report whose differences are known record by record, as JSON; with keys in its folder."""
    known = tuple(cause for cause in example().causes if cause.kind != "order")
    file = tmp_path / "audit.json"
    file.write_text(reports.as_json(replace(example(), causes=known, archive=ARCHIVE)))
    signing.new_key(tmp_path)
    return file


@pytest.mark.parametrize(
    ("gate", "approve", "keys", "text"),
    [
        ("adit", None, [], "--gate 'adit': expected audit"),
        ("", Path("r"), [], "--approve: expected --gate audit too"),
        ("audit", None, [Path("k")], "--key: expected --approve FILE too"),
    ],
)
def test_options_that_make_no_sense(
    gate: str, approve: Path | None, keys: Sequence[Path], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        approvals.gating(gate, 20, approve, keys)


def test_without_a_report_nothing_is_approved() -> None:
    assert approvals.gating("", 20, None, []) == Gating(0)
    assert approvals.gating("audit", 7, None, []) == Gating(7)


def test_users_see_what_they_approve_and_whether_it_is_signed(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = approvals.gating("audit", 7, report, [])
    assert found.epochs == 7
    assert found.approval is not None
    assert (found.approval.job, found.approval.archive) == ("orders", ARCHIVE)
    assert found.approved("orders")[0] == ApprovedCause("spent", "value", ("total",))
    assert found.approved("another") == ()
    shown = capsys.readouterr().err
    assert "(unsigned), an audit of epochs 70 to 140 with revision r8:" in shown
    assert "  operator spent: another value of total\n" in shown
    assert "  operator spent: a record is missing\n" in shown


def test_a_signed_report_is_verified_with_a_key(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = report.parent
    signed = folder / "audit.dsse.json"
    key = signing.private_key(folder / "audit.key")
    signed.write_text(signing.sign(report.read_text(), key))
    approvals.gating("audit", 7, signed, [])
    assert "(signed, not verified)" in capsys.readouterr().err
    approvals.gating("audit", 7, signed, [folder / "audit.pub"])
    assert f"(signed by key {signing.key_id(key.public_key())})" in capsys.readouterr().err
    signing.new_key(folder / "other")
    with pytest.raises(BadInputError, match="unknown key"):
        approvals.gating("audit", 7, signed, [folder / "other" / "audit.pub"])
    with pytest.raises(BadInputError, match="no envelope"):
        approvals.gating("audit", 7, report, [folder / "audit.pub"])


def test_a_report_that_approves_nothing_is_refused(report: Path) -> None:
    report.write_text(reports.as_json(replace(example(), verdict="not_deterministic")))
    with pytest.raises(RefusedError, match="has the verdict not_deterministic"):
        approvals.gating("audit", 7, report, [])
