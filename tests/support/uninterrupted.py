"""A job's output without any failure: its operators run over the epochs that its tokens name.

Epochs, times and watermarks are the job's own, so results that depend on epoch ends agree too, and
so do those of feedback edges. Operators run in `Harness`, without Kafka and Spark. For sources of a
topic with one partition, so that an epoch's rows have one order. SQL operators are given as
functions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from perseid.jobs.model.spec import MAIN, producer
from perseid.jobs.validation import parse
from perseid.testing.operators import EPOCH_MS, Harness
from perseid.topics.records import Token

Rows = list[dict[str, Any]]
Sql = Callable[[Rows], Rows]


class Uninterrupted:
    """One run. `made` has the rows of each source, operator and `operator.output`, in order."""

    def __init__(self, folder: Path, sql: Mapping[str, Sql]) -> None:
        self.job = parse.load(folder)
        self.made: defaultdict[str, Rows] = defaultdict(list)
        self.harnesses = {
            name: Harness(folder, name, parallelism=operator.parallelism if operator.key else 1)
            for name, operator in self.job.operators.items() if operator.use is not None
        }  # fmt: skip
        self._sql = sql
        self._before: dict[str, Rows] = {}  # the streams' rows of the previous epoch

    def run(self, token: Token, values: Mapping[str, list[bytes]]) -> None:
        """Runs one epoch; `values`: topic -> all records of its partition."""
        now: dict[str, Rows] = {}
        for name, source in self.job.sources.items():
            found = [r for split in token.splits for r in split if r.source == name]
            now[name] = [
                json.loads(value) for r in found for value in values[source.topic][r.start : r.end]
            ]
        for name in self.job.operators:
            self._operator(token, name, now)
        for name, rows in now.items():
            self.made[name] += rows
        self._before = now

    def _operator(self, token: Token, name: str, now: dict[str, Rows]) -> None:
        """Adds the operator's streams to `now`, after those that it reads of this epoch."""
        if name in now:
            return
        spec = self.job.operators[name]
        for stream in spec.forward.values():
            if stream not in now:
                self._operator(token, producer(stream), now)
        inputs = {
            port: self._before.get(stream, []) if port in spec.feedback else now[stream]
            for port, stream in spec.inputs.items()
        }
        if name in self._sql:
            now[name] = self._sql[name](inputs["input"])
            return
        harness = self.harnesses[name]
        now[name] = self._epoch(token, harness, inputs)
        others = {f"{name}.{o}": rows for o, rows in harness.outputs.items() if o != MAIN}
        now.update(others)

    def _epoch(self, token: Token, harness: Harness, inputs: dict[str, Rows]) -> Rows:
        assert harness.number == token.epoch - 1, f"no token between {harness.number} and {token}"
        harness.now, harness.watermark = token.time_ms - EPOCH_MS, token.watermark_ms
        tables = {port: pa.Table.from_pylist(rows) for port, rows in inputs.items()}
        return harness.epoch(tables["input"] if set(tables) == {"input"} else tables)
