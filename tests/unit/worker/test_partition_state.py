"""One partition's epochs: the log is the truth, resident copies follow it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import FencedError, PermanentError, RetryableError
from perseid.jobs.operator import Emitter
from perseid.testing.files import Crashed
from perseid.topics.records import Token
from perseid.worker.dead_letters.poison import Sieve
from perseid.worker.dead_letters.refused import Refused, to_table


def test_an_epoch_is_logged_with_its_output(partition: Any, totals_at: Any) -> None:
    state = partition.begun()
    result = partition.run(state, 1)
    assert result.output.to_pylist() == [{"key": "all", "n": 1}, {"key": "k1", "n": 1}]
    assert (result.retained, state.epoch, partition.log().epochs()) == (False, 1, [1])
    assert partition.totals(state) == totals_at(1)


def test_an_epoch_that_the_log_holds_is_handed_out_and_not_processed(partition: Any) -> None:
    first = partition.begun()
    made = [partition.run(first, e).output for e in (1, 2)]
    for state in (first, partition.state()):
        calls = state.operator.calls
        again = partition.run(state, 1)
        assert (again.retained, again.output) == (True, made[0])
        assert state.operator.calls == calls


def test_what_an_epoch_changed_is_reported_whether_it_is_processed_or_retained(
    partition: Any,
) -> None:
    first = partition.begun()
    reported = partition.run(first, 1).changed_bytes
    sections = partition.log().entry(1).sections
    deltas = [data for name, data in sections.items() if name.startswith("state.")]
    assert reported == sum(map(len, deltas)) > 0
    assert partition.run(partition.state(), 1).changed_bytes == reported


def test_of_two_attempts_at_once_the_first_file_is_the_epoch(
    partition: Any, totals_at: Any
) -> None:
    fast, slow = partition.begun(), partition.state()
    process = slow.operator.process

    def overtaken(batch: pa.Table, out: Any) -> None:
        process(batch, out)
        partition.run(fast, 1)

    slow.operator.process = overtaken
    # Other rows stand for an operator that is not deterministic, against the rules.
    late = partition.feed(slow, 1, pa.table({"key": ["other"], "n": [7]}))
    assert late.retained
    assert late.output.to_pylist() == [{"key": "all", "n": 1}, {"key": "k1", "n": 1}]
    assert (slow.epoch, partition.totals(slow)) == (1, totals_at(1))


def test_a_retained_epoch_does_not_touch_the_resident_state(partition: Any, totals_at: Any) -> None:
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    partition.run(state, 2)
    assert (state.epoch, partition.totals(state)) == (3, totals_at(3))
    partition.run(state, 4)
    assert partition.totals(state) == totals_at(4)


def test_nothing_emitted_is_retained_as_a_table_without_columns(partition: Any) -> None:
    state = partition.begun()
    rows = pa.table({"key": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    assert partition.feed(state, 1, rows).output.num_columns == 0
    assert partition.feed(partition.state(), 1, rows).output.num_columns == 0
    assert state.operator.calls == 0


def test_other_processes_catch_up_by_deltas(partition: Any, totals_at: Any) -> None:
    one, two = partition.begun(), partition.state()
    for epoch in range(1, 9):
        partition.run(two if epoch % 3 == 0 else one, epoch)
    for state in (one, two):
        state.bring_to(8)
        assert (partition.totals(state), state.live["rows"].get()) == (totals_at(8), 16)


def test_a_copy_that_is_ahead_goes_back(partition: Any, totals_at: Any) -> None:
    state = partition.begun()
    for epoch in range(1, 6):
        partition.run(state, epoch)
    state.bring_to(2)
    assert partition.totals(state) == totals_at(2)


def test_a_copy_whose_next_deltas_are_collected_loads_the_snapshot(
    partition: Any, totals_at: Any
) -> None:
    one, older = partition.begun(), partition.state()
    partition.run(one, 1)
    older.bring_to(1)
    for epoch in (2, 3, 4):
        partition.run(one, epoch)
    partition.snapshot(one, 3)
    one.log.collect(3)
    older.bring_to(4)
    assert partition.totals(older) == totals_at(4)


def test_an_operator_that_raises_leaves_a_dirty_copy_that_is_rebuilt(
    partition: Any, totals_at: Any
) -> None:
    state = partition.begun()
    partition.run(state, 1)
    state.operator.failing = True
    with pytest.raises(PermanentError) as caught:
        partition.run(state, 2)
    text = "operator totals (Totals), partition 0, epoch 2: process raised ValueError: as the test"
    assert str(caught.value).startswith(text)
    place = "row 1 of 2 (of input input): {key: string of 3 characters, n: int64}"
    assert place in str(caught.value)
    assert (state.epoch, partition.log().epochs()) == (None, [1])
    state.operator.failing = False
    partition.run(state, 2)
    assert (partition.totals(state), state.live["rows"].get()) == (totals_at(2), 4)


def test_a_write_that_fails_leaves_a_dirty_copy_that_is_rebuilt(
    partition: Any, totals_at: Any
) -> None:
    state = partition.begun()
    partition.run(state, 1)
    partition.files.fail("link")
    with pytest.raises(RetryableError, match="cannot write"):
        partition.run(state, 2)
    assert state.epoch is None
    partition.run(state, 2)
    assert partition.totals(state) == totals_at(2)


def test_a_crash_at_any_step_of_an_epoch_leaves_it_whole_or_undone(
    partition: Any, totals_at: Any
) -> None:
    state = partition.begun()
    epoch, step = 1, 0
    while True:
        partition.files.crash_at(step)
        try:
            partition.run(state, epoch)
        except Crashed:
            partition.files.restart()
            state = partition.state()
            assert partition.log().epochs() in ([*range(1, epoch)], [*range(1, epoch + 1)])
            partition.run(state, epoch)
            epoch, step = epoch + 1, step + 1
            continue
        break
    partition.files.restart()
    assert epoch > 4  # make, write (several), link, unlink
    state.bring_to(epoch)
    assert partition.totals(state) == totals_at(epoch)


def test_the_entry_of_a_token_that_was_taken_back_is_discarded(partition: Any) -> None:
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    rows = pa.table({"key": ["new"], "n": [7]})
    result = partition.feed(state, 2, rows, offset=150)
    assert result.output.to_pylist() == [{"key": "new", "n": 7}]
    assert partition.log().epochs() == [1, 2]
    assert partition.totals(state) == {"all": 1, "k1": 1, "new": 7}


def test_an_epoch_that_the_log_cannot_reach_has_to_be_restored(partition: Any) -> None:
    state = partition.begun()
    partition.run(state, 1)
    with pytest.raises(RetryableError, match="reaches epoch 1, and epoch 3 is needed"):
        partition.run(state, 4)


@pytest.mark.parametrize("epoch", [3, 4])  # handed out, and processed
def test_a_damaged_log_has_to_be_restored(partition: Any, epoch: int) -> None:
    """It is no reason to stop the job: the restore leaves out what is damaged."""
    state = partition.begun()
    for number in (1, 2, 3):
        partition.run(state, number)
    for number in (2, 3):
        partition.damage_log("delta", number)
    with pytest.raises(RetryableError, match=r"has the CRC .*; it has to be restored"):
        partition.run(partition.state(), epoch)


def test_a_snapshot_is_that_of_its_epoch_though_the_copy_is_ahead(
    partition: Any, totals_at: Any
) -> None:
    state = partition.begun()
    for epoch in (1, 2, 3):
        partition.run(state, epoch)
    partition.snapshot(state, 2)
    partition.snapshot(state, 2)
    assert partition.log().snapshots() == [0, 2]
    fresh = partition.state()
    fresh.log.collect(2)
    fresh.bring_to(2)
    assert (partition.totals(fresh), fresh.log.epochs()) == (totals_at(2), [3])


def test_an_owner_that_was_replaced_cannot_write(partition: Any) -> None:
    state = partition.begun()
    partition.run(state, 1)
    partition.take_over(2)
    with pytest.raises(FencedError, match="a newer owner has taken it"):
        partition.run(state, 2)


def test_a_primitive_that_a_revision_has_added_starts_empty(partition: Any) -> None:
    state = partition.begun()
    partition.run(state, 1)
    del state.live["rows"]  # the old revision had only `total`
    state.log.discard_from(1)
    state.epoch = None
    partition.run(state, 1)
    partition.snapshot(state, 1)
    newer = partition.state()
    newer.bring_to(1)
    assert newer.live["rows"].get() == 0
    partition.run(newer, 2)
    assert newer.live["rows"].get() == 2


def test_a_log_of_other_primitives_is_refused(partition: Any) -> None:
    """A changed revision that ends an epoch continues with the log, not with a checkpoint."""
    state = partition.begun()
    partition.run(state, 1)
    partition.snapshot(state, 1)
    other = partition.state()
    other.live["sum"] = other.live.pop("total")
    with pytest.raises(PermanentError, match=r"begun with other state: total is gone\. Only"):
        other.bring_to(1)
    partition.run(partition.state(), 2)


def test_a_log_without_a_primitive_that_migrate_would_make_is_refused(partition: Any) -> None:
    """It would begin empty, and `migrate` would not be called later."""
    state = partition.begun()
    del state.live["rows"]
    state.epoch = None
    partition.run(state, 1)
    partition.snapshot(state, 1)
    partition.state().bring_to(1)
    newer = partition.state()
    methods: dict[str, Any] = {"migrate": lambda *_: {}}
    newer.operator.__class__ = type("Migrating", (type(newer.operator),), methods)
    with pytest.raises(PermanentError, match=r"begun with other state: rows is new\. Only"):
        newer.bring_to(1)


def test_what_an_epoch_emitted_must_be_what_the_class_declares(partition: Any) -> None:
    """A partition has done an epoch that a revision with other columns is to end."""
    state = partition.begun()
    partition.run(state, 1)
    state.check_retained(0)
    kind = type(state.operator)
    key, same, other = (pa.field(*f) for f in (
        ("key", pa.string()), ("n", pa.int64()), ("n", pa.float64())
    ))  # fmt: skip
    state.operator.__class__ = type("Same", (kind,), {"output": pa.schema([key, same])})
    state.check_retained(0)
    state.operator.__class__ = type("Other", (kind,), {"output": pa.schema([key, other])})
    state.check_retained(1)  # a switch has ended after that epoch
    with pytest.raises(PermanentError, match=r"n int64\), expected \(key string, n double"):
        state.check_retained(0)


def test_an_operator_that_bisects_continues_without_the_poison(partition: Any) -> None:
    state = partition.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    partition.run(state, 1)
    before = partition.totals(state)
    process = state.operator.process

    def picky(batch: pa.Table, out: Any) -> None:
        process(batch, out)  # what it changed and emitted must not stay
        if "bad" in batch["key"].to_pylist():
            raise ValueError("as the test wants")

    state.operator.process = picky
    rows = pa.table({"key": ["a", "bad", "b", "bad", "a"], "n": [1, 2, 3, 4, 5]})
    made = partition.feed(state, 2, rows)
    assert made.output.to_pylist() == [{"key": "a", "n": 6}, {"key": "b", "n": 3}]
    assert [row["value"] for row in made.letters.to_pylist()] == [
        b'{"key": "bad", "n": 2}', b'{"key": "bad", "n": 4}',
    ]  # fmt: skip
    assert partition.totals(state) == {**before, "a": 6, "b": 3}
    assert state.live["rows"].get() == 2 + 3

    again = partition.feed(partition.state(), 2, rows)  # another process, after a kill
    assert again.retained
    assert (again.output, again.letters) == (made.output, made.letters)
    fresh = partition.state()
    fresh.bring_to(2)
    assert partition.totals(fresh) == partition.totals(state)


def test_without_poison_there_are_no_letters(partition: Any) -> None:
    state = partition.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    assert partition.run(state, 1).letters is None
    assert partition.run(partition.state(), 1).letters is None
    assert state.operator.calls == 1


@pytest.mark.parametrize("bisects", [True, False])
def test_letters_that_it_writes_for_others_are_in_the_log_with_its_own(
    partition: Any, bisects: bool
) -> None:
    others = to_table([Refused("t", 1, 40, b"k", b"v", "NullKey", "why")])
    state = partition.begun()
    state.sieve = Sieve("totals", 0, ("key",)) if bisects else None
    token, rows = Token(1, "uuid", 1, 100, "r", 1, (), 1), pa.table({"key": ["a"], "n": [1]})
    for again in (False, True):
        inputs = {"input": rows.slice(0, 0) if again else rows}
        found = state.run(token, 101, 1, inputs, Emitter("totals"), None if again else others)
        assert (found.retained, found.letters) == (again, others)
