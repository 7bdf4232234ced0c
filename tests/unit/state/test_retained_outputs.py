"""Outputs in files of their own: one commit point for both files, and a time of its own for each.

At every step of an epoch, the log has the epoch with the outputs that its delta names, or it does
not have it. What a power failure takes or tears of the outputs is found before they are used.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import pytest

from perseid.errors import DamagedFile, FencedError, RetryableError
from perseid.state.durability.blob import Identity
from perseid.state.durability.log import LogEntry, StateLog
from perseid.state.durability.owners import adopt, log_directory, owner_directory, owner_name
from perseid.testing.files import Crashed, MemoryFiles
from support.mutants import states

ROOT = "/state"
IDENTITY = Identity("uuid", 1, "counts", 0)
FIRST, LAST = 5, 9


def opened(files: MemoryFiles, generation: int = 1) -> StateLog:
    owner = owner_name(generation, "w")
    adopt(files, ROOT, "uuid", 1, owner)
    directory = log_directory(owner_directory(ROOT, "uuid", 1, owner), "counts", 0)
    log = StateLog(files, directory, IDENTITY, retains=True)
    log.create()
    return log


def write(log: StateLog, epoch: int, generation: int = 1, out: bytes = b"") -> LogEntry:
    emitted = {"out": out or emitted_in(epoch)}
    return log.append(epoch, generation, 100 + epoch, {"state.n": b"state %d" % epoch}, emitted)


def emitted_in(epoch: int) -> bytes:
    return b"emitted in %d" % epoch


def filled(files: MemoryFiles) -> StateLog:
    log = opened(files)
    log.write_snapshot(FIRST - 1, 1, 100 + FIRST - 1, {})
    for epoch in range(FIRST, LAST + 1):
        write(log, epoch)
    return log


def returned(log: StateLog, epoch: int) -> bytes | None:
    found = log.outputs(log.entry(epoch))
    return None if found is None else bytes(found["out"])


def apart(log: StateLog) -> list[str]:
    return [name for name in log._files.list(log.directory) if name.endswith(".outputs")]


def test_outputs_are_apart_from_the_delta_that_names_them() -> None:
    log = filled(MemoryFiles())
    assert [returned(log, epoch) for epoch in log.epochs()] == [
        emitted_in(epoch) for epoch in range(FIRST, LAST + 1)
    ]
    assert {*log.entry(7).sections} == {"outputs", "state.n"}
    assert (len(apart(log)), log.outputs_from(LAST)) == (LAST + 1 - FIRST, FIRST)
    loaded = log.load()[1]
    assert [bytes(e.sections["state.n"]) for e in loaded] == [b"state %d" % e for e in range(5, 10)]


def test_without_outputs_there_is_no_second_file() -> None:
    log = filled(MemoryFiles())
    entry = log.append(LAST + 1, 1, 110, {"state.n": b"x", "out": b"no rows"}, {})
    assert log.outputs(entry) == {}
    assert len(apart(log)) == LAST + 1 - FIRST
    assert log.outputs_from(LAST + 1) == FIRST


def test_a_log_that_does_not_retain_has_them_in_its_deltas_and_reads_both_kinds() -> None:
    files = MemoryFiles()
    log = filled(files)
    other = StateLog(files, log.directory, IDENTITY)
    write(other, LAST + 1)
    assert len(apart(log)) == LAST + 1 - FIRST
    entry = log.entry(LAST + 1)
    assert (bytes(entry.sections["out"]), log.outputs(entry)) == (emitted_in(LAST + 1), {})
    assert (returned(other, LAST), other.outputs_from(LAST + 1)) == (emitted_in(LAST), FIRST)


def test_deltas_and_outputs_go_each_in_its_own_time() -> None:
    log = filled(MemoryFiles())
    log.write_snapshot(8, 1, 108, {})
    seventh = log.entry(7)
    log.collect(8)
    assert (log.epochs(), len(apart(log))) == ([9], LAST + 1 - FIRST)
    emitted = log.outputs(seventh)
    assert emitted is not None and bytes(emitted["out"]) == emitted_in(7)
    log.release(6)
    assert [name[:14] for name in apart(log)] == [f"e-{e:012d}" for e in (7, 8, 9)]

    log = filled(MemoryFiles())
    log.release(7)
    assert log.epochs() == [*range(FIRST, LAST + 1)]
    assert [returned(log, epoch) for epoch in (6, 7, 8)] == [None, None, emitted_in(8)]
    assert (log.repair(), log.outputs_from(LAST), len(log.load()[1])) == ([], 8, 5)


def test_what_was_released_is_gone_for_a_retry_and_the_state_stays() -> None:
    log = filled(MemoryFiles())
    log.release(LAST)
    assert (log.repair(), log.outputs_from(LAST), apart(log)) == ([], LAST + 1, [])
    write(log, LAST + 1)
    assert (log.outputs_from(LAST + 1), returned(log, LAST + 1)) == (10, emitted_in(10))


def test_of_two_attempts_with_other_rows_one_file_is_left() -> None:
    files = MemoryFiles()
    fast, slow = filled(files), opened(files)
    write(fast, 10)
    late = write(slow, 10, out=b"other rows")
    assert (late.found, len(apart(fast))) == (True, 6)
    emitted = slow.outputs(late)
    assert emitted is not None and bytes(emitted["out"]) == emitted_in(10)


def test_outputs_of_a_token_that_was_taken_back_are_discarded_with_it() -> None:
    log = filled(MemoryFiles())
    log.discard_from(8)
    assert [name[:14] for name in apart(log)] == [f"e-{e:012d}" for e in (5, 6, 7)]
    log.append(8, 1, 555, {}, {"out": b"of the next token"})
    assert returned(log, 8) == b"of the next token"


def test_a_discard_leaves_what_a_concurrent_attempt_is_about_to_name() -> None:
    files = MemoryFiles()
    log, other = filled(files), opened(files)
    other._outputs.write(replace(log.entry(9).header, token_offset=555), {"out": b"of the next"})
    log.discard_from(9)
    assert len(apart(log)) == LAST + 1 - FIRST
    other.append(9, 1, 555, {}, {"out": b"of the next"})
    assert returned(log, 9) == b"of the next"


def test_a_collection_keeps_what_the_delta_names_and_no_other_attempts() -> None:
    files = MemoryFiles()
    log = filled(files)
    header = log.entry(6).header
    log._outputs.write(header, {"out": b"of an attempt that died"})
    log.write_snapshot(8, 1, 108, {})
    sixth = log.entry(6)
    log.collect(8)
    assert len(apart(log)) == LAST + 1 - FIRST
    emitted = log.outputs(sixth)
    assert emitted is not None and bytes(emitted["out"]) == emitted_in(6)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "of another epoch", "gone"])
def test_damaged_outputs_are_found_before_use_and_cost_no_state(damage: str) -> None:
    files = MemoryFiles()
    log = filled(files)
    path, other = (f"{log.directory}/{name}" for name in apart(log)[2:4])
    whole = files.read(path)
    if damage == "gone":
        files.delete(path)
        assert returned(log, 7) is None
    else:
        kinds = {
            "cut": whole[:-9], "flipped": whole[:70] + b"\xff" + whole[71:], "empty": b"",
            "of another epoch": files.read(other),
        }  # fmt: skip
        files.damage(path, kinds[damage])
        with pytest.raises(DamagedFile, match=r"e-000000000007-"):
            log.outputs(log.entry(7))
    problems = log.repair()
    assert len(problems) == (damage != "gone")
    assert len(log.load()[1]) == LAST + 1 - FIRST
    assert (returned(log, 7), log.outputs_from(LAST), log.repair()) == (None, 8, [])


def test_a_fenced_owner_writes_and_reads_no_outputs() -> None:
    files = MemoryFiles()
    zombie = filled(files)
    entry = zombie.entry(9)
    opened(files, 2)
    calls: list[Callable[[], object]] = [
        lambda: write(zombie, 10), lambda: zombie.outputs(entry), lambda: zombie.release(9),
        lambda: zombie.outputs_from(9), zombie.repair,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(FencedError, match="newer owner"):
            call()


# Crashes ----------------------------------------------------------------------------------------


def after_each_crash(look: Callable[[StateLog], None], *, sync: bool = False) -> int:
    """Has an attempt die at each step of an epoch; `look` gets the next owner's repaired log."""
    step = 0
    while True:
        files = MemoryFiles(sync=sync)
        log = filled(files)
        files.crash_at(step)
        try:
            write(log, 10)
        except Crashed:
            files.restart(random.Random(step) if sync else None)
            look(opened(files, 2))
            step += 1
            continue
        return step


def is_whole_or_undone(log: StateLog) -> None:
    """The epoch is in the log with its outputs, or the log is as before it, and takes it."""
    assert log.repair() == []
    assert log.epochs() in ([*range(FIRST, 10)], [*range(FIRST, 11)])
    assert len(apart(log)) == len(log.epochs())
    write(log, 10, generation=2)
    assert [returned(log, epoch) for epoch in (9, 10)] == [emitted_in(9), emitted_in(10)]
    assert (len(apart(log)), log.outputs_from(10)) == (6, FIRST)


@pytest.mark.parametrize("sync", [False, True])
def test_a_crash_at_any_step_leaves_an_epoch_whole_or_undone(sync: bool) -> None:
    assert after_each_crash(is_whole_or_undone, sync=sync) >= 10


def test_a_delta_that_appears_before_its_outputs_is_found() -> None:
    with states.deltas_appear_before_their_outputs(), pytest.raises(AssertionError):
        after_each_crash(is_whole_or_undone)


def test_outputs_that_go_with_the_deltas_are_found() -> None:
    """A planted defect: a collection releases too."""
    collect = StateLog.collect

    def mutant(self: StateLog, checkpoint_epoch: int) -> None:
        collect(self, checkpoint_epoch)
        self.release(checkpoint_epoch)

    with patch.object(StateLog, "collect", mutant), pytest.raises(AssertionError):
        test_deltas_and_outputs_go_each_in_its_own_time()


def test_a_power_failure_never_gives_other_outputs() -> None:
    fates = set()
    for seed in range(300):
        files, chance = MemoryFiles(), random.Random(seed)
        log = filled(files)
        files.crash_at(chance.randrange(12))
        with pytest.raises(Crashed):
            write(log, 10)
            files.list(ROOT)
            raise Crashed
        files.restart(chance)
        log = opened(files, 2)
        fates |= {"repaired"} if log.repair() else set()
        for epoch in log.epochs():
            found = returned(log, epoch)
            assert found in (None, emitted_in(epoch))
            fates.add("kept" if found else "lost")
            assert found is not None or log.outputs_from(epoch) == epoch + 1
    assert fates == {"repaired", "kept", "lost"}


def test_an_attempt_finishes_with_the_outputs_of_one_that_died_between_the_files() -> None:
    files = MemoryFiles()
    log = filled(files)
    with (
        patch.object(StateLog, "_write", side_effect=RetryableError("no space left")),
        pytest.raises(RetryableError),
    ):
        write(log, 10)
    assert (len(apart(log)), log.epochs()[-1]) == (6, 9)
    assert returned(log, write(log, 10).header.epoch) == emitted_in(10)
    assert len(apart(log)) == 6
