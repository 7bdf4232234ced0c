"""State log: a crash at any step of any file operation loses nothing that was acknowledged.

Acknowledged = the call returned. After a process's death, all acknowledged epochs are there, and at
most one more. After a power failure with syncing files, the same. Without syncing files, what
`repair` leaves is a prefix of what was written.
"""

from __future__ import annotations

import errno
import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.errors import DamagedFile, RetryableError
from perseid.state import Table
from perseid.state.arrow import ipc_bytes, ipc_table
from perseid.state.blob import Identity
from perseid.state.log import StateLog, adopt, log_directory, owner_directory, owner_name
from perseid.testing.files import Crashed, MemoryFiles

ROOT, UUID, LAYOUT = "/state", "uuid", 1
IDENTITY = Identity(UUID, LAYOUT, "counts", 0)
FIRST = 3


class History:
    """A worker that counts, epoch by epoch, with a snapshot and a collection now and then."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.acknowledged = FIRST - 1  # the newest epoch whose append returned
        self.collected = FIRST - 1  # nothing below this epoch is asked for
        self.begun = False  # a begin returned

    def work(self, generation: int, last: int) -> None:
        """Adopts the log, brings a table up to date and goes on to `last`."""
        log = owned_log(self.files, generation)
        if log.last_epoch() is None:
            log.write_snapshot(FIRST - 1, generation, token(FIRST - 1), {})
            self.begun = True
        table, reached = restored(log)
        for epoch in range(reached + 1, last + 1):
            table.add(pa.array([f"k{epoch % 3}", "all"]), n=epoch)
            delta = table.delta()
            assert delta is not None
            log.append(epoch, generation, token(epoch), {"state.total": ipc_bytes(delta)})
            self.acknowledged = epoch
            table.commit()
            if epoch % 4 == 0:
                sections = {"state.total": ipc_bytes(table.snapshot())}
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


def restored(log: StateLog) -> tuple[Table, int]:
    """The table as the log says, and the epoch that it is at."""
    table = Table(key=pa.string(), n=pa.int64())
    base, entries = log.load()
    assert base is not None
    if base.sections:
        table.restore(ipc_table(base.sections["state.total"]))
    for entry in entries:
        table.apply(ipc_table(entry.sections["state.total"]))
    return table, entries[-1].header.epoch if entries else base.header.epoch


def expected(upto: int) -> dict[str, int]:
    state: dict[str, int] = {}
    for epoch in range(FIRST, upto + 1):
        for key in (f"k{epoch % 3}", "all"):
            state[key] = state.get(key, 0) + epoch
    return state


def state_of(table: Table) -> dict[str, int]:
    rows = table.scan()
    return dict(zip(rows["key"].to_pylist(), rows["n"].to_pylist(), strict=True))


def token(epoch: int) -> int:
    return 100 + epoch


def steps_of_a_whole_run(*, sync: bool) -> int:
    files = MemoryFiles(sync=sync)
    History(files).work(1, 10)
    return files.steps


def crashed_at(step: int, *, sync: bool) -> History:
    files = MemoryFiles(sync=sync)
    history = History(files)
    files.crash_at(step)
    with pytest.raises(Crashed):
        history.work(1, 10)
    with pytest.raises(Crashed):
        files.list(ROOT)
    return history


@pytest.mark.parametrize("power_failure", [False, True])
def test_a_crash_at_any_step_keeps_all_that_was_acknowledged(power_failure: bool) -> None:
    steps = steps_of_a_whole_run(sync=power_failure)
    assert steps > 60
    for step in range(steps):
        history = crashed_at(step, sync=power_failure)
        history.files.restart(random.Random(step) if power_failure else None)
        log = owned_log(history.files, 2)
        if log.last_epoch() is None:
            assert not history.begun
            continue
        table, reached = restored(log)
        assert reached in (history.acknowledged, history.acknowledged + 1)
        assert state_of(table) == expected(reached)
        history.work(2, 12)
        assert state_of(restored(log)[0]) == expected(12)
        assert not [n for n in history.files.list(log.directory) if n.endswith(".tmp")]


def test_after_a_power_failure_without_sync_a_prefix_is_left() -> None:
    fates = set()
    for seed in range(300):
        chance = random.Random(seed)
        history = crashed_at(chance.randrange(steps_of_a_whole_run(sync=False)), sync=False)
        history.files.restart(chance)
        log = owned_log(history.files, 2)
        problems = log.repair()
        if problems:
            fates.add("repaired")
        if log.last_epoch() is None:
            fates.add("lost")  # a checkpoint is restored, or the input is replayed
            continue
        table, reached = restored(log)
        fates.add("prefix")
        assert reached <= history.acknowledged + 1
        assert state_of(table) == expected(reached)
    assert fates == {"repaired", "lost", "prefix"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 90), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_crashes_in_a_row_of_owner_after_owner(crashes: list[int], chance: random.Random) -> None:
    files = MemoryFiles(sync=True)
    history = History(files)
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
    table, reached = restored(log)
    # Each owner may have died between an epoch's rename and its acknowledgement.
    assert history.acknowledged <= reached <= history.acknowledged + len(crashes)
    assert state_of(table) == expected(reached)


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
