"""Checkpoints of changes: chains that restore to the state, whatever crashes, and their removal."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import PermanentError, PerseidError, RetryableError
from perseid.jobs.model.spec import MAIN
from perseid.state.durability import checkpoint
from perseid.state.durability.checkpoint import LINKS_MAX
from perseid.state.durability.merging import STATE
from perseid.state.primitives.arrow import ipc_table
from perseid.testing.files import Crashed
from perseid.worker.checkpoint import parts
from perseid.worker.checkpoint.parts import make, write_snapshot
from support.checkpoint_history import History, model_of


@pytest.fixture
def begin(partition: Any) -> Callable[[int], History]:
    """New histories: Hypothesis runs many in one test."""
    return lambda seed: History(type(partition)(), random.Random(seed))


@pytest.mark.parametrize("seed", range(6))
def test_chains_restore_to_the_state_whatever_happens(
    begin: Callable[[int], History], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Crashes in any step of a part, takeovers with and without the log, collection after each.

    Some states are copied at once, and then the checkpoints after them build upon these.
    """
    monkeypatch.setattr(checkpoint, "LINKS_SMALL", 0 if seed % 2 else 1 << 16)
    history = begin(seed)
    rng, files = history.rng, history.partition.files
    orders: list[parts.PartOrder] = []
    for _ in range(20):
        for _ in range(rng.randrange(1, 4)):
            history.run()
        chosen = rng.random() < 0.2
        history.state.at_once = lambda *_, chosen=chosen: chosen
        order = history.order()
        orders.append(order)
        if rng.random() < 0.3:
            files.crash_at(rng.randrange(6))  # the part writer dies; another one takes the order
            try:
                history.complete(order)
            except Crashed:
                files.restart()
                history.complete(order)
            files.restart()
        else:
            history.complete(order)
        with contextlib.suppress(PerseidError):  # an attempt that was aborted runs on, late
            make(rng.choice(orders), files, history.partition.store)
        history.check()
        if rng.random() < 0.1:
            history.take_over(keep_log=rng.random() < 0.5)
    assert seed % 2 or max(history.links) > 2


def test_a_part_of_changes_is_small_and_the_whole_state_comes_again(
    begin: Callable[[int], History],
) -> None:
    history = begin(1)
    large = pa.table({"key": [f"x{i}" for i in range(2000)], "n": [1] * 2000})
    history.epoch = 1
    history.partition.feed(history.state, 1, large)
    for _ in range(2 * LINKS_MAX + 3):
        history.run()
        history.complete(history.order())
    assert history.links == [*range(LINKS_MAX + 1), *range(LINKS_MAX + 1), 0]
    whole, first, *_ = history.live()[1][1].parts[0].files(0)
    assert first.bytes < whole.bytes / 20


def test_a_late_attempt_leaves_alone_what_counts(begin: Callable[[int], History]) -> None:
    """It found its base gone, took the whole state instead, and put it under the part's name."""
    history = begin(9)
    history.run()
    history.complete(history.order())
    history.run()
    late = history.order()
    history.complete(late)
    assert history.links == [0, 1]
    _, newest = history.live()[0]
    del history.partition.store.content[history.pointers[1].manifest]
    assert make(late, history.partition.files, history.partition.store).chain == ()
    sections = checkpoint.read_state(history.partition.store, newest, "totals", 0)
    assert model_of(sections) == history.models[2]


def test_a_new_owner_begins_with_the_whole_state(begin: Callable[[int], History]) -> None:
    history = begin(2)
    for _ in range(2):
        history.run()
        history.complete(history.order())
    history.take_over(keep_log=True)
    history.run()
    history.complete(history.order())
    assert history.links[-1] == 0


def test_a_neighbour_with_another_owner_does_not_change_what_a_part_builds_upon(
    begin: Callable[[int], History],
) -> None:
    """A checkpoint has the highest generation of its parts, and each fragment one of its own."""
    history = begin(2)
    history.run()
    history.complete(history.order())
    (pointer,) = history.pointers
    of_own = checkpoint.read_manifest(history.partition.store, pointer.manifest, pointer.crc)
    shared = replace(of_own, generation=7)
    path, crc = checkpoint.write_manifest(history.partition.store, shared)
    history.pointers = (replace(pointer, generation=7, manifest=path, crc=crc),)
    history.run()
    history.complete(history.order())
    assert history.links == [0, 1]
    history.take_over(keep_log=True)  # its generation is lower than 7, and the part another one's
    history.run()
    history.complete(history.order())
    assert history.links == [0, 1, 0]
    history.check()


def test_the_checkpoint_after_which_there_is_no_way_back_is_whole(
    begin: Callable[[int], History],
) -> None:
    """That of a final token: damage to an older file must not reach the next revision or layout."""
    history = begin(8)
    for final in (False, False, True):
        history.run()
        history.complete(history.order(final=final))
    assert history.links == [0, 1, 0]
    assert history.pointers[0].base_epoch == history.epoch


def test_a_base_that_cannot_be_read_means_the_whole_state(
    begin: Callable[[int], History],
) -> None:
    history = begin(3)
    history.run()
    history.complete(history.order())
    history.run()
    history.partition.damage(history.pointers[0].manifest)
    done = make(history.order(), history.partition.files, history.partition.store)
    assert done.chain == ()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_file_of_a_chain_is_never_an_empty_state(
    begin: Callable[[int], History], which: int
) -> None:
    history = begin(4)
    history.run()
    history.complete(history.order())
    apart = history.pointers[0]
    history.take_over(keep_log=True)  # so that what follows stands on files of its own
    large = pa.table({"key": [f"x{i}" for i in range(2000)], "n": [1] * 2000})
    history.partition.feed(history.state, history.epoch + 1, large)
    history.epoch += 1
    for _ in range(3):
        history.run()
        history.complete(history.order())
    assert history.links[-3:] == [0, 1, 2]
    files = history.live()[0][1].parts[0].files(history.epoch)
    history.partition.damage(files[which].path)
    history.partition.files.delete("/state")
    assert history.pointers[2] == apart
    if which < 2:
        with pytest.raises(PermanentError, match="not replaced by an empty one"):
            history.partition.restore(9, history.epoch, history.pointers[:2])
    found, _ = history.partition.restore(10, history.epoch, history.pointers)
    expected = history.pointers[1] if which == 2 else apart
    assert found.source == f"checkpoint:{expected.epoch}"
    assert files[which].path in found.events[0]


@pytest.mark.parametrize(
    ("state_bytes", "delta_bytes", "expected"),
    [
        (100, parts.MERGED_BYTES, True),
        (100, parts.MERGED_BYTES - 1, False),  # merged in no time
        (parts.AT_ONCE_BYTES, 2 * parts.AT_ONCE_BYTES, True),
        (parts.AT_ONCE_BYTES, 2 * parts.AT_ONCE_BYTES - 1, False),  # little has changed twice
        (parts.AT_ONCE_BYTES + 1, 9 * parts.AT_ONCE_BYTES, False),  # would hold the epoch up
    ],
)
def test_a_small_state_that_changed_much_is_copied_at_once(
    state_bytes: int, delta_bytes: int, expected: bool
) -> None:
    assert parts.at_once(state_bytes, delta_bytes) == expected


def test_a_copy_is_the_part(begin: Callable[[int], History]) -> None:
    """Whole, although the checkpoint before could be built upon; the deltas are not read."""
    history = begin(7)
    history.state.feeds_back = (MAIN,)
    history.run()
    history.complete(history.order())
    asked: list[tuple[int, int]] = []

    def always(state_bytes: int, delta_bytes: int) -> bool:
        asked.append((state_bytes, delta_bytes))
        return True

    history.state.at_once = always
    before = 0
    for _ in range(3):
        history.run()
        before += sum(
            len(data) for name, data in history.state.log.entry(history.epoch).sections.items()
            if name.startswith(STATE)
        )  # fmt: skip
    out = ipc_table(history.state.log.entry(history.epoch).sections["out"])
    order = history.order()
    assert asked == [(history.state.size_bytes, before)]
    for epoch in history.state.log.epochs():
        if epoch > 1:
            history.partition.files.delete(f"{order.directory}/e-{epoch:012d}.delta")
    history.complete(order)
    assert history.links == [0, 0]
    history.check()
    (_, manifest), *_ = history.live()
    sections = checkpoint.read_state(history.partition.store, manifest, "totals", 0)
    assert ipc_table(sections["out"]).equals(out)


def test_who_takes_an_order_over_has_no_copy_and_reads_the_log(
    begin: Callable[[int], History],
) -> None:
    history = begin(7)
    history.run()
    history.complete(history.order())
    history.state.at_once = lambda *_: True
    history.run()
    order = history.order()
    assert history.copy is not None
    history.copy = None
    history.complete(order)
    assert history.links == [0, 0]
    history.check()


def test_an_epoch_that_an_earlier_attempt_ran_is_left_to_the_part_writer(
    begin: Callable[[int], History],
) -> None:
    """This process has not the epoch's state, and is not to load it for a checkpoint."""
    history = begin(7)
    history.run()
    history.state = history.partition.state()
    history.state.at_once = lambda *_: True
    order = history.order()
    assert history.copy is None
    history.complete(order)
    history.check()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state is too large to be copied at once."""
    monkeypatch.setattr(parts, "AT_ONCE_BYTES", -1)


@pytest.mark.usefixtures("large")
def test_a_whole_part_of_a_large_state_leaves_the_log_as_it_is(
    begin: Callable[[int], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be a file of its size in memory, and nothing is gained while deltas are few."""
    history = begin(7)
    for _ in range(LINKS_MAX + 2):
        history.run()
        history.complete(history.order())
    assert history.links == [*range(LINKS_MAX + 1), 0]
    assert history.state.log.snapshots() == [0]
    monkeypatch.setattr(parts, "LOG_FILES", LINKS_MAX + 2)
    for _ in range(2):
        history.run()
        history.complete(history.order())
        history.check()
    assert history.state.log.snapshots() == [history.epoch - 1]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("seed", range(8))
def test_a_whole_part_is_the_same_bytes_whatever_snapshots_the_log_has(
    begin: Callable[[int], History], seed: int
) -> None:
    """An order that comes late may write one, and then this part be made again."""
    history = begin(seed)
    history.run()
    late = history.order()
    for _ in range(3):
        history.run()
    order = history.order()
    log, store = history.state.log, history.partition.store
    first = make(order, history.partition.files, store)
    written = bytes(store.read(first.path))
    store.delete(first.path)
    assert log.snapshots() == [0]
    write_snapshot(log, late)
    again = make(order, history.partition.files, store)
    assert log.snapshots() == [0, late.epoch]
    assert (again.path, again.crc, again.bytes) == (first.path, first.crc, first.bytes)
    assert bytes(store.read(first.path)) == written


def test_an_order_for_an_epoch_that_was_taken_back_is_refused(
    begin: Callable[[int], History],
) -> None:
    history = begin(5)
    history.run()
    order = history.order()
    history.state.log.discard_from(1)
    with pytest.raises(RetryableError, match="a checkpoint of epoch 1"):
        make(order, history.partition.files, history.partition.store)
    history.state.epoch, history.epoch = None, 0
    history.partition.feed(history.state, 1, pa.table({"key": ["a"], "n": [1]}), offset=500)
    with pytest.raises(RetryableError, match="token at 101"):
        make(order, history.partition.files, history.partition.store)


def test_what_feeds_back_is_in_every_part(
    begin: Callable[[int], History],
) -> None:
    history = begin(6)
    history.state.feeds_back = (MAIN,)
    for _ in range(3):
        history.run()
        out = ipc_table(history.state.log.entry(history.epoch).sections["out"])
        history.complete(history.order())
        (_, manifest), *_ = history.live()
        sections = checkpoint.read_state(history.partition.store, manifest, "totals", 0)
        assert ipc_table(sections["out"]).equals(out)
    assert history.links == [0, 1, 2]


def test_the_log_gets_a_snapshot_of_its_own_before_its_deltas_outweigh_it(
    begin: Callable[[int], History], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else keys that are written over and over would fill the host while the parts stay small."""
    monkeypatch.setattr(parts, "LOG_BYTES", 0)
    history = begin(7)
    for _ in range(3):
        history.run()
        history.complete(history.order())
    assert history.links == [0, 1, 2]
    assert history.state.log.snapshots() == [2]  # collected up to the checkpoint before the newest
