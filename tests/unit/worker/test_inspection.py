"""Looking into state while its owner continues, is replaced, or is on another host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.clocks import ManualClock
from perseid.errors import PermanentError, RefusedError
from perseid.records import MAIN, PAIR, REPLICA, WHOLE, Assignment, CheckpointPointer, Plan
from perseid.testing.files import MemoryFiles
from perseid.worker.inspection import TRIES, Inspector, Moment, Place, Read

Look = Callable[..., tuple[Moment, dict[str, int]]]
GIDS = (4, 5)  # of the operator's partitions


class Disturbed(MemoryFiles):
    """Files with somebody else at work: `meanwhile` happens in front of each read."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def read(self, path: str) -> bytes:
        self.meanwhile()
        return super().read(path)


@pytest.fixture
def partition(partition: Any) -> Any:
    partition.files = Disturbed()
    return partition


@pytest.fixture
def look(partition: Any, tmp_path: Path) -> Look:
    def look_(
        *places: Place, wanted: Sequence[int] = (0,)
    ) -> tuple[Moment, dict[str, int]]:
        """The moment and totals; each try gets the next of `places`, the last ever after."""
        reported = iter(places)
        last = [places[0]]

        def place() -> Place:
            last[0] = next(reported, last[0])
            return last[0]

        inspector = Inspector(
            partition.files, "/state", partition.store, ManualClock(), "totals", partition.share,
            GIDS,
        )  # fmt: skip

        def use(moment: Moment, read: Read) -> tuple[Moment, dict[str, int]]:
            tables = [read(number)["total"].snapshot() for number in wanted]
            rows = [row for table in tables for row in table.to_pylist()]
            return moment, {row["key"]: row["n"] for row in rows}

        return inspector.look(place, wanted, use, tmp_path)

    return look_


def place(owner: str | None, generation: int, *pointers: CheckpointPointer) -> Place:
    plan = Plan.fused("job", "uuid", generation, owner, "r", "a", 1, 0, 100)
    return Place(plan, pointers)


def test_the_newest_epoch_of_a_running_owner(partition: Any, look: Look, totals_at: Any) -> None:
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    before = partition.files.list(partition.directory)
    assert look(place("w1-a", 1)) == (Moment(3, "log"), totals_at(3))
    assert partition.files.list(partition.directory) == before


def test_files_that_are_collected_meanwhile(partition: Any, look: Look, totals_at: Any) -> None:
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)

    def collect() -> None:
        partition.files.meanwhile = lambda: None
        partition.snapshot(state, 3)
        state.log.collect(3)
        partition.run(state, 4)

    partition.files.meanwhile = collect
    assert look(place("w1-a", 1)) == (Moment(3, "log"), totals_at(3))


def test_an_owner_that_is_replaced_meanwhile(partition: Any, look: Look, totals_at: Any) -> None:
    state = partition.begun()
    partition.run(state, 1)

    def replaced() -> None:
        partition.files.meanwhile = lambda: None
        partition.take_over(2)

    partition.files.meanwhile = replaced
    found = look(place("w1-a", 1), place("w2-a", 2))
    assert found == (Moment(1, "log"), totals_at(1))


def test_a_takeover_that_has_not_renamed_yet_is_waited_for(
    partition: Any, look: Look, totals_at: Any
) -> None:
    state = partition.begun()
    for epoch in (1, 2):
        partition.run(state, epoch)
    partition.snapshot(state, 2)
    pointer = partition.checkpoint(2)
    partition.run(state, 3)
    away = [place("w9-a", 2, pointer)] * (TRIES - 1)
    partition.owner = "g0000000001-w1-a"
    assert look(*away[:3], place("w1-a", 1, pointer)) == (Moment(3, "log"), totals_at(3))
    # It was taken to another host: what is here is older, and the checkpoint is not.
    assert look(*away) == (Moment(2, "checkpoint"), totals_at(2))


def test_a_stopped_jobs_log_counts_unless_a_checkpoint_is_newer(
    partition: Any, look: Look, totals_at: Any
) -> None:
    state = partition.begun()
    for epoch in (1, 2):
        partition.run(state, epoch)
    partition.snapshot(state, 2)
    pointer = partition.checkpoint(2)
    assert look(place(None, 2, pointer)) == (Moment(2, "log"), totals_at(2))
    state.log.discard_from(2)
    assert look(place(None, 2, pointer)) == (Moment(2, "checkpoint"), totals_at(2))


def test_the_older_checkpoint_when_the_newest_is_damaged(
    partition: Any, look: Look, totals_at: Any
) -> None:
    state = partition.begun()
    pointers: list[CheckpointPointer] = []
    for epoch in (1, 2):
        partition.run(state, epoch)
        partition.snapshot(state, epoch)
        pointers.insert(0, partition.checkpoint(epoch))
    partition.files.delete("/state/uuid")
    newest = pointers[0].manifest.rpartition("/")[0]
    partition.damage(f"{newest}/totals-0.part")
    assert look(place("w9-a", 5, *pointers)) == (Moment(1, "checkpoint"), totals_at(1))
    with pytest.raises(PermanentError, match="no checkpoint of totals-0 can be read"):
        look(place("w9-a", 5, pointers[0]))


def test_no_state_at_all_is_reported(look: Look) -> None:
    with pytest.raises(RefusedError, match="`perseid checkpoint job` takes one"):
        look(place("w9-a", 5))


def with_replica(primary: Assignment, replica: Assignment | None) -> Place:
    replicas = () if replica is None else (replica,)
    plan = Plan("job", "uuid", 9, "r", "a", 1, 0, 100, (primary,), replicas=replicas)
    return Place(plan, ())


def test_the_primarys_copy_is_read_whichever_it_is(
    partition: Any, look: Look, totals_at: Any
) -> None:
    pair = replace(partition, replica=PAIR)
    main_state, pair_state = partition.begun(), pair.begun()
    for epoch in (1, 2, 3):
        partition.run(main_state, epoch)
    pair.run(pair_state, 1)
    first = Assignment(WHOLE, None, "w1-a", 1, log=MAIN)
    second = Assignment(WHOLE, None, "w1-a", 1, log=PAIR)
    assert look(with_replica(first, replace(second, role=REPLICA))) == (
        Moment(3, "log"), totals_at(3),
    )  # fmt: skip
    assert look(with_replica(second, replace(first, role=REPLICA))) == (
        Moment(1, "log"), totals_at(1),
    )  # fmt: skip
    # The other copy is never read for a primary whose own is on another host, or has no owner.
    partition.files.delete("/state/uuid/1/pair")
    for owner in ("w1-a", None):
        with pytest.raises(RefusedError, match="its state log is not on this host"):
            look(with_replica(replace(second, owner=owner), replace(first, role=REPLICA)))


def test_a_promoted_replica_is_read_in_the_directory_that_it_keeps(
    partition: Any, look: Look, totals_at: Any
) -> None:
    pair = replace(partition, replica=PAIR)
    state = pair.state(pair.take_over(4))  # as the replica, whose owner is w4-a
    state.log.write_snapshot(0, 4, 100, {})
    for epoch in (1, 2):
        pair.run(state, epoch)
    promoted = Assignment(WHOLE, None, "w4-a", 7, log=PAIR)
    assert look(with_replica(promoted, None)) == (Moment(2, "log"), totals_at(2))
    # Of another incarnation, or above the plan's generation, it is not the primary's.
    for other in (replace(promoted, owner="w5-a"), replace(promoted, generation=3)):
        with pytest.raises(RefusedError):
            look(with_replica(other, None))


def test_a_log_from_before_the_newest_checkpoint_is_not_its_owners_state(
    partition: Any, look: Look, totals_at: Any
) -> None:
    state = partition.begun()
    for epoch in (1, 2):
        partition.run(state, epoch)
    partition.snapshot(state, 2)
    pointer = partition.checkpoint(2)
    state.log.discard_from(2)
    # The owner has had it under generation 1, and is about to take it over under generation 5.
    assert look(place("w1-a", 5, pointer)) == (Moment(2, "checkpoint"), totals_at(2))


def spread(first: str | None, second: str | None) -> Place:
    """Each partition is a fragment's of its own; the second one was taken over in generation 2."""
    own = (
        Assignment("0", (4,), first, 1, split=0), Assignment("1", (5, 6), second, 2, split=1),
    )  # fmt: skip
    return Place(Plan("job", "uuid", 2, "r", "a", 1, 0, 100, own), ())


def test_partitions_of_several_fragments_are_read_at_an_epoch_that_all_have(
    partition: Any, look: Look, totals_at: Any
) -> None:
    partition.replica = "main-0"
    task, identity = (replace(one, partition=1) for one in (partition.task, partition.identity))
    other = replace(partition, replica="main-1", task=task, identity=identity)
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    lagging = other.state(other.take_over(2))
    lagging.log.write_snapshot(0, 2, 100, {})
    for epoch in (1, 2):
        other.run(lagging, epoch)
    both = spread("w1-a", "w2-a")
    assert look(both) == (Moment(3, "log"), totals_at(3))
    assert look(both, wanted=[0, 1]) == (Moment(2, "log"), totals_at(2))
    assert look(spread("w1-a", None), wanted=[0, 1]) == (Moment(2, "log"), totals_at(2))
    # One of them is on another host, and no checkpoint is complete.
    with pytest.raises(RefusedError):
        look(spread("w1-a", "w9-a"), wanted=[0, 1])
