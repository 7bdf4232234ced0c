"""The Confluent wire format against messages made by hand and a registry over real HTTP."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, cast

import fastavro
import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.clocks import ManualClock
from perseid.errors import RetryableError
from perseid.topics.schema_registry import HttpSchemaRegistry, Schema, SchemaRegistry
from perseid.topics.transactions import octets
from perseid.worker.formats import encode
from perseid.worker.formats.decode import Format, make
from perseid.worker.formats.wire_format import FORGET_S, KnownSchemas, frame
from support.http_server import running
from support.schema_registry import Api

USER, N = {"name": "user", "type": "string"}, {"name": "n", "type": "int"}
OLD: dict[str, Any] = {
    "type": "record", "name": "View",
    "fields": [USER, N, {"name": "dropped", "type": "double"}],
}  # fmt: skip
NEW: dict[str, Any] = {
    "type": "record", "name": "View",
    "fields": [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
         "default": None},
        USER, {"name": "n", "type": "long"}, {"name": "kind", "type": "string", "default": "view"},
    ],
}  # fmt: skip
OTHER: dict[str, Any] = {"type": "record", "name": "View", "fields": [USER]}  # lacks n
OBJECT = {"type": "object", "properties": {"user": {"type": "string"}}}
COLUMNS = {"user": "string", "n": "int64"}


class World:
    """A registry with the schemas above and what reads with it."""

    def __init__(self, api: Api, url: str) -> None:
        self.api, self.url = api, url
        self.clock = ManualClock()
        self.registry = HttpSchemaRegistry("main", self.url, clock=self.clock)
        self.known = KnownSchemas(self.registry, self.clock)
        self.old, self.new, self.other = (
            self.post(f"s{i}", "AVRO", schema) for i, schema in enumerate((OLD, NEW, OTHER))
        )
        self.object = self.post("j", "JSON", OBJECT)

    def post(self, subject: str, kind: str, schema: dict[str, Any]) -> int:
        body = {"schema": json.dumps(schema), "schemaType": kind}
        posted = httpx.post(f"{self.url}/subjects/{subject}/versions", json=body)
        return int(posted.json()["id"])

    def avro(self) -> Format:
        return make("avro", None, NEW, self.known)

    def json(self) -> Format:
        return make("json", COLUMNS, None, self.known)

    def asked_by_id(self) -> list[str]:
        return [asked for asked in self.api.asked if "ids" in asked]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Api, str]]:
    api = Api()
    with running(api) as url:
        yield api, url


@pytest.fixture
def world(served: tuple[Api, str]) -> Iterator[World]:
    found = World(*served)
    found.api.asked.clear()
    with closing(found.registry):
        yield found


def message(number: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + payload


def avro(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return message(number, out.getvalue())


def test_old_and_new_records_come_out_in_order_as_the_reader_wants_them(world: World) -> None:
    chance = random.Random(1)
    values: list[bytes] = []
    wanted: list[dict[str, Any]] = []
    for i in range(500):
        if chance.random() < 0.5:
            values.append(avro(world.old, OLD, {"user": f"u{i}", "n": i, "dropped": 0.5}))
            wanted.append({"at": None, "user": f"u{i}", "n": i, "kind": "view"})
        else:
            row = {"at": datetime(2026, 1, 2, tzinfo=UTC), "user": "é", "n": 2**40 + i, "kind": "x"}
            values.append(avro(world.new, NEW, row))
            wanted.append(row)
    found, refused = world.avro().decode(octets(values))
    assert (found.to_pylist(), refused) == (wanted, {})
    assert found.schema == world.avro().schema
    world.avro().decode(octets(values))
    assert sorted(world.asked_by_id()) == [
        f"GET schemas/ids/{number}" for number in sorted({world.old, world.new})
    ]


def test_each_record_that_does_not_fit_has_a_reason(world: World) -> None:
    good = avro(world.new, NEW, {"at": None, "user": "a", "n": 1, "kind": "k"})
    bad = {
        b"": "the value has 0 bytes",
        b"\x00\x00\x00": "the value has 3 bytes: expected the Confluent wire format",
        b'{"user": "a"}': "the value begins with byte 123",
        None: "null (a tombstone)",
        message(999_999, good[5:]): "schema id 999999 is not known to the registry",
        avro(world.other, OTHER, {"user": "a"}): "SchemaResolutionError",
        message(world.object, b"{}"): f"schema id {world.object} is JSON, expected AVRO",
        good + b"!": "bytes are left over",
        good[:-1]: "EOFError",
    }  # fmt: skip
    values: list[bytes | None] = [good]
    for value in bad:
        values += [value, good]
    found, refused = world.avro().decode(octets(values))
    assert found["user"].to_pylist() == ["a"] * (len(bad) + 1)
    assert sorted(refused) == list(range(1, 2 * len(bad), 2))
    for index, text in zip(sorted(refused), bad.values(), strict=True):
        assert text in refused[index]


def test_json_records(world: World) -> None:
    values = [
        message(world.object, b'{"user": "a", "n": 1, "more": 2}'),
        message(world.old, b'{"user": "b"}'),
        message(world.object, b'{"user": 5}'),
        message(world.object, b'{"user": "c"}'),
    ]
    found, refused = world.json().decode(octets(values))
    assert found.to_pylist() == [{"user": "a", "n": 1}, {"user": "c", "n": None}]
    assert refused[1] == f"schema id {world.old} is AVRO, expected JSON"
    assert "does not fit the columns user, n" in refused[2]


def test_an_unknown_id_is_asked_for_twice_and_then_for_a_while_not(world: World) -> None:
    value = message(777_777, b"\x00")
    for _ in range(3):
        assert list(world.avro().decode(octets([value, value]))[1]) == [0, 1]
    assert world.asked_by_id() == ["GET schemas/ids/777777"] * 2
    world.clock.sleep(FORGET_S)
    world.avro().decode(octets([value]))
    assert len(world.asked_by_id()) == 4


def test_a_new_id_that_a_replica_learns_late_is_no_unknown_one() -> None:
    class Late(HttpSchemaRegistry):
        asked = 0

        def by_id(self, number: int) -> Schema | None:
            self.asked += 1
            return Schema("AVRO", json.dumps(NEW)) if self.asked > 1 else None

    clock = ManualClock()
    kind = make("avro", None, NEW, KnownSchemas(Late("main", "http://none"), clock))
    row = {"at": None, "user": "a", "n": 1, "kind": "k"}
    found, refused = kind.decode(octets([avro(1, NEW, row)]))
    assert (found.to_pylist(), refused) == ([row], {})


def test_a_registry_that_is_away_refuses_nothing() -> None:
    clock = ManualClock()
    with closing(HttpSchemaRegistry("main", "http://127.0.0.1:1", clock=clock)) as registry:
        kind = make("avro", None, NEW, KnownSchemas(registry, clock))
        with pytest.raises(RetryableError, match="schema registry main"):
            kind.decode(octets([message(1, b"")]))


def test_without_records_there_are_columns(world: World) -> None:
    for kind in (world.avro(), world.json()):
        found, refused = kind.decode(octets([]))
        assert (found.schema, found.num_rows, refused) == (kind.schema, 0, {})


def test_a_sinks_records_are_what_fastavro_reads_by_hand() -> None:
    table = pa.table({"word": ["x", "é"], "n": [1, None]})
    schema: dict[str, Any] = {
        "type": "record", "name": "Count",
        "fields": [{"name": "word", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }  # fmt: skip
    for value, row in zip(
        frame(70_000, encode.values(table, "avro", schema)).to_pylist(), table.to_pylist(),
        strict=True,
    ):  # fmt: skip
        assert value[:5] == b"\x00\x00\x01\x11\x70"
        assert fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) == row


EXACT: dict[str, Any] = {
    "type": "record", "name": "View",
    "fields": [
        USER, N, {"name": "share", "type": ["null", "double"]}, {"name": "on", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}  # fmt: skip


class One:
    """A registry in which every id has the schema EXACT."""

    def by_id(self, number: int) -> Schema | None:
        return Schema("AVRO", json.dumps(EXACT))


@pytest.mark.parametrize("framed", [True, False])
@given(payloads=st.lists(st.binary(max_size=24), max_size=4))
@pytest.mark.security("5.9")
def test_whatever_bytes_come_each_is_a_row_or_refused(framed: bool, payloads: list[bytes]) -> None:
    """Times and numbers out of range too: one bad record must not stop the others."""
    known = KnownSchemas(cast(SchemaRegistry, One())) if framed else None
    kind = make("avro", None, EXACT, known)
    values = [message(1, p) if framed else p for p in payloads]
    together, refused = kind.decode(octets(values))
    alone = [kind.decode(octets([value])) for value in values]
    assert sorted(refused) == [i for i, (_, bad) in enumerate(alone) if bad]
    rows = [row for table, _ in alone for row in table.to_pylist()]
    assert len(rows) + len(refused) == len(values)
    assert str(together.to_pylist()) == str(rows)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1])
def test_a_number_too_large_for_its_column_is_refused_alone(number: int) -> None:
    """An Avro int has 32 bits, and nothing in its bytes shows it."""
    schema: dict[str, Any] = {"type": "record", "name": "R", "fields": [N]}
    wide = {**schema, "fields": [{**N, "type": "long"}]}
    values = [avro(1, wide, {"n": n})[5:] for n in (1, number, 2)]
    found, refused = make("avro", None, schema).decode(octets(values))
    assert found.to_pylist() == [{"n": 1}, {"n": 2}]
    assert "does not fit the columns n" in refused[1]
