"""What a replica has made and what ledgers have: equal, or divergence with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest

from perseid.engine.comparison import OF_GATE, WAITING_MAX, Comparison, Unequal, diverged
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import Made, PartitionReport, TaskReport
from perseid.errors import PermanentError
from perseid.jobs.model.layout import build
from perseid.topics.records import LedgerRecord, SinkWindow, Token
from support.coordinator import job_spec

LAYOUT = build(job_spec(parallelism=2), 1)
TASKS = LAYOUT.ledger_tasks
FROM = 100  # offset of the token of epoch 0

Outputs = dict[tuple[str, int], tuple[int, int]]


class Equal(Comparison):
    """Fails at the first difference."""

    def _compare(self, *given: Any) -> list[Unequal]:
        assert not super()._compare(*given)
        return []


def comparison(counts_from: int = FROM) -> Comparison:
    return Equal("u", LAYOUT, counts_from)


def order(epoch: int, at: int | None = None) -> EpochOrder:
    token = Token(1, "u", epoch, 0, "r", 1, (), 1_000)
    return EpochOrder(token, FROM + epoch if at is None else at, None, generation=7, muted=True)


def report(epoch: int, outputs: Outputs, gid: int = TASKS[0].gid) -> TaskReport:
    made = tuple(Made(*place, *total) for place, total in outputs.items())
    return TaskReport(epoch, partitions={gid: PartitionReport(made=made)})


def record(epoch: int, outputs: Outputs, task: int = 0, **changes: Any) -> LedgerRecord:
    windows = tuple(
        SinkWindow(topic, partition, 5, 5 + count, count, crc)
        for (topic, partition), (count, crc) in outputs.items()
    )
    who = TASKS[task]
    fields = {
        "job_uuid": "u", "layout": 1, "operator": who.operator, "partition": who.partition,
        "generation": 3, "epoch": epoch, "token_offset": FROM + epoch, "outputs": windows,
    }  # fmt: skip
    return LedgerRecord(**{**fields, **changes})


def _counted(side: Made | SinkWindow | None) -> tuple[int, int] | None:
    return None if side is None else (side.count, side.checksum)


def random_outputs(chance: Random) -> Outputs:
    places = [(topic, p) for topic in ("a", "b") for p in range(3)]
    return {place: (chance.randrange(1, 9), chance.randrange(1 << 63)) for place in
            chance.sample(places, chance.randrange(4))}  # fmt: skip


def mixed(chance: Random, *sides: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """The sides' items, each in its own order."""
    left = [list(side) for side in sides]
    while any(left):
        which = chance.choice([i for i, side in enumerate(left) if side])
        yield which, left[which].pop(0)


@pytest.mark.parametrize("seed", range(20))
def test_equal_outputs_pass_in_any_order_of_the_sides(seed: int) -> None:
    chance, found = Random(seed), comparison()
    history = [(e, [random_outputs(chance) for _ in TASKS]) for e in range(1, 40)]
    for side, (epoch, outputs) in mixed(chance, history, history):
        for task, one in enumerate(outputs):
            if side:
                assert found.committed(record(epoch, one, task)) == []
            else:
                assert found.ran(order(epoch), report(epoch, one, TASKS[task].gid)) == []
    assert (found.unchecked, found.waiting) == (0, ())
    windows = [(topic, count) for _, sides in history for one in sides
               for (topic, _), (count, _) in one.items()]  # fmt: skip
    for topic in ("a", "b"):
        counts = [count for name, count in windows if name == topic]
        assert (found.windows[topic], found.records[topic]) == (len(counts), sum(counts))


def test_an_epoch_counts_as_equal_once_all_partitions_have_compared_it() -> None:
    found = comparison()
    for number, task in enumerate(TASKS):
        assert found.equal == 0, number
        found.ran(order(1), report(1, SAME if not number else {}, task.gid))
        found.committed(record(1, SAME if not number else {}, number))
    assert found.equal == 1


def test_epochs_without_outputs_show_nothing_of_a_revision() -> None:
    found = comparison()
    for epoch in range(1, WAITING_MAX + 3):
        for number, task in enumerate(TASKS):
            found.ran(order(epoch), report(epoch, {}, task.gid))
            found.committed(record(epoch, {}, number))
    assert found.equal == 0


def test_a_gate_shows_what_to_do_about_a_difference() -> None:
    found = Comparison("u", LAYOUT, FROM)
    found.ran(order(1), report(1, SAME))
    (unequal,) = found.committed(record(1, {**SAME, ("more", 0): (1, 2)}))
    shown = str(diverged(unequal, OF_GATE))
    assert re.search(r"new revision has made nothing.* apply it again with", shown)
    assert found.equal == 0


SAME: Outputs = {("out", 0): (3, 11), ("out", 2): (1, 12)}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    ("committed", "shown"),
    [
        ({**SAME, ("out", 2): (2, 12)}, "made 1 records with checksum 0xc.* committed 2 records"),
        ({**SAME, ("out", 2): (1, 13)}, "checksum 0xc.* committed 1 records with checksum 0xd"),
        ({("out", 0): (3, 11)}, "made 1 records with checksum 0xc, .* committed nothing"),
        ({("out", 0): (3, 11), ("out", 2): (1, 12), ("more", 1): (4, 5)},
         r"more\[1\]: the replica has made nothing, .* committed 4 records"),
        ({}, r"out\[0\]: the replica has made 3 records with checksum 0xb, .*nothing"),
    ],
)  # fmt: skip
def test_each_difference_is_found_with_its_place(
    committed: Outputs, shown: str, late: bool
) -> None:
    found = Comparison("u", LAYOUT, FROM)

    def make() -> list[Unequal]:
        return found.ran(order(5), report(5, SAME, TASKS[1].gid))

    if not late:
        assert make() == []
        unequal = found.committed(record(5, committed, 1))
    else:
        assert found.committed(record(5, committed, 1)) == []
        unequal = make()
    who, error = TASKS[1], diverged(unequal[0])
    assert re.search(shown, str(error))
    assert f"operator {who.operator}, partition {who.partition}, epoch 5, " in str(error)
    assert isinstance(error, PermanentError)
    places = {(one.topic, one.topic_partition) for one in unequal}
    assert places == {p for p in SAME.keys() | committed.keys() if SAME.get(p) != committed.get(p)}
    for one in unequal:
        place = one.topic, one.topic_partition
        assert _counted(one.made) == SAME.get(place)
        assert _counted(one.committed) == committed.get(place)
        assert one.token_offset == FROM + 5
    assert found.ran(order(6), report(6, SAME, who.gid)) == []
    assert found.committed(record(6, SAME, 1)) == []


def test_records_where_the_replica_made_none_are_a_difference() -> None:
    found = Comparison("u", LAYOUT, FROM)
    found.ran(order(1), report(1, {}))
    (unequal,) = found.committed(record(1, {("out", 0): (3, 11)}))
    assert "made nothing, and the primary has committed 3 records" in str(diverged(unequal))


def test_a_takeover_is_no_difference() -> None:
    """The claim of the last record has its epoch, another generation and no outputs."""
    found = comparison()
    found.ran(order(1), report(1, SAME))
    found.committed(record(1, SAME))
    found.committed(record(1, {}, generation=4))
    found.ran(order(2), report(2, SAME))
    found.committed(record(2, SAME, generation=4))
    found.committed(record(3, SAME, generation=4))
    found.committed(record(3, {}, generation=5))
    found.ran(order(3), report(3, SAME))
    assert (found.unchecked, found.waiting) == (0, ())


def test_a_claim_whose_record_was_not_read_is_no_difference() -> None:
    found = comparison(counts_from=FROM + 6)
    found.ran(order(5), report(5, SAME))
    found.committed(record(5, {}, generation=4))
    found.ran(order(6), report(6, SAME))
    found.committed(record(6, SAME, generation=4))
    assert found.unchecked == 0


def test_a_token_that_was_rolled_back_is_not_compared_with_its_successor() -> None:
    found = comparison()
    found.ran(order(1, FROM + 1), report(1, SAME))
    found.ran(order(1, FROM + 9), report(1, {}))
    found.committed(record(1, {}, token_offset=FROM + 9))
    assert found.waiting == ()


@pytest.mark.parametrize("changes", [{"job_uuid": "v"}, {"layout": 2}, {"operator": "gone"}])
def test_records_of_others_are_skipped(changes: dict[str, Any]) -> None:
    found = comparison()
    found.ran(order(1), report(1, SAME))
    found.committed(record(1, {}, **changes))
    found.committed(record(1, SAME))
    assert found.waiting == ()


def test_the_replica_may_be_late_or_begin_in_the_middle() -> None:
    found = comparison()
    for epoch in range(1, 10):
        found.committed(record(epoch, SAME))
    for epoch in range(5, 12):  # its log had the epochs before
        found.ran(order(epoch), report(epoch, SAME))
    assert found.waiting == (TASKS[0].ledger,)
    assert found.unchecked == 0


def test_what_waits_is_bounded_and_what_is_dropped_is_counted() -> None:
    found = comparison(counts_from=FROM + 11)
    for epoch in range(1, WAITING_MAX + 31):
        found.ran(order(epoch), report(epoch, SAME))
    assert found.unchecked == 20  # thirty were dropped, ten of them from before the reading began
    found.committed(record(WAITING_MAX + 30, SAME))  # the ledger was trimmed
    assert found.unchecked == 20 + WAITING_MAX - 1
    for epoch in range(WAITING_MAX + 31, 2 * WAITING_MAX + 41):
        found.committed(record(epoch, SAME))
    assert found.unchecked == 20 + WAITING_MAX - 1 + 10


def test_partitions_without_sinks_and_unmuted_epochs_have_nothing_to_compare() -> None:
    found = comparison()
    found.ran(order(1), TaskReport(1, partitions={0: PartitionReport(sent=3)}))
    assert found.waiting == ()
