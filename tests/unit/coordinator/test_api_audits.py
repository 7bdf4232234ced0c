"""The calls about audits: what is asked for, who sees values of records, what a browser may do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perseid.coordinator.api.tokens import Role
from perseid.jobs.operations import audits
from perseid.replay import reports
from support.audit_reports import HOSTILE, example
from support.served import AUDIT, JOB, Served

ASK, AUDITS = f"/api/v1/jobs/{JOB}/audits", "/api/v1/audits"
REPORT = f"{AUDITS}/{AUDIT}/report"


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def refusal(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    message: str = answer.json()["error"]["message"]
    return message


def test_an_audit_is_asked_for_shown_and_canceled(served: Served) -> None:
    client = served.client(Role.OPERATOR)
    asked = client.post(ASK, params={"last": "1h", "tolerance": ["a=ulp:4", "b=absolute:0.5"]})
    assert asked.status_code == 202, asked.text
    (stored,) = audits.every(served.registry)
    assert asked.json() == audits.document(stored)
    assert (stored.by, stored.job, stored.state) == ("operator", JOB, "waiting")
    assert stored.arguments == (
        "--last=1h", "--tolerance=a=ulp:4", "--tolerance=b=absolute:0.5", "--cores=1"
    )  # fmt: skip
    viewer = served.client(Role.VIEWER)
    assert viewer.get(AUDITS).json() == {"audits": [asked.json()]}
    assert viewer.get(AUDITS, params={"job": "other"}).json() == {"audits": []}
    assert viewer.get(f"{AUDITS}/{stored.id}").json() == asked.json()
    canceled = client.delete(f"{AUDITS}/{stored.id}").json()
    assert (canceled["state"], canceled["text"]) == ("canceled", "canceled by operator")
    assert "has ended: canceled" in refusal(client.delete(f"{AUDITS}/{stored.id}"), 409)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "expected one of --epochs"),
        ({"epochs": "1:5", "last": "1h"}, "several is given"),
        ({"epochs": "5:1"}, "--epochs: the last one, 1, is below"),
        ({"epochs": "--rev=evil"}, "--epochs '--rev=evil': expected FIRST:LAST"),
        ({"last": "1h", "tolerance": "x"}, "--tolerance"),
        ({"last": "1h", "rev": "https://evil.example/x.git"}, "rev: Extra inputs"),
        ({"last": "1h", "cores": "0"}, "query.cores: "),
        ({"last": "1" * 301}, "query.last: "),
    ],
)
@pytest.mark.security("5.6", "5.10")
def test_what_is_no_range_is_refused(served: Served, params: dict[str, str], text: str) -> None:
    assert text in refusal(served.client(Role.ADMIN).post(ASK, params=params), 422)
    assert audits.every(served.registry) == []


def test_a_job_or_audit_that_is_not_there(served: Served) -> None:
    client = served.client(Role.ADMIN)
    job = client.post("/api/v1/jobs/wordcounts/audits", params={"last": "1h"})
    assert "did you mean wordcount?" in refusal(job, 404)
    for path in (f"{AUDITS}/none", f"{AUDITS}/none/report"):
        assert "perseid audits list" in refusal(client.get(path), 404)
    assert "perseid audits list" in refusal(client.delete(f"{AUDITS}/none"), 404)


@pytest.mark.security("5.6", "5.14")
def test_only_operators_read_values_of_records(served: Served) -> None:
    served.put_audit(ended=True)
    viewer, operator = served.client(Role.VIEWER), served.client(Role.OPERATOR)
    shown = viewer.get(REPORT)
    assert reports.from_json(shown.text).redacted
    refused = refusal(viewer.get(REPORT, params={"values": True}), 403)
    assert "has the role viewer, and this call needs operator" in refused
    found = operator.get(REPORT, params={"values": True})
    assert reports.from_json(found.text) == example()
    for form in reports.FORMS:
        assert "ann" not in viewer.get(REPORT, params={"format": form}).text


@pytest.mark.parametrize("form", reports.FORMS)
@pytest.mark.security("5.6")
def test_each_form_comes_without_rights_in_a_browser(served: Served, form: str) -> None:
    served.put_audit(ended=True)
    found = served.client(Role.OPERATOR).get(REPORT, params={"format": form, "values": True})
    assert found.text == reports.FORMS[form].text(example())
    assert found.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert HOSTILE not in found.text
    kind = {"json": "json", "html": "html", "junit": "xml", "markdown": "markdown"}[form]
    assert kind in found.headers["content-type"]


def test_an_unknown_form(served: Served) -> None:
    served.put_audit(ended=True)
    answer = served.client(Role.VIEWER).get(REPORT, params={"format": "pdf"})
    assert "query.format: " in refusal(answer, 422)
