"""State of a revision with other primitives: migrated once, from the switch's checkpoint."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.jobs.operator import Emitter, Operator
from perseid.state import Table, Value
from perseid.state.durability.merging import STATE
from perseid.testing.files import Crashed
from perseid.worker.dataflow.partition import partitions

SWITCH = {"base_epoch": 3, "base_offset": 103}


class Wider(Operator):
    """The sums of `Totals` as floats with a count; its `rows` became `seen`."""

    total = Table(key=pa.string(), n=pa.float64(), times=pa.int64())
    seen = Value(pa.int64(), default=0)
    more = Value(pa.string())
    asked: ClassVar[list[list[str]]] = []

    def migrate(self, old: dict[str, pa.Table]) -> dict[str, pa.Table]:
        self.asked.append(list(old))
        total = old["total"]
        times = pa.array([0] * len(total), pa.int64())
        wider = pa.table({"key": total["key"], "times": times, "n": total["n"].cast(pa.float64())})
        return {"total": wider, "seen": old["rows"]}

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.seen.set(self.seen.get() + len(batch))
        out.emit(self.total.add(batch["key"], n=batch["n"].cast(pa.float64()), times=1))


@pytest.fixture
def switched(partition: Any) -> Any:
    """Three epochs of `Totals`, the checkpoint that ends them, and a revision with `Wider`."""
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    partition.snapshot(state, 3)
    pointer = partition.checkpoint(3)
    Wider.asked.clear()
    partition.operator = Wider
    return pointer


def sums(state: Any) -> dict[str, tuple[float, int]]:
    rows = state.live["total"].scan().to_pylist()
    return {row["key"]: (row["n"], row["times"]) for row in rows}


@pytest.mark.parametrize("moved", [False, True])
def test_state_is_migrated_once_and_what_follows_is_in_the_log(
    partition: Any, switched: Any, moved: bool
) -> None:
    if moved:
        partition.files.delete("/state")
    found, state = partition.restore(2, 3, (switched,), **SWITCH)
    assert (found.epoch, found.source, Wider.asked) == (3, "checkpoint:3", [["total", "rows"]])
    assert sums(state) == {"all": (6, 0), "k1": (1, 0), "k2": (2, 0), "k3": (3, 0)}
    assert (state.live["seen"].get(), state.live["more"].get()) == (6, None)
    partition.run(state, 4)
    found, state = partition.restore(3, 4, (switched,), **SWITCH)
    assert (found.epoch, found.source, len(Wider.asked)) == (4, "log", 1)
    assert sums(state)["all"] == (10, 1)
    assert state.live["seen"].get() == 8


@pytest.mark.parametrize("number", [0, 1, 2])
def test_state_of_another_revision_and_another_parallelism_is_migrated_and_then_redistributed(
    partition: Any, switched: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What `rescale` gets is of the new primitives, and each key is where its rows go."""

    def rescale(self: Wider, old: list[Wider]) -> None:
        self.seen.set(sum(one.seen.get() for one in old) if self.partition == 0 else 0)

    monkeypatch.setattr(Wider, "rescale", rescale)
    keys = pa.table({"key": ["all", "k1", "k2", "k3"]})
    homes = dict(zip(keys["key"].to_pylist(), partitions(keys, ("key",), 3), strict=True))
    assert len(set(homes.values())) > 1
    partition.parallelism = 3
    partition.task = replace(partition.task, gid=number, partition=number)
    partition.identity = replace(partition.identity, layout=2, partition=number)
    found, state = partition.restore(2, 3, (switched,), **SWITCH)
    assert (found.epoch, found.source) == (3, "checkpoint:3")
    before = {"all": (6, 0), "k1": (1, 0), "k2": (2, 0), "k3": (3, 0)}
    assert sums(state) == {key: n for key, n in before.items() if homes[key] == number}
    assert state.live["seen"].get() == (6 if number == 0 else 0)


def test_a_crash_at_any_step_migrates_again(partition: Any, switched: Any) -> None:
    generation, step = 2, 0
    while True:
        partition.files.crash_at(step)
        try:
            found, state = partition.restore(generation, 3, (switched,), **SWITCH)
        except Crashed:
            partition.files.restart()
            generation, step = generation + 1, step + 1
            continue
        break
    assert step > 4
    assert found.source == "checkpoint:3"
    assert sums(state)["all"] == (6, 0)


def test_a_damaged_checkpoint_is_an_error_and_no_earlier_state(
    partition: Any, switched: Any
) -> None:
    for path in [p for p in partition.store.content if p.endswith(".part")]:
        partition.damage(path)
    with pytest.raises(PermanentError, match="no checkpoint of totals-0 can be read"):
        partition.restore(2, 3, (switched,), **SWITCH)
    assert partition.log().last_epoch() == 3


def test_without_a_migrate_the_difference_is_reported(
    partition: Any, switched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wider, "migrate", Operator.migrate)
    partition.files.delete("/state")
    with pytest.raises(PermanentError) as caught:
        partition.restore(2, 3, (switched,), **SWITCH)
    text = str(caught.value)
    assert text.startswith("operator totals (Wider), partition 0: its state is of other primitives")
    assert "total has 4 rows of (key string, n int64), and is of (key string, n double, " in text
    assert "rows is gone" in text
    assert "Give the class a method migrate(self, old)" in text


TOTAL = pa.table({"key": ["a", "b"], "n": [1.0, 2.0], "times": [1, 1]})


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (None, "returned a NoneType, expected a dict with some of total, seen, more"),
        ({"rows": TOTAL}, "['rows'], expected a dict"),
        ({}, "nothing for total, which is not what it was"),
        ({"total": [1]}, "a list for total, expected a pyarrow Table"),
        ({"total": TOTAL.drop(["n"])}, "rows that are none of total: "),
        ({"total": TOTAL.set_column(1, "n", [["x", "y"]])}, "rows that are none of total: "),
        ({"total": pa.concat_tables([TOTAL, TOTAL])}, "several rows of one key for total"),
    ],
)
def test_a_wrong_result_stops_the_job_and_keeps_the_state(
    partition: Any, switched: Any, monkeypatch: pytest.MonkeyPatch, made: Any, shown: str
) -> None:
    monkeypatch.setattr(Wider, "migrate", lambda self, old: made)
    with pytest.raises(PermanentError, match=re.escape(shown)):
        partition.restore(2, 3, (switched,), **SWITCH)
    assert partition.log().last_epoch() == 3


def test_a_migrate_that_raises_is_reported_with_its_traceback(
    partition: Any, switched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wider, "migrate", lambda self, old: old["nothing"])
    with pytest.raises(PermanentError, match=r"epoch 3: migrate raised KeyError \(its text"):
        partition.restore(2, 3, (switched,), **SWITCH)


def test_equal_primitives_are_not_migrated(partition: Any, switched: Any) -> None:
    _, state = partition.restore(2, 3, (switched,), **SWITCH)
    partition.run(state, 4)
    partition.snapshot(state, 4, generation=2)
    pointer = partition.checkpoint(4, generation=2)
    found, state = partition.restore(3, 4, (pointer,), base_epoch=4, base_offset=104)
    assert (found.source, len(Wider.asked)) == ("checkpoint:4", 1)
    assert sums(state)["all"] == (10, 1)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_primitive_without_rows_needs_no_migrate(partition: Any, is_new: bool) -> None:
    """Simulation seed 466: the restore asked for a `migrate` that is not there."""
    more = type("WithMore", (partition.operator,), {"untouched": Value(pa.string())})
    if not is_new:
        partition.operator = more
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    partition.snapshot(state, 3)
    assert STATE + "untouched" not in state.log.snapshot(3).sections
    pointer = partition.checkpoint(3)
    partition.files.delete("/state")
    partition.operator = more
    found, state = partition.restore(2, 3, (pointer,), **SWITCH)
    assert found.source == "checkpoint:3"
    assert state.live["total"].scan().num_rows == 4
    assert STATE + "untouched" in state.log.snapshot(3).sections


def test_a_migrate_is_not_asked_again_because_a_primitive_is_empty(
    partition: Any, switched: Any
) -> None:
    _, state = partition.restore(2, 3, (switched,), **SWITCH)
    assert {STATE + name for name in state.live} <= state.log.snapshot(3).sections.keys()
    partition.run(state, 4)
    partition.snapshot(state, 4, generation=2)
    pointer = partition.checkpoint(4, generation=2)
    partition.restore(3, 4, (pointer,), base_epoch=4, base_offset=104)
    assert len(Wider.asked) == 1
