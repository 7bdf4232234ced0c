"""The HTTP API: who may call what, that each call is its verb, and what errors look like."""

from __future__ import annotations

import logging
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from httpx import Client

from perseid.coordinator import view
from perseid.coordinator.api.limits import BODY_BYTES_MAX, Rate
from perseid.coordinator.api.tokens import Role
from perseid.jobs.operations import audits, steering, verbs
from perseid.records import JobStatus
from perseid.registry import paths
from perseid.registry.port import Delete
from perseid.registry.repository import RepoNodes
from support.served import AUDIT, EPOCH, JOB, LEADER, REPOSITORY, Served

JOBS, AUDITS = "/api/v1/jobs", "/api/v1/audits"
# Each route, the role that it needs (None: no token), and what it answers.
ROUTES: dict[tuple[str, str], tuple[Role | None, int]] = {
    ("GET", "/healthz"): (None, 200),
    ("GET", "/metrics"): (Role.VIEWER, 200),
    ("GET", "/api/v1/status"): (Role.VIEWER, 200),
    ("GET", JOBS): (Role.VIEWER, 200),
    ("GET", f"{JOBS}/{{job}}"): (Role.VIEWER, 200),
    ("GET", f"{JOBS}/{{job}}/checkpoints"): (Role.VIEWER, 200),
    ("POST", f"{JOBS}/{{job}}/start"): (Role.OPERATOR, 409),  # it runs
    ("POST", f"{JOBS}/{{job}}/stop"): (Role.OPERATOR, 202),
    ("POST", f"{JOBS}/{{job}}/checkpoint"): (Role.OPERATOR, 202),
    ("POST", "/api/v1/rebalance"): (Role.OPERATOR, 202),
    ("DELETE", f"{JOBS}/{{job}}"): (Role.ADMIN, 202),
    ("POST", f"{JOBS}/{{job}}/audits"): (Role.OPERATOR, 422),  # it names no range
    ("GET", AUDITS): (Role.VIEWER, 200),
    ("GET", f"{AUDITS}/{{audit}}"): (Role.VIEWER, 200),
    ("GET", f"{AUDITS}/{{audit}}/report"): (Role.VIEWER, 409),  # it has not ended
    ("DELETE", f"{AUDITS}/{{audit}}"): (Role.OPERATOR, 202),
    ("GET", "/api/v1/repository"): (Role.VIEWER, 200),
    ("POST", "/api/v1/repository/look"): (Role.OPERATOR, 202),
}
MATRIX = [(*route, role) for route in ROUTES for role in (None, *Role)]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.mark.security("5.6")
def test_the_matrix_has_every_route(served: Served) -> None:
    document = served.client().get("/openapi.json").json()
    listed = {(m.upper(), path) for path, calls in document["paths"].items() for m in calls}
    routed = {r.path for r in served.app.routes if isinstance(r, APIRoute)}
    assert listed == set(ROUTES)
    assert routed <= {path for _, path in listed}


@pytest.mark.parametrize(("method", "path", "role"), MATRIX)
@pytest.mark.security("5.6")
def test_who_may_call_what(method: str, path: str, role: Role | None, served: Served) -> None:
    needed, status = ROUTES[method, path]
    entry = served.entry()
    served.put_audit(ended=False)
    answer = served.client(role).request(method, path.format(job=JOB, audit=AUDIT))
    if needed is None:
        assert answer.status_code == status
    elif role is None:
        assert_refused(answer, 401, "perseid tokens new")
        assert answer.headers["www-authenticate"] == "Bearer"
    elif role < needed:
        assert_refused(answer, 403, f"has the role {role.word}, and this call needs {needed.word}")
    else:
        assert answer.status_code == status, answer.text
    if needed is not None and (role is None or role < needed):
        assert served.entry() == entry
        assert [a.state for a in audits.every(served.registry)] == ["waiting"]


def test_a_webhook_asks_for_a_look_and_carries_nothing_else(served: Served) -> None:
    nodes = RepoNodes(served.registry)
    before = nodes.record()
    sent = {"repository": {"url": "https://evil.example/x.git"}, "ref": "evil", "accept": "1" * 40}
    answer = served.client(Role.OPERATOR).post("/api/v1/repository/look", json=sent)
    assert answer.status_code == 202
    assert answer.json()["url"] == REPOSITORY
    assert nodes.asked() == (1, "")
    assert nodes.record() == before


def test_where_none_is_followed_there_is_none_to_look_at(served: Served) -> None:
    served.coordination.write(Delete(paths.REPOSITORY))
    for method, path in (("GET", "/api/v1/repository"), ("POST", "/api/v1/repository/look")):
        answer = served.client(Role.OPERATOR).request(method, path)
        assert_refused(answer, 409, "perseid follow --repo URL")


@pytest.mark.security("5.6")
def test_a_token_that_is_not_known(served: Served) -> None:
    for header in ("Bearer perseid_x", "Basic YTpi", "Bearer ", "Bearer \xff"):
        answer = served.client().get(JOBS, headers={b"Authorization": header.encode("latin-1")})
        assert_refused(answer, 401, "Authorization: Bearer TOKEN")


@pytest.mark.security("5.6")
def test_a_token_that_is_taken_back_and_a_file_that_went_bad(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    client = served.client(Role.VIEWER)
    lines = served.token_file.read_text().splitlines()
    served.token_file.write_text("\n".join(line for line in lines if "viewer" not in line))
    assert_refused(client.get(JOBS), 401, "none that this coordinator knows")
    served.token_file.write_text("ann viewer\n")
    for _ in range(2):
        answer = served.client(Role.ADMIN).get(JOBS)
        assert_refused(answer, 503, "its log has the reason")
        assert str(served.token_file) not in answer.text
    assert caplog.text.count("tokens.txt:1: has 2 words") == 1


def test_without_tokens_any_process_on_this_machine_may_do_all(tmp_path: Path) -> None:
    client = Served(tmp_path, tokens=False).client()
    assert client.post(f"{JOBS}/{JOB}/stop").status_code == HTTPStatus.ACCEPTED
    assert client.delete(f"{JOBS}/{JOB}").status_code == HTTPStatus.ACCEPTED


@pytest.mark.security("5.6")
def test_pages_of_elsewhere_cannot_use_a_browser_of_this_machine(tmp_path: Path) -> None:
    """A page's name may be made to point here, and forms may be sent anywhere."""
    served = Served(tmp_path, tokens=False)
    client = served.client()
    rebound = client.get(JOBS, headers={"Host": "evil.example:80"})
    assert_refused(rebound, 403, "the Host header names no loopback address")
    foreign = client.post(f"{JOBS}/{JOB}/stop", headers={"Origin": "http://evil.example"})
    assert_refused(foreign, 403, "a page of another origin")
    assert_refused(client.get(JOBS, headers={"Origin": "null"}), 403, "another origin")
    assert_refused(client.get(JOBS, headers={"Host": "["}), 403, "no loopback address")
    assert_refused(client.get(JOBS, headers={"Origin": "http://["}), 403, "another origin")
    assert served.entry().desired == "running"
    own = {"Host": "localhost:80", "Origin": "http://localhost:80"}
    assert client.post(f"{JOBS}/{JOB}/stop", headers=own).status_code == HTTPStatus.ACCEPTED


@pytest.mark.security("5.6", "5.12")
def test_a_rate_for_each_principal(tmp_path: Path) -> None:
    served = Served(tmp_path, rate=Rate(per_s=0.5, burst=2))
    viewer, admin, stranger = served.client(Role.VIEWER), served.client(Role.ADMIN), served.client()
    assert [viewer.get(JOBS).status_code for _ in range(3)] == [200, 200, 429]
    assert_refused(viewer.get(JOBS), 429, "try again in 2.00 s")
    assert viewer.get(JOBS).headers["retry-after"] == "2"
    assert [stranger.get(JOBS).status_code for _ in range(3)] == [401, 401, 429]
    assert admin.get(JOBS).status_code == HTTPStatus.OK
    served.clock.sleep(2)
    assert viewer.get(JOBS).status_code == HTTPStatus.OK


@pytest.mark.security("5.6", "5.12")
def test_bodies(served: Served) -> None:
    client = served.client(Role.OPERATOR)
    stop = f"{JOBS}/{JOB}/stop"
    assert_refused(client.post(stop, content=b"x" * (BODY_BYTES_MAX + 1)), 413, "at most")
    assert_refused(client.post(stop, content=iter([b"x"])), 411, "Content-Length")
    assert_refused(client.post(stop, headers={"Content-Length": "-1"}), 413, "at most")
    assert served.entry().desired == "running"
    assert client.post(stop, content=b"x").status_code == HTTPStatus.ACCEPTED


# -- what the calls do ---------------------------------------------------------------------------


def test_the_status_is_the_leaders_view(served: Served) -> None:
    shown = served.client(Role.VIEWER).get("/api/v1/status").json()
    look = served.look()
    assert look is not None
    assert shown == view.status(look.state, look.leader, look.now)


def test_reading_gives_what_the_verbs_give(served: Served, tmp_path: Path) -> None:
    client = served.client(Role.VIEWER)
    assert client.get(JOBS).json() == {"jobs": verbs.every(served.registry)}
    shown, fault = verbs.show(served.cluster, JOB, tmp_path)
    assert fault is None
    found = client.get(f"{JOBS}/{JOB}").json()
    assert found.pop("spec_error") is None
    assert found.pop("spec")["sources"].keys() == shown.pop("spec")["sources"].keys()
    assert found == shown
    checkpoints = client.get(f"{JOBS}/{JOB}/checkpoints").json()
    assert checkpoints == {"job": JOB, "checkpoints": shown["checkpoints"]}
    assert [c["epoch"] for c in checkpoints["checkpoints"]] == [5]


def test_a_job_whose_files_are_gone_is_shown_without_them(served: Served) -> None:
    served.store.content.clear()
    found = served.client(Role.VIEWER).get(f"{JOBS}/{JOB}").json()
    assert found["spec"] is None
    assert "archives/" in found["spec_error"]


def test_a_job_is_stopped_and_started(served: Served) -> None:
    client = served.client(Role.OPERATOR)
    stopped = client.post(f"{JOBS}/{JOB}/stop", params={"checkpoint": True})
    assert (stopped.json()["state"], stopped.json()["desired"]) == ("running", "stopped")
    entry = served.entry()
    assert (entry.desired, entry.stop_checkpoint, entry.counter) == ("stopped", True, 2)
    assert_refused(client.post(f"{JOBS}/{JOB}/stop"), 409, "stopped already")
    assert_refused(client.post(f"{JOBS}/{JOB}/checkpoint"), 409, "perseid jobs start")
    assert client.post(f"{JOBS}/{JOB}/start").status_code == HTTPStatus.ACCEPTED
    assert (served.entry().desired, served.entry().uuid) == ("running", "u1")
    assert_refused(client.post(f"{JOBS}/{JOB}/start"), 409, "is running already")
    scratch = client.post(f"{JOBS}/{JOB}/start", params={"from": "scratch"})
    assert_refused(scratch, 409, "throws its state away")


def test_a_failed_job_starts_from_a_time(served: Served) -> None:
    error = {"kind": "BadInputError", "text": "bad"}
    served.put(paths.status(JOB), JobStatus("u1", "failed", 1, 1, 0, error))
    client = served.client(Role.OPERATOR)
    start = f"{JOBS}/{JOB}/start"
    assert_refused(client.post(start, params={"from": "yesterday"}), 422, "query.from: ")
    for wrong in ("1969-12-31T23:59:59.999", "0001-01-01T00:00:00+14:00", "2026-13-01"):
        assert_refused(client.post(start, params={"from": wrong}), 422, "a time from 1970 on")
    assert client.post(start, params={"from": "2026-11-23T08:00:00"}).status_code == 202
    assert served.entry().start == {"from": "2026-11-23T08:00:00+00:00"}
    assert served.entry().uuid != "u1"


def test_a_checkpoint_is_asked_for(served: Served) -> None:
    asked = served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/checkpoint").json()
    assert asked == {"name": JOB, "state": "asked for", "above_epoch": EPOCH, "checkpoint": None}
    assert served.entry().checkpoint_above == EPOCH


def test_a_job_is_removed(served: Served) -> None:
    client = served.client(Role.ADMIN)
    removal = client.delete(f"{JOBS}/{JOB}").json()
    assert removal == {"name": JOB, "state": "removing", "purged_topics": []}
    assert served.entry().desired == "removed"
    assert_refused(client.post(f"{JOBS}/{JOB}/start"), 409, "is being removed")


@pytest.mark.security("5.6", "5.10")
def test_names_and_parameters_are_checked(served: Served) -> None:
    client = served.client(Role.ADMIN)
    entry = served.entry()
    assert_refused(client.get(f"{JOBS}/wordcounts"), 404, "did you mean wordcount?")
    assert_refused(client.delete(f"{JOBS}/wordcounts"), 404, "did you mean wordcount?")
    assert_refused(client.get(f"{JOBS}/Word_Count"), 422, "path.job: ")
    assert_refused(client.post(f"{JOBS}/{JOB}%0A/stop"), 422, "path.job: ")
    assert_refused(client.post(f"{JOBS}/{JOB}/start", params={"form": "scratch"}), 422, "form: ")
    assert_refused(client.post(f"{JOBS}/{JOB}/stop", params={"checkpoint": "si"}), 422, "boolean")
    assert_refused(client.get("/api/v2/jobs"), 404, "/openapi.json")
    assert_refused(client.put(JOBS), 405, "Method Not Allowed")
    assert served.entry() == entry


def test_somebody_elses_change_is_a_conflict(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*arguments: Any, **options: Any) -> Any:
        entry, version = stop(*arguments, **options)
        served.put_entry(replace(served.entry(), counter=9))
        return entry, version

    stop = steering.stop
    monkeypatch.setattr(steering, "stop", stale)
    answer = served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/stop")
    assert_refused(answer, 409, "another user changed it at the same time")
    assert served.entry().desired == "running"


def test_zookeeper_that_does_not_answer_is_no_defect(served: Served) -> None:
    served.coordination.suspend()
    for call in (served.client(Role.VIEWER).get(JOBS),
                 served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/stop")):  # fmt: skip
        assert_refused(call, 503, "the session is suspended")
        assert call.headers["retry-after"] == "1"


def test_a_defect_is_reported_as_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_registry: object) -> None:
        raise ZeroDivisionError("of canary-4711")

    monkeypatch.setattr(verbs, "every", broken)
    answer = served.client(Role.VIEWER).get(JOBS)
    assert_refused(answer, 500, "a defect of perseid (ZeroDivisionError)")
    assert "4711" not in answer.text


def test_a_standby_names_the_leader(tmp_path: Path) -> None:
    served = Served(tmp_path, leads=False)
    client = served.client(Role.ADMIN)
    for (method, path), (role, _) in ROUTES.items():
        if role is None or path == "/metrics":
            continue
        answer = client.request(method, path.format(job=JOB, audit=AUDIT))
        assert_refused(answer, 503, f"ask {LEADER.url}")
        assert answer.json()["error"]["leader"] == LEADER.url
    assert_refused(served.client().get(JOBS), 401, "no token")  # is answered to no other client
    assert client.get("/healthz").json() == {"ok": True, "leader": False}
    assert "perseid_leader 0.0" in client.get("/metrics").text
    served.registry.remove_leader(LEADER.id, LEADER.pid)
    assert_refused(client.get(JOBS), 503, "none leads now")


def test_metrics_come_in_the_format_that_is_asked_for(served: Served) -> None:
    client = served.client(Role.VIEWER)
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert f'perseid_job_rows_in_total{{job="{JOB}"}} 10.0' in plain.text
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    assert client.get("/metrics", headers=wanted).text.endswith("# EOF\n")


# -- what is logged ------------------------------------------------------------------------------


@pytest.mark.security("5.6", "5.15")
def test_each_call_that_changes_something_is_logged_with_its_principal(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perseid")
    served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/start", params={"from": "scratch"})
    served.client(Role.VIEWER).delete(f"{JOBS}/{JOB}")
    served.client().post(f"{JOBS}/{JOB}/stop")
    served.client().post(f"{JOBS}/{JOB}/stop/it")
    served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/stop")
    served.client(Role.VIEWER).get(JOBS)
    job = "/api/v1/jobs/{job}"
    reported = [r.getMessage() for r in caplog.records if r.name == "perseid.coordinator.api.guard"]
    assert reported == [
        f"operator asks: POST {job}/start of job {JOB} (from scratch), answered with 409",
        f"viewer asks: DELETE {job} of job {JOB}, answered with 403",
        f"unknown asks: POST {job}/stop of job {JOB}, answered with 401",
        f"operator asks: POST {job}/stop of job {JOB}, answered with 202",
    ]


@pytest.mark.security("5.6", "5.14")
def test_tokens_are_in_no_log_and_no_answer(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever a caller may have put one by mistake."""
    caplog.set_level(logging.DEBUG)
    canaries = [served.secrets[Role.OPERATOR], "perseid_canary-of-a-token"]
    message = ""
    for secret in canaries:
        client = served.client(secret=secret)
        for call in _misplaced(secret, client):
            message += call.text + str(dict(call.headers))
    served.token_file.write_text(f"ann viewer {canaries[0]}\n")
    message += served.client(Role.OPERATOR).post(f"{JOBS}/{JOB}/stop").text
    own = [r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    assert any("asks: " in line for line in own)
    for secret in canaries:
        assert secret not in message
        assert not [line for line in own if secret in line]


def _misplaced(secret: str, client: Client) -> list[Any]:
    return [
        client.post(f"{JOBS}/{JOB}/stop"),
        client.post(f"{JOBS}/{secret}/start"),
        client.post(f"/{secret}"),
        client.post(f"{JOBS}/{JOB}/start", params={"from": secret, "access_token": secret}),
        client.post(f"{JOBS}/{JOB}/start", params={"token": secret}),
        client.request(f"X{secret}", JOBS),
        client.post(f"{JOBS}/{JOB}/stop", content=secret.encode(), headers={"X-Token": secret}),
        client.get(JOBS, headers={"Authorization": f"Token {secret}"}),
    ]


def assert_refused(answer: Any, status: int, text: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].keys() == {"kind", "message", "leader"}
    assert text in answer.json()["error"]["message"]
