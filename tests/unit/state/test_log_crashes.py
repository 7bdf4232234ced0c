"""State log: a crash at any step of any file operation loses nothing that was acknowledged.

Held to it with every primitive: what comes back is what one that never died has.

Acknowledged = the call returned. After a process's death, all acknowledged epochs are there, and at
most one more. After a power failure with syncing files, the same. Without syncing files, what
`repair` leaves is a prefix of what was written.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import DamagedFile, RetryableError
from perseid.state import Matrix, Pool, Set, Table, Timers, Value, Vector
from perseid.state.durability.blob import Identity
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import adopt, log_directory, owner_directory, owner_name
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.state.primitives.primitive import Primitive
from perseid.testing.files import Crashed, MemoryFiles

ROOT, UUID, LAYOUT = "/state", "uuid", 1
IDENTITY = Identity(UUID, LAYOUT, "counts", 0)
FIRST = 3


def write_table(total: Any, epoch: int) -> None:
    total.add(pa.array([f"k{epoch % 3}", "all"]), n=epoch)
    if epoch % 3 == 0:
        total.delete(pa.array(["k0"]))


def write_set(seen: Any, epoch: int) -> None:
    seen.advance(epoch)
    seen.add(pa.array([epoch, epoch % 2]))


def write_value(newest: Any, epoch: int) -> None:
    if epoch % 2:
        newest.set(f"v{epoch}")


def write_vector(weights: Any, epoch: int) -> None:
    weights.add_at([epoch % 3], [epoch / 2])


def write_matrix(cells: Any, epoch: int) -> None:
    cells.set_row(epoch % 2, [epoch, -epoch])


def write_pool(rows: Any, epoch: int) -> None:
    rows.append({"at": [epoch, epoch + 2]})
    if epoch % 3 == 0:
        rows.expire(epoch - 1)


def write_timers(ends: Any, epoch: int) -> None:
    ends.set(pa.array([f"e{epoch}"]), epoch + epoch % 4)
    if epoch % 2:
        ends.due(epoch)


KINDS: tuple[tuple[Primitive, Callable[[Any, int], None]], ...] = (
    (Table(key=pa.string(), n=pa.int64()), write_table),
    (Set(pa.int64(), ttl=timedelta(milliseconds=3)), write_set),
    (Value(pa.string()), write_value),
    (Vector(pa.float64(), 3), write_vector),
    (Matrix(pa.int64(), rows=2, columns=2), write_matrix),
    (Pool({"at": pa.int64()}, time="at"), write_pool),
    (Timers(key=pa.string()), write_timers),
)


class History:
    """A worker that writes, epoch by epoch, with a snapshot and a collection now and then.

    `kind` is the place of its primitive in KINDS.
    """

    def __init__(self, files: MemoryFiles, kind: int) -> None:
        self.files = files
        self.kind = kind
        self.acknowledged = FIRST - 1  # the newest epoch whose append returned
        self.collected = FIRST - 1  # nothing below this epoch is asked for
        self.begun = False  # a begin returned

    def work(self, generation: int, last: int) -> None:
        """Adopts the log, brings a primitive up to date and continues to `last`."""
        log = owned_log(self.files, generation)
        if log.last_epoch() is None:
            log.write_snapshot(FIRST - 1, generation, token(FIRST - 1), {})
            self.begun = True
        live, reached = restored(log, self.kind)
        for epoch in range(reached + 1, last + 1):
            KINDS[self.kind][1](live, epoch)
            delta = live.delta()
            sections = {} if delta is None else {"state.it": ipc_bytes(delta)}
            log.append(epoch, generation, token(epoch), sections)
            self.acknowledged = epoch
            live.commit()
            if epoch % 4 == 0:
                sections = {"state.it": ipc_bytes(live.snapshot())}
                log.write_snapshot(epoch, generation, token(epoch), sections)
                self.collected = epoch
                log.collect(epoch)


def owned_log(files: MemoryFiles, generation: int) -> StateLog:
    owner = owner_name(generation, "w")
    adopt(files, ROOT, UUID, LAYOUT, owner)
    directory = log_directory(owner_directory(ROOT, UUID, LAYOUT, owner), "counts", 0)
    log = StateLog(files, directory, IDENTITY)
    log.create()
    return log


def restored(log: StateLog, kind: int) -> tuple[Primitive, int]:
    """The primitive as the log has it, and the epoch that it is at."""
    found = KINDS[kind][0].fresh()
    base, entries = log.load()
    assert base is not None
    if base.sections:
        found.restore(ipc_table(base.sections["state.it"]))
    deltas = (entry.sections.get("state.it") for entry in entries)
    found.apply_all([ipc_table(delta) for delta in deltas if delta is not None])
    return found, entries[-1].header.epoch if entries else base.header.epoch


@cache
def expected(kind: int, upto: int) -> list[Any]:
    """The rows of one that never died."""
    (made, write) = KINDS[kind]
    live = made.fresh()
    for epoch in range(FIRST, upto + 1):
        write(live, epoch)
        live.commit()
    return rows_of(live)


def rows_of(live: Primitive) -> list[Any]:
    found: list[Any] = live.snapshot().to_pylist()
    return found


def token(epoch: int) -> int:
    return 100 + epoch


@cache
def steps_of_a_whole_run(kind: int, *, sync: bool) -> int:
    files = MemoryFiles(sync=sync)
    History(files, kind).work(1, 10)
    return files.steps


def crashed_at(step: int, *, sync: bool, kind: int) -> History:
    files = MemoryFiles(sync=sync)
    history = History(files, kind)
    files.crash_at(step)
    with pytest.raises(Crashed):
        history.work(1, 10)
    with pytest.raises(Crashed):
        files.list(ROOT)
    return history


@pytest.mark.parametrize("power_failure", [False, True])
def test_a_crash_at_any_step_keeps_all_that_was_acknowledged(power_failure: bool) -> None:
    steps = [steps_of_a_whole_run(kind, sync=power_failure) for kind in range(len(KINDS))]
    assert min(steps) > 60
    # Each kind at every seventh step, which is another one of each epoch.
    for kind, step in ((k, s) for k, last in enumerate(steps) for s in range(k, last, len(KINDS))):
        history = crashed_at(step, sync=power_failure, kind=kind)
        history.files.restart(random.Random(step) if power_failure else None)
        log = owned_log(history.files, 2)
        if log.last_epoch() is None:
            assert not history.begun
            continue
        live, reached = restored(log, kind)
        assert reached in (history.acknowledged, history.acknowledged + 1)
        assert rows_of(live) == expected(kind, reached)
        history.work(2, 12)
        assert rows_of(restored(log, kind)[0]) == expected(kind, 12)
        assert not [n for n in history.files.list(log.directory) if n.endswith(".tmp")]


def test_after_a_power_failure_without_sync_a_prefix_is_left() -> None:
    fates = set()
    for seed in range(300):
        chance = random.Random(seed)
        kind = seed % len(KINDS)
        step = chance.randrange(steps_of_a_whole_run(kind, sync=False))
        history = crashed_at(step, sync=False, kind=kind)
        history.files.restart(chance)
        log = owned_log(history.files, 2)
        problems = log.repair()
        if problems:
            fates.add("repaired")
        if log.last_epoch() is None:
            fates.add("lost")  # a checkpoint is restored, or the input is replayed
            continue
        live, reached = restored(log, kind)
        fates.add("prefix")
        assert reached <= history.acknowledged + 1
        assert rows_of(live) == expected(kind, reached)
    assert fates == {"repaired", "lost", "prefix"}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 90), min_size=1, max_size=6), st.integers(0, len(KINDS) - 1),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_crashes_in_a_row_of_owner_after_owner(
    crashes: list[int], kind: int, chance: random.Random
) -> None:
    files = MemoryFiles(sync=True)
    history = History(files, kind)
    generation = 1
    for step in crashes:
        files.crash_at(step)
        try:
            history.work(generation, history.acknowledged + 7)
        except Crashed:
            files.restart(chance if chance.random() < 0.5 else None)
        else:
            files.crash_at(None)
        generation += chance.randrange(2)
    log = owned_log(files, generation + 1)
    if log.last_epoch() is None:
        assert not history.begun
        return
    live, reached = restored(log, kind)
    # Each owner may have died between an epoch's rename and its acknowledgement.
    assert history.acknowledged <= reached <= history.acknowledged + len(crashes)
    assert rows_of(live) == expected(kind, reached)


@pytest.mark.parametrize("what", ["make", "write", "link", "sync"])
def test_a_failing_file_system_commits_nothing_and_the_next_attempt_works(what: str) -> None:
    files = MemoryFiles(sync=True)
    log = owned_log(files, 1)
    log.write_snapshot(2, 1, token(2), {})
    files.fail(what, errno.ENOSPC)
    with pytest.raises(RetryableError, match=r"e-000000000003.*No space left on device"):
        log.append(3, 1, token(3), {"out": b"x"})
    assert log.epochs() == []
    log.append(3, 1, token(3), {"out": b"x"})
    assert log.epochs() == [3]
    assert not [n for n in files.list(log.directory) if n.endswith(".tmp")]


def test_a_file_cut_at_any_byte_is_never_loaded() -> None:
    files = MemoryFiles()
    log = owned_log(files, 1)
    log.write_snapshot(2, 1, token(2), {})
    log.append(3, 1, token(3), {"out": b"0123456789"})
    path = f"{log.directory}/e-000000000003.delta"
    whole = files.read(path)
    for size in range(len(whole)):
        files.damage(path, whole[:size])
        with pytest.raises(DamagedFile):
            log.load()
