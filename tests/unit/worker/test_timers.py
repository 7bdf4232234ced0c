"""Timers of an operator: event time and token time, and a crash at any step of an epoch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.jobs.operator import Emitter, Operator
from perseid.state import Timers
from perseid.testing.files import Crashed
from perseid.worker.epoch.partition_state import PartitionState


class Sessions(Operator):
    """A key's session ends 10 ms of event time after its last row, or 50 ms of token time."""

    output = pa.schema([("key", pa.string()), ("at", pa.int64()), ("timer", pa.string()),
                        ("epoch", pa.int64())])  # fmt: skip
    gap = Timers(key=pa.string())
    patience = Timers(key=pa.string(), time="token")
    failing = False

    def process(self, batch: pa.Table, out: Emitter) -> None:
        self.gap.set(batch["key"], pa.array([t + 10 for t in batch["n"].to_pylist()]))
        self.patience.set(batch["key"], self.now + 50)

    def on_timer(self, due: pa.Table, out: Emitter) -> None:
        if self.failing:
            raise ValueError("as the test wants")
        for other in (self.gap, self.patience):
            other.cancel(due["key"])
        out.emit(due.append_column("epoch", pa.array([self.epoch] * due.num_rows)))


ROWS = {1: [("a", 3), ("b", 7)], 2: [("a", 9)], 5: [("b", 18), ("c", 30)]}
MARKS = {1: None, 2: 8, 3: 16, 4: 17, 5: 18, 6: 28}  # of epochs above 6: 28
# b's ends at 17 before the row of 18 comes, though both are of epoch 4 and 5; a's was prolonged.
ENDS = [("b", 17, "gap", 4), ("a", 19, "gap", 6), ("b", 28, "gap", 6), ("c", 55, "patience", 55)]
EPOCHS = 60  # epoch e has the token time e


def run(partition: Any, state: PartitionState, epoch: int) -> list[tuple[Any, ...]]:
    found = ROWS.get(epoch, [])
    rows = pa.table({"key": pa.array([k for k, _ in found], pa.string()),
                     "n": pa.array([n for _, n in found], pa.int64())})  # fmt: skip
    output = partition.feed(state, epoch, rows, watermark=MARKS.get(epoch, 28)).output
    return [tuple(row.values()) for row in output.to_pylist()]


def test_timers_are_due_when_watermark_or_token_time_has_come(partition: Any) -> None:
    partition.operator = Sessions
    state = partition.begun()
    assert [end for epoch in range(1, EPOCHS) for end in run(partition, state, epoch)] == ENDS
    assert state.live["gap"].rows == state.live["patience"].rows == 0


def test_a_crash_at_any_step_of_any_epoch_changes_nothing(partition: Any) -> None:
    partition.operator = Sessions
    state = partition.begun()
    ends: list[tuple[Any, ...]] = []
    for epoch in range(1, EPOCHS):
        partition.files.crash_at(epoch % 7)
        try:
            ends += run(partition, state, epoch)
        except Crashed:
            partition.files.restart()
            state = partition.state()
            ends += run(partition, state, epoch)
    assert ends == ENDS


def test_another_host_resumes_from_a_checkpoint(partition: Any) -> None:
    partition.operator = Sessions
    state = partition.begun()
    for epoch in (1, 2, 3):
        run(partition, state, epoch)
    partition.snapshot(state, 3)
    pointer = partition.checkpoint(3)
    partition.files = type(partition.files)()
    found, state = partition.restore(2, 3, (pointer,))
    assert (found.source, found.epoch) == ("checkpoint:3", 3)
    assert [end for epoch in range(4, EPOCHS) for end in run(partition, state, epoch)] == ENDS


def test_an_error_of_on_timer_keeps_the_timers(partition: Any) -> None:
    partition.operator = Sessions
    state = partition.begun()
    for epoch in (1, 2, 3):
        run(partition, state, epoch)
    state.operator.failing = True
    with pytest.raises(PermanentError, match="epoch 4: on_timer raised ValueError"):
        run(partition, state, 4)
    state.operator.failing = False
    assert run(partition, state, 4) == ENDS[:1]
