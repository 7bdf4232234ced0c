"""A job whose past has what an audit can find: late rows, panes, floats, another writer's records.

A revision of it differs in one place: `planted` in its code, through which every row of `sums`
passes, or `due`, which decides when panes are over.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from perseid.testing.running import RunningCluster
from perseid.topics.records import SourceRange, Token

JOB = """\
name: {name}
parallelism: 2
sources:
  rows:
    topic: {name}-in
    format: json
    columns: {{i: int64, k: string, x: float64, ms: int64}}
    eventTime: {{column: ms, watermark: "1s", late: drop}}
operators:
  sums: {{input: rows, key: k, use: "planted:Sums", errors: {{operator: bisect}}}}
  panes: {{input: rows, key: k, use: "planted:Panes"}}
sinks:
  sums: {{input: sums, topic: {name}-sums, format: json, key: k, partitions: 2}}
  panes: {{input: panes, topic: {name}-panes, format: json, key: k, partitions: 2}}
faultTolerance: {{checkpoint: {{period: "1d"}}}}
"""
CODE = """\
import math

import pyarrow.compute as pc
from perseid.jobs import Operator, Table, pa

VERSION = 1
ROWS = pa.schema([("i", pa.int64()), ("k", pa.string()), ("n", pa.int64()),
                  ("total", pa.float64()), ("version", pa.int64())])


def planted(rows):
    return rows


def due(watermark):
    return watermark


class Sums(Operator):
    output = ROWS
    metadata = ()
    seen = Table(key=pa.string(), n=pa.int64(), total=pa.float64())

    def process(self, batch, out):
        kept = {
            row["key"]: (row["n"] or 0, row["total"] or 0.0)
            for row in self.seen.lookup(batch["k"]).to_pylist()
        }
        rows = []
        for row in batch.to_pylist():
            n, total = kept[row["k"]]
            kept[row["k"]] = n + 1, total + row["x"]
            rows.append({"i": row["i"], "k": row["k"], "n": n + 1, "total": total + row["x"],
                         "version": VERSION})
        ns, totals = zip(*kept.values())
        self.seen.upsert(pa.array(list(kept)), n=pa.array(ns), total=pa.array(totals))
        out.emit(pa.Table.from_pylist(planted(rows), schema=ROWS))


class Panes(Operator):
    output = pa.schema([("k", pa.string()), ("start", pa.int64()), ("rows", pa.int64())])
    metadata = ()
    needs_watermark = True
    held = Table(key={"k": pa.string(), "start": pa.int64()}, rows=pa.int64())

    def process(self, batch, out):
        starts = pc.multiply(pc.divide(batch["ms"], 1000), 1000)
        self.held.add(pa.table({"k": batch["k"], "start": starts}), rows=1)

    def on_epoch_end(self, out):
        mark = due(self.watermark)
        if mark is None:
            return
        held = self.held.scan()
        over = held.filter(pc.less_equal(held["start"], mark - 1000))
        if over.num_rows:
            out.emit(over)
            self.held.delete(over.select(["k", "start"]))
"""
CHUNK, CHUNKS, KEYS = 200, 6, 5
LATE = 199  # of each chunk, this row comes a minute late
STEP_MS, LATE_MS, START_MS = 20, 60_000, 1_800_000_000_000
FOREIGN_S = 0.002

Edits = Sequence[tuple[str, str]]


class PlantedJob:
    """The job on a cluster, whose tokens are kept. `last`: its last committed epoch."""

    def __init__(self, running: RunningCluster, folder: Path, name: str) -> None:
        self.name, self.last, self._running, self._folder = name, 0, running, folder
        self._tokens: list[Token] = []
        self._chance, self._chunks = random.Random(name), 0
        folder.mkdir()
        (folder / "job.yaml").write_text(JOB.format(name=name))
        (folder / "planted.py").write_text(CODE)
        running.topic(f"{name}-in", 1)
        running.apply(folder)
        running.keep_tokens(name)

    @property
    def mixed(self) -> tuple[str, ...]:
        """The sink topics that others write too."""
        return (f"{self.name}-sums",)

    def record(self) -> PlantedJob:
        """Feeds it, chunk by chunk; during the last one another writer writes to its sink."""
        for _ in range(CHUNKS - 1):
            self.feed()
        with foreign(self._running, f"{self.name}-sums"):
            self.feed()
        return self

    def feed(self) -> None:
        """Feeds one chunk to its end."""
        first = self._chunks * CHUNK
        rows = (
            {"i": i, "k": f"k{i % KEYS}", "x": self._chance.random(),
             "ms": START_MS + i * STEP_MS - (LATE_MS if i % CHUNK == LATE else 0)}
            for i in range(first, first + CHUNK)
        )  # fmt: skip
        self._chunks += 1
        self._running.produce(f"{self.name}-in", [json.dumps(row).encode() for row in rows])
        self.last = self._running.wait_caught_up(self.name)["committed_epoch"]
        self._tokens = self._running.tokens(self.name)

    @property
    def places(self) -> dict[str, int]:
        """Rows, and a watermark (`mark`), at which something can be planted."""
        return {
            "first": 0, "at": self.at, "next": self.at + KEYS, "end": self.end, "late": self.late,
            "foreign": CHUNK * (CHUNKS - 1) + KEYS, "mark": self.mark,
        }  # fmt: skip

    @property
    def at(self) -> int:
        """The first row of the middle that has the next one of its key in its epoch."""
        return next(
            i
            for i in range(CHUNK * 2, CHUNK * CHUNKS)
            if self.epoch_of(i) == self.epoch_of(i + KEYS)
        )

    @property
    def end(self) -> int:
        """The last row of that epoch which is on time."""
        part = self._part_of(self.at)
        return part.end - 1 - ((part.end - 1) % CHUNK == LATE)

    @property
    def late(self) -> int:
        """The first row that came late."""
        return next(
            i for i in range(LATE, CHUNK * CHUNKS, CHUNK)
            if (mark := self._token_of(i).watermark_ms) is not None
            and START_MS + i * STEP_MS - LATE_MS < mark
        )  # fmt: skip

    @property
    def mark(self) -> int:
        """The watermark of that epoch."""
        found = self._token_of(self.at).watermark_ms
        assert found is not None
        return found

    def epoch_of(self, i: int) -> int:
        """The epoch that read row `i`."""
        return self._token_of(i).epoch

    @property
    def epoch_of_mark(self) -> int:
        """The first epoch with the watermark `mark`."""
        return next(t.epoch for t in self._tokens if t.watermark_ms == self.mark)

    def revision(self, folder: Path, edits: Edits) -> Path:
        """A copy of its files with texts replaced, each of which must be there."""
        shutil.copytree(self._folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for old, new in edits:
            (path,) = [p for p in folder.iterdir() if old in p.read_text()]
            path.write_text(path.read_text().replace(old, new))
        return folder

    def _token_of(self, i: int) -> Token:
        return next(token for token, part in self._parts() if part.start <= i < part.end)

    def _part_of(self, i: int) -> SourceRange:
        return next(part for _, part in self._parts() if part.start <= i < part.end)

    def _parts(self) -> Iterator[tuple[Token, SourceRange]]:
        """Of the topic's only partition, which has row `i` at offset `i`."""
        return ((token, part) for token in self._tokens for split in token.splits for part in split)


@contextmanager
def foreign(running: RunningCluster, topic: str) -> Iterator[None]:
    """Another writer writes rows of the job's form to a sink meanwhile."""
    producer, ended = Producer({"bootstrap.servers": running.kafka}), threading.Event()

    def write() -> None:
        while not ended.wait(FOREIGN_S):
            producer.produce(topic, b'{"i":-1,"k":"k0","n":0,"total":0.0,"version":1}', b"k0")
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        assert producer.flush(60) == 0
