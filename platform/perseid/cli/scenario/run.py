"""One demo run: send, follow, kill when the pacing decides, until all input is committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from perseid.cli.scenario.kills import Kill, KillReport
from perseid.cli.scenario.pacing import Pacing, Scene
from perseid.cli.scenario.progress import Progress
from perseid.cli.scenario.report import Sight
from perseid.embedded.identity import wait_gone
from perseid.errors import RetryableError
from perseid.records.marks import Mark
from perseid.topics.records import SinkWindow

_POLL_S = 0.02
_OWNER_EVERY_S = 0.5  # maximum age of the shown owner; a read of ZooKeeper takes some ms
_STALLED_S = 180.0  # without progress; every recovery ends well before
_OWNER_TIMEOUT_S = 30.0
_MISSES_MAX = 3  # kills that met no epoch, since its commit was quicker


class Follows(Protocol):
    """Keeps `progress` up to date. Must not block longer than asked."""

    progress: Progress

    def poll(self, timeout_s: float) -> None: ...


class Feeds(Protocol):
    """Sends lines as ordered; `sent` counts those that are acknowledged."""

    sent: int

    def order(self, rate: float, limit: int) -> None: ...


class Kills(Protocol):
    """Finds and kills processes. Must not kill anything that `find` did not return."""

    def owner_id(self) -> str | None: ...
    def find(self, what: str) -> Mark | None: ...
    def kill(self, target: Mark) -> bool: ...


class Shows(Protocol):
    """Shows events to the user. Must not raise."""

    def note(self, text: str) -> None: ...
    def show(self, sight: Sight) -> None: ...


@dataclass(slots=True)
class _Done:
    """A kill that was done, and what is needed to complete its report."""

    report: KillReport
    committed_epoch: int
    wall_ms: int


class Run:
    """Drives one job from the first line to the last committed one."""

    def __init__(
        self, pacing: Pacing, follower: Follows, load: Feeds, nemesis: Kills, view: Shows
    ) -> None:
        self._pacing, self._follower, self._load = pacing, follower, load
        self._nemesis, self._view = nemesis, view
        self._kills: list[_Done] = []
        self._misses = 0
        self._owner: str | None = None
        self._owner_s = float("-inf")
        self._began_s = 0.0
        self.seconds = 0.0

    def run(self) -> None:
        """Returns when every line is committed; RetryableError when there is no progress."""
        progress = self._follower.progress
        total = self._pacing.total
        self._began_s = moved_s = time.monotonic()
        last = -1
        while progress.committed_records < total:
            self._follower.poll(_POLL_S)
            self._step()
            if progress.committed_records != last:
                last, moved_s = progress.committed_records, time.monotonic()
            elif self._load.sent > last and time.monotonic() - moved_s > _STALLED_S:
                raise RetryableError(
                    f"nothing was committed for {_STALLED_S:.0f} s: {last:,} of {total:,} lines; "
                    "see `perseid status`"
                )
        self.seconds = time.monotonic() - self._began_s
        self._complete_owners()

    @property
    def epochs_after_last_kill(self) -> int | None:
        """Committed epochs with input since the last kill; None without a kill."""
        if not self._kills:
            return None
        return self._follower.progress.committed_epochs - self._pacing.done_epochs

    def reports(self, append_ms: Callable[[list[SinkWindow], int], int | None]) -> list[KillReport]:
        """The kills with their seconds to output; `append_ms` looks a window's time up."""
        found = []
        for done in self._kills:
            windows = self._follower.progress.windows_above(done.committed_epoch)
            back_ms = append_ms(windows, done.wall_ms) if windows else None
            seconds = None if back_ms is None else (back_ms - done.wall_ms) / 1000
            found.append(replace(done.report, seconds_to_output=seconds))
        return found

    def _step(self) -> None:
        scene = self._scene()
        decision = self._pacing.decide(scene)
        self._load.order(decision.rate, decision.limit)
        if decision.kill is not None:
            self._kill(decision.kill, scene)
        elif decision.give_up is not None:
            self._view.note(
                f"{scene.now_s:6.1f} s  aborted: no moment to kill {decision.give_up.what}"
            )
            self._kills.append(self._record(decision.give_up, None, scene))
            self._pacing = self._pacing.after_kill(scene)
        self._complete_owners(scene.epochs)
        self._look()

    def _scene(self) -> Scene:
        progress = self._follower.progress
        now_s = time.monotonic()
        opened = progress.in_flight()
        return Scene(
            now_s=now_s - self._began_s,
            sent=self._load.sent,
            committed=progress.committed_records,
            epochs=progress.committed_epochs,
            in_flight=opened.epoch if opened is not None else None,
            in_flight_age_s=now_s - opened.seen_s if opened is not None else 0.0,
        )

    def _kill(self, kill: Kill, scene: Scene) -> None:
        target = self._nemesis.find(kill.what)
        if target is None:
            return  # between two incarnations; the pacing retries with the next epoch
        before = self._nemesis.owner_id()
        wall_ms = time.time_ns() // 1_000_000
        if not self._nemesis.kill(target):
            return
        self._follower.poll(0.0)  # what was committed before the kill must not count as after it
        done = self._record(kill, target, self._scene())
        if done.report.epoch_in_flight is None and self._misses < _MISSES_MAX:
            self._misses += 1
            wait_gone(target, 5.0)
            self._view.note(
                f"{scene.now_s:6.1f} s  kill -9 {kill.what} (pid {target.pid}): epoch "
                f"{scene.in_flight} had just been committed; again with a later one"
            )
            return
        done.wall_ms = wall_ms
        done.report = replace(done.report, owner_before=before)
        self._kills.append(done)
        self._pacing = self._pacing.after_kill(scene)
        wait_gone(target, 5.0)
        self._view.note(
            f"{scene.now_s:6.1f} s  kill -9 {kill.what} (pid {target.pid}, worker {before}) in "
            f"epoch {done.report.epoch_in_flight}"
        )

    def _record(self, kill: Kill, target: Mark | None, scene: Scene) -> _Done:
        report = KillReport(
            what=kill.what,
            pid=target.pid if target is not None else None,
            at_s=round(scene.now_s, 3),
            epoch_in_flight=scene.in_flight,
            owner_before=None,
        )
        return _Done(report, self._follower.progress.committed_epoch, time.time_ns() // 1_000_000)

    def _complete_owners(self, epochs: int | None = None) -> None:
        """Records the job's owner once epochs are committed again, and at the end in any case."""
        if not self._kills or self._kills[-1].report.owner_after is not None:
            return
        if epochs is not None and epochs <= self._pacing.done_epochs:
            return
        owner = self._nemesis.owner_id()
        deadline_s = time.monotonic() + (0 if epochs is not None else _OWNER_TIMEOUT_S)
        while owner is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
            owner = self._nemesis.owner_id()
        if owner is None:
            return
        done = self._kills[-1]
        done.report = replace(done.report, owner_after=owner)
        seconds = time.time_ns() / 1e9 - done.wall_ms / 1000
        self._view.note(f"          output again after {seconds:.1f} s, worker {owner}")

    def _look(self) -> None:
        progress = self._follower.progress
        now_s = time.monotonic()
        if now_s - self._owner_s > _OWNER_EVERY_S:
            self._owner, self._owner_s = self._nemesis.owner_id(), now_s
        self._view.show(
            Sight(
                now_s=now_s - self._began_s,
                total=self._pacing.total,
                sent=self._load.sent,
                committed=progress.committed_records,
                output_records=progress.output_records,
                epoch=progress.tip_epoch,
                committed_epoch=progress.committed_epoch,
                checkpoint=progress.last_checkpoint(),
                owner=self._owner,
            )
        )
