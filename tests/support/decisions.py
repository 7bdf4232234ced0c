"""Decisions of a leader in tests, through the files that a coordinator writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perseid.clocks import Clock, ManualClock
from perseid.coordinator.decision_log import lines
from perseid.coordinator.decision_log.files import DecisionFiles
from perseid.coordinator.decision_log.lines import Decided
from perseid.coordinator.decision_log.recorder import BYTES_MAX, Recorder
from perseid.coordinator.decision_log.replay import Replay, replay


def recorder(
    folder: Path, *, bytes_max: int = BYTES_MAX, queue_max: int = 1_000_000, epoch: int = 1,
    clock: Clock | None = None,
) -> Recorder:  # fmt: skip
    """Writes to `folder`; it is not started, so that a test decides when the queue is emptied."""
    files = DecisionFiles(folder, epoch, bytes_max)
    return Recorder(files, folder.name, "0.1.0", clock or ManualClock(), bytes_max, queue_max)


def put(into: Recorder, decided: Iterable[Decided]) -> None:
    for one in decided:
        into.put(one.before, one.event, one.now, one.after, list(one.actions), one.raised)


def end(made: Recorder) -> None:
    """Ends the recorder, however long the machine takes."""
    made.close()
    made._thread.join()


def written(folder: Path, decided: Iterable[Decided], **limits: int) -> list[Path]:
    """The files of these decisions, in their order."""
    made = recorder(folder, **limits)  # type: ignore[arg-type]
    made.start()
    put(made, decided)
    end(made)
    return sorted(folder.iterdir())


def replayed(path: Path, until: int | None = None) -> Replay:
    with path.open("rb") as content:
        return replay(lines.parsed(content, path.name), until)
