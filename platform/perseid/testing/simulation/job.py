"""The simulated job: running totals per word over two sources, exactly once.

Every output has the word's running total and the number of the word's previous outputs. So a
checker that knows only the input detects a lost, doubled, reordered or wrong output of any epoch.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from perseid.jobs.model.spec import (
    MAIN,
    AuditSpec,
    CheckpointSpec,
    EpochSpec,
    EventTimeSpec,
    FaultToleranceSpec,
    JobSpec,
    OperatorSpec,
    PlacementSpec,
    SinkSpec,
    SourceSpec,
    output_of,
    producer,
)
from perseid.jobs.operator import Emitter, Operator, outputs_of
from perseid.state import Table, Value
from perseid.testing.simulation import operators, primitives
from perseid.testing.simulation.operators import CASES, Case
from perseid.testing.simulation.sums import Sums
from perseid.worker.dataflow import partition

JOB = "sums"
SOURCES = ("left", "right")
WORDS = primitives.WORDS
OTHERS = "others"  # the operator of the second component
STRANGER = "z"  # the word of records that are not part of the input
DELAY_MS = 300
EMITTED = pa.schema([("key", pa.string()), ("n", pa.int64()), ("total", pa.int64())])
ON, BACK = -1, -2  # marks of rows on side outputs
WINDOW_MS = 7000
TIMED = EventTimeSpec(column="timestamp", delay_ms=DELAY_MS, late="update")


class Totals(Operator):
    """Adds up the amounts of each word; emits one output per word and epoch."""

    totals: Any = Sums("total", "n")

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        tables = [t.select(["key", "amount"]) for t in batch.values() if t.num_rows]
        rows = pa.concat_tables(tables)
        keys = rows["key"].to_pylist()
        first = [int(key not in keys[:row]) for row, key in enumerate(keys)]
        changed = self.totals.add(rows["key"], total=rows["amount"], n=pa.array(first, pa.int64()))
        out.emit(changed.select(["key", "n", "total"]))


class TotalsInTable(Totals):
    """The same with the primitive that jobs use."""

    totals = Table(key=pa.string(), total=pa.int64(), n=pa.int64())


class UnorderedTotals(Totals):
    """Emits an epoch's rows in an order of chance: a replica makes other outputs."""

    chance: ClassVar[random.Random | None] = None  # a history sets its own; None: no chance

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        mine = Emitter("totals")
        super().process(batch, mine)
        table = mine.tables()[MAIN]
        rows = list(range(table.num_rows))
        if self.chance is not None:
            self.chance.shuffle(rows)
        out.emit(table.take(rows))


class RevisedTotals(Totals):
    """Another revision, which adds one to each total that it puts out."""

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        mine = Emitter("totals")
        super().process(batch, mine)
        rows = mine.tables()[MAIN].to_pylist()
        for row in rows:
            row["total"] += 1
        out.emit(pa.Table.from_pylist(rows, schema=EMITTED))


class WindowedTotals(Totals):
    """Also keeps the words of a window of token time and drops them with it: a saw-tooth size."""

    window = Value(pa.string(), default="")

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        super().process(batch, out)
        words = "".join(word for t in batch.values() for word in t["key"].to_pylist())
        number, _, kept = self.window.get().partition(" ")
        now = str(self.now // WINDOW_MS)
        self.window.set(f"{now} {kept if now == number else ''}{words * 100}")


class EchoedTotals(Totals):
    """Receives the outputs that the relay fed back, one epoch later: exactly those."""

    sent = Value(pa.string(), default="[]")
    heard = emitted = "[]"

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        self.heard = listed([batch["echo"]])
        rest = {name: table for name, table in batch.items() if name != "echo"}
        if any(table.num_rows for table in rest.values()):
            mine = Emitter("totals")
            super().process(rest, mine)
            table = mine.tables()[MAIN]
            self.emitted = listed([table])
            out.emit(table)

    def rescale(self, old: Sequence[Any]) -> None:
        """Redistributes what the old partitions sent; keeps the words of this partition."""
        rows = [row for o in old for row in orjson.loads(o.sent.get())]
        mine = [row for row in rows if _partition(row[0], self.parallelism) == self.partition]
        self.sent.set(orjson.dumps(sorted(mine)).decode())

    def on_epoch_end(self, out: Emitter) -> None:
        if self.heard != self.sent.get():
            raise ValueError(f"heard {self.heard} of what was sent, {self.sent.get()}")
        self.sent.set(self.emitted)
        self.heard = self.emitted = "[]"


def listed(tables: Sequence[pa.Table]) -> str:
    """Returns the words and totals of `tables` as text, ordered by word."""
    found = [(r["key"], r["total"]) for t in tables for r in t.to_pylist()]
    return orjson.dumps(sorted(found)).decode()


class SidedTotals(EchoedTotals):
    """Sends rows with n = ON to the relay on a side output; the relay answers with n = BACK."""

    outputs: ClassVar = {"on": EMITTED}

    def process(self, batch: dict[str, pa.Table], out: Emitter) -> None:
        expect_marked(batch["echo"], BACK)
        mine = Emitter("totals")
        super().process(batch, mine)
        table = mine.tables()[MAIN]
        if table.num_rows:
            out.emit(table)
            out.emit(marked(table, ON), to="on")


class Relay(Operator):
    """Counts the totals of each word and forwards them."""

    seen = Sums("n")

    def process(self, batch: pa.Table, out: Emitter) -> None:
        counted = self.seen.add(batch["key"], n=1)
        numbers = dict(zip(counted["key"].to_pylist(), counted["n"].to_pylist(), strict=True))
        n = [numbers[key] for key in batch["key"].to_pylist()]
        out.emit(pa.table({"key": batch["key"], "n": pa.array(n, pa.int64()),
                           "total": batch["total"]}))  # fmt: skip


class SidedRelay(Relay):
    """The counterpart of SidedTotals."""

    outputs: ClassVar = {"back": EMITTED}

    def process(self, batch: pa.Table, out: Emitter) -> None:
        expect_marked(batch, ON)
        super().process(batch, out)
        out.emit(marked(batch, BACK), to="back")


def marked(rows: pa.Table, mark: int) -> pa.Table:
    return rows.set_column(1, "n", pa.array([mark] * rows.num_rows, pa.int64()))


def expect_marked(rows: pa.Table, mark: int) -> None:
    """Raises ValueError for rows of another output."""
    found = rows["n"].to_pylist() if rows.num_rows else []
    if set(found) - {mark}:
        raise ValueError(f"rows with n = {found}, expected {mark}")


CLASSES: dict[str, type[Operator]] = {
    "job:Totals": Totals, "job:TotalsInTable": TotalsInTable, "job:EchoedTotals": EchoedTotals,
    "job:Relay": Relay, "job:SidedTotals": SidedTotals, "job:SidedRelay": SidedRelay,
    "job:WindowedTotals": WindowedTotals, "job:UnorderedTotals": UnorderedTotals,
    "job:RevisedTotals": RevisedTotals,
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """The size of a seed's job and cluster. The defaults are those of a normal seed."""

    workers: int = 3
    hosts: int = 2
    totals: int = 5  # operator partitions
    relays: int = 3  # of a second level; 0: there is none
    sink_on_totals: bool = False  # besides the sink of the second level
    in_table: bool = False
    period_s: float = 2.0  # of checkpoints
    input_s: float = 20.0  # duration of input and faults
    every_s: float = 2.0  # between two portions of input, about
    timed: bool = False  # its sources have event time, the time of the records
    echoed: bool = False  # the relay's output is an input of the totals in the next epoch
    sided: bool = False  # feedback where both directions use side outputs
    size_timed: bool = False  # checkpoints at moments of small state; totals with windows
    retains: bool = False  # outputs have files of their own in the state logs
    spread: int = 1  # of its placement: fragments, if there are as many partitions
    buffer_bytes: int = PlacementSpec().buffer_bytes
    parted: bool = False  # two components that exchange no rows, one for each source
    written: bool = False  # a sink also has the records of a source as they come
    replicas: bool = False  # a fragment has a replica on another worker
    unordered: bool = False  # the order of the outputs is not deterministic
    revised: bool = False  # all totals are put out wrong
    drawn: str = ""  # a case of `operators`, next to the totals
    epoch_records: int = 0  # the limit of an epoch; 0: few
    epoch_bytes: int = 0  # the same; 0: none
    horizon_s: float = 0.0  # of its audits; 0: none

    @classmethod
    def draw(cls, chance: random.Random) -> Shape:
        """Draws sizes from the smallest to twice the normal: small jobs reach more states."""
        return cls(
            workers=chance.choice([1, 2, 3]),
            hosts=chance.choice([1, 1, 2]),
            totals=chance.choice([1, 2, 2, 3, 5]),
            relays=chance.choice([0, 0, 2, 3]),
            sink_on_totals=chance.random() < 0.5,
            in_table=chance.random() < 0.2,
            period_s=chance.choice([1.0, 2.0, 5.0, 1000.0]),
        )

    @classmethod
    def draw_spread(cls, chance: random.Random) -> Shape:
        """Draws a job that may be several fragments, which need partitions and workers."""
        return cls(
            workers=chance.choice([1, 2, 3, 3]),
            hosts=chance.choice([1, 2, 2]),
            totals=chance.choice([2, 2, 3, 4]),
            relays=chance.choice([0, 2, 2, 3]),
            sink_on_totals=chance.random() < 0.5,
            period_s=chance.choice([1.0, 2.0, 5.0]),
            timed=chance.random() < 0.1,
            retains=chance.random() < 0.5,
            spread=chance.choice([1, 2, 2, 3]),
            parted=chance.random() < 0.4,
            written=chance.random() < 0.3,
            buffer_bytes=chance.choice([2_000, 20_000, 100_000, PlacementSpec().buffer_bytes]),
        )

    @classmethod
    def draw_replicated(cls, chance: random.Random) -> Shape:
        """Draws a job with replicas, which need two workers."""
        feeding = chance.choice(["", "", "", "echoed", "sided"])
        return replace(
            cls.draw(chance),
            workers=chance.choice([2, 2, 3]),
            hosts=chance.choice([1, 2, 2]),
            relays=chance.choice([1, 2]) if feeding else chance.choice([0, 0, 2]),
            period_s=chance.choice([1.0, 2.0, 5.0]),
            timed=chance.random() < 0.2,
            echoed=feeding == "echoed",
            sided=feeding == "sided",
            retains=chance.random() < 0.2,
            replicas=True,
        )

    @property
    def sources_of_sinks(self) -> dict[str, frozenset[str]]:
        """By topic of a sink, the sources of its rows."""
        both = frozenset(("left", "right"))
        own = {OTHERS: frozenset(("right",)), "left": frozenset(("left",))}
        rest = frozenset(("left",)) if self.parted else both
        judged = self.case.sinks if self.case is not None else ()
        return {
            sink.topic: own.get(sink.input, rest)
            for sink in self.spec.sinks.values() if sink.input not in judged
        }  # fmt: skip

    @property
    def case(self) -> Case | None:
        return CASES[self.drawn] if self.drawn else None

    def drawing(self, name: str) -> Shape:
        """Returns the shape with this case of an operator."""
        timed = self.timed or CASES[name].timed
        return replace(self, drawn=name, timed=timed, written=False)

    @property
    def spec(self) -> JobSpec:
        """Returns the job with one or two stateful levels; the last one always feeds a sink."""
        kind = "Sided" if self.sided else "Echoed" if self.echoed else ""
        use = f"job:{kind}Totals" + ("InTable" if self.in_table and not kind else "")
        echo = {"Sided": {"echo": "relay.back"}, "Echoed": {"echo": "relay"}}.get(kind, {})
        use = "job:WindowedTotals" if self.size_timed else use
        use = "job:UnorderedTotals" if self.unordered else use
        use = "job:RevisedTotals" if self.revised else use
        nodes = {
            "totals": OperatorSpec(
                inputs={"left": "left", **({} if self.parted else {"right": "right"}), **echo},
                key=("key",),
                use=use, parallelism=self.totals, feedback=tuple(echo),
            )
        }  # fmt: skip
        feeding = ["totals"] if self.sink_on_totals or not self.relays else []
        if self.relays:
            nodes["relay"] = OperatorSpec(
                inputs={"input": "totals.on" if self.sided else "totals"}, key=("key",),
                use="job:SidedRelay" if self.sided else "job:Relay", parallelism=self.relays,
            )  # fmt: skip
            feeding.append("relay")
        if self.parted:
            nodes[OTHERS] = OperatorSpec(
                inputs={"right": "right"}, key=("key",), use="job:Totals", parallelism=self.totals
            )
        feeding += [OTHERS] * self.parted + ["left"] * self.written
        keys = dict.fromkeys(feeding, "key")
        if self.case is not None:
            nodes |= self.case.specs(self.totals)
            keys |= self.case.sinks
        sinks = {
            n: SinkSpec(input=n, topic=topic_of(n), format="json", key=key)
            for n, key in keys.items()
        }
        checkpoint = CheckpointSpec(period_s=self.period_s, size_timed=self.size_timed)
        return JobSpec(
            name=JOB,
            parallelism=2,
            sources={
                n: SourceSpec(topic=n, format="text", event_time=TIMED if self.timed else None)
                for n in SOURCES
            },
            operators=nodes,
            sinks=sinks,
            fault_tolerance=FaultToleranceSpec(
                checkpoint=checkpoint, replicas="all" if self.replicas else 0
            ),
            epoch=EpochSpec(
                max_records=self.epoch_records or (10 if self.replicas else 40),
                max_bytes=self.epoch_bytes or EpochSpec().max_bytes,
            ),  # 10: often two in flight
            placement=PlacementSpec(spread=self.spread, buffer_bytes=self.buffer_bytes),
            audit=AuditSpec(horizon_s=self.horizon_s or None),
        )


def record(word: str, amount: int) -> bytes:
    return f"{word} {amount}".encode()


def topic_of(name: str) -> str:
    """The topic of the sink that a node feeds."""
    return f"{name}-out"


def class_of(spec: OperatorSpec) -> type[Operator]:
    assert spec.use is not None, "the job has no SQL"
    return operators.class_of(spec) or CLASSES[spec.use]


def columns_of(spec: JobSpec, stream: str) -> pa.Schema:
    """The columns of an operator's stream that is fed back."""
    kind = class_of(spec.operators[producer(stream)])
    return outputs_of(kind)[output_of(stream)] or EMITTED


def table_of(pairs: Iterable[tuple[str, int]], times: Sequence[int] | None = None) -> pa.Table:
    """Words and amounts as a source's rows; with their `times` all columns that cases read."""
    listed = list(pairs)
    keys = pa.array([key for key, _ in listed], pa.string())
    found = pa.table({"key": keys, "amount": pa.array([a for _, a in listed], pa.int64())})
    return found if times is None else operators.widened(found, times)


def columns(tables: Sequence[pa.Table], *, placed: bool = False, widened: bool = False) -> pa.Table:
    """Applies the stateless operators that follow a source to its records.

    `placed`: with partition and offset of each, by which a sink's records differ. `widened`: with
    the columns that cases of `operators` read.
    """
    pairs = [text.split(" ") for t in tables for text in t["value"].to_pylist()]
    of_cases = [t["timestamp"].cast(pa.int64()) for t in tables] if widened else []
    times = [ms for column in of_cases for ms in column.to_pylist()] if widened else None
    found = table_of(((key, int(amount)) for key, amount in pairs), times)
    if not placed:
        return found
    listed = [t.select(["partition", "offset"]).to_pylist() for t in tables]
    places = [f"{row['partition']}:{row['offset']}" for found_in in listed for row in found_in]
    return found.append_column("place", pa.array(places, pa.string()))


@cache
def _partition(word: str, count: int) -> int:
    return int(partition.partitions(pa.table({"key": [word]}), ("key",), count)[0])


def consumers(table: pa.Table, count: int) -> npt.NDArray[np.int64]:
    """As `perseid.worker.dataflow.partition`, cached because there are few words."""
    words = table["key"].to_pylist() if table.num_rows else ()
    found = [_partition(word, count) for word in words]
    return np.array(found, dtype=np.int64)


def encoded(rows: pa.Table, key: str = "key") -> tuple[list[bytes | None], list[bytes]]:
    """Keys and values of a sink's records. Whole columns are faster only for long tables."""
    listed = rows.to_pylist()
    return [str(row[key]).encode() for row in listed], [orjson.dumps(row) for row in listed]


def output(value: bytes) -> tuple[str, int | str, int]:
    """Decodes a sink record into (word, n, total); a source's record, (word, place, amount)."""
    row = orjson.loads(value)
    if "place" in row:
        return row["key"], row["place"], row["amount"]
    return row["key"], row["n"], row["total"]
