"""Columns of records in sink topics, by format."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from perseid.jobs.model.spec import JobSpec, SinkSpec
from perseid.records import Deployment
from perseid.replay.differences import Place, Rows, differences
from perseid.replay.sink_columns import Revision, SinkColumns
from perseid.topics.schema_registry import Schema
from perseid.worker.formats import schemas
from perseid.worker.formats.avro_format import encode_avro
from perseid.worker.formats.wire_format import KnownSchemas, frame
from support.coordinator import job_spec

AVRO = {
    "type": "record", "name": "Total", "fields": [
        {"name": "user", "type": "string"}, {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
PLACE = Place("counts", 0, 3, "out", 0)


def spec(*sinks: SinkSpec) -> JobSpec:
    return job_spec(sinks={f"s{number}": sink for number, sink in enumerate(sinks)})


def sink(format_: str, topic: str = "out", **more: object) -> SinkSpec:
    return SinkSpec(input="counts", topic=topic, format=format_, **more)  # type: ignore[arg-type]


def columns(folder: Path, *sinks: SinkSpec, recorded: Revision | None = None) -> SinkColumns:
    (folder / "total.avsc").write_text(json.dumps(AVRO))
    deployment = Deployment.model_construct(schema_registries={"main": "http://none"})
    return SinkColumns(deployment, Revision(spec(*sinks), folder), recorded)


def values(n: int) -> pa.BinaryArray:
    table = pa.table({
        "user": ["ann", "bob"], "n": [1, n], "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    return pa.array(encode_avro(table, AVRO), pa.binary())


def named(found: SinkColumns, committed: pa.Array, made: pa.Array) -> list[tuple[str, ...]]:
    keys = pa.array([b"k"] * len(committed), pa.binary())
    both = Rows(keys, committed), Rows(keys, made)
    return [d.fields for d in differences(PLACE, *both, found.of("out")).found]


def test_json_objects_with_and_without_a_frame(tmp_path: Path) -> None:
    decode = columns(tmp_path, sink("json")).of("out")
    assert decode is not None
    assert decode(None, b'{"n": 1}') == {"n": 1}
    assert decode(None, b'\x00\x00\x00\x00\x07{"n": 1}') == {"n": 1}
    assert [decode(None, value) for value in (b"[1]", b"\xff", b"\x00", None)] == [None] * 4
    assert columns(tmp_path, sink("json")).of("another") is None


def test_avro_columns_are_named(tmp_path: Path) -> None:
    found = columns(tmp_path, sink("avro", schema_file="total.avsc"))
    assert named(found, values(2), values(3)) == [("n",)]
    assert named(found, values(2), pa.array([b"", b"?"], pa.binary())) == [(), ()]


def test_avro_columns_with_a_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Registry:
        def by_id(self, number: int) -> Schema | None:
            return Schema("AVRO", json.dumps(AVRO)) if number == 7 else None

    known = KnownSchemas(Registry())  # type: ignore[arg-type]
    monkeypatch.setattr(schemas, "known", lambda where: known if where[0] == "main" else None)
    found = columns(tmp_path, sink("avro", schema_file="total.avsc", registry="main"))
    assert named(found, frame(7, values(2)), frame(7, values(3))) == [("n",)]


def test_a_registry_without_an_answer_is_asked_once_and_named(tmp_path: Path) -> None:
    found = columns(tmp_path, sink("avro", schema_file="total.avsc", registry="gone"))
    assert named(found, frame(7, values(2)), frame(7, values(3))) == [()]
    assert "schema registry 'gone' is not on this deployment's list" in found.why["out"]


@pytest.mark.parametrize("format_", ["text", "bytes"])
def test_text_and_bytes_have_one_column(tmp_path: Path, format_: str) -> None:
    found = columns(tmp_path, sink(format_))
    committed, made = pa.array([b"a", b"b"]), pa.array([b"a", b"c"])
    assert named(found, committed, made) == [("value",)]


def test_two_formats_in_a_topic_or_of_two_revisions_are_not_read(tmp_path: Path) -> None:
    assert columns(tmp_path, sink("json"), sink("text")).of("out") is None
    assert columns(tmp_path, sink("json"), sink("text", "other")).of("out") is not None
    before = Revision(spec(sink("text")), tmp_path)
    assert columns(tmp_path, sink("json"), recorded=before).of("out") is None
    other = tmp_path / "before"
    other.mkdir()
    (other / "total.avsc").write_text(json.dumps(AVRO | {"name": "Other"}))
    mine = sink("avro", schema_file="total.avsc")
    assert columns(tmp_path, mine, recorded=Revision(spec(mine), other)).of("out") is None
    assert columns(tmp_path, mine, recorded=Revision(spec(mine), tmp_path)).of("out") is not None
