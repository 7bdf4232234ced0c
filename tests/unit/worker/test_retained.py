"""A partition whose log retains outputs in files of their own: what a retry and a restore find."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.engine.resume import Restored
from perseid.errors import RetryableError
from perseid.jobs.model.spec import MAIN


@pytest.fixture
def partition(partition: Any) -> Any:
    partition.retains = True
    return partition


def output_files(partition: Any) -> list[str]:
    names = partition.files.list(partition.directory)
    return [f"{partition.directory}/{name}" for name in names if name.endswith(".outputs")]


def ran(partition: Any, last: int) -> Any:
    state = partition.begun()
    for epoch in range(1, last + 1):
        partition.run(state, epoch)
    return state


def test_an_epoch_is_returned_out_of_both_files(partition: Any, totals_at: Any) -> None:
    state = partition.begun()
    made = [partition.run(state, epoch) for epoch in (1, 2)]
    again = [partition.run(partition.state(), epoch) for epoch in (1, 2)]
    assert [result.output for result in again] == [result.output for result in made]
    assert all(result.retained for result in again)
    assert [r.changed_bytes for r in again] == [r.changed_bytes for r in made]
    assert "out" not in partition.log().entry(2).sections
    other = partition.state()
    other.bring_to(2)
    assert partition.totals(other) == totals_at(2)


def test_an_epoch_without_rows_has_no_file_of_outputs(partition: Any) -> None:
    state = partition.begun()
    nothing = pa.table({"key": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    assert partition.feed(state, 1, nothing).output.num_columns == 0
    assert output_files(partition) == []
    assert partition.feed(partition.state(), 1, nothing).output.num_columns == 0


def test_what_is_fed_back_is_state_and_stays_in_the_delta(partition: Any) -> None:
    state = partition.begun()
    state.feeds_back = [MAIN]
    made = partition.run(state, 1).output
    assert (output_files(partition), partition.run(partition.state(), 1).output) == ([], made)
    state.log.release(1)
    assert partition.run(partition.state(), 1).output == made


def test_an_epoch_whose_outputs_are_lost_has_to_be_restored(partition: Any) -> None:
    ran(partition, 3)
    path = output_files(partition)[-1]
    partition.files.damage(path, partition.files.read(path)[:-1])
    with pytest.raises(RetryableError, match=r"\.outputs has .* bytes.*; it has to be restored"):
        partition.run(partition.state(), 3)
    partition.files.delete(path)
    with pytest.raises(RetryableError, match="epoch 3 without its outputs; it has to be restored"):
        partition.run(partition.state(), 3)


@pytest.mark.parametrize("gone", [False, True])
def test_a_log_without_outputs_that_are_needed_goes_back_and_runs_them_again(
    partition: Any, totals_at: Any, gone: bool
) -> None:
    state = ran(partition, 6)
    outputs = [partition.run(state, epoch).output for epoch in (5, 6)]
    path = output_files(partition)[4]  # of epoch 5
    if gone:
        partition.files.delete(path)
    else:
        partition.files.damage(path, b"")
    found, state = partition.restore(2, 6)
    assert (found.epoch, found.held_from, len(found.events)) == (6, 6, not gone)
    assert partition.totals(state) == totals_at(6)
    state.check_retained(0)
    found, state = partition.restore(3, 6, floor=4)
    assert found == Restored(0, 4, 1, "log")
    assert [partition.run(state, epoch).output for epoch in (5, 6)] == outputs
    assert partition.totals(state) == totals_at(6)


def test_a_log_whose_last_outputs_are_lost_keeps_its_state(partition: Any, totals_at: Any) -> None:
    ran(partition, 6)
    partition.files.delete(output_files(partition)[-1])
    found, state = partition.restore(2, 6)
    assert (found, partition.totals(state)) == (Restored(0, 6, 7, "log"), totals_at(6))
    state.check_retained(0)


def test_a_log_that_cannot_go_back_takes_a_checkpoint(partition: Any, totals_at: Any) -> None:
    state = ran(partition, 6)
    for epoch in (2, 4):
        partition.snapshot(state, epoch)
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    state.log.collect(4)
    state.log.release(6)
    found, state = partition.restore(2, 6, pointers, floor=3)
    assert (found, partition.totals(state)) == (Restored(0, 2, 3, "checkpoint:2"), totals_at(2))
    assert output_files(partition) == []


def test_what_was_released_is_not_held(partition: Any) -> None:
    state = ran(partition, 6)
    partition.snapshot(state, 2)
    state.log.collect(2)
    state.log.release(4)
    assert partition.restore(2, 6)[0] == Restored(0, 6, 5, "log")
