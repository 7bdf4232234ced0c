"""State under another parallelism: nothing lost, nothing twice, each key where its rows go."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.jobs.operator import Identity, Operator, opened
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.state.durability.merging import OUT, STATE
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.primitive import bind
from perseid.worker.dataflow.partition import partitions
from perseid.worker.recovery.resplit import Share, check_types

KEY = ("user", "page")
BOTH = {"page": pa.string(), "user": pa.int64()}
Parts = list[dict[str, Any]]


class Everything(Operator):
    """Every primitive; those without a key are merged."""

    table = Table(key={**BOTH, "day": pa.int64()}, n=pa.int64())
    fading = Table(key=BOTH, ttl=timedelta(seconds=5), n=pa.int64())
    seen = Set({**BOTH, "id": pa.int64()})
    timers = Timers(key=BOTH)
    pool = Pool({"at": pa.int64(), **BOTH}, time="at")
    rows = Value(pa.int64(), default=0)
    weights = Vector(pa.int64(), 3)
    sketch = Matrix(pa.int64(), 2, 4)

    def rescale(self, old: Sequence[Any]) -> None:
        if self.partition == 0:
            self.rows.set(sum(o.rows.get() for o in old))
            self.sketch.set(sum(o.sketch.values for o in old))
        self.weights.set(max(o.parallelism for o in old))


class Counts(Operator):
    total = Table(key=pa.string(), n=pa.int64())


class Keyless(Counts):
    last = Value(pa.int64(), default=0)


class Raising(Keyless):
    def rescale(self, old: Sequence[Any]) -> None:
        raise ValueError(self.partition)


def share(kind: type[Operator], partition: int, count: int, key: tuple[str, ...] = KEY) -> Share:
    def make(number: int, parallelism: int) -> Operator:
        return opened(kind, Identity("job", "o", number, parallelism), {})

    return Share("o", key, partition, count, make)


def split(kind: type[Operator], parts: Parts, count: int, key: tuple[str, ...] = KEY) -> Parts:
    return [share(kind, p, count, key).of(iter(parts), len(parts), 9) for p in range(count)]


def filled(chance: random.Random, partition: int = 0) -> dict[str, Any]:
    operator: Any = opened(Everything, Identity("job", "o", partition, 1), {})
    live = bind(operator)
    count = chance.randint(0, 300)
    rows = pa.table({
        "user": pa.array([chance.randrange(50) - 9 for _ in range(count)], pa.int64()),
        "page": pa.array([chance.choice(["", "a", "b" * 40]) for _ in range(count)], pa.string()),
        "day": pa.array([chance.randrange(9) for _ in range(count)], pa.int64()),
    })  # fmt: skip
    keys = rows.select(["page", "user"])
    operator.table.add(rows, n=1)
    operator.fading.advance(1000 + chance.randrange(99))
    operator.fading.add(keys, n=1)
    operator.seen.add(rows.rename_columns(["user", "page", "id"]))
    operator.timers.set(keys, rows["day"])
    operator.pool.append(rows.rename_columns(["user", "page", "at"]))
    operator.rows.set(count)
    operator.sketch.set(partition + 1)
    return {STATE + n: ipc_bytes(p.snapshot()) for n, p in live.items()}


def rows_of(parts: Parts, name: str) -> list[dict[str, Any]]:
    return [row for part in parts for row in ipc_table(part[STATE + name]).to_pylist()]


def as_counter(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


KEYED = ("table", "fading", "seen", "timers", "pool")


@pytest.mark.parametrize("seed", range(20))
def test_the_union_stays_and_each_key_is_where_its_rows_go(seed: int) -> None:
    chance = random.Random(seed)
    one = [filled(chance)]
    for parts in (three := split(Everything, one, 3), split(Everything, three, 2)):
        for name in KEYED:
            assert as_counter(rows_of(parts, name)) == as_counter(rows_of(one, name))
            for number, part in enumerate(parts):
                table = ipc_table(part[STATE + name])
                assert set(partitions(table, KEY, len(parts)).tolist()) <= {number}
        assert [r["value"] for r in rows_of(parts, "rows")] == [
            rows_of(one, "rows")[0]["value"], *[0] * (len(parts) - 1)
        ]  # fmt: skip
    assert rows_of(three, "weights") == [{"value": 1}] * 9
    assert sum(r["value"] for r in rows_of(three, "sketch")) == 8


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_a_key_keep_their_order(seed: int) -> None:
    one = [filled(random.Random(seed))]
    parts = split(Everything, split(Everything, one, 3), 2)
    for key in {(r["user"], r["page"]) for r in rows_of(one, "pool")}:
        before, after = (
            [r["at"] for r in rows_of(found, "pool") if (r["user"], r["page"]) == key]
            for found in (one, parts)
        )
        assert before == after


def test_a_share_can_be_restored_and_continues() -> None:
    parts = split(Everything, split(Everything, [filled(random.Random(7))], 5), 2)
    operator: Any = opened(Everything, Identity("job", "o", 1, 2), {})
    for name, primitive in bind(operator).items():
        primitive.restore(ipc_table(parts[1][STATE + name]))
    (first, *_) = rows_of([parts[1]], "table")
    keys = {name: [first[name]] for name in ("page", "user", "day")}
    assert operator.table.add(keys, n=5)["n"].to_pylist() == [first["n"] + 5]


def counts(*words: str, name: str = "total") -> dict[str, Any]:
    live = Counts().total.fresh()
    live.add(pa.array(words, pa.string()), n=1)
    return {STATE + name: ipc_bytes(live.snapshot())}


def test_an_unnamed_key_is_the_operators_one_key_column() -> None:
    parts = split(Counts, [counts("a", "b", "c", "d")], 2, ("word",))
    assert sorted(r["key"] for r in rows_of(parts, "total")) == ["a", "b", "c", "d"]
    with pytest.raises(PermanentError, match="of Counts cannot be redistributed by word, day"):
        split(Counts, [counts("a")], 2, ("word", "day"))


def test_state_that_is_not_kept_by_the_operators_key_is_refused_and_not_scattered() -> None:
    """Both partitions have a "total", which is no word."""
    with pytest.raises(PermanentError, match=r"total has a key \{key: string of 5 characters\} in"):
        split(Counts, [counts("total"), counts("total")], 3, ("word",))


def test_state_without_a_key_is_never_emptied() -> None:
    with pytest.raises(PermanentError, match="last of Keyless cannot be redistributed by word"):
        split(Keyless, [counts("a")], 2, ("word",))


def test_a_rescale_that_raises_names_the_place() -> None:
    text = r"operator o \(Raising\), partition 0, epoch 9: rescale raised ValueError"
    with pytest.raises(PermanentError, match=text) as caught:
        split(Raising, [counts("a")], 2, ("word",))
    assert "ValueError: 0" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, 5), (4, 4), (7, 1)])
def test_fed_back_rows_keep_the_order_of_their_partitions(old: int, new: int) -> None:
    """A partition that emitted nothing has a table without columns."""
    tables = [pa.table({"n": [p] * p}) if p % 3 else pa.table({}) for p in range(old)]
    parts = [counts() | {OUT: ipc_bytes(table)} for table in tables]
    found = [ipc_table(p[OUT]) for p in split(Counts, parts, new, ("word",)) if OUT in p]
    assert [r["n"] for table in found for r in table.to_pylist()] == [
        p for p in range(old) if p % 3 for _ in range(p)
    ]  # fmt: skip


def test_a_key_of_another_type_than_the_state_has_is_reported() -> None:
    check_types("o", KEY, Everything, pa.schema({"user": pa.int64(), "page": pa.large_string()}))
    single_task = pa.schema({"user": pa.int32(), "page": pa.string()})
    with pytest.raises(PermanentError, match=r"user comes as int32, and table keeps it as int64"):
        check_types("o", KEY, Everything, single_task)
