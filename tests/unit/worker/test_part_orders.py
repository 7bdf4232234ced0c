"""Orders of checkpoint parts outlive the process that had them."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from perseid.errors import FencedError, RetryableError
from perseid.records.marks import Mark
from perseid.state.durability.blob import Identity
from perseid.state.durability.files import Files
from perseid.state.durability.owners import (
    adopt,
    owner_directory,
    owner_name,
    replica_directory,
)
from perseid.testing.files import MemoryFiles
from perseid.worker.checkpoint.part_orders import FOLDER, forget, note, take_over
from perseid.worker.checkpoint.parts import PartOrder

OWNED = owner_directory("/state", "uuid", 1, owner_name(7, "w1-a"))
ORDER = PartOrder(
    "job", Identity("uuid", 1, "counts-2", 0), f"{OWNED}/counts-2-0", 7, 12, 30, ("m", 5),
    {"n": {}}, ("out.late",),
)  # fmt: skip
DEAD, LIVE, NEW_OWNER = Mark(100, 1), Mark(100, 2), Mark(300, 1)


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(ORDER.directory, parents=True)
    return files


def taken(files: Files, new_owner: Mark = NEW_OWNER, generation: int = 7) -> list[PartOrder]:
    return take_over(files, OWNED, generation, new_owner, lambda process: process != DEAD)


def left(files: Files) -> list[str]:
    return files.list(f"{OWNED}/{FOLDER}")


def test_what_dead_processes_were_to_write_is_taken_over_once(files: MemoryFiles) -> None:
    assert taken(files) == []
    other = replace(ORDER, identity=replace(ORDER.identity, partition=1))
    note(files, ORDER, DEAD)
    note(files, other, DEAD)
    assert taken(files) == [ORDER, other]
    assert taken(files) == taken(files, LIVE) == []


def test_an_error_in_between_leaves_no_order_without_a_successor(files: MemoryFiles) -> None:
    """What had been taken over was forgotten, and its live new owner kept it from all others."""
    later, earlier = replace(ORDER, epoch=14), replace(ORDER, epoch=13, generation=6)
    for order in (ORDER, earlier, later):
        note(files, order, DEAD)
    files.fail("delete")
    assert taken(files) == [ORDER]
    assert taken(files) == [later]


def test_what_cannot_be_read_now_is_left_to_a_later_look(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    with patch.object(MemoryFiles, "read", side_effect=RetryableError("no answer")):
        assert taken(files) == []
    assert taken(files) == [ORDER]


def test_what_a_live_process_has_stays_with_it_though_another_had_its_number(
    files: MemoryFiles,
) -> None:
    note(files, ORDER, LIVE)
    assert taken(files) == []
    assert taken(files, LIVE) == []
    assert len(left(files)) == 1


def test_what_was_reported_is_over(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    forget(files, ORDER, DEAD)
    forget(files, ORDER, DEAD)
    assert taken(files) == []


def test_a_successor_that_dies_has_successors(files: MemoryFiles) -> None:
    note(files, ORDER, LIVE)
    assert take_over(files, OWNED, 7, DEAD, lambda process: process != LIVE) == [ORDER]
    assert taken(files) == [ORDER]


def test_orders_of_another_generation_are_removed_unread(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    (name,) = left(files)
    files.damage(f"{OWNED}/{FOLDER}/{name}", b"\0torn")
    note(files, replace(ORDER, epoch=13), LIVE)
    assert taken(files, generation=8) == []
    assert left(files) == []


def test_a_torn_order_is_removed_and_hinders_no_other(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    (name,) = left(files)
    files.damage(f"{OWNED}/{FOLDER}/{name}", b"\0torn")
    whole = replace(ORDER, epoch=13)
    note(files, whole, DEAD)
    assert taken(files) == [whole]
    assert len(left(files)) == 1


def test_a_fenced_process_notes_nothing_and_takes_nothing(files: MemoryFiles) -> None:
    note(files, ORDER, DEAD)
    adopt(files, "/state", "uuid", 1, owner_name(8, "w2-a"))
    with pytest.raises(FencedError):
        note(files, ORDER, DEAD)
    assert taken(files) == []
    assert files.list(replica_directory("/state", "uuid", 1)) == [owner_name(8, "w2-a")]


def test_who_is_fenced_in_the_midst_of_it_gets_no_directory_back() -> None:
    class Fencing(MemoryFiles):
        """A new owner comes between the look and the rename."""

        def rename(self, source: str, target: str) -> bool:
            if source.endswith(".order"):
                adopt(self, "/state", "uuid", 1, owner_name(8, "w2-a"))
            return super().rename(source, target)

    files = Fencing()
    files.make_directory(ORDER.directory, parents=True)
    note(files, ORDER, DEAD)
    assert taken(files) == []
    assert files.list(replica_directory("/state", "uuid", 1)) == [owner_name(8, "w2-a")]
