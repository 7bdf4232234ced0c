"""`.ci/audit` with the real pip-audit, on an advisory service of the tests' own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import orjson
import pytest
from werkzeug.wrappers import Request, Response

from support.http_server import running

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "java.lock", "audit.lock")


class Service:
    """OSV's API. Knows one weakness each of the packages in `weak`, mended in version 999."""

    def __init__(self) -> None:
        self.weak: set[str] = set()
        self.asked: set[tuple[str, str]] = set()

    def __call__(self, request: Request) -> Response:
        asked = orjson.loads(request.get_data())
        name = asked["package"]["name"]
        self.asked.add((name, asked["version"]))
        found = {"vulns": [_weakness(name)]} if name in self.weak else {}
        return Response(orjson.dumps(found), mimetype="application/json")


def _weakness(name: str) -> dict[str, object]:
    events = [{"introduced": "0"}, {"fixed": "999"}]
    return {
        "id": f"PYSEC-2026-{name}", "summary": "weak", "details": "weak",
        "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
        "affected": [{
            "package": {"name": name, "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": events}],
        }],
    }  # fmt: skip


def audit(url: str) -> subprocess.CompletedProcess[str]:
    """As a developer types it; the tests' own environment names an index of theirs."""
    return subprocess.run(
        [ROOT / ".ci" / "audit", f"{url}/v1/query"],
        check=False, capture_output=True, text=True, timeout=300,
        env={k: v for k, v in os.environ.items() if k not in {"PIP_NO_INDEX", "PIP_FIND_LINKS"}},
    )  # fmt: skip


@pytest.mark.security("5.16")
def test_every_locked_package_is_asked_for_and_a_weak_one_is_named() -> None:
    service = Service()
    with running(service) as url:
        clean = audit(url)
        asked, service.weak = set(service.asked), {"redis", "pyspark"}
        done = audit(url)
    assert (clean.returncode, "No known vulnerabilities" in clean.stderr) == (0, True), clean.stderr
    text = "".join((ROOT / "platform" / lock).read_text() for lock in LOCKS)
    entry = r"^([a-z0-9._-]+)(?:\[[a-z0-9,-]+\])?==([^\s;\\]+)"
    locked = set(re.findall(entry, text, re.MULTILINE))
    assert len(locked) > 60
    assert asked == locked
    assert done.returncode == 1, done.stdout + done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()[2:]} == service.weak
    assert "PYSEC-2026-redis" in done.stdout and "999" in done.stdout


@pytest.mark.security("5.16")
def test_a_service_that_does_not_answer_is_no_clean_audit() -> None:
    with running(Service()) as url:
        pass
    done = audit(url)
    assert done.returncode != 0
    assert "No known vulnerabilities" not in done.stdout + done.stderr
