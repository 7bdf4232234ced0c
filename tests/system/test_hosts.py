"""No result depends on the host: not on its time zone, locale, encodings, order of sets or clock.

The cluster is this file's own; its coordinators and workers run as on hosts of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from perseid.embedded import Cluster
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.worker.process import surroundings
from support.engines import Engine, WallClock

WAIT_S = 300.0
LOOK_S = 0.2  # at a whole topic
HOUR_S = 3_600
MONTH_S = 30 * 24 * HOUR_S
BERLIN = {
    "TZ": "Europe/Berlin", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONHASHSEED": "7",
    "OMP_NUM_THREADS": "4", "SITE": "here",
}  # fmt: skip
TOKYO = {"TZ": "Asia/Tokyo", "LANG": "C", "PYTHONHASHSEED": "random", "SITE": "here"}

# What each row shows of the host. The same text runs here, once, to know what is right.
LOOK = """
import json, locale, os, time

def look(s, word):
    locale.setlocale(locale.LC_ALL, "")
    words = [word, "Zebra", "apfel", "\\u00c4pfel"]
    return json.dumps([
        time.strftime("%d %H:%M", time.localtime(s)), hash(word), list(set(words)),
        sorted(words, key=locale.strxfrm), locale.getpreferredencoding(False),
        os.environ["SITE"],
    ])
"""
LOOKED_CODE = f"""{LOOK}
from perseid.jobs import Operator, Table, pa

class Looked(Operator):
    n = Table(key=pa.string(), rows=pa.int64())

    def process(self, batch, out):
        self.n.add(batch["word"], rows=1)
        rows = zip(batch["s"].to_pylist(), batch["word"].to_pylist())
        out.emit(pa.table({{
            "i": batch["i"], "word": batch["word"], "day": batch["day"], "hour": batch["hour"],
            "look": pa.array([look(*row) for row in rows], pa.string()),
        }}))
"""
LOOKED = """
name: hosts
sources:
  in: {topic: hosts-in, format: json, columns: {i: int64, s: int64, word: string}}
operators:
  dated:
    input: in
    sql: >-
      SELECT i, s, word, date_format(timestamp_seconds(s), 'yyyy-MM-dd HH:mm') AS day,
      hour(timestamp_seconds(s)) AS hour FROM input
  looked: {input: dated, key: word, use: "looked:Looked"}
sinks:
  out: {input: looked, topic: hosts-out, format: json, key: word}
epoch: {maxRecords: 40}
faultTolerance: {checkpoint: {period: "3s"}}
"""
CLOCKED_CODE = """
from datetime import timedelta
from perseid.jobs import Operator, Table, Timers, pa

class Clocked(Operator):
    seen = Table(key=pa.string(), rows=pa.int64(), ttl=timedelta(minutes=30))
    ends = Timers(key=pa.string(), time="token")

    def process(self, batch, out):
        self.seen.advance(self.now)
        found = self.seen.add(batch["key"], rows=1)
        self.ends.set(found["key"], pa.array([self.now + 2000] * found.num_rows, pa.int64()))
        out.emit(pa.table({"key": found["key"], "rows": found["rows"]}))

    def on_timer(self, due, out):
        rows = pa.array([0] * due.num_rows, pa.int64())
        out.emit(pa.table({"key": due["key"], "rows": rows}))
"""
CLOCKED = """
name: clocked
sources:
  in: {topic: clocked-in, format: json, columns: {key: string}}
operators:
  clocked: {input: in, key: key, use: "clocked:Clocked"}
sinks:
  out: {input: clocked, topic: clocked-out, format: json, key: key}
faultTolerance: {checkpoint: {period: "5s"}}
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = Cluster(tmp_path_factory.mktemp("hosts") / "data", tied=True)
    cluster.up(workers=0, coordinators=0)
    yield RunningCluster(cluster)
    cluster.down(purge=True)


def apply(own: RunningCluster, folder: Path, job: str, module: str, code: str) -> None:
    folder.mkdir()
    (folder / "job.yaml").write_text(job)
    (folder / f"{module}.py").write_text(code)
    own.wait_workers(1)
    own.apply(folder)


def row(i: int) -> dict[str, Any]:
    """Around the end of summer time in Berlin, with words that sort by locale."""
    return {"i": i, "s": 1_792_890_000 + 300 * i, "word": ("zoo", "Zoo", "\u00e4hre", "b")[i % 4]}


def right(rows: list[dict[str, Any]]) -> dict[int, str]:
    """`look` of each row where nothing is of a host."""
    program = f"import sys\n{LOOK}\nprint(json.dumps([look(*one) for one in json.load(sys.stdin)]))"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **surroundings.VARIABLES, "SITE": "here"},
        input=json.dumps([[r["s"], r["word"]] for r in rows]).encode(),
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    return {r["i"]: text for r, text in zip(rows, json.loads(ran.stdout), strict=True)}


@pytest.mark.drawn(group="field")
def test_two_hosts_that_differ_give_the_same_bytes_over_a_takeover(
    own: RunningCluster, tmp_path: Path
) -> None:
    rows = [row(i) for i in range(400)]
    own.topic("hosts-in", 2)
    with ExitStack() as hosts:
        hosts.enter_context(Engine(own.cluster, "coordinator", "c1", {}))
        berlin = hosts.enter_context(Engine(own.cluster, "worker", "w1", BERLIN))
        apply(own, tmp_path / "hosts", LOOKED, "looked", LOOKED_CODE)
        own.produce("hosts-in", [json.dumps(r).encode() for r in rows[:200]])
        until(lambda: len(own.rows("hosts-out")) >= 40, WAIT_S, "the first host to write", LOOK_S)
        assert own.worker_of("hosts") == "w1"
        own.produce("hosts-in", [json.dumps(r).encode() for r in rows[200:]])
        berlin.kill()
        hosts.enter_context(Engine(own.cluster, "worker", "w2", TOKYO))
        until(
            lambda: len(own.rows("hosts-out")) >= len(rows), WAIT_S, "the second to end it", LOOK_S
        )  # fmt: skip
        assert own.worker_of("hosts") == "w2"
        found = sorted(own.rows("hosts-out"), key=lambda r: r["i"])
        own.do("jobs", "remove", "hosts")
    looks = right(rows)
    expected = [
        {
            "i": r["i"], "word": r["word"],
            "day": time.strftime("%Y-%m-%d %H:%M", time.gmtime(r["s"])),
            "hour": time.gmtime(r["s"]).tm_hour, "look": looks[r["i"]],
        }
        for r in rows
    ]  # fmt: skip
    assert found == expected


@pytest.mark.drawn(group="field")
def test_a_wall_clock_that_jumps_expires_nothing_and_freezes_no_timer(
    own: RunningCluster, tmp_path: Path
) -> None:
    """The leader's by an hour, ahead and back; the next leader's is a month ahead all along."""
    own.topic("clocked-in", 2)
    clock, wrong = WallClock(tmp_path / "clock"), WallClock(tmp_path / "wrong")
    wrong.set(MONTH_S)
    steps: list[int] = []

    def step() -> None:
        """A row for the old key, which must be remembered, and one for a new key with a timer."""
        steps.append(len(steps))
        number = len(steps)
        keys = ["old", f"new-{number}"]
        own.produce("clocked-in", [json.dumps({"key": key}).encode() for key in keys])
        wanted = [{"key": "old", "rows": number}, {"key": keys[1], "rows": 0}]

        def written() -> bool:
            found = own.rows("clocked-out")
            return all(one in found for one in wanted)

        until(written, WAIT_S, f"{wanted} to be written", LOOK_S)

    with ExitStack() as hosts:
        first = Engine(own.cluster, "coordinator", "c1", clock.environment)
        hosts.enter_context(first)
        hosts.enter_context(Engine(own.cluster, "worker", "w1", {}))
        began_s = time.monotonic()
        apply(own, tmp_path / "clocked", CLOCKED, "clocked", CLOCKED_CODE)
        own.keep_tokens("clocked")
        step()
        for ahead_s in (HOUR_S, -HOUR_S):
            clock.set(ahead_s)
            step()
        own.wait_job(
            "clocked", lambda j: any("ahead of token time" in line for line in j["events"]),
            "reported to be ahead of token time",
        )  # fmt: skip
        first.kill()
        hosts.enter_context(Engine(own.cluster, "coordinator", "c2", wrong.environment))
        step()
        passed_ms = (time.monotonic() - began_s) * 1000
        times = [token.time_ms for token in own.tokens("clocked")]
        assert times == sorted(times)
        assert times[-1] - times[0] <= 1.01 * passed_ms + 1_000
        own.do("jobs", "remove", "clocked")
