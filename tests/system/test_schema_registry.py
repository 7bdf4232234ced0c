"""A job between two topics of Confluent Avro: schemas that change, bad records, a registry away."""

from __future__ import annotations

import io
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest

from perseid.records.deployment import REGISTRIES, parse_registries
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from support.schema_registry import SchemaRegistryServer

JOB = """
name: views
parallelism: 2
sources:
  views: {topic: sr-views, format: avro, registry: tests}
operators:
  spent: {input: views, key: user, use: "library:Sum", with: {column: n}}
sinks:
  spent: {input: spent, topic: sr-spent, key: user,
          format: avro, registry: tests, schema: spent.avsc}
errors: {tolerance: all, deadletterqueue: {topic: sr-dlq}}
"""


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": name, "type": kind} for name, kind in fields]
    return {"type": "record", "name": "View", "fields": made}


SPENT = record(("user", "string"), ("sum", ["null", "long"]))
NARROW = record(("n", "int"), ("user", "string"))
WIDE = record(("user", "string"), ("page", "string"), ("n", "long"))
WIDE["fields"][1]["default"] = "none"
LATER = record(("n", "long"), ("page", "string"), ("user", "string"), ("more", "boolean"))
LATER["fields"][3]["default"] = False
FAILURE = "schema registry tests at http://127.0.0.1"


class Views:
    """What was sent; every message is made by hand."""

    def __init__(self, running: RunningCluster, registry: SchemaRegistryServer, job: Path) -> None:
        self.running, self.registry, self.job = running, registry, job
        self.totals: Counter[str] = Counter()
        self.bad: list[bytes] = []

    def register(self, schema: dict[str, Any]) -> int:
        url = f"{self.registry.url}/subjects/sr-views-value/versions"
        answer = httpx.post(url, json={"schema": json.dumps(schema)}, trust_env=False)
        assert answer.is_success, answer.text
        return int(answer.json()["id"])

    def send(self, number: int, schema: dict[str, Any], count: int) -> None:
        messages = []
        for i in range(count):
            row: dict[str, Any] = {"user": f"u{i % 17}", "n": i, "page": "p", "more": True}
            out = io.BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
            messages.append(struct.pack(">bI", 0, number) + out.getvalue())
            self.totals[row["user"]] += i
        self.running.produce("sr-views", messages)

    def send_bad(self, *values: bytes) -> None:
        self.bad += values
        self.running.produce("sr-views", values)

    def judge(self) -> None:
        self.running.wait_caught_up("views")
        found: dict[str, int] = {}
        for sent in read_topic(self.running.kafka, "sr-spent"):
            row = self._read(sent.value or b"")
            assert sent.key == row["user"].encode()
            assert row["sum"] >= found.get(row["user"], 0), row
            found[row["user"]] = row["sum"]
        assert found == dict(self.totals)
        letters = [r.value or b"" for r in read_topic(self.running.kafka, "sr-dlq")]
        assert sorted(letters) == sorted(self.bad)

    def _read(self, value: bytes) -> dict[str, Any]:
        magic, number = struct.unpack(">bI", value[:5])
        assert magic == 0
        row: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), self._schema(number), None)
        return dict(row)

    @cache  # noqa: B019 - there is one of it
    def _schema(self, number: int) -> Any:
        answer = httpx.get(f"{self.registry.url}/schemas/ids/{number}", trust_env=False)
        return json.loads(answer.json()["schema"])


@pytest.fixture(scope="module")
def views(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    folder = tmp_path_factory.mktemp("views")
    url = parse_registries(os.environ[REGISTRIES])["tests"]
    with SchemaRegistryServer(folder / "registry", int(url.rpartition(":")[2])) as registry:
        job = folder / "job"
        job.mkdir()
        (job / "job.yaml").write_text(JOB)
        (job / "spent.avsc").write_text(json.dumps(SPENT))
        running.topic("sr-views", 2)
        yield Views(running, registry, job)
        running.do("jobs", "remove", "views")


def test_schemas_that_change_under_a_running_job(views: Views) -> None:
    refused = views.running.run("jobs", "apply", str(views.job))
    assert refused.code == 3
    assert "schema registry tests has no subject sr-views-value" in refused.stderr
    narrow, wide = views.register(NARROW), views.register(WIDE)  # the newest are the columns
    views.running.do("jobs", "apply", str(views.job))
    views.send(narrow, NARROW, 500)
    views.send(wide, WIDE, 300)
    views.send(narrow, NARROW, 200)
    views.send_bad(b"", b'{"user": "u1", "n": 1}', struct.pack(">bI", 0, 4711) + b"\x02\x02a",
                   struct.pack(">bI", 0, wide) + b"\x02")  # fmt: skip
    views.judge()


def test_a_registry_that_is_away_delays_and_loses_nothing(views: Views) -> None:
    later = views.register(LATER)
    views.registry.pause()
    try:
        views.send(later, LATER, 100)
        views.running.wait_job(
            "views", lambda j: any(FAILURE in event for event in j["events"]), "in want of it"
        )
    finally:
        views.registry.resume()
    views.judge()


def test_an_incompatible_schema_is_refused_and_the_job_runs_on(
    views: Views, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    user, total = SPENT["fields"]  # totals may be missing so far, and readers would not take that
    (tmp_path / "spent.avsc").write_text(
        json.dumps({**SPENT, "fields": [user, {**total, "type": "long"}]})
    )
    refused = views.running.run("jobs", "apply", str(tmp_path))
    assert refused.code == 3
    assert "TYPE_MISMATCH" in refused.stderr
    views.send(views.register(LATER), LATER, 50)
    views.judge()
