"""Files of decisions are bounded, and a disk that is full or slow never stops the leader."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from perseid.clocks import ManualClock
from perseid.coordinator import events as ev
from perseid.coordinator.decision_log import files, lines
from perseid.coordinator.decision_log.lines import Decided, End, Head, Line
from perseid.coordinator.decision_log.recorder import FILES, RETRY_S, Recorder
from perseid.testing.wait import until
from support.coordinator import Leader, World
from support.coordinator_steps import JOB, run
from support.decisions import end, put, recorder, replayed, written


@pytest.fixture
def decided(world: World, leader: Leader) -> list[Decided]:
    run(world, leader, 60)
    return leader.decided


def read(path: Path) -> list[Line]:
    with path.open("rb") as content:
        return list(lines.parsed(content, path.name))


def drain(into: Recorder) -> None:
    """Does what the thread does with all that was put."""
    while not into._queue.empty():
        one = into._queue.get()
        assert isinstance(one, Decided)
        into._writing.write(one)


def busy(decided: list[Decided]) -> int:
    """How many of them are written."""
    return sum(not lines.is_quiet(d.before, d.event, d.after, d.actions) for d in decided)


class Disk:
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def write(self, file: int, data: bytes) -> int:
        """As POSIX: what fits is written first, and the next call fails."""
        count = min(len(data), self.room)
        if count == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= count
        return self._write(file, data[:count])


def test_files_stay_within_their_bound(decided: list[Decided], tmp_path: Path) -> None:
    bound = 200_000
    many = [one for _ in range(20) for one in decided]
    made, used = recorder(tmp_path / "c1", bytes_max=bound), []
    append = files.DecisionFiles.append

    def watched(self: files.DecisionFiles, line: bytes) -> None:
        append(self, line)
        used.append(sum(path.stat().st_size for path in (tmp_path / "c1").iterdir()))

    with patch.object(files.DecisionFiles, "append", watched):
        made.start()
        put(made, many)
        end(made)
    paths = sorted((tmp_path / "c1").iterdir())
    assert bound / 2 < max(used) <= bound
    assert 1 < len(paths) <= FILES + 1
    assert "00001.jsonl" not in {path.name[-11:] for path in paths}  # the oldest are deleted
    assert made.lost == 0
    last = cast(End, read(paths[-1])[-1])
    assert last.state == lines.digests(many[-1].after)


def test_files_of_earlier_terms_count(decided: list[Decided], tmp_path: Path) -> None:
    bound = 200_000
    for epoch in range(1, 10):
        paths = written(tmp_path / "c1", decided, bytes_max=bound, epoch=epoch)
        assert sum(path.stat().st_size for path in paths) <= bound
    assert {path.name[:8] for path in paths} < {f"{epoch:08}" for epoch in range(1, 10)}
    assert paths[-1].name.startswith("00000009")


def test_a_full_disk_leaves_a_gap_that_the_files_report(
    decided: list[Decided], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, disk = ManualClock(), Disk(room=20_000)
    made = recorder(tmp_path / "c1", clock=clock)
    with caplog.at_level(logging.WARNING), patch.object(os, "write", disk.write):
        put(made, decided)
        drain(made)
        before = made.lost
        clock.sleep(RETRY_S)
        put(made, decided[-1:])  # tried again, and still without room
        drain(made)
        assert made.lost == before + 1 > 10
        disk.room = 1_000_000
        clock.sleep(RETRY_S)
        put(made, decided[-1:])
        drain(made)
        made._writing.end()
    first, second = sorted((tmp_path / "c1").iterdir())
    last, head = cast(End, read(first)[-1]), cast(Head, read(second)[0])
    assert last.lost == head.lost == made.lost == busy(decided) + 1 - last.n
    assert "No space left on device" in head.why == last.why
    assert replayed(first).same and replayed(second).same
    assert replayed(first).lost_after == head.lost
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    (error,) = errors
    assert "not recorded, and the leader continues: OSError" in error
    assert caplog.records[-1].getMessage().endswith(f"recorded again; {made.lost} are missing")


def test_a_disk_that_never_has_room_costs_no_files(decided: list[Decided], tmp_path: Path) -> None:
    clock = ManualClock()
    made = recorder(tmp_path / "c1", clock=clock)
    with patch.object(os, "write", Disk(room=0).write):
        for one in decided:
            put(made, [one])
            drain(made)
            clock.sleep(RETRY_S)
        made._writing.end()
    assert made.lost == busy(decided) > 100
    assert list((tmp_path / "c1").iterdir()) == []


def test_a_slow_disk_leaves_a_gap_and_does_not_stop_the_leader(
    decided: list[Decided], tmp_path: Path
) -> None:
    made = recorder(tmp_path / "c1", queue_max=10)
    put(made, decided)  # nothing is written yet: the disk does not answer
    assert made.lost == busy(decided) - 10
    drain(made)
    put(made, decided[-1:])
    drain(made)
    made._writing.end()
    first, second = sorted((tmp_path / "c1").iterdir())
    last, head = cast(End, read(first)[-1]), cast(Head, read(second)[0])
    assert (last.n, last.lost, head.lost) == (10, made.lost, made.lost)
    assert head.why == "the disk is slower than the leader decides"
    assert replayed(first).same and replayed(second).same


def test_a_gap_at_the_end_of_a_term_is_reported(
    decided: list[Decided], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = recorder(tmp_path / "c1", queue_max=10)
    put(made, decided)
    assert [r.getMessage() for r in caplog.records] == [
        "the leader's decisions are not recorded, and the leader continues: the disk is slower "
        "than the leader decides"
    ]
    made.start()
    end(made)
    (path,) = (tmp_path / "c1").iterdir()
    assert replayed(path).lost_after == made.lost == busy(decided) - 10


def test_a_value_that_cannot_be_written_costs_its_line_and_no_more(
    decided: list[Decided], tmp_path: Path
) -> None:
    odd = replace(decided[5], event=ev.ProgressSeen(JOB, cast(Any, object())))
    clock = ManualClock()
    made = recorder(tmp_path / "c1", clock=clock)
    put(made, [*decided[:5], odd])
    drain(made)
    clock.sleep(RETRY_S)
    put(made, decided[6:])
    drain(made)
    made._writing.end()
    first, second = sorted((tmp_path / "c1").iterdir())
    assert cast(Head, read(second)[0]).lost == 1
    assert replayed(first).same and replayed(second).same


def test_a_state_that_is_too_large_for_the_bound_is_not_written(
    decided: list[Decided], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = recorder(tmp_path / "c1", bytes_max=1000)
    put(made, decided[-5:])
    drain(made)
    assert made.lost == 5
    assert "more than a quarter of the 1000 bytes" in caplog.text


def test_what_a_killed_leader_wrote_can_be_replayed(decided: list[Decided], tmp_path: Path) -> None:
    """Each line is written at once: a kill takes only what is still in the queue."""
    made = recorder(tmp_path / "c1")
    made.start()
    put(made, decided)
    (path,) = _paths_of(tmp_path / "c1", lambda found: bool(found) and replayed(found[0]).n > 50)
    found = replayed(path)
    assert (found.same, found.ending) == (True, "open")
    end(made)
    assert replayed(path).ending == "closed"


def _paths_of(folder: Path, ready: Callable[[list[Path]], bool]) -> list[Path]:
    def look() -> list[Path]:
        return sorted(folder.iterdir()) if folder.is_dir() else []

    until(lambda: bool(ready(look())), 10.0, "the file")
    return look()
