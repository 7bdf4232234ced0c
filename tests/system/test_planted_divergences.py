"""Planted divergences: what an audit reports of each, by verdict, operator, epoch and record.

The job (`support.planted`) is recorded once. A case is a revision of it that differs in one place,
or a change of its topics; those have a recording of their own. All audits run in one
process. A normal run draws a few.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as typed_in_part

from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin
from support.audit_client import Audits
from support.planted import CHUNK, Edits, PlantedJob
from support.planted_cases import ALWAYS, FURTHER, Case

admin: Any = typed_in_part
COMPACTED_S = 120.0  # the broker's cleaner looks each 15 s
DRAWN = pytest.mark.drawn(group="planted divergences")


@pytest.fixture(scope="module")
def job(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> PlantedJob:
    return PlantedJob(running, tmp_path_factory.mktemp("planted") / "job", "planted").record()


def named(cases: Sequence[Any], *marks: Any) -> list[Any]:
    return [pytest.param(case, id=case.name, marks=marks) for case in cases]


@pytest.mark.parametrize("case", [*named(ALWAYS), *named(FURTHER, DRAWN)])
def test_a_revision_that_differs_in_one_place(
    job: PlantedJob, auditing: Audits, tmp_path: Path, case: Case
) -> None:
    places = job.places
    other = job.revision(tmp_path / "other", case.edits_of(places))
    report = auditing.audit(job.name, f"1:{job.last}", other, case.tolerances, job.mixed)
    assert report.get("verdict") == case.verdict, report
    if case.verdict == "equal":
        assert report["causes"] == []
        return
    epoch = job.epoch_of_mark if case.row == "mark" else job.epoch_of(places[case.row])
    found = {(c["operator"], c["kind"], tuple(c["fields"])): c for c in report["causes"]}
    assert min(cause["first_epoch"] for cause in found.values()) == epoch
    cause = found[case.operator, case.kind, case.fields]
    assert cause["first_epoch"] == epoch
    if case.shown:
        assert places[case.row] in {row["i"] for row in samples(cause)}, cause


def test_records_of_another_writer(job: PlantedJob, auditing: Audits) -> None:
    """They are a fault of the sink, unless the user has others write it."""
    report = auditing.audit(job.name, f"1:{job.last}")
    assert report.get("verdict") == "sink_changed", report
    (topic,) = job.mixed
    assert f"{topic}[" in report["reasons"][0]
    assert "that no ledger has" in report["reasons"][0]
    assert report["causes"] == []
    assert auditing.audit(job.name, f"1:{job.last}", mixed=job.mixed)["verdict"] == "equal"


def samples(cause: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for sample in cause["samples"]:
        for side in ("committed", "made"):
            if sample[side] is not None:
                yield json.loads(base64.b64decode(sample[side]["value"]))


@dataclass(frozen=True)
class Damage:
    """A change of the topics. `text`: in the report's reasons."""

    name: str
    do: Callable[[RunningCluster, PlantedJob], object]
    verdict: str
    text: str
    edits: Edits = ()


OTHER_SUMS = [("VERSION = 1", "VERSION = 2")]  # so that the sink's records are looked at


def expire_input(running: RunningCluster, job: PlantedJob) -> None:
    TopicAdmin(running.kafka).delete_records({(f"{job.name}-in", 0): CHUNK})


def compact_sink(running: RunningCluster, job: PlantedJob) -> None:
    """Returns when the oldest records of a key are gone, of which there are newer ones."""
    topic = f"{job.name}-sums"
    wanted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=[
        admin.ConfigEntry(name, value, incremental_operation=admin.AlterConfigOpType.SET)
        for name, value in wanted.items()
    ])  # fmt: skip
    client = admin.AdminClient({"bootstrap.servers": running.kafka})
    (set_,) = client.incremental_alter_configs([resource]).values()
    set_.result(30)
    count = len(running.rows(topic))

    def is_compacted() -> bool:
        running.produce(topic, [b"{}"] * 2, [b"k0", b"k1"])  # closes the segments
        return len(running.rows(topic)) < count

    until(is_compacted, COMPACTED_S, f"{topic} to be compacted", 1.0)


DAMAGES = [
    Damage("expired input", expire_input, "input_gone", "begins at offset"),
    Damage("compacted sink", compact_sink, "diverged", "not all of the", OTHER_SUMS),
]


@pytest.mark.parametrize("case", named(DAMAGES, DRAWN))
def test_a_change_of_the_topics(
    running: RunningCluster, auditing: Audits, tmp_path: Path, case: Damage
) -> None:
    name = f"planted-{case.name.replace(' ', '-')}"
    job = PlantedJob(running, tmp_path / "job", name).record()
    case.do(running, job)
    other = job.revision(tmp_path / "other", case.edits) if case.edits else None
    report = auditing.audit(job.name, f"1:{job.last}", other, mixed=job.mixed)
    assert report.get("verdict") == case.verdict, report
    assert case.text in json.dumps(report), report
    running.do("jobs", "remove", job.name, "--purge")


CHANCE_JOB = """\
name: chances
parallelism: 1
sources:
  rows: {topic: chances-in, format: json, columns: {i: int64, k: string}}
operators:
  time: {input: rows, key: k, use: "chances:Time"}
  random: {input: rows, key: k, use: "chances:Chance"}
  threads: {input: rows, key: k, use: "chances:Threads"}
  hashes: {input: rows, key: k, use: "chances:Hashes"}
  kept: {input: rows, key: k, use: "chances:Kept"}
sinks:
  time: {input: time, topic: chances-time, format: json, key: k}
  random: {input: random, topic: chances-random, format: json, key: k}
  threads: {input: threads, topic: chances-threads, format: json, key: k}
  hashes: {input: hashes, topic: chances-hashes, format: json, key: k}
  kept: {input: kept, topic: chances-kept, format: json, key: k}
"""
CHANCE_CODE = """\
import random
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from perseid.jobs import Operator, pa


class Kept(Operator):
    metadata = ()

    def process(self, batch, out):
        out.emit(pa.Table.from_pylist(self.made(batch.select(["i", "k"]).to_pylist())))

    def made(self, rows):
        return rows


class Time(Kept):
    def made(self, rows):
        return [row | {"now": time.time_ns()} for row in rows]


class Chance(Kept):
    def made(self, rows):
        return [row | {"x": random.random()} for row in rows]


class Threads(Kept):
    def made(self, rows):
        with ThreadPoolExecutor(8) as pool:
            return [f.result() for f in as_completed([pool.submit(asked, r) for r in rows])]


class Hashes(Kept):
    def made(self, rows):
        return [row | {"text": "".join({f"w{n}" for n in range(row["i"], row["i"] + 9)})}
                for row in rows]


def asked(row):  # as of another service, which answers after a while
    time.sleep(time.perf_counter_ns() % 5 / 1000)
    return row
"""


@DRAWN
def test_operators_that_are_not_deterministic(
    running: RunningCluster, auditing: Audits, tmp_path: Path
) -> None:
    """Sets have the same order in every process, so what depends on it is equal."""
    (tmp_path / "job.yaml").write_text(CHANCE_JOB)
    (tmp_path / "chances.py").write_text(CHANCE_CODE)
    running.topic("chances-in", 1)
    running.apply(tmp_path)
    running.keep_tokens("chances")
    running.produce("chances-in", [b'{"i": %d, "k": "k0"}' % i for i in range(60)])
    last = running.wait_caught_up("chances")["committed_epoch"]
    report = auditing.audit("chances", f"1:{last}")
    assert report.get("verdict") == "not_deterministic", report
    begun = min(token.epoch for token in running.tokens("chances") if token.records)
    found = {
        (c["operator"], c["kind"], tuple(c["fields"]), c["first_epoch"]) for c in report["causes"]
    }
    assert found == {
        ("time", "value", ("now",), begun), ("random", "value", ("x",), begun),
        ("threads", "order", (), begun),
    }  # fmt: skip
    running.do("jobs", "remove", "chances", "--purge")
