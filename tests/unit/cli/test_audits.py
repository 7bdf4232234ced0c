"""`perseid audits`: its exit codes, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perseid.replay import reports, signing
from support.audit_reports import example

Run = Callable[..., Any]


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A signed report, with its keys in the folder."""
    file = tmp_path / "audit.dsse.json"
    file.write_text(signing.sign(reports.as_json(example()), signing.new_key(tmp_path)))
    return file


def test_keys_are_made_once(run: Run, tmp_path: Path) -> None:
    made = run("audits", "keys", str(tmp_path), "--json")
    assert made["key_id"] == signing.key_id(signing.public_key(Path(made["public"])))
    assert made["private"] == str(tmp_path / "audit.key")
    assert "already" in run("audits", "keys", str(tmp_path), code=2)
    assert "key id" in run("audits", "keys", str(tmp_path / "other"))


def test_a_valid_signature(run: Run, signed: Path) -> None:
    key = str(signed.with_name("audit.pub"))
    found = run("audits", "verify", str(signed), "--key", key, "--json")
    assert found["signature"] == "valid" and len(found["key_id"]) == 64
    assert (found["job"], found["epochs"], found["verdict"]) == ("orders", "70-140", "diverged")
    assert "diverged" in run("audits", "verify", str(signed), "--key", key)


def test_a_report_is_signed(run: Run, tmp_path: Path) -> None:
    (report,) = reports.write(example(), tmp_path, ["json"])
    key = signing.new_key(tmp_path)
    envelope = run("audits", "sign", str(report), "--key", str(tmp_path / "audit.key"))
    assert signing.verify(envelope, [key.public_key()]).report == report.read_text()
    report.write_text("{}")
    refused = run("audits", "sign", str(report), "--key", str(tmp_path / "audit.key"), code=1)
    assert "no report of an audit" in refused


def test_invalid_signatures(run: Run, signed: Path, tmp_path: Path) -> None:
    own, other = str(tmp_path / "audit.pub"), tmp_path / "other"
    run("audits", "keys", str(other))
    unknown = run("audits", "verify", str(signed), "--key", str(other / "audit.pub"), code=1)
    assert "signed by an unknown key" in unknown
    document = json.loads(signed.read_text())
    document["payload"] = document["payload"].replace("A", "B", 1)
    signed.write_text(json.dumps(document))
    assert "does not fit" in run("audits", "verify", str(signed), "--key", own, code=1)
    signed.write_text(signed.read_text()[:-9])
    assert "no envelope" in run("audits", "verify", str(signed), "--key", own, code=1)


def test_a_signed_document_that_is_no_report(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "signed.json"
    file.write_text(signing.sign('{"format": 9}', signing.new_key(tmp_path)))
    key = str(tmp_path / "audit.pub")
    assert "has format 9" in run("audits", "verify", str(file), "--key", key, code=1)


def test_what_cannot_be_verified(run: Run, signed: Path, tmp_path: Path) -> None:
    key = str(tmp_path / "audit.pub")
    assert "--key" in run("audits", "verify", str(signed), code=2)
    assert "No such file" in run("audits", "verify", str(tmp_path / "x"), "--key", key, code=2)
    (tmp_path / "x").write_bytes(b"\xff")
    assert "no text" in run("audits", "verify", str(tmp_path / "x"), "--key", key, code=2)


@pytest.mark.parametrize("form", list(reports.FORMS))
def test_a_report_is_shown_in_each_form(form: str, run: Run, tmp_path: Path) -> None:
    (file,) = reports.write(example(), tmp_path, ["json"])
    audit = reports.from_json(file.read_text())
    shown = run("audits", "show", str(file), "--format", form)
    assert shown == reports.FORMS[form].text(audit)
    assert run("audits", "show", str(file), "--json") == json.loads(file.read_text())


def test_a_signed_report_is_shown(run: Run, signed: Path, tmp_path: Path) -> None:
    shown = run("audits", "show", str(signed))
    assert "Audit of" in shown and "was not verified; --key verifies it" in shown
    verified = run("audits", "show", str(signed), "--key", str(tmp_path / "audit.pub"))
    assert "Audit of" in verified and "not verified" not in verified
    run("audits", "keys", str(tmp_path / "other"))
    other = str(tmp_path / "other" / "audit.pub")
    assert "Audit of" not in run("audits", "show", str(signed), "--key", other, code=1)


def test_what_cannot_be_shown(run: Run, signed: Path, tmp_path: Path) -> None:
    assert "expected json, html" in run("audits", "show", str(signed), "--format", "pdf", code=2)
    (tmp_path / "x").write_text("no report")
    assert "no report of an audit" in run("audits", "show", str(tmp_path / "x"), code=1)
