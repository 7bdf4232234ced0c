"""Orders of checkpoint parts outlive the process that had them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from perseid.errors import FencedError
from perseid.state.blob import Identity
from perseid.state.files import Files
from perseid.state.log import StateLog
from perseid.testing.files import MemoryFiles
from perseid.worker.part_orders import forget, note, take_over
from perseid.worker.parts import PartOrder

LOG = "/state/counts-0"
ORDER = PartOrder(
    "job", Identity("uuid", 1, "counts", 0), LOG, 7, 12, 30, ("m", 5), {"n": {}}, ("out.late",)
)
DEAD, LIVE, HEIR = 100, 200, 300


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(LOG, parents=True)
    return files


def taken(files: Files, pid: int = HEIR, generation: int = 7) -> list[PartOrder]:
    return take_over(files, LOG, generation, pid, lambda process: process != DEAD)


def test_what_a_dead_process_was_to_write_is_taken_over_once(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    assert taken(files) == [ORDER]
    assert taken(files) == taken(files, pid=LIVE) == []


def test_what_a_live_process_has_stays_with_it(files: MemoryFiles) -> None:
    note(files, ORDER, LIVE)
    assert taken(files) == []
    assert len(files.list(LOG)) == 1


def test_what_was_told_is_over(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    forget(files, ORDER, DEAD)
    forget(files, ORDER, DEAD)
    assert taken(files) == []


def test_an_heir_that_dies_has_one_of_its_own(files: MemoryFiles) -> None:
    note(files, ORDER, LIVE)
    assert take_over(files, LOG, 7, DEAD, lambda process: process != LIVE) == [ORDER]
    assert taken(files) == [ORDER]


def test_orders_of_other_generations_are_removed_unread(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    (name,) = files.list(LOG)
    files.damage(f"{LOG}/{name}", b"\0torn")
    with pytest.raises(json.JSONDecodeError):
        taken(files)
    note(files, replace(ORDER, epoch=13), LIVE)
    assert taken(files, generation=8) == []
    assert files.list(LOG) == []


def test_the_state_log_does_not_take_an_order_for_an_epoch(files: MemoryFiles) -> None:
    log = StateLog(files, LOG, ORDER.identity)
    log.write_snapshot(0, 7, 1, {})
    note(files, ORDER, DEAD)
    assert (log.last_epoch(), log.snapshots(), log.epochs()) == (0, [0], [])
    log.collect(0)
    assert log.repair() == []
    assert taken(files) == [ORDER]


def test_without_the_log_the_caller_is_fenced(files: MemoryFiles) -> None:
    files.delete(LOG)
    with pytest.raises(FencedError):
        note(files, ORDER, DEAD)
    with pytest.raises(FencedError):
        taken(files)
