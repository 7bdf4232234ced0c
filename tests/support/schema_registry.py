"""A schema registry for tests: the part of Confluent's REST API that perseid uses, over HTTP.

`python schema_registry.py PORT [USER:PASSWORD]`

Schemas are kept in memory only. Subjects are BACKWARD compatible: a new schema must read what the
newest one wrote. That is checked for flat Avro records and for the required properties of JSON
Schemas; for any other schema the answer is an error. Written from the API's documentation, it
shares no code with `perseid.topics.schema_registry`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from werkzeug.serving import run_simple
from werkzeug.wrappers import Request, Response

from perseid.testing.server import Server, free_port

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_PROMOTED = {"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"},
             "string": {"bytes"}, "bytes": {"string"}}  # fmt: skip


class ApiError(Exception):
    """An error answer: HTTP status, error code, message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message


class Subjects:
    """The registry's content. Ids belong to schemas, so that two subjects may share one."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, str]] = []  # the id is the position, from 1
        self.versions: dict[str, list[int]] = {}

    def answer(self, method: str, parts: list[str], body: dict[str, Any]) -> dict[str, Any]:
        match method, *parts:
            case "GET", "subjects":
                return {"subjects": sorted(self.versions)}
            case "GET", "schemas", "ids", number:
                return self._by_id(number)
            case "POST", "subjects", subject, "versions":
                return {"id": self._register(subject, _schema(body))}
            case "POST", "subjects", subject:
                return self._found(subject, _schema(body))
            case "GET", "subjects", subject, "versions", version:
                return self._version(subject, version)
            case "POST", "compatibility", "subjects", subject, "versions":
                faults = self._faults(subject, _schema(body))
                return {"is_compatible": not faults, "messages": faults}
        raise ApiError(404, 404, "HTTP 404 Not Found")

    def _by_id(self, number: str) -> dict[str, Any]:
        place = int(number) - 1
        if not 0 <= place < len(self.schemas):
            raise ApiError(404, 40403, f"Schema {number} not found")
        return _document(self.schemas[place])

    def _ids(self, subject: str) -> list[int]:
        if subject not in self.versions:
            raise ApiError(404, 40401, f"Subject '{subject}' not found.")
        return self.versions[subject]

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        ids = self._ids(subject)
        place = len(ids) if version == "latest" else int(version)
        if not 0 < place <= len(ids):
            raise ApiError(404, 40402, f"Version {version} not found.")
        number = ids[place - 1]
        document = _document(self.schemas[number - 1])
        return {"subject": subject, "version": place, "id": number, **document}

    def _found(self, subject: str, schema: dict[str, str]) -> dict[str, Any]:
        for version, number in enumerate(self._ids(subject), 1):
            if self.schemas[number - 1] == schema:
                return {"subject": subject, "version": version, "id": number, **_document(schema)}
        raise ApiError(404, 40403, "Schema not found")

    def _register(self, subject: str, schema: dict[str, str]) -> int:
        ids = self.versions.get(subject, [])
        for number in ids:
            if self.schemas[number - 1] == schema:
                return number
        faults = self._faults(subject, schema)
        if faults:
            raise ApiError(
                409, 409, "Schema being registered is incompatible with an earlier schema for "
                f"subject \"{subject}\", details: {faults}",
            )  # fmt: skip
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        self.versions[subject] = [*ids, number]
        return number

    def _faults(self, subject: str, schema: dict[str, str]) -> list[str]:
        """Returns why `schema` cannot read what the newest one of the subject wrote."""
        if subject not in self.versions:
            return []
        old = self.schemas[self.versions[subject][-1] - 1]
        if old["schemaType"] != schema["schemaType"]:
            return ["schema type has changed"]
        before, after = json.loads(old["schema"]), json.loads(schema["schema"])
        if schema["schemaType"] == "AVRO":
            return _avro_faults(before, after)
        added = set(after.get("required", [])) - set(before.get("required", []))
        return [f"{{errorType:\"REQUIRED_ATTRIBUTE_ADDED\", path:'{a}'}}" for a in sorted(added)]


def _avro_faults(writer: dict[str, Any], reader: dict[str, Any]) -> list[str]:
    written = {f["name"]: f["type"] for f in writer["fields"]}
    faults = []
    for field in reader["fields"]:
        name = field["name"]
        if name not in written:
            if "default" not in field:
                faults.append(f"{{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', field:'{name}'}}")
        elif not all(_reads(kind, field["type"]) for kind in _kinds(written[name])):
            faults.append(f"{{errorType:'TYPE_MISMATCH', field:'{name}'}}")
    return faults


def _reads(written: str, reader: Any) -> bool:
    return any(kind == written or kind in _PROMOTED.get(written, ()) for kind in _kinds(reader))


def _kinds(kind: Any) -> list[str]:
    if isinstance(kind, list):
        return [name for inner in kind for name in _kinds(inner)]
    if isinstance(kind, dict):
        return _kinds(kind["type"])
    if kind in {"record", "enum", "array", "map", "fixed"}:
        raise ApiError(422, 42201, f"this registry of tests cannot judge {kind}")
    return [kind]


def _schema(body: dict[str, Any]) -> dict[str, str]:
    """Returns the canonical form, by which a schema is found again."""
    kind = body.get("schemaType") or "AVRO"
    try:
        parsed = json.loads(body["schema"])
    except (KeyError, ValueError) as error:
        raise ApiError(422, 42201, f"Invalid schema {error}") from None
    if kind == "AVRO" and (not isinstance(parsed, dict) or parsed.get("type") != "record"):
        raise ApiError(422, 42201, "Invalid schema: no record")
    return {"schemaType": kind, "schema": json.dumps(parsed, separators=(",", ":"))}


def _document(schema: dict[str, str]) -> dict[str, str]:
    """Answers as the real one, which omits the type of an Avro schema."""
    if schema["schemaType"] == "AVRO":
        return {"schema": schema["schema"]}
    return dict(schema)


class Api:
    """Answers requests, and lists them in `asked`; `auth` ("user:password") restricts access."""

    def __init__(self, auth: str | None = None) -> None:
        self._subjects, self._auth = Subjects(), auth
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Response:
        path = urlsplit(request.environ["RAW_URI"]).path  # a subject may contain an encoded slash
        parts = [unquote(part) for part in path.strip("/").split("/")]
        self.asked.append(f"{request.method} {'/'.join(parts)}")
        login = request.authorization
        try:
            if self._auth and (not login or f"{login.username}:{login.password}" != self._auth):
                raise ApiError(401, 401, "Unauthorized")
            body = json.loads(request.get_data() or b"{}")
            status, document = 200, self._subjects.answer(request.method, parts, body)
        except ApiError as error:
            status, document = error.status, {"error_code": error.code, "message": error.message}
        return Response(json.dumps(document), status, content_type=CONTENT_TYPE)


class SchemaRegistryServer(Server):
    """The same as a process of its own, which can be paused; killed, it loses its schemas."""

    name = "the schema registry"
    start_timeout_s = 20.0

    def __init__(self, folder: Path, port: int | None = None) -> None:
        super().__init__(folder)
        self._port = port or free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def command(self) -> list[str]:
        return [sys.executable, "-I", __file__, str(self._port)]

    def answers(self) -> bool:
        import httpx

        try:
            return httpx.get(f"{self.url}/subjects", timeout=2, trust_env=False).is_success
        except httpx.TransportError:
            return False


if __name__ == "__main__":
    api = Api(sys.argv[2] if len(sys.argv) > 2 else None)
    run_simple("127.0.0.1", int(sys.argv[1]), Request.application(api), threaded=True)
