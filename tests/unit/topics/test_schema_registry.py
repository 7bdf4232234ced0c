"""Schemas of a registry, asked over real HTTP; the answers are those of the API's documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain, repeat
from typing import Any

import httpx
import pytest
from werkzeug.wrappers import Request, Response

from perseid.clocks import ManualClock
from perseid.errors import PermanentError, RefusedError, RetryableError
from perseid.topics.schema_registry import HttpSchemaRegistry, Schema, auth_variable, open_all
from support.http_server import running
from support.schema_registry import Api


def record(*fields: dict[str, Any]) -> Schema:
    return Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


A, B = {"name": "a", "type": "string"}, {"name": "b", "type": "long"}
ONE, TWO = record(A), record(A, {**B, "default": 0})
OBJECT = Schema("JSON", json.dumps({"type": "object", "properties": {"a": {"type": "string"}}}))


@pytest.fixture
def url() -> Iterator[str]:
    with running(Api()) as found:
        yield found


@pytest.fixture
def registry(url: str) -> Iterator[HttpSchemaRegistry]:
    with closing(HttpSchemaRegistry("main", url, clock=ManualClock())) as found:
        yield found


def test_what_is_registered_is_found_by_id_and_by_subject(registry: HttpSchemaRegistry) -> None:
    first = registry.register("t-value", ONE)
    second = registry.register("t-value", TWO)
    assert registry.register("t-value", ONE) == first
    assert registry.register("other-value", TWO) == second
    for number, schema in ((first, ONE), (second, TWO)):
        found = registry.by_id(number)
        assert found is not None
        assert (found.kind, json.loads(found.text)) == ("AVRO", json.loads(schema.text))
        assert registry.id_of("t-value", schema) == number
    newest = registry.newest("t-value")
    assert newest is not None
    assert json.loads(newest.text) == json.loads(TWO.text)


def test_json_schemas_are_distinguished(registry: HttpSchemaRegistry) -> None:
    found = registry.by_id(registry.register("t/a b-value", OBJECT))
    assert found is not None
    assert found.kind == "JSON"
    assert registry.objections("t/a b-value", ONE) == ("schema type has changed",)


def test_what_is_unknown_is_no_error(registry: HttpSchemaRegistry) -> None:
    assert registry.by_id(7) is None
    assert registry.newest("t-value") is None
    assert registry.id_of("t-value", ONE) is None
    assert registry.objections("t-value", ONE) == ()
    registry.register("t-value", ONE)
    assert registry.id_of("t-value", TWO) is None


def test_the_registrys_reason_reaches_the_user(registry: HttpSchemaRegistry) -> None:
    registry.register("t-value", ONE)
    (reason,) = registry.objections("t-value", record(A, B))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in reason
    with pytest.raises(RefusedError, match=r"incompatible with an earlier schema .*'b'"):
        registry.register("t-value", record(A, B))
    with pytest.raises(PermanentError, match="422 Invalid schema"):
        registry.register("t-value", Schema("AVRO", "{"))


def test_answers_are_those_of_the_documented_api(url: str) -> None:
    """Bodies as in Confluent's reference, so that client and fake do not only agree."""
    posted = httpx.post(f"{url}/subjects/t-value/versions", json={"schema": ONE.text})
    assert (posted.status_code, posted.json()) == (200, {"id": 1})
    assert httpx.get(f"{url}/schemas/ids/1").json().keys() == {"schema"}
    latest = httpx.get(f"{url}/subjects/t-value/versions/latest").json()
    assert {k: latest[k] for k in ("subject", "version", "id")} == {
        "subject": "t-value", "version": 1, "id": 1,
    }  # fmt: skip
    missing = httpx.get(f"{url}/schemas/ids/9")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40403)
    unknown = httpx.get(f"{url}/subjects/no/versions/latest")
    assert (unknown.status_code, unknown.json()["error_code"]) == (404, 40401)
    asked = f"{url}/compatibility/subjects/t-value/versions?verbose=true"
    verdict = httpx.post(asked, json={"schema": record(A, B).text}).json()
    assert verdict["is_compatible"] is False
    assert len(verdict["messages"]) == 1
    conflict = httpx.post(f"{url}/subjects/t-value/versions", json={"schema": record(A, B).text})
    assert (conflict.status_code, conflict.json()["error_code"]) == (409, 409)


@pytest.mark.security("5.14")
def test_users_and_passwords_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(auth_variable("my-own"), "ann:se:cret")
    assert auth_variable("my-own") == "PERSEID_SCHEMA_REGISTRY_AUTH_MY_OWN"
    with running(Api("ann:se:cret")) as url:
        registries = open_all({"my-own": url, "main": url})
        assert registries["my-own"].by_id(1) is None
        with pytest.raises(PermanentError) as caught:
            registries["main"].by_id(1)
        for registry in registries.values():
            registry.close()
    assert "set PERSEID_SCHEMA_REGISTRY_AUTH_MAIN=user:password in the environment" in str(
        caught.value
    )
    assert "cret" not in str(caught.value) + repr(vars(registries["my-own"]))


@contextmanager
def scripted(*statuses: int) -> Iterator[HttpSchemaRegistry]:
    """Answers with these statuses, the last one without end."""
    waiting = chain(statuses, repeat(statuses[-1]))

    def answer(_: Request) -> Response:
        return Response('{"schema": "{}"}', next(waiting), {"Location": "http://127.0.0.1:1/"})

    with (
        running(answer) as url,
        closing(HttpSchemaRegistry("main", url, clock=ManualClock())) as found,
    ):
        yield found


def test_transient_faults_are_retried() -> None:
    with scripted(503, 429, 200) as registry:
        assert registry.by_id(1) == Schema("AVRO", "{}")


def test_a_registry_that_stays_away_is_retryable() -> None:
    with scripted(503) as registry, pytest.raises(RetryableError, match=r"GET schemas/ids/1.*503"):
        registry.by_id(1)
    gone = HttpSchemaRegistry("main", "http://127.0.0.1:1", clock=ManualClock())
    with closing(gone), pytest.raises(RetryableError, match=r"main at http://127.0.0.1:1 does not"):
        gone.newest("t-value")


@pytest.mark.security("5.11")
def test_redirects_are_not_followed() -> None:
    with scripted(302) as registry, pytest.raises(PermanentError, match="with 302"):
        registry.by_id(1)
