"""An operator that raises: the poison records alone become dead letters, each once, under kills."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.records import crashpoints
from perseid.records.crashpoints import KillTarget
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.worker.dataflow.partition import partitions
from support.kill_points import REACH_S

JOB = """
name: poison
parallelism: 2
sources:
  orders: {topic: poison-orders, format: json, columns: {user: string, n: int64, id: int64}}
operators:
  checked: {input: orders, use: "poison:Checked", errors: {operator: bisect}}
  spent: {input: checked, key: user, use: "poison:Spent", errors: {operator: bisect}}
  ranked: {input: spent, use: "poison:Ranked", errors: {operator: bisect}}
sinks:
  spent: {input: spent, topic: poison-spent, format: json, key: user}
  ranked: {input: ranked, topic: poison-ranked, format: json, key: user}
errors: {deadletterqueue: {topic: poison-dlq}}
faultTolerance: {checkpoint: {period: "3s"}}
"""
CODE = """
import pyarrow.compute as pc
from perseid.jobs import Operator, Table, pa

class Checked(Operator):
    output = pa.schema([("user", pa.string()), ("n", pa.int64()), ("id", pa.int64())])

    def process(self, batch, out):
        out.emit(batch.select(self.output.names))
        if pc.any(pc.equal(batch["n"], 0)).as_py():
            raise ValueError("no amount")

class Ranked(Operator):
    def process(self, batch, out):
        out.emit(batch)
        if pc.any(pc.equal(pc.bit_wise_and(batch["seen"], 3), 3)).as_py():
            raise ValueError("a fourth")

class Spent(Operator):
    output = pa.schema([("user", pa.string()), ("total", pa.int64()), ("seen", pa.int64())])
    kept = Table(key=pa.string(), total=pa.int64(), seen=pa.int64())

    def process(self, batch, out):
        changed = self.kept.add(batch["user"], total=batch["n"], seen=1)
        if pc.any(pc.less(batch["n"], 0)).as_py():
            raise ValueError("a negative amount")
        out.emit(changed.rename_columns(["user", "total", "seen"]))
"""
POINTS: list[tuple[str, KillTarget]] = [
    ("log.after-rename", "self"),
    ("sink.before-commit", "self"),
    ("sink.after-commit", "driver"),
]


class Orders:
    """Orders of twenty users, one in fifty of which is poison; every record has an id.

    Half of the poison is for the stateless operator (0), half for the keyed one (-1).
    """

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._chance = random.Random(5)

    def some(self, count: int = 300) -> list[bytes]:
        made = []
        for _ in range(count):
            number = self._chance.randint(1, 9)
            bad = self._chance.random() < 1 / 50
            user = f"u{self._chance.randrange(20)}"
            number = -self._chance.randrange(2) if bad else number
            made.append({"user": user, "n": number, "id": len(self.sent)})
            self.sent.append(made[-1])
        return [json.dumps(order).encode() for order in made]

    @property
    def poison(self) -> list[int]:
        return [order["id"] for order in self.sent if order["n"] <= 0]

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        found: Counter[str] = Counter()
        seen: Counter[str] = Counter()
        for order in self.sent:
            if order["n"] > 0:
                found[order["user"]] += order["n"]
                seen[order["user"]] += 1
        return {user: (found[user], seen[user]) for user in found}


@pytest.fixture(scope="module")
def orders(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    folder = tmp_path_factory.mktemp("poison")
    (folder / "job.yaml").write_text(JOB)
    (folder / "poison.py").write_text(CODE)
    running.topic("poison-orders", 2)
    running.do("jobs", "apply", str(folder))
    yield Orders()
    running.do("jobs", "remove", "poison")


def values(running: RunningCluster, topic: str) -> list[dict[str, Any]]:
    return running.rows(f"poison-{topic}")


def ordered(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["user"], row["total"], row["seen"]) for row in rows)


def judge(running: RunningCluster, orders: Orders) -> None:
    running.wait_caught_up("poison")
    letters, spent = values(running, "dlq"), values(running, "spent")
    assert sorted(row["id"] for row in letters if "id" in row) == orders.poison
    fourth = [row for row in spent if row["seen"] % 4 == 3]
    assert ordered(row for row in letters if "id" not in row) == ordered(fourth)
    assert ordered(values(running, "ranked")) == ordered(r for r in spent if r not in fourth)
    last: dict[str, tuple[int, int]] = {}
    for row in spent:
        before = last.get(row["user"], (0, 0))
        assert row["seen"] > before[1], f"{row} after {before}"
        last[row["user"]] = row["total"], row["seen"]
    assert last == orders.totals


def test_poison_alone_becomes_dead_letters(running: RunningCluster, orders: Orders) -> None:
    for _ in range(5):
        running.produce("poison-orders", orders.some())
    judge(running, orders)
    assert len(orders.poison) > 10
    reported = _headers(running)
    assert set(reported) == {"checked", "spent", "ranked"}
    assert reported["spent"]["__connect.errors.exception.message"] == b"a negative amount"
    for headers in reported.values():
        assert b"poison.py" in headers["__connect.errors.exception.stacktrace"]
        assert int(headers["perseid.epoch"]) > 0
    place = [reported["checked"][f"__connect.errors.{n}"] for n in ("topic", "partition", "offset")]
    assert place[0] == b"poison-orders"
    (record,) = [
        r for r in read_topic(running.kafka, "poison-orders")
        if [b"%d" % r.partition, b"%d" % r.offset] == place[1:]
    ]  # fmt: skip
    assert json.loads(record.value or b"")["n"] == 0


@pytest.mark.drawn
@pytest.mark.parametrize(("point", "target"), POINTS)
def test_each_once_under_kills(
    running: RunningCluster, crash_points: Path, orders: Orders, point: str, target: KillTarget
) -> None:
    crashpoints.arm(crash_points, point, target)

    def reached() -> bool:
        running.produce("poison-orders", orders.some())
        return not crashpoints.armed(crash_points, point)

    until(reached, REACH_S, f"some process to die at {point}")
    judge(running, orders)


def _headers(running: RunningCluster) -> dict[str, dict[str, Any]]:
    """The headers of a dead letter of each operator."""
    from confluent_kafka import Consumer, TopicPartition

    count = len(values(running, "dlq"))
    reader = Consumer({"bootstrap.servers": running.kafka, "group.id": "poison"})
    reader.assign([TopicPartition("poison-dlq", 0, 0)])
    found: list[dict[str, Any]] = [dict(m.headers() or []) for m in reader.consume(count, 30)]
    reader.close()
    assert len(found) == count
    return {headers["perseid.operator"].decode(): headers for headers in found}


STOPPING = """
name: stopping
parallelism: 2
sources:
  orders: {topic: stopping-orders, format: json, columns: {user: string, n: int64}}
operators:
  priced: {input: orders, key: user, use: "priced:Priced"}
sinks:
  priced: {input: priced, topic: stopping-priced, format: json, key: user}
faultTolerance: {checkpoint: {period: "3s"}}
"""
PRICED = """
from perseid.jobs import Operator, Table, pa

PRICES = {f"u{i}": 2 for i in range(9)}

class Priced(Operator):
    output = pa.schema([("user", pa.string()), ("total", pa.int64())])
    kept = Table(key=pa.string(), total=pa.int64())

    def process(self, batch, out):
        pairs = zip(batch["user"].to_pylist(), batch["n"].to_pylist())
        total = pa.array([PRICES[user] * n for user, n in pairs], pa.int64())
        changed = self.kept.add(batch["user"], total=total)
        out.emit(changed.rename_columns(["user", "total"]))
"""
ENDING = STOPPING.replace("stopping", "ending")
SECRET = "ann.of.the.valley@example.org"


def test_without_bisection_the_job_stops_at_the_epoch_and_names_the_row(
    running: RunningCluster, tmp_path: Path
) -> None:
    """And no log and no status shows what was in it."""
    running.topic("stopping-orders", 2)
    (tmp_path / "job.yaml").write_text(STOPPING)
    (tmp_path / "priced.py").write_text(PRICED)
    running.do("jobs", "apply", str(tmp_path))
    sent = [json.dumps({"user": f"u{i % 9}", "n": i}).encode() for i in range(300)]
    running.produce("stopping-orders", sent[:200])
    done = running.wait_caught_up("stopping")["committed_epoch"]
    running.produce("stopping-orders", [*sent[200:], json.dumps({"user": SECRET, "n": 5}).encode()])
    failed = running.wait_job("stopping", lambda j: j["state"] == "failed", "failed")

    text = failed["error"]["text"]
    place = re.search(r"operator priced \(Priced\), partition [01], epoch (\d+): process", text)
    assert place is not None, text
    assert int(place[1]) == failed["committed_epoch"] + 1 > done
    assert "raised KeyError: '<user>'" in text
    assert "priced.py" in text
    assert f"{{user: string of {len(SECRET)} characters, n: int64, " in text
    assert "`errors: {operator: bisect}` sends such records" in text
    shown = json.dumps(running.do("jobs", "show", "stopping"))
    assert "KeyError" in shown
    reported = running.logs()
    assert any("KeyError: '<user>'" in text for text in reported.values())
    for path, text in reported.items():
        assert SECRET not in text, path
    assert SECRET not in shown

    (tmp_path / "priced.py").write_text(PRICED.replace("PRICES[user]", "PRICES.get(user, 7)"))
    running.do("jobs", "apply", str(tmp_path))
    running.wait_caught_up("stopping")
    totals: Counter[str] = Counter({SECRET: 35})
    for i in range(300):
        totals[f"u{i % 9}"] += 2 * i
    last = {r["user"]: r["total"] for r in running.rows("stopping-priced")}
    assert last == totals
    running.do("jobs", "remove", "stopping", "--purge")


@pytest.mark.parametrize("partition", [0, 1])
def test_a_changed_job_ends_the_epoch_whichever_partition_raised(
    running: RunningCluster, tmp_path: Path, partition: int
) -> None:
    """Where the other one has committed it, it is not computed there again."""
    users = [f"u{i}" for i in range(9)]
    names = pa.table({"user": [f"new{i}" for i in range(99)]})
    where = list(partitions(names, ("user",), 2))
    bad = names["user"][where.index(partition)].as_py()
    job = f"ending{partition}"
    running.topic(f"{job}-orders", 2)
    (tmp_path / "job.yaml").write_text(ENDING.replace("ending", job))
    (tmp_path / "priced.py").write_text(PRICED)
    running.do("jobs", "apply", str(tmp_path))
    sent = [json.dumps({"user": user, "n": n}).encode() for n in range(1, 21) for user in users]
    running.produce(f"{job}-orders", sent)
    running.wait_caught_up(job)
    running.produce(f"{job}-orders", [*sent, json.dumps({"user": bad, "n": 1}).encode()])
    failed = running.wait_job(job, lambda j: j["state"] == "failed", "failed")
    assert f"partition {partition}, epoch" in failed["error"]["text"]
    (tmp_path / "priced.py").write_text(PRICED.replace("PRICES[user]", "PRICES.get(user, 7)"))
    running.do("jobs", "apply", str(tmp_path))
    running.produce(f"{job}-orders", [json.dumps({"user": bad, "n": 1}).encode()])
    running.wait_caught_up(job)
    rows = running.rows(f"{job}-priced")
    totals = {user: 2 * 2 * sum(range(1, 21)) for user in users} | {bad: 14}
    assert {row["user"]: row["total"] for row in rows} == totals
    keys = [(row["user"], row["total"]) for row in rows]
    assert len(set(keys)) == len(keys)
    running.do("jobs", "remove", job, "--purge")
