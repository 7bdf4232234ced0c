"""State log: what it promises while nothing crashes. Crashes are in test_log_crashes.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid.errors import DamagedFile, FencedError, RetryableError
from perseid.state.durability.blob import Identity
from perseid.state.durability.log import LogEntry, StateLog
from perseid.state.durability.owners import adopt, log_directory, owner_directory, owner_name
from perseid.testing.files import MemoryFiles

ROOT, UUID, LAYOUT = "/state", "uuid", 1
IDENTITY = Identity(UUID, LAYOUT, "counts", 0)


def owned_log(
    files: MemoryFiles, generation: int = 1, identity: Identity = IDENTITY, incarnation: str = "a"
) -> StateLog:
    owner = owner_name(generation, incarnation)
    adopt(files, ROOT, UUID, LAYOUT, owner)
    owned = owner_directory(ROOT, UUID, LAYOUT, owner)
    log = StateLog(files, log_directory(owned, identity.operator, identity.partition), identity)
    log.create()
    return log


def filled(files: MemoryFiles, first: int = 5, last: int = 9) -> StateLog:
    log = owned_log(files)
    log.write_snapshot(first - 1, 1, token(first - 1), {})
    for epoch in range(first, last + 1):
        log.append(epoch, 1, token(epoch), content(epoch))
    return log


def token(epoch: int) -> int:
    return 100 + epoch


def content(epoch: int) -> dict[str, bytes]:
    return {"state.total": b"state %d" % epoch, "out": b"out %d" % epoch}


def epochs_of(loaded: tuple[LogEntry | None, list[LogEntry]]) -> tuple[int | None, list[int]]:
    base, entries = loaded
    first = None if base is None else base.header.epoch
    return first, [entry.header.epoch for entry in entries]


def test_a_new_log_is_empty_and_must_be_begun() -> None:
    log = owned_log(MemoryFiles())
    assert (log.load(), log.last_epoch(), log.repair()) == ((None, []), None, [])
    with pytest.raises(RetryableError, match="cannot take epoch 3: it was not begun"):
        log.append(3, 1, 103, {})


def test_load_gives_base_and_deltas_in_order() -> None:
    log = filled(MemoryFiles())
    assert epochs_of(log.load()) == (4, [5, 6, 7, 8, 9])
    assert epochs_of(log.load(upto=6)) == (4, [5, 6])
    assert epochs_of(log.load(upto=30)) == (4, [5, 6, 7, 8, 9])
    assert [e.header.epoch for e in log.deltas(6, 8)] == [7, 8]
    log.write_snapshot(7, 1, token(7), {"state.total": b"whole"})
    assert epochs_of(log.load()) == (7, [8, 9])
    assert epochs_of(log.load(upto=6)) == (4, [5, 6])
    assert log.last_epoch() == 9
    assert bytes(log.entry(8).sections["out"]) == b"out 8"
    assert bytes(log.snapshot(7).sections["state.total"]) == b"whole"


def test_append_never_replaces() -> None:
    files = MemoryFiles()
    first, second = filled(files), owned_log(files)
    again = second.append(9, 1, token(9), {"out": b"other"})
    assert bytes(again.sections["out"]) == b"out 9"
    assert bytes(first.entry(9).sections["out"]) == b"out 9"
    with pytest.raises(RetryableError, match="stale and must be discarded"):
        second.append(9, 1, token(9) + 5, {"out": b"other"})
    with pytest.raises(RetryableError, match="cannot take epoch 11: its newest is 9"):
        second.append(11, 1, token(11), {})
    second.append(10, 1, token(10), {})
    assert bytes(first.append(10, 1, token(10), content(10)).sections.get("out", b"")) == b""
    first.append(11, 1, token(11), {})


def test_append_below_the_base_is_refused() -> None:
    log = filled(MemoryFiles())
    log.write_snapshot(8, 1, token(8), {})
    log.collect(8)
    with pytest.raises(RetryableError, match="cannot take epoch 6"):
        log.append(6, 1, token(6), {})


def test_discard_from_goes_back() -> None:
    log = filled(MemoryFiles())
    log.write_snapshot(8, 1, token(8), {})
    log.discard_from(7)
    assert epochs_of(log.load()) == (4, [5, 6])
    assert bytes(log.append(7, 2, 555, {"out": b"new"}).sections["out"]) == b"new"
    assert log.entry(7).header.token_offset == 555


def test_collect_keeps_the_base_of_what_remains() -> None:
    log = filled(MemoryFiles())
    log.collect(4)
    log.collect(3)
    assert epochs_of(log.load()) == (4, [5, 6, 7, 8, 9])
    log.write_snapshot(6, 1, token(6), {})
    log.write_snapshot(9, 1, token(9), {})
    log.collect(8)
    assert (log.snapshots(), log.epochs()) == ([6, 9], [7, 8, 9])
    with pytest.raises(DamagedFile, match="no snapshot at or before epoch 5"):
        log.load(upto=5)
    log.collect(9)
    assert epochs_of(log.load()) == (9, [])
    assert log.last_epoch() == 9
    log.append(10, 1, token(10), {})


def path_of(log: StateLog, name: str) -> str:
    return f"{log.directory}/{name}"


def test_a_damaged_delta_is_refused_and_repair_keeps_what_is_before_it() -> None:
    files = MemoryFiles()
    log = filled(files)
    path = path_of(log, "e-000000000007.delta")
    whole = files.read(path)
    for damaged in (whole[:-1], whole[:10], b"", whole[:50] + b"\xff" + whole[51:]):
        files.damage(path, damaged)
        with pytest.raises(DamagedFile, match=r"e-000000000007\.delta"):
            log.load()
    assert epochs_of(log.load(upto=6)) == (4, [5, 6])
    assert len(log.repair()) == 2
    assert epochs_of(log.load()) == (4, [5, 6])
    assert log.repair() == []
    assert f"{path}.damaged".rpartition("/")[2] in files.list(path.rpartition("/")[0])
    log.append(7, 1, token(7), {})


def test_a_damaged_snapshot_leaves_the_one_before_or_nothing() -> None:
    files = MemoryFiles()
    log = filled(files)
    log.write_snapshot(8, 1, token(8), {})
    files.damage(path_of(log, "s-000000000008.snapshot"), b"")
    with pytest.raises(DamagedFile, match="cut off"):
        log.load()
    assert len(log.repair()) == 1
    assert epochs_of(log.load()) == (4, [5, 6, 7, 8, 9])
    files.damage(path_of(log, "s-000000000004.snapshot"), b"")
    log.repair()
    assert (log.load(), log.last_epoch()) == ((None, []), None)


def test_deltas_without_their_base_or_with_a_gap_are_refused() -> None:
    files = MemoryFiles()
    log = filled(files)
    files.delete(path_of(log, "e-000000000006.delta"))
    with pytest.raises(DamagedFile, match="no delta of epoch 6"):
        log.load()
    files.delete(path_of(log, "s-000000000004.snapshot"))
    with pytest.raises(DamagedFile, match="have no base"):
        log.load()
    with pytest.raises(DamagedFile, match="is missing"):
        log.entry(6)


def test_swapped_files_are_found() -> None:
    files = MemoryFiles()
    log = filled(files)
    other = owned_log(files, identity=Identity(UUID, LAYOUT, "counts", 1))
    other.write_snapshot(4, 1, token(4), {})
    other.append(5, 1, token(5), content(5))
    seventh = files.read(path_of(log, "e-000000000007.delta"))
    path = path_of(log, "e-000000000006.delta")
    whole = files.read(path)
    files.damage(path, seventh)
    with pytest.raises(DamagedFile, match="is of epoch 7"):
        log.load()
    files.damage(path, whole)
    files.damage(
        path_of(log, "e-000000000005.delta"),
        files.read(path_of(log, "").replace("counts-0", "counts-1") + "e-000000000005.delta"),
    )
    with pytest.raises(DamagedFile, match="partition=1"):
        log.load()


def test_a_new_owner_gets_the_log_and_the_zombie_is_fenced() -> None:
    files = MemoryFiles()
    zombie = filled(files)
    new_owner = owned_log(files, generation=2, incarnation="b")
    assert epochs_of(new_owner.load()) == (4, [5, 6, 7, 8, 9])
    calls: list[Callable[[], object]] = [
        lambda: zombie.append(10, 1, token(10), {}),
        lambda: zombie.write_snapshot(9, 1, token(9), {}),
        lambda: zombie.entry(9),
        zombie.load,
        zombie.create,
        zombie.repair,
        lambda: zombie.discard_from(1),
        lambda: zombie.collect(9),
        lambda: owned_log(files),
    ]
    for call in calls:
        with pytest.raises(FencedError, match="newer owner"):
            call()
    new_owner.append(10, 2, token(10), {})
    assert epochs_of(new_owner.load()) == (4, [5, 6, 7, 8, 9, 10])


def test_a_zombie_in_the_middle_of_an_append_is_fenced() -> None:
    # It has written its temporary file, and the adoption comes before the file gets its name.
    files = MemoryFiles()
    zombie = filled(files)
    new_owners = []

    class Racing(MemoryFiles):
        def _step(self, what: str) -> None:
            if what == "link":
                new_owners.append(owned_log(files, generation=2))
            super()._step(what)

    racing = Racing()
    racing.__dict__.update(files.__dict__)
    zombie._files = racing
    with pytest.raises(FencedError):
        zombie.append(10, 1, token(10), content(10))
    assert new_owners[0].last_epoch() == 9
