"""The simulated job: running totals per word over two sources, exactly once.

Every output has the word's running total and how many outputs the word has had before: so a checker
that knows only the input sees a lost, doubled, reordered or wrong output of any epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa

from perseid.jobs.operator import Emitter, Operator
from perseid.jobs.spec import (
    CheckpointSpec,
    EpochSpec,
    FaultToleranceSpec,
    JobSpec,
    OperatorSpec,
    SinkSpec,
    SourceSpec,
)
from perseid.state import Table

JOB = "sums"
WORDS = tuple("abcdefghij")
SINK_PARTITIONS = 2


class Totals(Operator):
    """Adds up the amounts of each word; one output a word and epoch."""

    totals = Table(key=pa.string(), total=pa.int64(), n=pa.int64())

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        tables = [t.select(["key", "amount"]) for t in batch.values() if t.num_rows]
        rows = pa.concat_tables(tables)
        changed = self.totals.add(rows["key"], total=rows["amount"])
        out.emit(self.totals.add(changed["key"], n=1).select(["key", "n", "total"]))


class Relay(Operator):
    """Counts the totals of each word that come by, and passes them on."""

    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        counted = self.seen.add(batch["key"], n=1)
        numbers = dict(zip(counted["key"].to_pylist(), counted["n"].to_pylist(), strict=True))
        n = [numbers[key] for key in batch["key"].to_pylist()]
        out.emit(pa.table({"key": batch["key"], "n": pa.array(n, pa.int64()),
                           "total": batch["total"]}))  # fmt: skip


CLASSES: dict[str, type[Operator]] = {"totals": Totals, "relay": Relay}


def spec(parallelism: int, levels: int, sink_on_totals: bool, period_s: float) -> JobSpec:
    """The job with one or two levels of state; the last one always feeds a sink."""
    operators = {
        "totals": OperatorSpec(
            inputs={"left": "left", "right": "right"}, use="job:Totals", key=("key",),
            parallelism=parallelism,
        )
    }  # fmt: skip
    feeding = ["totals"] if sink_on_totals or levels == 1 else []
    if levels == 2:
        operators["relay"] = OperatorSpec(
            inputs={"input": "totals"}, use="job:Relay", key=("key",), parallelism=2
        )
        feeding.append("relay")
    return JobSpec(
        name=JOB,
        parallelism=2,
        sources={n: SourceSpec(topic=n, format="text") for n in ("left", "right")},
        operators=operators,
        sinks={n: SinkSpec(input=n, topic=f"{n}-out", format="json", key="key") for n in feeding},
        fault_tolerance=FaultToleranceSpec(checkpoint=CheckpointSpec(period_s=period_s)),
        epoch=EpochSpec(max_records=40),
    )


def record(word: str, amount: int) -> bytes:
    return f"{word} {amount}".encode()


def columns(values: Iterable[bytes]) -> pa.Table:
    """What the source stage and the stateless operators make of records."""
    pairs = [value.decode().split(" ") for value in values]
    keys = pa.array([key for key, _ in pairs], pa.string())
    return pa.table({"key": keys, "amount": pa.array([int(a) for _, a in pairs], pa.int64())})


def output(value: bytes) -> tuple[str, int, int]:
    """(word, n, total) of a sink record."""
    row = json.loads(value)
    return row["key"], row["n"], row["total"]
