"""A job that ranks its rows twice, by two keys, and the judge of what it made.

Each row comes out once, with its rank among the rows of its `a` and then of its `b`. A row that is
lost, doubled or overtaken by one of the same key changes a rank; so does state that is not kept.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import tee
from pathlib import Path
from typing import Any, Literal

from perseid.testing.running import RunningCluster

Row = dict[str, Any]
Replicas = Literal[0, "all"]
TICK_S, TICK_ROWS = 0.05, 10  # of `RankedJob.fed`

JOB = """\
name: {name}
parallelism: {parallelism}
placement: {{spread: {spread}, bufferBytes: "{buffer_bytes}"}}
sources:
  rows: {{topic: {name}-in, format: json, columns: {{i: int64, a: string, b: string}}}}
operators:
  first: {{input: rows, key: a, use: "ranks:First"}}
  second: {{input: first, key: b, use: "ranks:Second"}}
sinks:
  ranked: {{input: second, topic: {name}-out, format: json, key: b, partitions: 4}}
epoch: {{target: "200ms", maxRecords: 300}}
faultTolerance: {{checkpoint: {{period: "{period}"}}, replicas: {{budget: {replicas}}}}}
"""
CODE = """\
from collections import Counter

from perseid.jobs import Operator, Table, pa

VERSION = 1


def ranks(seen, keys):
    names = keys.to_pylist()
    after = seen.add(keys, n=1)
    total = dict(zip(after["key"].to_pylist(), after["n"].to_pylist()))
    left, found = Counter(names), []
    for name in names:
        left[name] -= 1
        found.append(total[name] - left[name])
    return pa.array(found, pa.int64())


class First(Operator):
    output = pa.schema([("i", pa.int64()), ("a", pa.string()), ("b", pa.string()),
                        ("of_a", pa.int64())])
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        if batch.num_rows:
            rows = batch.select(["i", "a", "b"])
            out.emit(rows.append_column("of_a", ranks(self.seen, batch["a"])))


class Second(Operator):
    output = pa.schema([*First.output, ("of_b", pa.int64()), ("version", pa.int64())])
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        if batch.num_rows:
            rows = batch.append_column("of_b", ranks(self.seen, batch["b"]))
            version = pa.array([VERSION] * rows.num_rows, pa.int64())
            out.emit(rows.append_column("version", version))
"""


class RankedJob:
    """One such job on a cluster; `rows` has all that was sent, in order."""

    def __init__(self, running: RunningCluster, folder: Path, name: str) -> None:
        self.name, self.rows = name, list[Row]()
        self._running, self._folder = running, folder
        self._chance = random.Random(name)
        running.topic(f"{name}-in", 4)

    def apply(
        self, spread: int, parallelism: int = 3, version: int = 1, replicas: Replicas = 0,
        buffer_bytes: str = "10GiB", period: str = "3s",
    ) -> None:  # fmt: skip
        text = JOB.format(
            name=self.name, spread=spread, parallelism=parallelism, replicas=replicas,
            buffer_bytes=buffer_bytes, period=period,
        )  # fmt: skip
        (self._folder / "job.yaml").write_text(text)
        code = CODE.replace("VERSION = 1", f"VERSION = {version}")
        (self._folder / "ranks.py").write_text(code)
        self._running.apply(self._folder)

    def feed(self, count: int) -> None:
        """Sends rows; those of one `a` are in one partition, so their order is known."""
        self._send(self._made() for _ in range(count))

    @contextmanager
    def fed(self) -> Iterator[list[int]]:
        """Rows come meanwhile, TICK_ROWS each TICK_S; yields the times of the ticks, in ms."""
        times_ms: list[int] = []
        ended = threading.Event()

        def ticking() -> Iterator[Row]:
            while not ended.wait(TICK_S):
                times_ms.append(time.time_ns() // 1_000_000)
                for _ in range(TICK_ROWS):
                    yield self._made()

        thread = threading.Thread(target=self._send, args=(ticking(),))
        thread.start()
        try:
            yield times_ms
        finally:
            ended.set()
            thread.join()

    def _made(self) -> Row:
        a, b = f"a{self._chance.randrange(40)}", f"b{self._chance.randrange(15)}"
        self.rows.append({"i": len(self.rows), "a": a, "b": b})
        return self.rows[-1]

    def _send(self, rows: Iterator[Row]) -> None:
        values, keys = tee(rows)
        self._running.produce(
            f"{self.name}-in", (json.dumps(row).encode() for row in values),
            (row["a"].encode() for row in keys),
        )  # fmt: skip

    def judge(self) -> list[Row]:
        """Waits for all that was sent; AssertionError unless it came out exactly. The output."""
        self._running.wait_caught_up(self.name)
        found = self._running.rows(f"{self.name}-out")
        assert_ranked(self.rows, found)
        return found


def assert_ranked(sent: Iterable[Row], found: Iterable[Row]) -> None:
    """`found`: partition by partition, in order."""
    counts: Counter[str] = Counter()
    wanted = {}
    for row in sent:
        counts[row["a"]] += 1
        wanted[row["i"]] = row | {"of_a": counts[row["a"]]}
    seen: dict[int, Row] = {}
    ranks, last = defaultdict[str, list[int]](list), Counter[tuple[str, str]]()
    for row in found:
        ranked = {name: row[name] for name in ("i", "a", "b", "of_a")}
        assert row["i"] not in seen, f"{row} came twice, first as {seen[row['i']]}"
        assert ranked == wanted.get(row["i"]), f"{row}, expected {wanted.get(row['i'])}"
        seen[row["i"]] = row
        ranks[row["b"]].append(row["of_b"])
        pair = row["a"], row["b"]
        assert row["of_a"] > last[pair], f"{row} came after one of rank {last[pair]}"
        last[pair] = row["of_a"]
    lost = wanted.keys() - seen.keys()
    assert not lost, f"{len(lost)} rows are lost, the first is {wanted[min(lost)]}"
    assert ranks == {b: list(range(1, len(of_b) + 1)) for b, of_b in ranks.items()}
