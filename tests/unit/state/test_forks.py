"""A fork has the state of its epoch, and from there on neither log changes the other."""

from __future__ import annotations

import random

import pytest

from perseid.errors import FencedError, RetryableError
from perseid.state.durability.blob import Identity
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import (
    adopt,
    log_directory,
    owner_directory,
    owner_name,
    replica_directory,
)
from perseid.testing.files import Crashed, MemoryFiles

ROOT, BRANCH = "/state", "tentative"
IDENTITY = Identity("uuid", 1, "counts", 0)
OWNER = owner_name(1, "w")


def main_log(files: MemoryFiles) -> StateLog:
    """Epochs 1 to 9 after an empty snapshot, with another snapshot at 4."""
    adopt(files, ROOT, "uuid", 1, OWNER)
    directory = log_directory(owner_directory(ROOT, "uuid", 1, OWNER), "counts", 0)
    log = StateLog(files, directory, IDENTITY, retains=True)
    log.create()
    log.write_snapshot(0, 1, 100, {})
    for epoch in range(1, 10):
        write(log, epoch)
        if epoch == 4:
            log.write_snapshot(4, 1, 104, {"state.n": b"at 4"})
    return log


def write(log: StateLog, epoch: int, what: bytes = b"main") -> None:
    log.append(epoch, 1, 100 + epoch, {"state.n": b"%d %b" % (epoch, what)}, {"out": b"out"})


def branch_directory(files: MemoryFiles, owner: str = OWNER) -> str:
    adopt(files, ROOT, "uuid", 1, owner, BRANCH)
    return log_directory(owner_directory(ROOT, "uuid", 1, owner, BRANCH), "counts", 0)


def content(log: StateLog) -> tuple[bytes, list[bytes]]:
    base, entries = log.load()
    assert base is not None
    return bytes(base.sections.get("state.n", b"")), [bytes(e.sections["state.n"]) for e in entries]


def expected(epoch: int) -> tuple[bytes, list[bytes]]:
    base = 4 if epoch >= 4 else 0
    return (b"at 4" if base else b""), [b"%d main" % e for e in range(base + 1, epoch + 1)]


@pytest.mark.parametrize("epoch", [*range(10)])
def test_a_fork_has_the_state_of_its_epoch(epoch: int) -> None:
    files = MemoryFiles()
    log = main_log(files)
    branch = log.fork(epoch, branch_directory(files))
    assert (content(branch), branch.last_epoch(), branch.identity) == (
        expected(epoch), epoch, log.identity,
    )  # fmt: skip
    assert content(log) == expected(9)


def test_neither_log_changes_the_other() -> None:
    files = MemoryFiles()
    log = main_log(files)
    branch = log.fork(6, branch_directory(files))
    write(branch, 7, b"branch")
    branch.discard_from(6)
    write(branch, 6, b"branch")
    branch.write_snapshot(6, 1, 106, {"state.n": b"branch at 6"})
    branch.collect(6)
    branch.release(6)
    assert content(log) == expected(9)
    assert (branch.repair(), log.repair(), log.outputs_from(9)) == ([], [], 1)
    write(log, 10)
    log.write_snapshot(10, 1, 110, {"state.n": b"at 10"})
    log.collect(10)
    log.release(10)
    assert content(branch) == (b"branch at 6", [])
    write(branch, 7, b"again")
    assert (content(branch)[1], content(log)) == ([b"7 again"], (b"at 10", []))


def test_a_fork_returns_no_outputs_from_before_it() -> None:
    files = MemoryFiles()
    branch = main_log(files).fork(6, branch_directory(files))
    assert branch.outputs(branch.entry(6)) is None
    write(branch, 7)
    assert (branch.repair(), branch.outputs_from(7)) == ([], 7)


def test_a_dropped_branch_leaves_the_main_log() -> None:
    files = MemoryFiles()
    log = main_log(files)
    branch = log.fork(9, branch_directory(files))
    write(branch, 10, b"branch")
    files.delete(replica_directory(ROOT, "uuid", 1, BRANCH))
    with pytest.raises(FencedError):
        branch.load()
    assert content(log) == expected(9)
    write(log, 10)


def test_a_branch_has_owners_of_its_own() -> None:
    files = MemoryFiles()
    log = main_log(files)
    branch = log.fork(6, branch_directory(files))
    directory = branch_directory(files, owner_name(8, "x"))
    with pytest.raises(FencedError):
        write(branch, 7)
    new_owner = StateLog(files, directory, IDENTITY)
    write(new_owner, 7)
    write(log, 10)
    assert (new_owner.last_epoch(), log.last_epoch()) == (7, 10)


def test_an_epoch_that_the_log_does_not_hold_is_refused() -> None:
    files = MemoryFiles()
    log = main_log(files)
    directory = branch_directory(files)
    log.collect(4)
    for epoch in (3, 10):
        with pytest.raises(
            RetryableError, match=rf"epoch {epoch}: it has snapshots \[4\] and deltas 5..9"
        ):
            log.fork(epoch, directory)
    files.delete(log._path("delta", 7))
    with pytest.raises(RetryableError, match="cannot be forked at epoch 8"):
        log.fork(8, directory)
    assert files.list(directory.rpartition("/")[0]) == []


def test_a_fork_replaces_no_log_and_makes_no_owner() -> None:
    files = MemoryFiles()
    log = main_log(files)
    directory = branch_directory(files)
    branch = log.fork(6, directory)
    write(branch, 7, b"branch")
    with pytest.raises(RetryableError, match="it holds a log"):
        log.fork(8, directory)
    assert branch.last_epoch() == 7
    assert files.list(directory.rpartition("/")[0]) == ["counts-0"]
    with pytest.raises(FencedError):
        log.fork(6, f"{ROOT}/nowhere/counts-0")


def test_files_that_are_collected_during_the_fork() -> None:
    class Collecting(MemoryFiles):
        """The log gets a snapshot at 8 and is collected before the third link."""

        links = 0

        def link(self, source: str, target: str) -> bool:
            self.links += 1
            if self.links == 3:
                log.write_snapshot(8, 1, 108, {"state.n": b"at 8"})
                log.collect(8)
            return super().link(source, target)

    files = Collecting()
    log = main_log(files)
    branch = log.fork(9, branch_directory(files))
    assert content(branch) == (b"at 8", [b"9 main"])


@pytest.mark.parametrize("sync", [False, True])
def test_a_fork_that_died_half_way_has_no_log_and_is_repeated(sync: bool) -> None:
    step = 0
    while True:
        files = MemoryFiles(sync=sync)
        log = main_log(files)
        directory = branch_directory(files)
        files.crash_at(step)
        try:
            log.fork(7, directory)
        except Crashed:
            files.restart(random.Random(step) if sync else None)
            assert content(log) == expected(9)
            directory = branch_directory(files, owner_name(2, "x"))
            branch = StateLog(files, directory, IDENTITY)
            if not files.list(directory.rpartition("/")[0]):
                branch = log.fork(7, directory)
            assert content(branch) == expected(7)
            assert files.list(directory.rpartition("/")[0]) == ["counts-0"]
            step += 1
            continue
        break
    assert step >= 6


def test_a_damaged_file_is_set_aside_in_one_log_alone() -> None:
    """Links share content: both find the damage, each by its own repair."""
    files = MemoryFiles()
    log = main_log(files)
    branch = log.fork(7, branch_directory(files))
    files.damage(log._path("delta", 6), b"")
    assert len(branch.repair()) == 2
    assert (branch.last_epoch(), log.last_epoch()) == (5, 9)
    assert len(log.repair()) == 2
    assert log.last_epoch() == 5
