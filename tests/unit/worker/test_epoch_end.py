"""`on_epoch_end`: once an epoch, with rows or without, and the same again after a crash."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.jobs.operator import Emitter, Operator, ends_epochs
from perseid.state import Table, Value
from perseid.worker.epoch.partition_state import PartitionState

NONE = pa.table({"key": pa.array([], pa.string()), "n": pa.array([], pa.int64())})


class PerEpoch(Operator):
    """Sums the epoch's rows and emits at its end when it was."""

    output = pa.schema([(n, pa.int64()) for n in ("epoch", "now", "watermark", "sum", "ends")])
    total = Table(key=pa.string(), n=pa.int64())
    ends = Value(pa.int64(), default=0)
    failing = False

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.total.add(batch["key"], n=batch["n"])
        assert self.watermark in (None, 10 * self.epoch)

    def on_epoch_end(self, out: Emitter) -> None:
        self.ends.set(self.ends.get() + 1)
        if self.failing:
            raise ValueError("as the test wants")
        sums = self.total.scan()["n"].to_pylist()
        row = (self.epoch, self.now, self.watermark, sum(sums), self.ends.get())
        out.emit(pa.table([[value] for value in row], schema=self.output))


def end(partition: Any, state: PartitionState, epoch: int, rows: pa.Table) -> list[int | None]:
    result = partition.feed(state, epoch, rows, watermark=10 * epoch if epoch > 1 else None)
    (row,) = result.output.to_pylist()
    return list(row.values())


def test_it_is_called_after_process_and_without_rows(partition: Any) -> None:
    partition.operator = PerEpoch
    state = partition.begun()
    assert end(partition, state, 1, pa.table({"key": ["a", "b"], "n": [1, 2]})) == [
        1, 1, None, 3, 1
    ]  # fmt: skip
    assert end(partition, state, 2, NONE) == [2, 2, 20, 3, 2]
    assert end(partition, state, 3, pa.table({})) == [3, 3, 30, 3, 3]


def test_an_epoch_run_again_emits_the_same_and_calls_nothing(partition: Any) -> None:
    partition.operator = PerEpoch
    state = partition.begun()
    text = [end(partition, state, epoch, NONE) for epoch in (1, 2, 3)]
    fresh = partition.state()  # another process
    assert [end(partition, fresh, epoch, NONE) for epoch in (2, 3)] == text[1:]
    fresh.bring_to(3)
    assert fresh.live["ends"].get() == 3
    fresh.log.discard_from(3)
    fresh.epoch = None
    assert end(partition, fresh, 3, NONE) == text[2]


def test_an_error_of_it_is_reported_as_its_own(partition: Any) -> None:
    partition.operator = PerEpoch
    state = partition.begun()
    state.operator.failing = True
    with pytest.raises(PermanentError, match="epoch 1: on_epoch_end raised ValueError"):
        end(partition, state, 1, NONE)
    state.operator.failing = False
    assert end(partition, state, 1, NONE) == [1, 1, None, 0, 1]


def test_an_operator_without_it_is_not_even_entered(partition: Any) -> None:
    state = partition.begun()

    def entered(*_: Any) -> None:
        raise AssertionError("entered in an epoch without rows")

    state.operator.enter = entered
    assert not ends_epochs(type(state.operator))
    assert partition.feed(state, 1, NONE).output.num_columns == 0
    assert partition.log().entry(1).sections.keys() == {"out"}
