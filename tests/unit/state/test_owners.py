"""Whose log it is: a takeover fences the previous owner of its replica, and touches no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid.errors import FencedError
from perseid.records import APART, MAIN, PAIR, WHOLE
from perseid.state.durability.blob import Identity
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import (
    adopt,
    forget_layouts,
    log_directory,
    named_by,
    owner_directory,
    owner_name,
    replica_directory,
    replica_of,
)
from perseid.testing.files import Crashed, MemoryFiles
from support.mutants import states

ROOT, UUID, LAYOUT = "/state", "uuid", 1
IDENTITY = Identity(UUID, LAYOUT, "counts", 0)
STANDBY = "standby"


def owned(generation: int, replica: str = MAIN) -> str:
    return owner_directory(ROOT, UUID, LAYOUT, owner_name(generation, "w"), replica)


def taken_over(files: MemoryFiles, generation: int, replica: str = MAIN) -> StateLog:
    adopt(files, ROOT, UUID, LAYOUT, owner_name(generation, "w"), replica)
    log = StateLog(files, log_directory(owned(generation, replica), "counts", 0), IDENTITY)
    log.create()
    return log


def begun(files: MemoryFiles, generation: int, replica: str = MAIN) -> StateLog:
    log = taken_over(files, generation, replica)
    log.write_snapshot(0, generation, 100, {})
    log.append(1, generation, 101, {"state.n": replica.encode()})
    return log


def content(files: MemoryFiles, folder: str) -> dict[str, bytes]:
    return {path: files.read(path) for path in files.below(folder)}


def test_logs_of_other_code_are_deleted_instead_of_taken() -> None:
    files = MemoryFiles()
    begun(files, 2, APART)
    main = begun(files, 2)
    before = content(files, main.directory)
    mine = owner_name(5, "b")
    assert adopt(files, ROOT, UUID, LAYOUT, mine, APART, kept=False) is None
    assert files.list(replica_directory(ROOT, UUID, LAYOUT, APART)) == [mine]
    assert not content(files, owner_directory(ROOT, UUID, LAYOUT, mine, APART))
    assert content(files, main.directory) == before
    with pytest.raises(FencedError):
        adopt(files, ROOT, UUID, LAYOUT, owner_name(4, "b"), APART, kept=False)


def test_adoption_takes_the_newest_and_removes_the_rest() -> None:
    files = MemoryFiles()
    for generation in (2, 4):
        files.make_directory(f"{owned(generation)}/counts-0", parents=True)
    mine = owner_name(5, "b")
    assert adopt(files, ROOT, UUID, LAYOUT, mine) == owner_name(4, "w")
    assert adopt(files, ROOT, UUID, LAYOUT, mine) is None
    assert files.list(replica_directory(ROOT, UUID, LAYOUT)) == [mine]
    assert adopt(files, ROOT, "other", LAYOUT, mine) is None
    with pytest.raises(FencedError):
        adopt(files, ROOT, UUID, LAYOUT, owner_name(5, "a"))


def test_adoption_removes_what_the_dead_owner_left_half_written() -> None:
    files = MemoryFiles()
    begun(files, 1)
    files.write_new(f"{owned(1)}/counts-0/.e-000000000010.delta.77-ab.tmp", [b"half"])
    files.make_directory(f"{owned(1)}/.counts-0.77-ab.tmp")  # of a fork
    taken_over(files, 2)
    assert files.list(owned(2)) == ["counts-0"]
    assert files.list(f"{owned(2)}/counts-0") == ["e-000000000001.delta", "s-000000000000.snapshot"]


def leaves_other_replicas_alone(files: MemoryFiles) -> None:
    """A standby of a higher or lower generation lives through takeovers of the other replica."""
    main, standby = begun(files, 2), begun(files, 7, STANDBY)
    before = content(files, owned(7, STANDBY))
    for generation in (5, 8):
        main = taken_over(files, generation)
        assert main.last_epoch() == 1
        assert content(files, replica_directory(ROOT, UUID, LAYOUT, STANDBY)) == before
    standby.append(2, 7, 102, {})
    main.append(2, 8, 102, {"state.n": b"other"})
    assert (standby.last_epoch(), len(standby.entry(2).sections)) == (2, 0)
    taken_over(files, 9, STANDBY)
    with pytest.raises(FencedError, match="newer owner"):
        standby.append(3, 7, 103, {})
    assert main.last_epoch() == 2


def test_a_takeover_touches_no_other_replica() -> None:
    leaves_other_replicas_alone(MemoryFiles())


def test_an_adoption_that_ignores_the_replica_is_found() -> None:
    with states.replicas_share_a_directory(), pytest.raises((AssertionError, FencedError)):
        leaves_other_replicas_alone(MemoryFiles())


def each_crash(work: Callable[[MemoryFiles], None], prepare: Callable[[MemoryFiles], None]) -> int:
    """Has `work` crash at each of its steps, and repeats it; the number of steps."""
    step = 0
    while True:
        files = MemoryFiles()
        prepare(files)
        files.crash_at(step)
        try:
            work(files)
        except Crashed:
            files.restart()
            work(files)
            step += 1
            continue
        return step


def test_a_takeover_that_died_at_any_step_is_repeated() -> None:
    def prepare(files: MemoryFiles) -> None:
        begun(files, 1)
        files.write_new(f"{owned(1)}/counts-0/.e-000000000002.delta.1-a.tmp", [b"half"])
        older = f"{owned(0)}/counts-0"  # which a crash has left
        files.make_directory(older, parents=True)
        begun(files, 3, STANDBY)

    def work(files: MemoryFiles) -> None:
        before = content(files, owned(3, STANDBY))
        log = taken_over(files, 4)
        assert files.list(replica_directory(ROOT, UUID, LAYOUT)) == [owner_name(4, "w")]
        assert bytes(log.entry(1).sections["state.n"]) == MAIN.encode()
        assert content(files, owned(3, STANDBY)) == before

    assert each_crash(work, prepare) >= 4


def test_each_fragment_owns_a_replica() -> None:
    assert (replica_of(WHOLE), replica_of(WHOLE, PAIR)) == (MAIN, PAIR)
    fragments = (WHOLE, "0", "1", "10")
    replicas = [replica_of(name, copy) for copy in (MAIN, PAIR) for name in fragments]
    assert len(set(replicas)) == 8
    files = MemoryFiles()
    logs = {replica: begun(files, 1, replica) for replica in replicas}
    taken_over(files, 2, replicas[1])
    for replica in (replicas[0], *replicas[2:]):
        logs[replica].append(2, 1, 102, {})
        assert logs[replica].last_epoch() == 2
    with pytest.raises(FencedError):
        logs[replicas[1]].append(2, 1, 102, {})


@pytest.mark.parametrize(
    ("generation", "found"), [(3, None), (4, 4), (5, 4), (9, 7), (7, 7), (12, 7)]
)
def test_an_owner_that_was_promoted_keeps_its_name(generation: int, found: int | None) -> None:
    names = [owner_name(4, "w1-a"), owner_name(7, "w1-a"), owner_name(6, "w2-a"), "w1-a"]
    expected = None if found is None else owner_name(found, "w1-a")
    assert named_by(names, "w1-a", generation) == expected
    assert named_by(names, "a", generation) is None
    assert named_by([], "w1-a", generation) is None


def test_forgotten_layouts_have_no_replica_left() -> None:
    files = MemoryFiles()
    begun(files, 1), begun(files, 2, STANDBY), begun(files, 2, PAIR)
    adopt(files, ROOT, UUID, 2, owner_name(3, "w"))
    forget_layouts(files, ROOT, UUID, 2)
    assert files.list(f"{ROOT}/{UUID}") == ["2"]
