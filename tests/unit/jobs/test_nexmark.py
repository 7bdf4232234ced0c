"""The operators of the Nexmark queries against the plain computation, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benches.nexmark import JITTER_MS, QUERIES, START_MS, Event, Events, answers
from benches.nexmark_run import row_of
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness

EVENTS = Events(6_000, seed=11)
SCHEMAS = {
    "persons": {"id": pa.int64(), "name": pa.string(), "city": pa.string(), "state": pa.string(),
                "time": pa.int64()},
    "auctions": {n: pa.int64() for n in ("id", "seller", "category", "time")},
    "bids": {n: pa.int64() for n in ("auction", "bidder", "price", "time")},
}  # fmt: skip


class Played:
    """A job of Python operators in a row of harnesses; sources feed the first ones."""

    def __init__(self, folder: Path) -> None:
        self.job = parse.load(folder)
        self.harnesses = {
            name: Harness(folder, name, parallelism=2 if spec.key else 1)
            for name, spec in self.job.operators.items()
        }
        self.found: Counter[tuple[Any, ...]] = Counter()

    def epoch(self, tables: dict[str, pa.Table], watermark: int | None) -> None:
        outputs = dict(tables)
        for name, spec in self.job.operators.items():
            harness = self.harnesses[name]
            harness.watermark = watermark
            rows = {port: outputs[node] for port, node in spec.inputs.items()}
            given = rows["input"] if set(rows) == {"input"} else rows
            emitted = harness.epoch(given)
            schema = harness.operator_class.output
            assert schema is not None
            outputs[name] = pa.Table.from_pylist(emitted, schema=schema)
        (sink,) = self.job.sinks.values()
        self.found.update(tuple(row.values()) for row in outputs[sink.input].to_pylist())

    def crash(self) -> None:
        for harness in self.harnesses.values():
            harness.crash()


def tables(events: list[Event]) -> dict[str, pa.Table]:
    found = {}
    for topic, columns in SCHEMAS.items():
        rows = [event for of, event in events if of == topic]
        found[topic] = pa.Table.from_pylist(rows, pa.schema(list(columns.items())))
    return found


def test_the_events_are_a_mixture_and_a_seed_gives_them_again() -> None:
    events = list(EVENTS)
    counts = Counter(topic for topic, _ in events)
    assert counts == {"persons": 120, "auctions": 360, "bids": 5520}
    assert events == list(Events(6_000, seed=11)) != list(Events(6_000, seed=12))
    highest = START_MS
    for _, event in events:
        assert event["time"] > highest - JITTER_MS
        highest = max(highest, event["time"])
    came = {e["id"]: at for at, (topic, e) in enumerate(events) if topic == "persons"}
    waits = [
        came.get(e["seller"], 0) > at for at, (topic, e) in enumerate(events) if topic == "auctions"
    ]
    assert 0 < sum(waits) < len(waits) / 2, "auctions come before their sellers now and then"


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_answers_as_the_plain_computation_however_epochs_are_cut(query: str) -> None:
    folder = job_folders.example(f"nexmark-{query}")
    events = [*EVENTS, *EVENTS.closing]
    expected = answers(query, events)
    assert len(expected) > 5
    for seed in (1, 2):
        chance = random.Random(seed)
        played = Played(folder)
        at, watermark = 0, None
        while at < len(events):
            count = chance.randint(1, 900)
            played.epoch(tables(events[at : at + count]), watermark)
            at += count
            watermark = max(e["time"] for _, e in events[:at]) - 2_000
            if chance.random() < 0.3:
                played.crash()
        played.epoch(tables([]), watermark)
        assert played.found == expected


def test_a_query_whose_input_was_too_short_for_a_rate_has_none() -> None:
    assert row_of("q3", 9, [5.0, 7.0, 9.0])["rows_per_s"] == 7.0
    assert "rows_per_s" not in row_of("q3", 9, [5.0, 0.0, 9.0])
