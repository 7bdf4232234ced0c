"""Sources and sinks with a schema registry: what may be written, and what applying does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from perseid.clocks import ManualClock
from perseid.errors import RefusedError, RetryableError, UsageError
from perseid.jobs.model.problems import JobFileErrors, JobFileRefused
from perseid.jobs.operations import applying
from perseid.jobs.operations.applying import Change, Cluster
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.records import Deployment
from perseid.records.deployment import REGISTRIES
from perseid.registry.facade import Registry
from perseid.state.durability.store import LocalStore
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.topics.schema_registry import Schema
from support.schema_registry import ApiError, Subjects

JOB = """\
name: job
sources:
  a: {topic: in, format: avro, registry: main}
sinks:
  s: {input: a, topic: out, format: avro, registry: main, schema: out.avsc}
"""
SOURCE, SINK = JOB.splitlines()[2].strip(), JOB.splitlines()[4].strip()
A, B = {"name": "a", "type": "string"}, {"name": "b", "type": "long"}


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


class Direct:
    """SchemaRegistry on the tests' registry without HTTP; `away` answers nothing."""

    def __init__(self) -> None:
        self.subjects, self.away = Subjects(), False

    def _ask(self, method: str, *parts: str, schema: Schema | None = None) -> dict[str, Any]:
        if self.away:
            raise RetryableError("schema registry main does not answer")
        body = {"schema": schema.text, "schemaType": schema.kind} if schema else {}
        return self.subjects.answer(method, list(parts), body)

    def by_id(self, number: int) -> Schema | None:
        raise AssertionError("applying asks for no ids")

    def newest(self, subject: str) -> Schema | None:
        try:
            found = self._ask("GET", "subjects", subject, "versions", "latest")
        except ApiError:
            return None
        return Schema(found.get("schemaType", "AVRO"), found["schema"])

    def id_of(self, subject: str, schema: Schema) -> int | None:
        try:
            return int(self._ask("POST", "subjects", subject, schema=schema)["id"])
        except ApiError:
            return None

    def objections(self, subject: str, schema: Schema) -> tuple[str, ...]:
        parts = ("compatibility", "subjects", subject, "versions")
        return tuple(self._ask("POST", *parts, schema=schema)["messages"])

    def register(self, subject: str, schema: Schema) -> int:
        return int(self._ask("POST", "subjects", subject, "versions", schema=schema)["id"])


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "job"
        self.folder.mkdir()
        self.main = Direct()
        topics = FakeTopics(ModelKafka())
        topics.create("in", 2)
        self.store = LocalStore(folder / "store")
        self.cluster = Cluster(
            Registry(FakeZooKeeper().session()), topics, self.store, ManualClock(),
            schema_registries={"main": self.main},
        )  # fmt: skip

    def write(self, job: str = JOB, files: Mapping[str, str] | None = None) -> None:
        (self.folder / "job.yaml").write_text(job)
        for name, text in (files or {"out.avsc": record(A)}).items():
            (self.folder / name).write_text(text)

    def validated(self) -> AbstractContextManager[list[job_folders.Validated]]:
        return job_folders.validated(job_folders.find(str(self.folder)))

    def apply(self) -> Change:
        with self.validated() as jobs:
            (wanted,) = applying.prepare(self.cluster, jobs)
            applying.perform(self.cluster, wanted)
            return wanted

    def refusal(self) -> str:
        before = dict(self.main.subjects.versions)
        with pytest.raises(RefusedError) as caught, self.validated() as jobs:
            applying.prepare(self.cluster, jobs)
        assert (self.cluster.registry.jobs(), self.store.list()) == ({}, [])
        assert self.main.subjects.versions == before
        return str(caught.value)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.main.register("in-value", Schema("AVRO", record(A)))
    found.write()
    return found


@pytest.mark.parametrize(
    ("old", "new", "line", "shown"),
    [
        (SOURCE, "a: {topic: in, format: avro, registry: 'http://evil:1'}", 3,
         "sources.a.registry: found 'http://evil:1', expected the name of a schema registry of the "
         "deployment, no URL: a job reaches only what the list of its deployment names"),
        (SOURCE, "a: {topic: in, format: text, registry: main}", 3,
         "sources.a.registry: only avro and json have schemas in a registry, the format is text"),
        (SOURCE, "a: {topic: in, format: avro}", 3, "sources.a.schema: is missing"),
        (SOURCE, "a: {topic: in, format: json, registry: main}", 3, "columns: is missing"),
        (SOURCE, "a: {topic: in, format: json, columns: {a: string}, registry: main, schema: x}", 3,
         "sources.a.schema: only avro has a schema"),
        (SINK, "s: {input: a, topic: out, format: json, schema: out.avsc}", 5,
         "sinks.s.schema: only avro has a schema, the format is json"),
        (SINK, "s: {input: a, topic: out, format: avro, registry: main, register: true}", 5,
         "sinks.s.register: decides what to do with a schema of one's own"),
        (SINK, "s: {input: a, topic: out, format: avro, schema: out.avsc, register: false}", 5,
         "sinks.s.register: decides"),
        (SINK, "s: {input: a, topic: out, format: avro, registry: 5, schema: out.avsc}", 5,
         "sinks.s.registry: found 5, expected the name of a schema registry"),
    ],
)  # fmt: skip
@pytest.mark.security("5.11")
def test_one_mistake(old: str, new: str, line: int, shown: str) -> None:
    with pytest.raises(JobFileErrors) as caught:
        parse.loads(JOB.replace(old, new))
    found = str(caught.value).splitlines()
    assert any(f.startswith(f"job.yaml:{line}: ") and shown in f for f in found), found


@pytest.mark.security("5.11")
def test_a_registry_that_is_not_on_the_list_is_refused_with_its_line(world: World) -> None:
    world.write(JOB.replace("registry: main}", "registry: mian}"))
    with pytest.raises(JobFileRefused) as caught, world.validated() as jobs:
        applying.prepare(world.cluster, jobs)
    assert str(caught.value) == (
        "job/job.yaml:3: sources.a.registry: found 'mian', which is not on the list of this "
        "deployment (main); write `registry: main`, or add it with `perseid up "
        "--schema-registries mian=URL`"
    )


def test_the_newest_schema_becomes_part_of_the_revision(world: World) -> None:
    first = world.apply()
    place = first.job.spec.sources["a"].schema_file
    assert place == "pinned-schemas/sources.a.json"
    assert json.loads(first.job.tree.files[place]) == json.loads(record(A))
    assert world.apply().action == "unchanged"
    world.main.register("in-value", Schema("AVRO", record(A, {**B, "default": 0})))
    second = world.apply()
    assert second.action == "change"
    assert any('"name":"b"' in line for line in second.files)
    stored = applying.revision(world.cluster, second.entry.archive, world.folder / "cache")
    kept = json.loads((stored.folder / place).read_text())
    assert [f["name"] for f in kept["fields"]] == ["a", "b"]


def test_event_time_is_a_column_of_the_newest_schema(world: World) -> None:
    world.main.register("in-value", Schema("AVRO", record(A, {**B, "default": 0})))
    timed = "registry: main, eventTime: {column: COLUMN}}"
    world.write(JOB.replace("registry: main}", timed.replace("COLUMN", "a")))
    assert "sources.a.eventTime.column: found 'a' of type string" in world.refusal()
    world.write(JOB.replace("registry: main}", timed.replace("COLUMN", "b")))
    world.apply()


def test_fields_of_the_newest_schema_that_cannot_be_read_are_refused_all_at_once(
    world: World,
) -> None:
    day = {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0}
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    world.main.register("in-value", Schema("AVRO", record(A, day, tags)))
    assert world.refusal().startswith(
        "job: source a: the newest schema of subject in-value in schema registry main has fields "
        "that a source cannot read: day (date), tags (array); expected string, bytes, int, long"
    )
    world.write(JOB.replace("registry: main}", "registry: main, schema: mine.avsc}"), {
        "out.avsc": record(A), "mine.avsc": record(A),
    })  # fmt: skip
    world.apply()


def test_a_subject_that_is_of_no_record_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.main, "newest", lambda _: Schema("AVRO", '"string"'))
    assert "is of no record, so it has no columns" in world.refusal()


def test_a_readers_own_schema_wins(world: World) -> None:
    world.write(JOB.replace("registry: main}", "registry: main, schema: mine.avsc}"), {
        "out.avsc": record(A), "mine.avsc": record({**B, "default": 1}),
    })  # fmt: skip
    wanted = world.apply()
    assert wanted.job.spec.sources["a"].schema_file == "mine.avsc"
    assert "pinned-schemas/sources.a.json" not in wanted.job.tree.files


def test_applying_registers_the_schema_of_a_sink_and_preparing_does_not(world: World) -> None:
    with world.validated() as jobs:
        applying.prepare(world.cluster, jobs)
    assert "out-value" not in world.main.subjects.versions
    world.apply()
    assert world.main.id_of("out-value", Schema("AVRO", record(A))) == 1


def test_an_incompatible_schema_is_refused_with_the_registrys_reason(world: World) -> None:
    world.main.register("out-value", Schema("AVRO", record(A)))
    world.write(files={"out.avsc": record(A, B)})
    shown = world.refusal()
    assert shown.startswith(
        "job: sink s: schema registry main refuses out.avsc for subject out-val"
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in shown
    assert "write to another topic" in shown


def test_a_schema_may_have_to_be_there(world: World) -> None:
    world.write(JOB.replace("schema: out.avsc", "schema: out.avsc, register: false"))
    assert "out.avsc is not registered under subject out-value" in world.refusal()
    world.main.register("out-value", Schema("AVRO", record(A)))
    world.apply()


def test_a_subject_without_a_schema_is_refused(world: World) -> None:
    world.write(JOB.replace(", schema: out.avsc", ""))
    assert "job: sink s: schema registry main has no subject out-value" in world.refusal()
    world.main.register("out-value", Schema("JSON", '{"type": "object"}'))
    assert "is JSON, expected AVRO" in world.refusal()


def test_json_sinks_have_a_json_schema(world: World) -> None:
    sink = "s: {input: a, topic: out, format: json, registry: main, schema: out.json}"
    world.write(JOB.replace(SINK, sink), {"out.json": '{"type": "array"}'})
    with pytest.raises(JobFileErrors, match=r"out\.json is no JSON Schema of an object"):
        world.validated().__enter__()
    world.write(JOB.replace(SINK, sink), {"out.json": '{"type": "object"}'})
    world.apply()
    assert world.main.id_of("out-value", Schema("JSON", '{"type": "object"}')) is not None


def test_a_registry_that_is_away_changes_nothing(world: World) -> None:
    world.main.away = True
    with pytest.raises(RetryableError, match="does not answer"), world.validated() as jobs:
        applying.prepare(world.cluster, jobs)
    assert (world.cluster.registry.jobs(), world.store.list()) == ({}, [])


@pytest.mark.security("5.11")
def test_the_list_of_a_deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Deployment(
        kafka="k:1", zookeeper="z:2", redis="r:3", store="s", state="t", logs="l",
        schema_registries={"a": "http://a:1"},
    )  # fmt: skip
    path = tmp_path / "deployment.json"
    path.write_text(found.model_dump_json())
    assert Deployment.load(path).schema_registries == {"a": "http://a:1"}
    monkeypatch.setenv(REGISTRIES, "main=http://one:8081, other=https://two/sr")
    assert Deployment.load(path).schema_registries == {
        "main": "http://one:8081", "other": "https://two/sr",
    }  # fmt: skip
    for wrong, shown in (
        ("main", "expected different names with URLs"), ("a=b=c", "expected NAME=http://HOST:PORT"),
        ("a=http://x,a=http://y", "different names"), ("a=ftp://x", "NAME=http"),
        ("A=http://x", "NAME=http"), ("a=http://", "NAME=http"),
        ("a=http://ann:secret@x", "users and passwords belong in PERSEID_SCHEMA_REGISTRY_AUTH_"),
    ):  # fmt: skip
        monkeypatch.setenv(REGISTRIES, wrong)
        with pytest.raises(UsageError, match=shown) as caught:
            Deployment.load(path)
        assert "secret" not in str(caught.value)
