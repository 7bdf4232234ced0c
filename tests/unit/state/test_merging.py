"""Net deltas and merged snapshots against plain Python: dictionaries, lists, cells."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import DamagedFile
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.state.durability import merging
from perseid.state.primitives import deltas as keyed
from perseid.state.primitives.arrow import ipc_bytes, ipc_table

EPOCHS = 7
Model = Callable[[], list[Any]]
Step = Callable[[random.Random, int], None]


def table(composite: bool) -> tuple[Any, Step, Model]:
    """Sums, upserts and deletions, keys that go and come back within an epoch."""
    key: Any = {"i": pa.int16(), "j": pa.string()} if composite else pa.string()
    live = Table(key=key, ttl=timedelta(milliseconds=3), n=pa.int64(), s=pa.string())
    rows: dict[Any, tuple[Any, Any]] = {}
    written: dict[Any, int] = {}

    def keys(chosen: list[int]) -> Any:
        names = pa.array([f"k{c}" for c in chosen])
        thirds = pa.array([c % 3 for c in chosen], pa.int16())
        return {"i": thirds, "j": names} if composite else names

    def step(rng: random.Random, epoch: int) -> None:
        live.advance(epoch)
        for k in [k for k in rows if written[k] <= epoch - 3]:
            del rows[k]
        for _ in range(rng.randrange(4)):
            chosen = rng.sample(range(9), rng.randrange(5))
            what = rng.choice(["add", "upsert", "delete"])
            for k in chosen:
                n, s = rows.get(k, (None, None))
                if what == "delete":
                    rows.pop(k, None)
                    continue
                rows[k] = ((n or 0) + epoch, s) if what == "add" else (n, f"e{epoch}")
                written[k] = epoch
            if what == "delete":
                live.delete(keys(chosen))
            elif what == "add":
                live.add(keys(chosen), n=epoch)
            else:
                live.upsert(keys(chosen), s=f"e{epoch}")

    def model() -> list[Any]:
        names = [((k % 3, f"k{k}") if composite else (f"k{k}",)) for k in rows]
        return [(*a, *rows[k], written[k]) for a, k in zip(names, rows, strict=True)]

    return live, step, model


def members() -> tuple[Any, Step, Model]:
    live, found = Set(pa.int64()), dict[int, None]()

    def step(rng: random.Random, epoch: int) -> None:
        chosen = rng.sample(range(8), 3)
        if rng.random() < 0.5:
            live.add(pa.array(chosen))
            found.update(dict.fromkeys(chosen))
        else:
            live.discard(pa.array(chosen))
            for k in chosen:
                found.pop(k, None)

    return live, step, lambda: [(k,) for k in found]


def timers() -> tuple[Any, Step, Model]:
    live, at = Timers(key=pa.string()), dict[str, int]()

    def step(rng: random.Random, epoch: int) -> None:
        due = live.due(epoch)["key"].to_pylist()
        assert sorted(due) == sorted(k for k, t in at.items() if t <= epoch)
        for k in due:
            del at[k]
        key, time = f"k{rng.randrange(5)}", epoch + rng.randrange(1, 4)
        live.set(pa.array([key]), time)
        at[key] = time

    return live, step, lambda: list(at.items())


def value() -> tuple[Any, Step, Model]:
    live, now = Value(pa.int64(), default=3), [3]

    def step(rng: random.Random, epoch: int) -> None:
        if rng.random() < 0.5:
            now[0] = epoch
            live.set(epoch)

    return live, step, lambda: [(now[0],)]


def vector() -> tuple[Any, Step, Model]:
    live, cells = Vector(pa.float64(), 40), [0.0] * 40

    def step(rng: random.Random, epoch: int) -> None:
        if rng.random() < 0.2:
            live.add(1.0)
            cells[:] = [c + 1.0 for c in cells]
        for place in rng.sample(range(40), 2):
            live.set_at([place], float(epoch))
            cells[place] = float(epoch)

    return live, step, lambda: [(c,) for c in cells]


def matrix() -> tuple[Any, Step, Model]:
    live, cells = Matrix(pa.int32(), rows=3, columns=20), [0] * 60

    def step(rng: random.Random, epoch: int) -> None:
        for place in rng.sample(range(60), 2):
            live.add_at([place // 20], [place % 20], epoch)
            cells[place] += epoch

    return live, step, lambda: [(c,) for c in cells]


def pool() -> tuple[Any, Step, Model]:
    live, rows = Pool({"at": pa.timestamp("ms"), "n": pa.int64()}, time="at"), list[Any]()

    def step(rng: random.Random, epoch: int) -> None:
        for _ in range(2):
            times = [10 * epoch - rng.randrange(40) for _ in range(rng.randrange(3))]
            live.append({"at": pa.array(times, pa.timestamp("ms")), "n": times})
            rows.extend(times)
            if rng.random() < 0.4:
                bound = 10 * epoch - rng.randrange(40)
                live.expire(bound)
                rows[:] = [t for t in rows if t >= bound]

    return live, step, lambda: [(t, t) for t in rows]


KINDS: dict[str, Callable[[], tuple[Any, Step, Model]]] = {
    "table": lambda: table(False), "composite": lambda: table(True), "set": members,
    "timers": timers, "value": value, "vector": vector, "matrix": matrix, "pool": pool,
}  # fmt: skip


def listed(rows: pa.Table) -> list[Any]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in rows.columns]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


def netted(schema: Any, deltas: list[pa.Table]) -> pa.Table:
    return ipc_table(ipc_bytes(merging.net(schema, deltas)))


def concatenated(schema: Any, deltas: list[pa.Table]) -> pa.Table:
    """As a part of a checkpoint may have them, and then netted by its reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "JOINED_ROWS", 0)
        patch.setattr(keyed, "JOINED_SHARE", 0)
        found = merging.net(schema, deltas, may_join=True)
    return netted(schema, [ipc_table(ipc_bytes(found))])


@pytest.mark.parametrize("merged", [netted, concatenated])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sets(st.integers(1, EPOCHS - 1)), st.integers(0, 3))
def test_net_deltas_and_merged_snapshots_are_the_state(
    kind: str, merged: Callable[..., pa.Table], seed: int, cuts: set[int], start: int
) -> None:
    """However the epochs are cut into net deltas, and wherever the base lies."""
    live, step, model = KINDS[kind]()
    rng = random.Random(seed)
    deltas: list[pa.Table | None] = []
    base = None  # empty
    states = []
    for epoch in range(EPOCHS):
        if epoch == start and epoch:
            base = ipc_table(ipc_bytes(live.snapshot()))
        step(rng, epoch)
        delta = live.delta()
        deltas.append(None if delta is None else ipc_table(ipc_bytes(delta)))
        live.commit()
        states.append(model())
    copy = live.fresh()
    if base is not None:
        copy.restore(base)
    edges = sorted({start, EPOCHS, *(c for c in cuts if c > start)})
    for first, last in pairwise(edges):
        some = [d for d in deltas[first:last] if d is not None]
        if some:
            change = merged(live.schema(), some)
            base = merging.whole(live.schema(), base, [change])
            copy.apply(change)
        if base is not None:
            assert listed(base) == states[last - 1]
        assert listed(copy.snapshot()) == states[last - 1]


@pytest.mark.parametrize(
    ("keys", "joins"),
    [
        (40_000, False),  # of 60,000 rows: each key comes 1.9 times, of those that come
        (400_000, True),
    ],
)
def test_deltas_are_joined_where_most_keys_come_once(keys: int, joins: bool) -> None:
    rng = np.random.default_rng(1)
    schema = Table(key=pa.int64(), n=pa.int64()).schema()
    changes = []
    for epoch in range(3):
        some = np.unique(rng.integers(0, keys, 40_000))[:20_000]
        rows = pa.table({"key": some, "n": some * epoch})
        changes.append(keyed.by_key(rows.select(["key"]).slice(0, 0), rows))
    found = merging.net(schema, changes, may_join=True)
    assert (found.num_rows == 60_000) == joins
    assert merging.net(schema, [found]).equals(merging.net(schema, changes))


def test_rows_by_key_of_a_primitive_that_never_deletes_need_no_flag() -> None:
    schema = Table(key=pa.string(), n=pa.int64()).schema()
    first, second = pa.table({"key": ["a", "b"], "n": [1, 2]}), pa.table({"key": ["b"], "n": [3]})
    found = merging.whole(schema, first, [second, second])
    assert found.to_pydict() == {"key": ["a", "b"], "n": [1, 3]}


def test_sections_of_unwritten_primitives_are_left_out() -> None:
    schemas = {"n": Value(pa.int64()).schema(), "m": Value(pa.int64()).schema()}
    some = {"state.n": ipc_bytes(pa.table({"value": [1]})), "out": b"x"}
    assert list(merging.net_sections(schemas, [some, {}])) == ["state.n"]
    assert list(merging.whole_sections(schemas, {}, [some])) == ["state.n"]
    assert merging.whole_sections(schemas, {"state.m": b"as it was"}, [{}]) == {
        "state.m": b"as it was"
    }


def test_a_part_without_a_description_of_its_content_is_damaged() -> None:
    with pytest.raises(DamagedFile, match="c-1/x does not name what its state is"):
        merging.schemas_of({}, "c-1/x")
