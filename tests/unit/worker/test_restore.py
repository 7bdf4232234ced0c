"""Bringing a partition back: log, then checkpoints, and never an empty state in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from perseid.engine.order import MUTED
from perseid.engine.resume import UNCOMMITTED, Restored
from perseid.errors import FencedError, PermanentError, RetryableError
from perseid.jobs.model.layout import Task
from perseid.jobs.operator import Operator
from perseid.state import Table, Value
from perseid.state.durability import blob
from perseid.testing.files import MemoryFiles
from perseid.worker.dataflow.partition import partitions

TASK = Task(0, "totals", 0, 1, stateful=True, ledger=0)
IDENTITY = blob.Identity("uuid", 1, TASK.operator, TASK.partition)


def ran(partition: Any, last: int, snapshots: tuple[int, ...] = ()) -> Any:
    """Epochs 1 to `last`, with snapshots; the resident copy of the one that ran them."""
    state = partition.begun()
    for epoch in range(1, last + 1):
        partition.run(state, epoch)
        if epoch in snapshots:
            partition.snapshot(state, epoch)
    return state


def test_a_new_job_starts_empty_after_its_base(partition: Any) -> None:
    found, state = partition.restore(1, 7, tokens={7: 55}, base_epoch=7, base_offset=55)
    assert found == Restored(0, 7, 8, "scratch")
    assert (partition.totals(state), state.log.snapshots()) == ({}, [7])
    assert state.log.snapshot(7).header.token_offset == 55


def test_the_log_on_this_host_is_kept(partition: Any, totals_at: Any) -> None:
    zombie = ran(partition, 5)
    found, state = partition.restore(2, 6)
    assert found == Restored(0, 5, 1, "log")
    assert partition.totals(state) == totals_at(5)
    with pytest.raises(FencedError):
        partition.run(zombie, 6)
    assert partition.run(state, 3).retained


@pytest.mark.parametrize("tokens", [{0: 100, 1: 101}, {0: 100, 1: 101, 2: 107, 3: 108}])
def test_a_token_that_is_gone_and_was_not_taken_back_is_an_error(
    partition: Any, tokens: dict[int, int]
) -> None:
    """Lost, or lost and issued again: epoch 2 of the token at 102 may be in the sinks."""
    ran(partition, 3)
    with pytest.raises(PermanentError, match="epoch 2 of the token at offset 102"):
        partition.restore(2, max(tokens), tokens=tokens, taken_back_below=102)
    found, _ = partition.restore(3, max(tokens), tokens=tokens, taken_back_below=103)
    assert found.epoch == 1


def test_a_collected_log_holds_outputs_after_its_base_only(partition: Any) -> None:
    state = ran(partition, 6, snapshots=(2, 4))
    state.log.collect(4)
    found, _ = partition.restore(2, 6)
    assert (found.epoch, found.held_from, found.source) == (6, 5, "log")


def test_a_snapshot_without_deltas_holds_nothing(partition: Any) -> None:
    state = ran(partition, 4, snapshots=(4,))
    state.log.collect(4)
    found, _ = partition.restore(2, 6)
    assert (found.epoch, found.held_from) == (4, 5)


def test_what_a_replica_ran_shows_of_no_epoch_that_it_is_committed(partition: Any) -> None:
    state = ran(partition, 3)
    for epoch in (4, 5):
        partition.run(state, epoch, generation=MUTED)
    found, state = partition.restore(2, 6)
    assert found == Restored(0, 5, 1, UNCOMMITTED)
    assert partition.run(state, 5, generation=2).retained
    found, state = partition.restore(3, 6)
    assert found.source == UNCOMMITTED, "what is retained was not committed before"
    partition.run(state, 6, generation=3)  # as the primary
    found, _ = partition.restore(4, 7)
    assert found == Restored(0, 6, 1, "log")


def test_without_the_log_the_newest_checkpoint_counts(partition: Any, totals_at: Any) -> None:
    ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    partition.files.delete("/state")
    found, state = partition.restore(2, 6, pointers)
    assert found == Restored(0, 4, 5, "checkpoint:4")
    assert partition.totals(state) == totals_at(4)
    partition.run(state, 5)
    assert partition.totals(state) == totals_at(5)


@pytest.mark.parametrize("what", ["part", "part gone", "manifest", "manifest gone"])
def test_a_damaged_checkpoint_means_an_older_one_and_an_event(
    partition: Any, totals_at: Any, what: str
) -> None:
    ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    partition.files.delete("/state")
    kind = ".json" if what.startswith("manifest") else ".part"
    (path,) = [p for p in partition.store.content if "c-4-" in p and p.endswith(kind)]
    if what.endswith("gone"):
        del partition.store.content[path]
    else:
        partition.damage(path)
    found, state = partition.restore(2, 6, pointers)
    assert (found.epoch, found.source, partition.totals(state)) == (2, "checkpoint:2", totals_at(2))
    (event,) = found.events
    assert event.startswith("checkpoint 4 of totals-0 unusable: ")
    assert path in event


def test_all_checkpoints_damaged_is_an_error_and_not_an_empty_state(partition: Any) -> None:
    ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    partition.files.delete("/state")
    for path in [p for p in partition.store.content if p.endswith(".part")]:
        partition.damage(path)
    with pytest.raises(PermanentError, match=r"tried: 4, 2.*not replaced by an empty one"):
        partition.restore(2, 6, pointers)
    assert partition.log().last_epoch() is None


def test_a_store_that_does_not_answer_is_no_damage(partition: Any) -> None:
    ran(partition, 6, snapshots=(4,))
    pointer = partition.checkpoint(4)
    partition.files.delete("/state")
    partition.store.failing = True
    with pytest.raises(RetryableError, match="does not answer"):
        partition.restore(2, 6, (pointer,))


def test_a_damaged_delta_cuts_the_log_and_is_reported(partition: Any, totals_at: Any) -> None:
    ran(partition, 6)
    path = f"{partition.directory}/e-000000000004.delta"
    partition.files.damage(path, partition.files.read(path)[:-9])
    found, state = partition.restore(2, 6)
    assert (found.epoch, found.held_from, found.source) == (3, 1, "log")
    assert partition.totals(state) == totals_at(3)
    assert len(found.events) == 2
    assert "epochs from 4 on are lost" in found.events[1]


def test_a_log_without_a_sound_base_is_replaced_by_a_checkpoint(
    partition: Any, totals_at: Any
) -> None:
    state = ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    state.log.collect(4)
    (path,) = partition.snapshot_files()
    partition.files.damage(path, b"")
    found, restored = partition.restore(2, 6, pointers)
    assert (found.epoch, found.source) == (4, "checkpoint:4")
    assert partition.totals(restored) == totals_at(4)


def test_a_log_without_a_base_and_without_checkpoints_starts_over(partition: Any) -> None:
    ran(partition, 3)
    for path in partition.snapshot_files():
        partition.files.damage(path, b"")
    found, state = partition.restore(2, 3)
    assert (found.epoch, found.source, partition.totals(state)) == (0, "scratch", {})
    assert found.events


def test_entries_of_tokens_that_were_taken_back_are_discarded(
    partition: Any, totals_at: Any
) -> None:
    ran(partition, 6)
    tokens = {e: 100 + e for e in range(4)} | {4: 204, 5: 205}
    found, state = partition.restore(2, 5, tokens=tokens)
    assert (found.epoch, partition.totals(state)) == (3, totals_at(3))
    assert state.log.epochs() == [1, 2, 3]


def test_entries_above_the_tip_are_discarded(partition: Any) -> None:
    state = ran(partition, 6)
    partition.snapshot(state, 6)
    found, restored = partition.restore(2, 4)
    assert (found.epoch, restored.log.snapshots()) == (4, [0])


def test_a_floor_leaves_a_log_alone_that_holds_enough(partition: Any) -> None:
    ran(partition, 6)
    assert partition.restore(2, 6, floor=2)[0] == Restored(0, 6, 1, "log")


def test_a_floor_sends_a_log_that_holds_too_little_to_a_checkpoint_below(
    partition: Any, totals_at: Any
) -> None:
    state = ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    state.log.collect(4)
    found, restored = partition.restore(2, 6, pointers, floor=3)
    assert (found, partition.totals(restored)) == (Restored(0, 2, 3, "checkpoint:2"), totals_at(2))
    assert restored.log.epochs() == []


def test_a_floor_below_every_checkpoint_is_an_error(partition: Any) -> None:
    state = ran(partition, 6, snapshots=(4,))
    pointer = partition.checkpoint(4)
    state.log.collect(4)
    with pytest.raises(PermanentError, match="none old enough"):
        partition.restore(2, 6, (pointer,), floor=3)


def test_a_restore_that_died_half_way_is_done_again(partition: Any, totals_at: Any) -> None:
    ran(partition, 6, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    partition.files.delete("/state")
    partition.restore(2, 6, pointers)
    found, state = partition.restore(3, 6, pointers)
    assert (found.epoch, found.held_from, found.source) == (4, 5, "log")
    assert partition.totals(state) == totals_at(4)


def test_a_log_older_than_every_known_token_is_no_base(partition: Any, totals_at: Any) -> None:
    """Another host's owner has gone on since: its checkpoints are newer than what was left here."""
    ran(partition, 4, snapshots=(2, 4))
    pointer = partition.checkpoint(4)
    partition.log().discard_from(4)
    found, state = partition.restore(2, 6, (pointer,), tokens={4: 104, 5: 105, 6: 106})
    assert (found.epoch, found.source) == (4, "checkpoint:4")
    assert partition.totals(state) == totals_at(4)
    assert state.log.snapshots() == [4]


def test_a_log_older_than_every_known_token_is_not_used_when_no_checkpoint_can_be_read(
    partition: Any,
) -> None:
    ran(partition, 4, snapshots=(4,))
    pointer = partition.checkpoint(4)
    partition.log().discard_from(4)
    partition.store.content.clear()
    with pytest.raises(PermanentError, match="not replaced by an empty one"):
        partition.restore(2, 6, (pointer,), tokens={4: 104, 5: 105, 6: 106})


def test_a_checkpoint_newer_than_the_log_is_taken_else_the_log(
    partition: Any, totals_at: Any
) -> None:
    ran(partition, 5, snapshots=(2, 4))
    pointers = (partition.checkpoint(4), partition.checkpoint(2))
    partition.log().discard_from(4)
    damaged = [p for p in partition.store.content if "c-4-" in p and p.endswith(".part")]
    whole = dict(partition.store.content)
    partition.damage(damaged[0])
    found, state = partition.restore(2, 6, pointers)
    assert (found.epoch, found.source, len(found.events)) == (3, "log", 1)
    assert partition.totals(state) == totals_at(3)
    partition.store.content = whole
    found, state = partition.restore(3, 6, pointers)
    assert (found.epoch, found.source) == (4, "checkpoint:4")
    assert partition.totals(state) == totals_at(4)


@pytest.mark.parametrize("gone", [False, True])
def test_a_bad_delta_before_the_newest_snapshot_costs_only_what_lies_before_it(
    partition: Any, totals_at: Any, gone: bool
) -> None:
    ran(partition, 6, snapshots=(2, 4))
    path = f"{partition.directory}/e-000000000003.delta"
    if gone:
        partition.files.delete(path)
    else:
        partition.files.damage(path, b"")
    found, state = partition.restore(2, 6)
    assert (found.epoch, found.held_from, found.source) == (6, 5, "log")
    assert partition.totals(state) == totals_at(6)
    assert (state.log.snapshots(), state.log.epochs()) == ([4], [5, 6])
    state.bring_to(5)
    assert partition.totals(state) == totals_at(5)


class Resized(Operator):
    """The fixture's; the first partition takes the count of rows over."""

    total = Table(key=pa.string(), n=pa.int64())
    rows = Value(pa.int64(), default=0)

    def rescale(self, old: Sequence[Any]) -> None:
        if self.partition == 0:
            self.rows.set(sum(one.rows.get() for one in old))


def resized(partition: Any, number: int, count: int) -> Any:
    """A partition of the next layout on another host, with the same store."""
    task = replace(TASK, partition=number)
    identity = replace(IDENTITY, layout=2, partition=number)
    return replace(
        partition, files=MemoryFiles(), task=task, identity=identity, operator=Resized,
        parallelism=count,
    )  # fmt: skip


def test_a_checkpoint_of_another_number_of_partitions_is_redistributed(
    partition: Any, totals_at: Any
) -> None:
    ran(partition, 6, snapshots=(4,))
    pointer = partition.checkpoint(4)
    union: dict[str, int] = {}
    rows = []
    for number in range(3):
        found, state = resized(partition, number, 3).restore(2, 4, (pointer,), base_epoch=4)
        assert (found.epoch, found.source) == (4, "checkpoint:4")
        mine = partition.totals(state)
        where = partitions(pa.table({"key": list(mine)}), ("key",), 3) if mine else ()
        assert set(where) <= {number}
        assert not union.keys() & mine.keys()
        union |= mine
        rows.append(state.live["rows"].get())
    assert union == totals_at(4)
    assert rows == [8, 0, 0]


@pytest.mark.parametrize(("before", "after"), [("main", "main-1"), ("main-1", "main")])
def test_a_change_between_one_fragment_and_several_restores_into_a_directory_of_its_own(
    partition: Any, totals_at: Any, before: str, after: str
) -> None:
    partition.replica = before
    ran(partition, 6, snapshots=(4,))
    pointer = partition.checkpoint(4)
    old = {path: partition.files.read(path) for path in partition.files.below(partition.directory)}
    moved = replace(partition, identity=replace(IDENTITY, layout=2), replica=after)
    found, state = moved.restore(2, 4, (pointer,), base_epoch=4)
    assert (found.epoch, found.source) == (4, "checkpoint:4")
    assert moved.totals(state) == totals_at(4)
    assert moved.log().epochs() == []
    assert {path: partition.files.read(path) for path in old} == old


def test_a_fragment_takes_over_its_own_directory_only(partition: Any, totals_at: Any) -> None:
    other = replace(partition, replica="main-1")
    for one, epochs in ((partition, 6), (other, 3)):
        ran(one, epochs)
    found, _ = partition.restore(2, 6)
    assert (found.epoch, found.source) == (6, "log")
    assert other.log().last_epoch() == 3
    found, state = other.restore(2, 6)
    assert (found.epoch, found.source, other.totals(state)) == (3, "log", totals_at(3))


def test_a_damaged_part_is_never_an_empty_share(partition: Any) -> None:
    ran(partition, 4, snapshots=(4,))
    pointer = partition.checkpoint(4)
    (path,) = [p for p in partition.store.content if p.endswith(".part")]
    partition.damage(path)
    with pytest.raises(PermanentError, match="not replaced by an empty one"):
        resized(partition, 1, 2).restore(2, 4, (pointer,), base_epoch=4)
