"""Writes a leader's decisions to its files, in a thread: the leader never waits for a disk.

1. The deciding thread puts frozen values into a queue; the thread here encodes and writes them.
2. Each file begins with the whole state, so it can be replayed alone.
3. When the queue is full or a write fails, decisions are lost, never delayed. The gap is logged,
   counted, and written at the end of the file before it and at the head of the one after it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from queue import SimpleQueue

from perseid.clocks import Clock
from perseid.coordinator import events as ev
from perseid.coordinator.actions import Action
from perseid.coordinator.decision_log import lines
from perseid.coordinator.decision_log.files import DecisionFiles
from perseid.coordinator.decision_log.lines import Decided, End, Head
from perseid.coordinator.model import ClusterState
from perseid.coordinator.token_time import Now
from perseid.errors.texts import named

_log = logging.getLogger(__name__)

BYTES_MAX = 64 << 20  # of all files of one coordinator: an hour of some busy jobs
FILES = 8  # that share it; the oldest is deleted as a whole
QUEUE_MAX = 4096  # decisions: some seconds of a disk that does not answer
RETRY_S = 5.0  # between attempts while writing fails: each writes the whole state
CLOSE_S = 1.0  # that the end of a term waits for the last decisions
SLOW = "the disk is slower than the leader decides"
NOT_RECORDED = "the leader's decisions are not recorded, and the leader continues: %s"


class Recorder:
    """The decisions of one term. `put` and `close` are called by the deciding thread."""

    def __init__(
        self, files: DecisionFiles, coordinator: str, version: str, clock: Clock,
        bytes_max: int = BYTES_MAX, queue_max: int = QUEUE_MAX,
    ) -> None:  # fmt: skip
        self._writing = _Writing(files, coordinator, version, clock, bytes_max)
        self._queue: SimpleQueue[Decided | int] = SimpleQueue()  # at last, how many were lost
        self._queue_max = queue_max
        self._quiet = self._lost = self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="decisions", daemon=True)

    @classmethod
    def in_folder(cls, folder: Path, epoch: int, version: str, clock: Clock) -> Recorder:
        """Writes to `folder`, which has the coordinator's name."""
        return cls(DecisionFiles(folder, epoch, BYTES_MAX), folder.name, version, clock)

    @property
    def lost(self) -> int:
        """Decisions of this term that are in no file."""
        return self._writing.lost + self._dropped

    def start(self) -> None:
        self._thread.start()

    def put(
        self, before: ClusterState, event: ev.Event, now: Now, after: ClusterState,
        actions: list[Action], raised: str = "",
    ) -> None:  # fmt: skip
        """Takes one decision; returns at once."""
        if not raised and lines.is_quiet(before, event, after, actions):
            self._quiet += 1
            return
        if self._queue.qsize() >= self._queue_max:
            if not self._lost:  # at once: a disk may hang without end
                _log.error(NOT_RECORDED, SLOW)
            self._lost, self._dropped = self._lost + 1, self._dropped + 1
            return
        self._queue.put(
            Decided(before, event, now, after, tuple(actions), self._quiet, self._lost, raised)
        )
        self._quiet = self._lost = 0

    def close(self) -> None:
        """Ends the file, unless the disk takes too long."""
        self._queue.put(self._lost)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while isinstance(one := self._queue.get(), Decided):
            self._writing.write(one)
        self._writing.end(one)


class _Writing:
    """What the thread does; no method raises."""

    def __init__(
        self, files: DecisionFiles, coordinator: str, version: str, clock: Clock, bytes_max: int
    ) -> None:
        self._files, self._coordinator, self._version = files, coordinator, version
        self._clock, self._bytes_max = clock, bytes_max
        self.lost = 0  # here, and not before the queue
        self._gap, self._why = 0, ""  # decisions lost since the last line, and the reason
        self._retry_s = float("-inf")
        self._n = self._head_bytes = 0
        self._state: ClusterState | None = None  # after the last line

    def write(self, decided: Decided) -> None:
        self._miss(decided.lost, SLOW)
        if self._gap and self._clock.monotonic_s() < self._retry_s:
            self._failed(self._why, self._retry_s)
            return
        try:
            self._write(decided)
        except Exception as error:  # of the disk, or a defect; the leader must lead all the same
            self._failed(named(error), self._clock.monotonic_s() + RETRY_S)

    def end(self, lost: int = 0) -> None:
        """Closes the file; `lost`: decisions since the last one."""
        self._miss(lost, SLOW)
        try:
            self._finish()
            self._files.close()
        except Exception as error:
            _log.warning("the file of the leader's decisions lacks its end: %s", named(error))

    def _write(self, decided: Decided) -> None:
        if self._gap or not self._files.is_open or self._is_full():
            self._begin(decided.before)
        line = lines.event_line(self._n + 1, decided)
        self._check_size(line)
        self._files.append(line)
        self._n, self._state = self._n + 1, decided.after

    def _begin(self, state: ClusterState) -> None:
        if self._files.is_open:
            self._finish()
        head = lines.head_line(Head(
            self._version, self._coordinator, state.epoch, self._clock.wall_ms(), state,
            self._gap, self._why,
        ))  # fmt: skip
        self._check_size(head)
        self._files.begin()
        self._files.append(head)
        self._n, self._head_bytes, self._state = 0, len(head), state
        if self._gap:
            _log.warning("the leader's decisions are recorded again; %d are missing", self._gap)
        self._gap, self._why, self._retry_s = 0, "", float("-inf")

    def _finish(self) -> None:
        """Writes the open file's last line."""
        if self._files.is_open and self._state is not None:
            end = End(self._n, lines.digests(self._state), self._gap, self._why)
            self._files.append(lines.end_line(end))
            self._state = None

    def _is_full(self) -> bool:
        own = self._files.bytes - self._head_bytes
        return own >= max(self._bytes_max // FILES, self._head_bytes)

    def _check_size(self, line: bytes) -> None:
        if len(line) > self._bytes_max // 4:
            raise OSError(
                f"one line of {len(line)} bytes is more than a quarter of the {self._bytes_max} "
                "bytes that all files may have"
            )

    def _failed(self, why: str, retry_s: float) -> None:
        if not self._gap:
            _log.error(NOT_RECORDED, why)
        self.lost, self._retry_s = self.lost + 1, retry_s
        self._miss(1, why)

    def _miss(self, count: int, why: str) -> None:
        if count:
            self._gap, self._why = self._gap + count, why
