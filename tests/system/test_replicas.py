"""A job with a replica: it becomes the primary in place, and every row comes once, in order.

What came out is compared with the input row by row, by `support.ranks` or by what the tokens give.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perseid.records import Assignment, crashpoints
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from support.kill_points import REACH_S, REPLICA_POINTS
from support.ranks import RankedJob
from support.replicas import Copies, copies_of, worker_of
from support.silences import assert_not_waited, lasts, not_restarted, now_ms, silences_s, times_ms

LOAD = 1500  # rows: five epochs at least, so that what is killed has work
CALM_S = 5.0  # before the replica dies
DEAD_S = 6.0  # three sessions
ROWS, KEYS = 200, 9  # of one feeding


@dataclass(frozen=True)
class Twin:
    """A job with a replica, its judge, and who has its copies."""

    running: RunningCluster
    job: RankedJob
    copies: Copies

    def judge(self) -> None:
        """All that was sent came out exactly, also what is sent now."""
        self.job.feed(LOAD)
        assert self.job.judge()


@pytest.fixture(scope="module")
def twin(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    job = RankedJob(running, tmp_path_factory.mktemp("twin"), "twin")
    running.wait_workers(2)
    job.apply(spread=1, replicas="all")
    job.feed(LOAD)
    with copies_of(running, job.name) as copies:
        yield Twin(running, job, copies)
    running.do("jobs", "remove", job.name, "--purge")


def take_over(copies: Copies, die: Callable[[str], None]) -> Assignment:
    """The primary's worker dies; the replica is the primary in place. Returns the new primary."""
    replica = copies.await_protected()
    primary, before = copies.primary(), copies.processes(replica)
    die(worker_of(primary))
    promoted = copies.await_other_generation(primary)
    assert (promoted.owner, promoted.log) == (replica.owner, replica.log)
    assert before <= copies.processes(promoted), "processes of the replica were replaced"
    reported = copies.restores_since(replica.generation)
    assert [state.state for state in reported] == ["running"], reported
    assert reported[0].restored_from.startswith("replica"), reported
    return promoted


def test_replicas_take_over_in_place_in_turn(twin: Twin) -> None:
    """Each worker is killed once; the first is back as the replica by then."""
    with twin.job.fed():
        first = take_over(twin.copies, twin.running.kill)
        second = take_over(twin.copies, twin.running.kill)
        assert worker_of(first) != worker_of(second)
    events = twin.running.job(twin.job.name)["events"]
    assert [text for text in events if "replica" in text and "takes over" in text], events
    twin.judge()


@pytest.mark.drawn(group="replicas")
def test_a_primary_that_was_paused_is_fenced_when_it_returns(twin: Twin) -> None:
    with twin.job.fed():
        paused = worker_of(twin.copies.primary())
        try:
            take_over(twin.copies, twin.running.pause)
        finally:
            twin.running.resume(paused)
        twin.copies.await_protected()
    twin.judge()


@pytest.mark.drawn(group="replicas")
def test_the_primary_does_not_notice_the_death_of_its_replica(twin: Twin) -> None:
    replica, primary = twin.copies.await_protected(), twin.copies.primary()
    with twin.job.fed() as given_ms:
        lasts(CALM_S)
        with not_restarted(twin.running, worker_of(replica)):
            killed = now_ms()
            twin.running.kill(worker_of(replica))
            lasts(DEAD_S)
            healed = now_ms()
        placed = twin.copies.await_protected()
        assert placed.owner != replica.owner
        assert twin.copies.primary() == primary
    twin.judge()
    shown_ms = times_ms(twin.running, f"{twin.job.name}-out")
    begun = given_ms[0] + 1000  # the first row needs an epoch
    calm = silences_s(given_ms, shown_ms, begun, killed)
    dead = silences_s(given_ms, shown_ms, killed, healed)
    assert_not_waited(twin.running, calm, dead)


@pytest.mark.drawn(group="replicas")
def test_the_leader_dies_with_the_worker_of_the_primary(twin: Twin) -> None:
    def die(worker: str) -> None:
        leader = twin.running.leader()
        twin.running.kill(worker)
        twin.running.kill(leader)

    with twin.job.fed():
        take_over(twin.copies, die)
    twin.judge()


@pytest.mark.drawn(group="replicas")
@pytest.mark.parametrize("point", [point.name for point in REPLICA_POINTS])
def test_a_worker_that_dies_while_it_promotes_is_restored_as_usual(
    twin: Twin, crash_points: Path, point: str
) -> None:
    replica, primary = twin.copies.await_protected(), twin.copies.primary()
    with twin.job.fed():
        crashpoints.arm(crash_points, point)
        twin.running.kill(worker_of(primary))
        until(
            lambda: not crashpoints.armed(crash_points, point), REACH_S, f"a death at {point}"
        )  # fmt: skip
        twin.running.wait_caught_up(twin.job.name)
    restored = [s for s in twin.copies.restores_since(replica.generation) if s.restored_from]
    assert not restored[-1].restored_from.startswith("replica"), restored
    twin.judge()


UNEQUAL = """\
name: unequal
parallelism: 2
sources:
  rows: {topic: unequal-in, format: json, columns: {i: int64, k: string}}
operators:
  marked: {input: rows, key: k, use: "unequal:Marked"}
sinks:
  out: {input: marked, topic: unequal-out, format: json, key: k}
epoch: {target: "200ms"}
faultTolerance: {checkpoint: {period: "3s"}, replicas: {budget: all}}
"""
MARKED = """\
import os

from perseid.jobs import Operator, Table, pa

class Marked(Operator):
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        self.seen.add(batch["k"], n=1)
        mine = pa.array([os.getpid()] * batch.num_rows, pa.int64())
        out.emit(batch.select(["i", "k"]).append_column("process", mine))
"""


@pytest.mark.drawn(group="replicas")
def test_an_operator_that_is_not_deterministic_loses_its_replica_and_continues(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("unequal-in", 2)
    (tmp_path / "job.yaml").write_text(UNEQUAL)
    (tmp_path / "unequal.py").write_text(MARKED)
    running.wait_workers(2)
    running.apply(tmp_path)
    sent = 0

    def feed() -> None:
        nonlocal sent
        rows = [{"i": i, "k": f"k{i % KEYS}"} for i in range(sent, sent + ROWS)]
        sent += running.produce("unequal-in", [json.dumps(row).encode() for row in rows])

    def diverged() -> str | None:
        feed()
        events = running.job("unequal").get("events", [])
        return next((text for text in events if "diverged" in text.lower()), None)

    text = until(diverged, REACH_S, "an event of the replica that diverged")
    assert "marked" in text and "epoch" in text, text
    with copies_of(running, "unequal") as copies:
        until(lambda: not copies.plan().replicas, REACH_S, "the replica to be dropped")
        primary = copies.primary()
        feed()
        running.wait_caught_up("unequal")
        assert copies.primary() == primary
        assert not copies.plan().replicas
    found = Counter((row["i"], row["k"]) for row in running.rows("unequal-out"))
    assert found == Counter((i, f"k{i % KEYS}") for i in range(sent))
    running.do("jobs", "remove", "unequal", "--purge")


STATELESS = """\
name: stateless
sources:
  rows: {topic: stateless-in, format: json, columns: {i: int64, k: string}}
operators:
  twice: {input: rows, use: "stateless:Twice"}
sinks:
  out: {input: twice, topic: stateless-out, format: json, key: k}
epoch: {target: "200ms"}
faultTolerance: {checkpoint: {period: "3s"}, replicas: {budget: all}}
"""
TWICE = """\
import pyarrow.compute as pc

from perseid.jobs import Operator, pa

class Twice(Operator):
    def process(self, batch, out):
        out.emit(batch.select(["i", "k"]).append_column("twice", pc.add(batch["i"], batch["i"])))
"""
MIXED = """\
name: mixed
parallelism: 2
sources:
  rows:
    topic: mixed-in
    format: json
    columns: {i: int64, k: string, ms: int64}
    eventTime: {column: ms, watermark: "1s", late: dlq}
operators:
  named: {input: rows, sql: "SELECT i, concat(k, '!') AS name FROM input"}
  marked: {input: named, key: name, use: "mixed:Marked"}
sinks:
  out: {input: marked, topic: mixed-out, format: json, key: name}
errors: {tolerance: all}
epoch: {target: "200ms"}
faultTolerance: {checkpoint: {period: "3s"}, replicas: {budget: all}}
"""
WATERMARKED = """\
from perseid.jobs import Operator, Table, pa

class Marked(Operator):
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        self.seen.add(batch["name"], n=1)
        mark = pa.array([self.watermark] * batch.num_rows, pa.int64())
        out.emit(batch.select(["i", "name"]).append_column("mark", mark))
"""


@pytest.mark.drawn(group="replicas")
def test_stateless_jobs_and_those_with_sql_dead_letters_and_event_time_are_taken_over(
    running: RunningCluster, tmp_path: Path
) -> None:
    for name, job, code in (
        ("stateless", STATELESS, TWICE), ("mixed", MIXED, WATERMARKED)
    ):  # fmt: skip
        running.topic(f"{name}-in", 2)
        (tmp_path / name).mkdir()
        (tmp_path / name / "job.yaml").write_text(job)
        (tmp_path / name / f"{name}.py").write_text(code)
        running.wait_workers(2)
        running.apply(tmp_path / name)
    running.keep_tokens("mixed")
    chance, fed = random.Random(7), 0

    def feed() -> None:
        nonlocal fed
        keys = (b"k%d" % (i % KEYS) for i in range(fed, fed + ROWS))
        running.produce("stateless-in", keyed(fed), keys)
        running.produce("mixed-in", timed(chance, fed))
        fed += ROWS

    for name in ("stateless", "mixed"):
        with copies_of(running, name) as copies:
            feed()
            take_over(copies, running.kill)
            feed()
            running.wait_caught_up(name)
    for name in ("stateless", "mixed"):
        running.wait_caught_up(name)
    rows = running.rows("stateless-out")
    assert len(rows) == fed
    for k in range(KEYS):
        wanted_rows = [{"i": i, "k": f"k{k}", "twice": 2 * i} for i in range(k, fed, KEYS)]
        assert [row for row in rows if row["k"] == f"k{k}"] == wanted_rows
    wanted, letters = of_tokens(running, "mixed")
    assert Counter((r["i"], r["name"], r["mark"]) for r in running.rows("mixed-out")) == wanted
    assert Counter(r.value for r in read_topic(running.kafka, "perseid.mixed.dlq")) == letters
    assert len(letters) > fed // ROWS, "no row was late, or none was bad"
    for name in ("stateless", "mixed"):
        running.do("jobs", "remove", name, "--purge")


def keyed(first: int) -> list[bytes]:
    return [json.dumps({"i": i, "k": f"k{i % KEYS}"}).encode() for i in range(first, first + ROWS)]


def timed(chance: random.Random, first: int) -> list[bytes]:
    """Ten seconds of event time; a fifth is up to a minute late, and one row is no JSON."""
    rows = []
    for i in range(first, first + ROWS):
        ms = 1_000_000 + 50 * i - chance.choice([0, 0, 0, 0, 60_000])
        rows.append(json.dumps({"i": i, "k": f"k{i % KEYS}", "ms": ms}).encode())
    return [*rows, b"no JSON %d" % first]


def of_tokens(running: RunningCluster, job: str) -> tuple[Counter[Any], Counter[bytes]]:
    """What the tokens make of the input: rows with their watermark, and dead letters."""
    records = {(r.partition, r.offset): r.value or b"" for r in
               read_topic(running.kafka, f"{job}-in")}  # fmt: skip
    rows, letters = Counter[Any](), Counter[bytes]()
    for token in running.tokens(job):
        mark = token.watermark_ms
        for read in (r for split in token.splits for r in split):
            for value in (records[read.partition, at] for at in range(read.start, read.end)):
                row = json.loads(value) if value.startswith(b"{") else None
                if row is None or (mark is not None and row["ms"] < mark):
                    letters[value] += 1
                else:
                    rows[row["i"], f"{row['k']}!", mark] += 1
    return rows, letters
