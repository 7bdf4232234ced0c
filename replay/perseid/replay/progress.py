"""What an audit has compared so far, kept in its folder, so that one that was killed resumes.

    progress          what it is asked for and has found: replaced whole, with its digest
    subject-<part>    what a part of it audits; `part` counts those of a sample or a bisection
    runs.<attempt>/   state logs and outputs of its runs

1. A process locks the folder, and renames the runs' folder: what an earlier process has still open
   writes into a folder that is not there any more. State logs get a new owner, as a worker's do.
2. Parts that ended are taken from the file. Of a run that had not ended, what has compared it is
   restored, and the run continues after the last epoch that this has seen: the state logs hold that
   epoch, since they are collected up to what is kept only.
3. Outputs that wait to be compared with a topic are deleted after it is kept that they were.

What is kept are the objects of the comparison themselves, pickled: none of their fields can be
forgotten. What belongs to a process (clients, folders) has a name in the pickle, and the next
process gives its own. A pickle runs code, so only files that this user alone can write are read,
and only those of the same build.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perseid.errors import RefusedError
from perseid.records.version import this_build
from perseid.replay.causes import Causes
from perseid.state.durability.files import faults, write_file

if TYPE_CHECKING:
    from perseid.engine.order import EpochOrder
    from perseid.engine.task_report import TaskReport
    from perseid.replay.findings import Audit
    from perseid.replay.running import AuditRun
    from perseid.worker.dataflow.context import FragmentContext

FILE, SUBJECT, RUNS, LOCK = "progress", "subject-", "runs.", "lock"
FORMAT = 1
PACE_S = 5.0  # between two writes,
COST = 20  # or as many times what the last one took
LOCK_S = 5.0  # for a process that was killed to be gone

Value = TypeVar("Value")
Asked = Mapping[str, Any]  # the job, and options as the user typed them


class Unusable(RefusedError):
    """What is kept cannot be used: the audit has to begin again."""


@dataclass
class Run:
    """One run of a part. `epoch`: the last one that was compared. `seen`: by what (`dumped`)."""

    epoch: int
    epochs: int
    records_in: int
    seen: bytes
    ended: bool = False


@dataclass
class _Content:
    """`audits`: of parts that ended. `causes`, `begun`: with how many runs the open part begins.

    `runs`: of the open part, by number. `once`: what was drawn or searched for.
    """

    asked: dict[str, Any]
    once: dict[str, Any] = field(default_factory=dict)
    audits: list[Audit] = field(default_factory=list)
    causes: Causes = field(default_factory=Causes)
    begun: int = 0
    runs: dict[int, Run] = field(default_factory=dict)


class Progress:
    """Of one audit in its own folder. See the module's docstring.

    `attempt`: which process it is that runs it, from 1.
    """

    def __init__(self, folder: Path) -> None:
        """Opens nothing, and is of an audit that begins."""
        self.folder, self._lock = folder, -1
        self._content = _Content({})
        self._part, self.attempt = 0, 1
        self._wrote_s, self._took_s = time.monotonic(), 0.0

    @classmethod
    def begun(cls, folder: Path, asked: Asked, *, again: bool = False) -> Progress:
        """Of a new audit. RefusedError if the folder has one that was interrupted.

        `again`: deletes what that one has left.
        """
        found = cls(folder)
        found._hold()
        if again:
            for path in folder.glob(f"{RUNS}*"):
                shutil.rmtree(path, ignore_errors=True)
            found.remove()
        elif (folder / FILE).exists():
            found.close()
            raise RefusedError(
                f"{folder} has an audit that was interrupted: resume it (`perseid replay JOB "
                f"--resume {folder}`), delete it, or give another folder"
            )
        found._content.asked = dict(asked)
        found._write()
        return found

    @classmethod
    def resumed(cls, folder: Path) -> Progress:
        """Of an audit that was interrupted. RefusedError without one; Unusable if it is damaged."""
        if not (folder / FILE).is_file():
            raise RefusedError(
                f"{folder}: has no audit that was interrupted (no file {FILE}); expected the "
                "folder that the audit named when it began"
            )
        found = cls(folder)
        found._hold()
        try:
            found._content = _read(folder / FILE)
            if not isinstance(found._content, _Content):
                raise _unusable(folder / FILE, "it is no progress of an audit")
            found._take_over()
        except BaseException:
            found.close()
            raise
        return found

    @property
    def asked(self) -> Asked:
        return self._content.asked

    @property
    def runs(self) -> Path:
        """The folder of its runs."""
        return self.folder / f"{RUNS}{self.attempt}"

    def refuse_other(self, asked: Asked) -> None:
        """RefusedError if the audit in the folder is another one than `asked`.

        What is None in `asked` was not given, and does not matter.
        """
        for name, value in asked.items():
            known = self.asked.get(name)
            if value is not None and value != known:
                raise RefusedError(
                    f"{self.folder} has an audit with {name} {_shown(known)}, and {name} "
                    f"{_shown(value)} is given: leave {name} out to resume it, or begin another "
                    "audit in another folder"
                )

    # Parts --------------------------------------------------------------------------------------

    def once(self, name: str, make: Callable[[], Value]) -> Value:
        """What an earlier process has drawn or searched for, else what `make` does."""
        if name not in self._content.once:
            self._content.once[name] = make()
            self._write()  # before anything that follows from it
        found: Value = self._content.once[name]
        return found

    def ended(self) -> Audit | None:
        """The next part, if it ended before an interruption; then it is open no more."""
        if self._part == len(self._content.audits):
            return None
        self._part += 1
        return self._content.audits[self._part - 1]

    @property
    def before(self) -> int:
        """How many runs the parts that ended had."""
        return self._content.begun

    @property
    def causes(self) -> Causes:
        """Those with which the open part begins."""
        return self._content.causes

    def subject(self) -> Any:
        """What `begin` was given for the open part; None if it was not."""
        path = self._subject(self._part)
        return _read(path) if path.exists() else None

    def begin(self, subject: object, causes: Causes) -> None:
        """The open part begins."""
        _write(self._subject(self._part), dumped(subject))
        self._content.causes = causes
        self._write()

    def end(self, audit: Audit, causes: Causes, runs: int) -> None:
        """The open part has ended. `causes`: for the next one; `runs`: of all parts so far."""
        content = self._content
        content.audits.append(audit)
        content.causes, content.begun, content.runs = causes, runs, {}
        self._part += 1
        self._write()

    # Runs ---------------------------------------------------------------------------------------

    def run(self, number: int) -> Run | None:
        """What is kept of that run of the open part."""
        return self._content.runs.get(number)

    @property
    def is_due(self) -> bool:
        """Whether it is time to keep what a run has compared."""
        return time.monotonic() - self._wrote_s >= max(PACE_S, COST * self._took_s)

    def keep(self, number: int, run: Run) -> None:
        self._content.runs[number] = run
        self._write()

    def forget(self) -> None:
        """Deletes what its runs have left: they have ended, and so have their processes."""
        shutil.rmtree(self.runs, ignore_errors=True)

    def remove(self) -> None:
        """Deletes all that is kept: the audit has ended, or cannot."""
        self.forget()
        for path in [self.folder / FILE, *self.folder.glob(f"{SUBJECT}*")]:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # Files --------------------------------------------------------------------------------------

    def _subject(self, part: int) -> Path:
        return self.folder / f"{SUBJECT}{part}"

    def _hold(self) -> None:
        """Locks the folder until this process ends; RefusedError if another one has it."""
        with faults("write", str(self.folder)):
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        until_s = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() < until_s:
                    time.sleep(0.1)
                    continue
                self.close()
                raise RefusedError(
                    f"{self.folder}: another process runs an audit in this folder; wait until it "
                    "ends, or give another one"
                ) from None
            return

    def _take_over(self) -> None:
        """Renames the runs' folder; an older one was made by a process that was killed."""
        found = sorted(
            (int(p.name.removeprefix(RUNS)), p) for p in self.folder.glob(f"{RUNS}[0-9]*")
        )
        self.attempt = 1 + max((number for number, _ in found), default=0)
        if found:
            found[-1][1].rename(self.runs)
        for _, path in found[:-1]:
            shutil.rmtree(path, ignore_errors=True)

    def _write(self) -> None:
        started_s = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self.folder / FILE, dumped(self._content))
        self._wrote_s = time.monotonic()
        self._took_s = self._wrote_s - started_s


class Watcher(Protocol):
    """What compares the epochs of a run."""

    def ran(self, order: EpochOrder, done: TaskReport, context: FragmentContext) -> None: ...

    def kept(self) -> None:
        """All that it has compared is kept by now."""
        ...


class KeptRun:
    """The run of a number, of which is kept what its watcher has seen."""

    def __init__(
        self, progress: Progress, number: int, watcher: Watcher, ports: Mapping[str, object]
    ) -> None:
        """`ports`: as of `dumped`."""
        self._progress, self._number = progress, number
        self._watcher, self._ports = watcher, ports
        self._run: AuditRun | None = None

    @property
    def run(self) -> AuditRun:
        assert self._run is not None, "it is set before it is used"
        return self._run

    @run.setter
    def run(self, run: AuditRun) -> None:
        """Which calls `ran`."""
        self._run, held = run, self._progress.run(self._number)
        if held is None:
            run.begin()
        else:
            run.resume(held.epoch, held.epochs, held.records_in)

    @property
    def ended(self) -> bool:
        """Whether it ended before an interruption."""
        held = self._progress.run(self._number)
        return held is not None and held.ended

    def ran(self, order: EpochOrder, done: TaskReport, context: FragmentContext) -> None:
        """Called after each epoch of the run."""
        self._watcher.ran(order, done, context)
        if self._progress.is_due:
            self._keep(order.token.epoch)
            self._watcher.kept()
            self.run.kept_to = order.token.epoch

    def end(self) -> None:
        """It has ended, and all of it is compared."""
        self._keep(self.run.last, ended=True)

    def _keep(self, epoch: int, *, ended: bool = False) -> None:
        seen = dumped(self._watcher, self._ports)
        kept = Run(epoch, self.run.epochs, self.run.records_in, seen, ended)
        self._progress.keep(self._number, kept)


def dumped(value: object, ports: Mapping[str, object] | None = None) -> bytes:
    """`value` as bytes. Of `ports`, which belong to this process, it has the names."""
    names = {id(port): name for name, port in (ports or {}).items() if port is not None}
    data = io.BytesIO()
    _Pickler(data, names).dump(value)
    return data.getvalue()


def loaded(data: bytes, ports: Mapping[str, object]) -> Any:
    """The value, with this process's `ports`."""
    return _Unpickler(io.BytesIO(data), ports).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._names = names

    def persistent_id(self, value: object) -> str | None:
        return self._names.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, ports: Mapping[str, object]) -> None:
        super().__init__(file)
        self._ports = ports

    def persistent_load(self, name: str) -> object:
        return self._ports[name]


def _head() -> bytes:
    """Names the build, whose classes a pickle needs."""
    python = ".".join(map(str, sys.version_info[:3]))
    return f"perseid audit {FORMAT}, perseid {this_build().version}, python {python}\n".encode()


def _write(path: Path, data: bytes) -> None:
    """Replaces the file; a power failure leaves the old one or the new one."""
    fresh = path.with_name(f".{path.name}")
    with faults("write", str(path)):
        fresh.unlink(missing_ok=True)
        chunks = _head(), hashlib.sha256(data).digest(), data
        write_file(str(fresh), chunks, sync=True, mode=0o600)
        fresh.replace(path)


def _read(path: Path) -> Any:
    with faults("read", str(path)):
        found, data = path.stat(), path.read_bytes()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RefusedError(
            f"{path}: others than you may have written it, so it is not read: expected a file that "
            "this user owns and no other one may write; begin the audit again in another folder"
        )
    head, size = _head(), hashlib.sha256().digest_size
    line, content = data[: len(head)], data[len(head) + size :]
    if line != head:
        text = line.partition(b"\n")[0].decode(errors="replace")
        expected = head.decode().strip()
        raise _unusable(path, f"expected a file of this build ({expected!r}), found {text!r}")
    if hashlib.sha256(content).digest() != data[len(head) : len(head) + size]:
        raise _unusable(path, "it is damaged: its digest is not that of its content")
    try:
        return loaded(content, {})
    except Exception as error:
        raise _unusable(path, f"it cannot be read: {type(error).__name__}: {error}") from error


def _unusable(path: Path, why: str) -> Unusable:
    return Unusable(
        f"{path}: {why}, so the audit cannot be resumed; delete {path.parent} and begin it again"
    )


def _shown(value: object) -> str:
    return "not given" if value is None else repr(value)
