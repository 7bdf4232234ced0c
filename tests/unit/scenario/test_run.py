"""The demo's loop against a job that lives in memory: kills take it down, then it comes back."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from perseid.cli.scenario.kills import Kill
from perseid.cli.scenario.pacing import Pacing
from perseid.cli.scenario.progress import Progress
from perseid.cli.scenario.report import Sight
from perseid.cli.scenario.run import Run
from perseid.embedded.identity import send
from perseid.records.marks import Mark, mark
from perseid.topics.records import Begin, LedgerRecord, SinkWindow, SourceRange, Token

JOB = "uuid"
RECOVERY_S = 0.15
EPOCH_S = 0.005
STEP_S_MAX = 0.02


class Job:
    """Load, follower, nemesis and view in one: an engine whose every part is in this process."""

    def __init__(self, nemesis: Iterator[Mark | None]) -> None:
        self.progress = Progress(JOB, [0])
        self.progress.token_record(0, Begin(1, JOB, 0), 0.0)
        self.sent = 0
        self.notes: list[str] = []
        self.sights: list[Sight] = []
        self._nemesis = nemesis
        self._order = (0.0, 0)
        self._then_s = time.monotonic()
        self._credit = 0.0
        self._read = 0
        self._open = False
        self._next_s = 0.0
        self._owner = 1

    def order(self, rate: float, limit: int) -> None:
        now_s = time.monotonic()
        # A machine that stalled must not send all lines at once: no moment to kill is left.
        self._credit += rate * min(now_s - self._then_s, STEP_S_MAX)
        self._then_s = now_s
        due = min(int(self._credit), max(limit - self.sent, 0))
        self._credit -= int(self._credit)
        self.sent += due

    def poll(self, timeout_s: float) -> None:
        if timeout_s == 0 or time.monotonic() < self._next_s:
            return
        epoch = self.progress.tip_epoch
        if self._open:
            windows = (SinkWindow("out", 0, epoch, epoch, 1, 0),)
            self.progress.ledger_record(0, LedgerRecord(JOB, 1, "o", 0, 1, epoch, epoch, windows))
            self._open = False
        elif self.sent > self._read:
            ranges = (SourceRange("lines", "in", "t", 0, self._read, self.sent),)
            token = Token(1, JOB, epoch + 1, epoch, "r", 1, (ranges,), epoch + 1)
            self.progress.token_record(epoch + 1, token, time.monotonic())
            self._read, self._open = self.sent, True
        self._next_s = time.monotonic() + EPOCH_S

    def owner_id(self) -> str | None:
        return f"w{self._owner}" if time.monotonic() > self._next_s - RECOVERY_S / 2 else None

    def find(self, what: str) -> Mark | None:
        return next(self._nemesis)

    def kill(self, target: Mark) -> bool:
        done = send(target, 9)
        self._next_s = time.monotonic() + RECOVERY_S
        self._owner += 1
        return done

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, sight: Sight) -> None:
        self.sights.append(sight)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that may be killed."""
    started = [
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) for _ in range(2)
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def run(job: Job, kills: list[str], total: int = 4_000) -> Run:
    ran = Run(Pacing(total, 4_000.0, tuple(Kill(k) for k in kills)), job, job, job, job)
    ran.run()
    return ran


def test_kills_are_done_in_the_middle_of_work_and_reported(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    marks = [mark(p.pid) for p in sleepers]
    # The first look finds no owner: between two lives. Then the kill is tried again.
    job = Job(itertools.chain([None], marks))
    ran = run(job, ["worker", "coordinator"])
    reports = ran.reports(lambda windows, after_ms: after_ms + 1_500)
    assert [r.what for r in reports] == ["worker", "coordinator"]
    assert [r.pid for r in reports] == [p.pid for p in sleepers]
    assert [p.wait() for p in sleepers] == [-9, -9]
    assert all(r.epoch_in_flight and r.seconds_to_output == 1.5 for r in reports)
    assert [(r.owner_before, r.owner_after) for r in reports] == [("w1", "w2"), ("w2", "w3")]
    after = ran.epochs_after_last_kill
    assert after is not None
    assert after >= 20
    assert job.sights[-1].committed == 4_000
    assert job.progress.committed_records == 4_000


def test_a_kill_that_a_commit_has_forestalled_is_done_again(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    class QuickJob(Job):
        def kill(self, target: Mark) -> bool:
            if target.pid == sleepers[0].pid:
                self._next_s = 0.0
                self.poll(0.001)  # commits what is open
            return super().kill(target)

    job = QuickJob(iter([mark(p.pid) for p in sleepers]))
    reports = run(job, ["coordinator"]).reports(lambda windows, after_ms: after_ms + 1_500)
    assert [(r.pid, r.seconds_to_output) for r in reports] == [(sleepers[1].pid, 1.5)]
    assert "had just been committed; again" in job.notes[0]
    assert job.progress.committed_records == 4_000


def test_a_run_without_kills_ends_with_the_last_line() -> None:
    job = Job(iter([]))
    ran = run(job, [], total=500)
    assert ran.reports(lambda *_: None) == []
    assert ran.epochs_after_last_kill is None
    assert job.progress.committed_records == 500
