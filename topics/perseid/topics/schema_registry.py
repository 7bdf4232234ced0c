"""Schemas by id and by subject, from a Confluent schema registry.

A schema never changes under its id, so callers may cache it. The address comes from the
deployment's list, never from a job. User and password, if any, come only from the environment, as
PERSEID_SCHEMA_REGISTRY_AUTH_<NAME>=user:password, or from a file if _FILE is appended to the name:
so no plan or message contains them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from perseid.clocks import Clock, SystemClock
from perseid.errors import PermanentError, RefusedError, RetryableError
from perseid.records import secret

if TYPE_CHECKING:
    import httpx

KINDS = {"avro": "AVRO", "json": "JSON"}  # format of a job file -> the registry's name for it

ANSWER_S = 4.0  # of one request; a garbage collection of the registry takes a second
GIVE_UP_S = 4.0  # Spark tries a task four times, then the job is placed again: visible after 16 s
BACKOFF_S = 0.3
_SUBJECT_UNKNOWN, _SCHEMA_UNKNOWN = 40401, 40403  # error codes of the registry's API
_CONTENT = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Schema:
    """`kind` is the registry's name: AVRO, JSON, PROTOBUF."""

    kind: str
    text: str


class SchemaRegistry(Protocol):
    """The port to a schema registry. Queries must not register anything.

    Every method raises RetryableError without an answer, and PermanentError when it is refused.
    """

    def by_id(self, number: int) -> Schema | None: ...
    def newest(self, subject: str) -> Schema | None: ...

    def id_of(self, subject: str, schema: Schema) -> int | None:
        """The id of a schema that is registered under the subject; None when it is not."""
        ...

    def objections(self, subject: str, schema: Schema) -> tuple[str, ...]:
        """Why it cannot be registered, in the registry's words; empty when it can."""
        ...

    def register(self, subject: str, schema: Schema) -> int:
        """Registers the schema; returns its id, the old one if it was registered already."""
        ...


def subject_of(topic: str) -> str:
    """The subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


def open_all(urls: Mapping[str, str]) -> dict[str, HttpSchemaRegistry]:
    """The registries of a deployment by name; no request is sent yet."""
    return {name: HttpSchemaRegistry(name, url) for name, url in urls.items()}


def auth_variable(name: str) -> str:
    """The environment variable that has user:password of the registry `name`."""
    return "PERSEID_SCHEMA_REGISTRY_AUTH_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


class HttpSchemaRegistry:
    """SchemaRegistry over its REST API. Thread-safe."""

    def __init__(
        self, name: str, url: str, *, clock: Clock | None = None, give_up_s: float = GIVE_UP_S
    ) -> None:
        self._name, self._url = name, url.rstrip("/")
        self._clock: Clock = clock or SystemClock()
        self._give_up_s = give_up_s

    def by_id(self, number: int) -> Schema | None:
        return _schema(self._ask("GET", f"schemas/ids/{number}", absent={_SCHEMA_UNKNOWN}))

    def newest(self, subject: str) -> Schema | None:
        path = f"subjects/{_part(subject)}/versions/latest"
        return _schema(self._ask("GET", path, absent={_SUBJECT_UNKNOWN}))

    def id_of(self, subject: str, schema: Schema) -> int | None:
        unknown = {_SUBJECT_UNKNOWN, _SCHEMA_UNKNOWN}
        answer = self._ask("POST", f"subjects/{_part(subject)}", _body(schema), absent=unknown)
        return None if answer is None else int(answer["id"])

    def objections(self, subject: str, schema: Schema) -> tuple[str, ...]:
        path = f"compatibility/subjects/{_part(subject)}/versions?verbose=true"
        answer = self._ask("POST", path, _body(schema), absent={_SUBJECT_UNKNOWN})
        if answer is None or answer["is_compatible"]:
            return ()
        return tuple(map(str, answer.get("messages") or ["it is incompatible"]))

    def register(self, subject: str, schema: Schema) -> int:
        answer = self._ask("POST", f"subjects/{_part(subject)}/versions", _body(schema))
        assert answer is not None, "nothing counts as absent here"
        return int(answer["id"])

    def close(self) -> None:
        if "_client" in vars(self):
            self._client.close()

    @cached_property
    def _client(self) -> httpx.Client:
        import httpx

        given = secret.of_environment(auth_variable(self._name))
        user, _, password = (given or "").partition(":")
        return httpx.Client(
            auth=(user, password) if given else None, timeout=ANSWER_S, follow_redirects=False,
            headers={"Accept": _CONTENT, "Content-Type": _CONTENT},
        )  # fmt: skip

    def _ask(
        self, method: str, path: str, body: dict[str, str] | None = None,
        absent: frozenset[int] | set[int] = frozenset(),
    ) -> dict[str, Any] | None:  # fmt: skip
        """The answer; None for an error code in `absent`. Asks again until `give_up_s` is over."""
        import httpx

        deadline_s = self._clock.monotonic_s() + self._give_up_s
        while True:
            try:
                answer = self._client.request(method, f"{self._url}/{path}", json=body)
            except httpx.TransportError as error:
                fault = f"{type(error).__name__} {error}"
            else:
                if not _transient(answer.status_code):
                    return self._judged(answer, f"{method} {path}", absent)
                fault = f"status {answer.status_code} {_error_of(answer)[1]}"
            if self._clock.monotonic_s() >= deadline_s:
                raise RetryableError(
                    f"schema registry {self._name} at {self._url} does not answer {method} {path}: "
                    f"{fault}; see that it runs and that its address is right"
                )
            self._clock.sleep(BACKOFF_S)

    def _judged(
        self, answer: httpx.Response, asked: str, absent: frozenset[int] | set[int]
    ) -> dict[str, Any] | None:
        where = f"schema registry {self._name} at {self._url}"
        code, cause = _error_of(answer)
        if answer.is_success:
            found: dict[str, Any] = answer.json()
            return found
        if code in absent:
            return None
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise PermanentError(
                f"{where} refuses {asked} ({answer.status_code} {cause}): set "
                f"{auth_variable(self._name)}=user:password in the environment of workers and of "
                "`perseid jobs apply`"
            )
        if answer.status_code == HTTPStatus.CONFLICT:
            raise RefusedError(f"{where} refuses the schema as incompatible: {cause}")
        raise PermanentError(f"{where} answers {asked} with {answer.status_code} {cause}")


def _transient(status: int) -> bool:
    return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS


def _error_of(answer: httpx.Response) -> tuple[int, str]:
    """Error code and message of an unsuccessful answer."""
    try:
        body = answer.json()
        return int(body["error_code"]), str(body["message"])[:1000]
    except (ValueError, KeyError, TypeError):
        return 0, ""


def _part(subject: str) -> str:
    return quote(subject, safe="")


def _body(schema: Schema) -> dict[str, str]:
    return {"schema": schema.text, "schemaType": schema.kind}


def _schema(answer: dict[str, Any] | None) -> Schema | None:
    if answer is None:
        return None
    return Schema(str(answer.get("schemaType") or "AVRO"), str(answer["schema"]))
