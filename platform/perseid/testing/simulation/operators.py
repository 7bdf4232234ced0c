"""The operators that seeds draw for their job: all of the library, and one of each primitive.

A case has the operator's parameters, the columns by which its results have an order, and, where
there is a plain one, a model of what it emits. What no model knows, `judge` makes by an
uninterrupted run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from perseid.jobs import library
from perseid.jobs.model.spec import OperatorSpec
from perseid.jobs.operator import Operator
from perseid.testing.simulation import primitives
from perseid.testing.simulation.primitives import Model, Rows

DRAWN, AVERAGE = "drawn", "average"  # the names of its operators
PRIMITIVE, LIBRARY = "primitive:", "library:"
PATTERN = "[a-e]"
BEST = 2  # of a ranking


@dataclass(frozen=True)
class Case:
    """One way to use an operator. `key`: a column of its output; the results of one have an order.

    `totals_max`: of the partitions, where each of its states is large.
    """

    use: str
    with_: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ("left",)
    key: str = "key"
    timed: bool = False
    model: Callable[[], Model] | None = None
    totals_max: int = 5
    averaged: bool = False  # by `ModelAverage`, through feedback

    @property
    def stateless(self) -> bool:
        return self.use == "library:Grep"

    def specs(self, parallelism: int) -> dict[str, OperatorSpec]:
        """The operators by name."""
        inputs = {"input": self.inputs[0]} if len(self.inputs) == 1 else dict(zip(
            self.inputs, self.inputs, strict=True))  # fmt: skip
        if self.averaged:
            inputs = {"rows": "left", "average": f"{AVERAGE}.replies"}
        found = {DRAWN: OperatorSpec(
            inputs=inputs, use=self.use, key=() if self.stateless else ("key",),
            parallelism=min(parallelism, self.totals_max), with_=dict(self.with_),
            feedback=("average",) if self.averaged else (),
        )}  # fmt: skip
        if self.averaged:
            found[AVERAGE] = OperatorSpec(
                inputs={"input": f"{DRAWN}.local"}, use="library:ModelAverage", key=("key",),
                parallelism=1, with_={"features": FEATURES},
            )  # fmt: skip
        return found

    @property
    def sinks(self) -> dict[str, str]:
        """The key column of each operator that feeds a sink."""
        return {DRAWN: self.key, **({AVERAGE: "models"} if self.averaged else {})}


class Counted(Model):
    """Sums of a value by key, of the keys with rows."""

    def __init__(self, name: str, value: Callable[[Mapping[str, Any]], int]) -> None:
        self._name, self._value = name, value
        self._sums: Counter[str] = Counter()

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        for row in rows:
            self._sums[row["key"]] += self._value(row)
        for key in dict.fromkeys(row["key"] for row in rows):
            yield {"key": key, self._name: self._sums[key]}


class RunningSums(Model):
    """Each row with the sum of its key so far."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        for row in rows:
            self._sums[row["key"]] += row["amount"]
            yield {**row, "sum": self._sums[row["key"]]}


class Found(Model):
    """The rows of the first half of the words."""

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        yield from (dict(row) for row in rows if row["key"] in "abcde")


class DistinctItems(Model):
    """The number of different items of each key, when it changes."""

    def __init__(self) -> None:
        self._items: dict[str, set[str]] = {}

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        before = {key: len(items) for key, items in self._items.items()}
        for row in rows:
            self._items.setdefault(row["key"], set()).add(row["item"])
        for key in dict.fromkeys(row["key"] for row in rows):
            if len(self._items[key]) != before.get(key):
                yield {"key": key, "distinct": len(self._items[key])}


class Best(Model):
    """The ranking of each key's items, when it changes."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def epoch(self, rows: Rows, now_ms: int, watermark_ms: int | None) -> Iterator[dict[str, Any]]:
        before = {key: self._best(key) for key in self._counts}
        for row in rows:
            self._counts.setdefault(row["key"], Counter())[row["item"]] += 1
        for key in dict.fromkeys(row["key"] for row in rows):
            if self._best(key) != before.get(key):
                for rank, (item, n) in enumerate(self._best(key), 1):
                    yield {"key": key, "rank": rank, "item": item, "n": n}

    def _best(self, key: str) -> list[tuple[str, int]]:
        return sorted(self._counts[key].items(), key=lambda pair: (-pair[1], pair[0]))[:BEST]


FEATURES = ["x", "y"]
SIDES = {side: {"ms": "int64", "amount": "int64"} for side in ("left", "right")}
BOTH = ("left", "right")
AGGREGATES = {"n": "count", "total": "sum(amount)", "lo": "min(amount)", "hi": "max(amount)"}
LEARNS = {"features": FEATURES, "label": "label", "models": 2, "every": 3}


def _window(kind: str, **more: Any) -> Case:
    with_ = {"kind": kind, "time": "ms", "aggregate": AGGREGATES, **more}
    return Case("library:Window", with_, timed=True)


CASES: dict[str, Case] = {
    "AsOf": Case("library:AsOf", {"time": "ms", **SIDES}, BOTH, timed=True),
    "CountByKey": Case("library:CountByKey", model=lambda: Counted("n", lambda _: 1)),
    "Decaying": Case("library:Decaying", {"halfLife": "2s", "column": "amount", "time": "ms"},
                     timed=True),
    "Distinct": Case("library:Distinct", {"column": "item"}, model=DistinctItems),
    "Distinct-estimated": Case(
        "library:Distinct", {"column": "item", "error": 0.092, "keys": 16}, totals_max=3),
    "Grep": Case("library:Grep", {"column": "key", "pattern": PATTERN}, model=Found),
    "HeavyHitters": Case("library:HeavyHitters", {"threshold": 3}, totals_max=2),
    "Join": Case("library:Join", {"within": "1s", "time": "ms", **SIDES}, BOTH, timed=True),
    "KMeans": Case("library:KMeans", {"columns": FEATURES, "k": 2, "window": "3s", "time": "ms"},
                   timed=True),
    "LogisticRegression": Case("library:LogisticRegression", LEARNS, key="partition"),
    "ModelAverage": Case("library:LogisticRegression", LEARNS, key="partition", averaged=True),
    "RippleJoin": Case("library:RippleJoin", {"sample": 0.5}, BOTH, key="partition"),
    "RunningSum": Case("library:RunningSum", {"column": "amount"}, model=RunningSums),
    "Sum": Case("library:Sum", {"column": "amount"},
                model=lambda: Counted("sum", lambda row: int(row["amount"]))),
    "TopK": Case("library:TopK", {"of": "item", "k": BEST}, model=Best),
    "Window": _window("tumbling", size="2s"),
    "Window-hopping": _window("hopping", size="3s", step="1s", correct="2s"),
    "Window-sliding": _window("sliding", size="2s"),
    "Window-session": _window("session", gap="1s", correct="2s"),
    "Matrix": Case("primitive:Matrix", model=primitives.Counts),
    "Pool": Case("primitive:Pool", model=primitives.Pooled),
    "Set": Case("primitive:Set", model=primitives.Members),
    "Table": Case("primitive:Table", model=lambda: primitives.Counts(primitives.FULL)),
    "Timers": Case("primitive:Timers", timed=True, model=primitives.Fired),
    "Value": Case("primitive:Value", model=primitives.Counts),
    "Vector": Case("primitive:Vector", model=primitives.Counts),
}  # fmt: skip
OF_PRIMITIVES: dict[str, type[Operator]] = {
    "Matrix": primitives.OfMatrix, "Pool": primitives.OfPool, "Set": primitives.OfSet,
    "Table": primitives.OfTable, "Timers": primitives.OfTimers, "Value": primitives.OfValue,
    "Vector": primitives.OfVector,
}  # fmt: skip


def drawn_of(seed: int, *, fed_back: bool = True) -> str:
    """The case of a seed that draws one; `fed_back`: it may have feedback."""
    names = [name for name, case in CASES.items() if fed_back or not case.averaged]
    return names[seed % len(names)]


_classes: dict[str, type[Operator]] = {}


def class_of(spec: OperatorSpec) -> type[Operator] | None:
    """The class of an operator of a case; None of the others. Equal ones are made once."""
    use = spec.use or ""
    if use.startswith(PRIMITIVE):
        return OF_PRIMITIVES[use.removeprefix(PRIMITIVE)]
    if not use.startswith(LIBRARY):
        return None
    known = f"{use} {spec.with_} {sorted(spec.inputs)}"
    if known not in _classes:
        _classes[known] = library.build(use.removeprefix(LIBRARY), spec)
    return _classes[known]


def widened(rows: pa.Table, times: Sequence[int]) -> pa.Table:
    """Adds the columns that cases read to those of a job's rows; `times`: ms since 1970."""
    amounts = rows["amount"].to_pylist()
    found = {
        "ms": pa.array(times, pa.int64()),
        "item": pa.array([f"i{amount}" for amount in amounts], pa.string()),
        "x": pa.array([amount / 4 for amount in amounts], pa.float64()),
        "y": pa.array([ms % 7 / 7 for ms in times], pa.float64()),
        "label": pa.array([amount % 2 for amount in amounts], pa.int64()),
    }
    for name, column in found.items():
        rows = rows.append_column(name, column)
    return rows
