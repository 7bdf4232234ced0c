"""Bad records on a whole cluster: each one a letter with its place, and every other one counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perseid.cli.dead_letters import letter_of
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic

BISECTING = """
name: bisecting
parallelism: 2
sources:
  orders: {topic: bisecting-orders, format: json, columns: {user: string, amount: int64, id: int64}}
operators:
  spent: {input: orders, key: user, use: "spent:Spent", errors: {operator: bisect}}
sinks:
  spent: {input: spent, topic: bisecting-spent, format: json, key: user}
  all: {input: orders, topic: bisecting-all, format: json, order: free}
"""
SPENT = """
from perseid.jobs import Operator, Table, pa

class Spent(Operator):
    metadata = ()
    kept = Table(key=pa.string(), total=pa.int64())

    def combine(self, batch):
        if min(batch["amount"].to_pylist()) < 0:
            raise ValueError("a negative amount")
        found = batch.group_by("user").aggregate([("amount", "sum")])
        return found.rename_columns(["user", "sum"])

    def process(self, batch, out):
        changed = self.kept.add(batch["user"], total=batch["sum"])
        out.emit(changed.rename_columns(["user", "sum"]))
"""


def orders(count: int, first: int) -> list[dict[str, Any]]:
    made = []
    for i in range(first, first + count):
        made.append({"user": f"u{i % 7}", "amount": i, "id": i})
        if i % 10 == 3:
            made[-1]["user"] = None
    return made


def totals(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in rows:
        if row["user"] is not None:
            found[row["user"]] += row["amount"]
    return found


def letters(running: RunningCluster, job: str) -> dict[tuple[int, int], tuple[str, str, bytes]]:
    """By partition and offset of the record in the source: kind, reason and value."""
    from confluent_kafka import Consumer, TopicPartition

    topic = f"perseid.{job}.dlq"
    count = len(list(read_topic(running.kafka, topic)))
    reader = Consumer({"bootstrap.servers": running.kafka, "group.id": job})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = [letter_of(topic, 0, message) for message in reader.consume(count, 30)]
    reader.close()
    assert len(found) == count
    placed = {}
    for letter in found:
        origin = letter.origin
        assert origin is not None, letter.headers
        assert origin.topic == f"{job}-orders"
        assert (origin.partition, origin.offset) not in placed, "one letter a record"
        placed[origin.partition, origin.offset] = letter.kind, letter.reason, letter.value or b""
    return placed


def sent(running: RunningCluster, job: str) -> dict[tuple[int, int], bytes]:
    return {
        (r.partition, r.offset): r.value or b""
        for r in read_topic(running.kafka, f"{job}-orders")
    }  # fmt: skip


def last(running: RunningCluster, topic: str) -> dict[str, int]:
    return {row["user"]: row["sum"] for row in running.rows(topic)}


def test_what_an_operator_that_bisects_cannot_take_is_a_letter_with_its_place(
    running: RunningCluster, tmp_path: Path
) -> None:
    """Rows without a key, and rows on which its combiner raises, without `tolerance`."""
    running.topic("bisecting-orders", 2)
    (tmp_path / "job.yaml").write_text(BISECTING)
    (tmp_path / "spent.py").write_text(SPENT)
    running.do("jobs", "apply", str(tmp_path))
    made: list[dict[str, Any]] = []
    for first in (0, 100):
        made += [row | {"amount": -1} if row["id"] % 25 == 4 else row for row in orders(100, first)]
        running.produce("bisecting-orders", [json.dumps(row).encode() for row in made[first:]])
        running.wait_caught_up("bisecting")

    assert last(running, "bisecting-spent") == totals(r for r in made if r["amount"] >= 0)
    assert sorted(row["id"] for row in running.rows("bisecting-all")) == list(range(200))
    records, told = sent(running, "bisecting"), letters(running, "bisecting")
    expected: dict[tuple[int, int], tuple[str, int]] = {}
    for at, value in records.items():
        row = json.loads(value)
        if row["user"] is None:
            expected[at] = "NullKey", row["id"]
        elif row["amount"] < 0:
            expected[at] = "ValueError", row["id"]
    found = {place: (kind, json.loads(value)["id"]) for place, (kind, _, value) in told.items()}
    assert found == expected
    running.do("jobs", "remove", "bisecting", "--purge")
