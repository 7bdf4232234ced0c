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

TOLERANT = """
name: tolerant
parallelism: 2
sources:
  orders:
    topic: tolerant-orders
    format: json
    columns: {user: string, amount: int64, created: timestamp, id: int64}
operators:
  spent: {input: orders, key: user, use: "library:Sum", with: {column: amount}}
sinks:
  spent: {input: spent, topic: tolerant-spent, format: json, key: user}
  all: {input: orders, topic: tolerant-all, format: json, order: free}
errors: {tolerance: all}
"""
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
MIXED_SQL = """
name: mixed
parallelism: 2
sources:
  orders: {topic: mixed-orders, format: json, columns: {user: string, amount: int64, id: int64}}
operators:
  spent: {input: orders, key: user, use: "library:Sum", with: {column: amount},
          errors: {operator: bisect}}
  named: {input: orders, sql: "SELECT user, id AS sum FROM input"}
  seen: {input: named, key: user, use: "library:Sum", with: {column: sum},
         errors: {operator: bisect}}
sinks:
  spent: {input: spent, topic: mixed-spent, format: json, key: user}
  seen: {input: seen, topic: mixed-seen, format: json, key: user}
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
DAY = "2026-11-21T09:30:00Z"
STRANGE = [  # each with why it is refused; None: it only has no key
    (b"[", "not valid JSON"),
    (b'{"user":"u0","amount":1,"created":"0001-01-01T00:00:00+01:00","id":-1}', "outside of the"),
    (b'{"user":"u1","amount":1,"created":"9999-12-31T23:59:59-05:00","id":-2}', "outside of the"),
    (b'{"user":"u2","amount":9223372036854775808,"id":-3}', "int out of the range of int64"),
    (b'{"user":"\\ud800","amount":1,"id":-4}', "not valid JSON"),
]


def orders(count: int, first: int) -> list[dict[str, Any]]:
    made = []
    for i in range(first, first + count):
        made.append({"user": f"u{i % 7}", "amount": i, "created": DAY, "id": i})
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


def test_whatever_one_record_does_is_a_letter_of_its_own_and_the_rest_counts(
    running: RunningCluster, tmp_path: Path
) -> None:
    """Undecodable, out of the calendar, out of range, without a key: in one batch."""
    running.topic("tolerant-orders", 2)
    (tmp_path / "job.yaml").write_text(TOLERANT)
    running.do("jobs", "apply", str(tmp_path))
    good: list[dict[str, Any]] = []
    for first in (0, 100):
        made = orders(100, first)
        good += made
        values = [json.dumps(row).encode() for row in made]
        for number, (value, _) in enumerate(STRANGE):
            values.insert(17 * number + 3, value)
        running.produce("tolerant-orders", values)
        running.wait_caught_up("tolerant")

    assert last(running, "tolerant-spent") == totals(good)
    assert sorted(row["id"] for row in running.rows("tolerant-all")) == list(range(200))
    records, reported = sent(running, "tolerant"), letters(running, "tolerant")
    why = dict(STRANGE)
    expected = {place: value for place, value in records.items()
                if value in why or json.loads(value)["user"] is None}  # fmt: skip
    assert reported.keys() == expected.keys()
    for place, (kind, reason, value) in reported.items():
        assert value == records[place], "the record's own bytes"
        null = "key column user of operator spent is null"
        assert why.get(value, null) in reason
        assert kind == ("BadInputError" if value in why else "NullKey")
    running.do("jobs", "remove", "tolerant", "--purge")


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
    records, reported = sent(running, "bisecting"), letters(running, "bisecting")
    expected: dict[tuple[int, int], tuple[str, int]] = {}
    for at, value in records.items():
        row = json.loads(value)
        if row["user"] is None:
            expected[at] = "NullKey", row["id"]
        elif row["amount"] < 0:
            expected[at] = "ValueError", row["id"]
    found = {place: (kind, json.loads(value)["id"]) for place, (kind, _, value) in reported.items()}
    assert found == expected
    running.do("jobs", "remove", "bisecting", "--purge")


def test_a_source_that_sql_reads_too_has_letters_of_its_own_and_sql_of_its_rows(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("mixed-orders", 2)
    (tmp_path / "job.yaml").write_text(MIXED_SQL)
    running.do("jobs", "apply", str(tmp_path))
    made = orders(100, 0)
    running.produce("mixed-orders", [json.dumps(row).encode() for row in made])
    running.wait_caught_up("mixed")
    assert last(running, "mixed-spent") == totals(made)
    assert last(running, "mixed-seen") == totals([row | {"amount": row["id"]} for row in made])
    without = sorted(row["id"] for row in made if row["user"] is None)
    rows = running.rows("perseid.mixed.dlq")
    assert sorted(row["id"] for row in rows if "id" in row) == without, "of the source's records"
    assert sorted(row["sum"] for row in rows if "sum" in row) == without, "of the rows of SQL"
    running.do("jobs", "remove", "mixed", "--purge")
