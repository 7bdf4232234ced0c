"""The audits of a worker: at most one, in a process of its own of low priority.

1. The worker takes an open audit by writing its incarnation into it.
2. It starts `python -m perseid.replay`, which writes its progress and, at its end, its result and
   reports into a folder.
3. It copies the progress into the audit, puts the reports into the checkpoint store, and writes the
   result.

Each write names the version of the previous one (`perseid.registry.audits`). When one finds another
version, the audit was canceled or is another worker's, and its process is ended. The process ends
by itself when this one is gone. It is ended when memory is short (`machine`): no job is stopped for
an audit.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from perseid.clocks import Clock
from perseid.errors import DamagedFile, PerseidError, RetryableError
from perseid.jobs.operations import audits
from perseid.records import Deployment, crashpoints
from perseid.records.audits import (
    ATTEMPTS_MAX,
    PROGRESS,
    REPORT,
    RESULT,
    VALUES,
    AuditProgress,
    AuditRequest,
    AuditResult,
)
from perseid.registry import Registry
from perseid.registry.audits import AuditNodes
from perseid.registry.facade import Stored
from perseid.registry.port import ConflictError, UnknownOutcomeError
from perseid.state.durability.store import open_store
from perseid.worker import machine
from perseid.worker.machine import Memory

log = logging.getLogger("perseid.worker")

LOOK_S = 0.5  # between two looks at the process and its progress
NOTE_S = 5.0  # between two looks at the audit, in case it was canceled
RETRY_S = 5.0  # until a result is written again
SHORT = (
    "its worker's host is short of memory, which jobs need: ask for fewer epochs, or give the "
    "worker more memory"
)
END_S = 3.0  # for the process, which is killed, to end
_PROGRESS, _RESULT = TypeAdapter(AuditProgress), TypeAdapter(AuditResult)
Value = TypeVar("Value")


class Process(Protocol):
    """The process of an audit (`subprocess.Popen`)."""

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[Deployment, AuditRequest, Path], Process]


def start_process(deployment: Deployment, audit: AuditRequest, folder: Path) -> Process:
    """The process of an audit, which ends when this one is gone."""
    settings = folder / "deployment.json"
    settings.write_text(deployment.model_dump_json())
    command = [
        sys.executable, "-m", "perseid.replay", f"--deployment={settings}", f"--job={audit.job}",
        f"--folder={folder}", f"--parent={os.getpid()}", *audit.arguments,
    ]  # fmt: skip
    tests_own = (crashpoints.DRIVER_PID, crashpoints.FOLDER)  # they are about this process
    environment = {k: v for k, v in os.environ.items() if k not in tests_own}
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


class AuditRun:
    """One audit on this worker. `follow` steps until it is over."""

    def __init__(
        self, deployment: Deployment, registry: Registry, stored: Stored[AuditRequest],
        folder: Path, clock: Clock, start: Start, memory: Callable[[], Memory],
    ) -> None:  # fmt: skip
        self._deployment, self._registry, self._nodes = deployment, registry, AuditNodes(registry)
        self._audit, self._version = stored.value, stored.version
        self._folder, self._clock, self._start, self._memory = folder, clock, start, memory
        self._process: Process | None = None
        self._result: AuditResult | None = None
        self._looked_s = clock.monotonic_s()
        self._unsettled: AuditRequest | None = None  # of the last write, if it may be done
        self._stopping, self._over = threading.Event(), threading.Event()

    @property
    def id(self) -> str:
        return self._audit.id

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def follow(self) -> None:
        """Steps until it is over or `stop` is called; then the process has ended."""
        try:
            while not self._stopping.is_set() and (pause_s := self.step()) is not None:
                self._stopping.wait(pause_s)
            if not self.over:
                self._leave()
        finally:
            self._kill()
            self._over.set()

    def stop(self) -> None:
        self._stopping.set()
        self._over.wait(END_S)

    def step(self) -> float | None:
        """One look; returns the pause until the next one, None when it is over."""
        try:
            self._result = self._result or self._look()
            if self._result is None:
                return LOOK_S
            self._end(self._result)
        except ConflictError:
            log.info("audit %s was canceled, or is another worker's", self.id)
        except RetryableError as error:
            log.warning("audit %s is not written now: %s", self.id, error)
            return RETRY_S
        except (PerseidError, OSError) as error:
            log.error("audit %s: %s", self.id, error)
            if self._result is None or self._result.state == "done":
                self._result = AuditResult("failed", f"its worker cannot end it: {error}")
                return LOOK_S
        self._kill()
        self._over.set()
        return None

    def _look(self) -> AuditResult | None:
        """The result, once there is one; until then its progress is copied."""
        if self._process is None:
            try:
                self._process = self._started()
            except OSError as error:
                return AuditResult("failed", f"its process cannot be started: {error}")
        code = self._process.poll()
        if code is not None:
            return _read(self._folder / RESULT, _RESULT) or AuditResult(
                "failed", f"its process ended with code {code} and no result; the worker's log "
                "has the reason",
            )  # fmt: skip
        if _is_short(self._memory):
            self._kill()
            return AuditResult("failed", SHORT)
        self._note()
        return None

    def _started(self) -> Process:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in (PROGRESS, RESULT, REPORT, VALUES):  # by an attempt that this host had
            (self._folder / left).unlink(missing_ok=True)
        return self._start(self._deployment, self._audit, self._folder)

    def _note(self) -> None:
        """Copies the progress, or looks whether the audit is still this run's: ConflictError."""
        progress = _read(self._folder / PROGRESS, _PROGRESS)
        now_s = self._clock.monotonic_s()
        if progress is not None and progress != self._audit.progress:
            self._looked_s = now_s
            self._write(replace(self._audit, progress=progress), self._nodes.put_progress)
        elif now_s - self._looked_s >= NOTE_S:
            self._looked_s = now_s
            self._settle()
            stored = self._nodes.one(self.id)
            if stored is None or stored.version != self._version:
                raise ConflictError(f"audit {self.id} has changed", self.id)

    def _end(self, result: AuditResult) -> None:
        """Puts the reports into the store, and then writes the result."""
        report = self._stored_report() if result.state == "done" else ""
        self._write(self._audit.ended(result, self._clock.wall_ms(), report), self._nodes.put)
        log.info("audit %s: %s", self.id, result.verdict or result.text,
                 extra={"job": self._audit.job})  # fmt: skip

    def _stored_report(self) -> str:
        store = open_store(self._deployment.store)
        folder = f"{audits.folder(self._registry, self.id)}/{self._audit.attempt}"
        for name in (REPORT, VALUES):
            store.write(f"{folder}/{name}", [(self._folder / name).read_bytes()])
        return folder

    def _leave(self) -> None:
        """Hands it over, unless it has just ended."""
        self._kill()
        try:
            if self._result is not None:
                self._end(self._result)
            else:
                self._write(self._audit.released(), self._nodes.put)
                log.info("leaves audit %s to another worker", self.id)
        except (PerseidError, OSError) as error:  # another one takes it when this one is gone
            log.warning("leaves audit %s: %s", self.id, error)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the kernel ends it later
                self._process.wait(END_S)

    def _write(self, audit: AuditRequest, put: Callable[[AuditRequest, int], int]) -> None:
        self._settle()
        try:
            self._version = put(audit, self._version)
        except UnknownOutcomeError:
            self._unsettled = audit
            raise
        self._audit = audit

    def _settle(self) -> None:
        """Learns whether the last write was done; a session's requests are answered in order."""
        if self._unsettled is None:
            return
        stored = self._nodes.one(self.id)
        if stored == Stored(self._unsettled, self._version + 1):
            self._audit, self._version = stored.value, stored.version
        self._unsettled = None


def follow_in_thread(run: AuditRun) -> None:
    threading.Thread(target=run.follow, name=f"audit-{run.id}", daemon=True).start()


class AuditRuns:
    """`look` and `stop` are of the worker's thread. `follow`: lets a run step until it is over."""

    def __init__(
        self, deployment: Deployment, registry: Registry, incarnation: str, clock: Clock,
        start: Start = start_process, memory: Callable[[], Memory] = machine.look,
        follow: Callable[[AuditRun], None] = follow_in_thread,
    ) -> None:  # fmt: skip
        self._deployment, self._registry, self._me = deployment, registry, incarnation
        self._clock, self._start, self._memory, self._follow = clock, start, memory, follow
        self._nodes = AuditNodes(registry)
        worker = incarnation.rpartition("-")[0]
        self._folder = Path(deployment.state) / "audits" / worker
        self._seen: int | None = None
        self._open: list[AuditRequest] = []
        self._running: AuditRun | None = None

    def look(self) -> None:
        """Takes an open audit, if it runs none. RetryableError while ZooKeeper is unavailable."""
        if self._running is not None and not self._running.over:
            return
        self._running = None
        self._see()
        if not self._open or _is_short(self._memory):
            return
        live = {worker.incarnation for worker in self._registry.workers()}
        if self._me not in live:
            return
        # It runs none: one that is its own is of a write whose outcome it did not learn.
        others = live - {self._me}
        for known in self._open:
            if known.is_free(others) and self._took(known.id, others):
                return

    def stop(self) -> None:
        """Ends what runs, which another worker may take."""
        if self._running is not None:
            self._running.stop()

    @property
    def running(self) -> str | None:
        """The id of the audit that runs here."""
        run = self._running
        return run.id if run is not None and not run.over else None

    def _see(self) -> None:
        changes = self._nodes.changes()
        if changes == self._seen:
            return
        self._open = [stored.value for stored in self._nodes.every() if stored.value.is_open]
        self._seen = changes  # read before them: a change meanwhile is seen at the next look
        self._tidy({audit.id for audit in self._open})

    def _tidy(self, known: Collection[str]) -> None:
        """Deletes the folders of audits that have ended, in a thread: they may be gigabytes."""
        with suppress(OSError):  # there is none yet
            over = [folder for folder in self._folder.iterdir() if folder.name not in known]
            for folder in over:
                deleted = {"path": folder, "ignore_errors": True}
                threading.Thread(target=shutil.rmtree, kwargs=deleted, daemon=True).start()

    def _took(self, id_: str, others: Collection[str]) -> bool:
        try:
            stored = self._nodes.one(id_)
        except DamagedFile as error:
            log.error("audit %s is not run: %s", id_, error)
            return False
        if stored is None or not stored.value.is_free(others):
            return False
        audit = stored.value
        try:
            if audit.attempt >= ATTEMPTS_MAX:
                text = f"{audit.attempt} workers died while they ran it, the last {audit.worker}"
                over = audit.ended(AuditResult("failed", text), self._clock.wall_ms())
                self._nodes.put(over, stored.version)
                log.error("audit %s: %s", id_, text, extra={"job": audit.job})
                return False
            mine = audit.taken(self._me, self._clock.wall_ms())
            version = self._nodes.put(mine, stored.version)
        except ConflictError:
            return False  # another worker was faster, or it was canceled
        log.info("runs audit %s, attempt %d", id_, mine.attempt, extra={"job": mine.job})
        self._running = AuditRun(
            self._deployment, self._registry, Stored(mine, version), self._folder / id_,
            self._clock, self._start, self._memory,
        )  # fmt: skip
        self._follow(self._running)
        return True


def _is_short(memory: Callable[[], Memory]) -> bool:
    try:
        return memory().spare < 0
    except (OSError, ValueError):  # each job reports it
        return False


def _read(path: Path, kind: TypeAdapter[Value]) -> Value | None:
    """What the process has written, None as long as it has not; files are replaced whole."""
    try:
        return kind.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        log.error("%s is no such file: %s", path, error)
        return None
