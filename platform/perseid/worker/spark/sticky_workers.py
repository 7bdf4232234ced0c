"""A Spark Python daemon that gives each task the process that served its index (sticky worker).

What a process keeps between epochs (state, positioned consumers, producers) serves only the task
that finds it again. Spark hands out idle workers first in, first out, so on a busy machine most
epochs would mix tasks and processes. Here the JVM opens a connection per task
(`spark.python.worker.reuse` is off); the daemon reads the task's index, which comes first, and
passes the connection to a process of that index. It forks a second one only when the first is busy:
with another job's task, or because it hangs.

The processes speak Spark's own protocol (`pyspark.daemon.worker`). The daemon's protocol:
connections arrive on a Unix socket whose path it writes to stdout; it answers each with a process
id. stdin carries ids of processes to kill; its end ends all processes.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyspark.daemon
from pyspark.util import enable_faulthandler

from perseid.worker.process import occupied, spare_memory

SWITCH_S = 0.0005  # of Python's threads: with 5 ms commits wait for a task that computes
IDLE_S = 60.0  # Spark's own limit for idle Python workers
ABANDONED_S = 1.0  # how long a task that Spark has aborted may still run
TICK_S = 0.5
_INT = struct.Struct(">i")
_HEADER = struct.Struct(">iii")  # of a task: kind of message, its length, index of the task
_IDLE = b"i"

Work = Callable[[socket.socket], int]


@dataclass
class StickyWorker:
    """A process for tasks of one index. `task` is the connection that it serves, if any.

    `since_s`: when it became idle, or when Spark aborted its task. `held`: number of its background
    activities; while there are any it is not idle.
    """

    index: int
    pid: int
    control: socket.socket
    task: socket.socket | None = None
    since_s: float | None = None
    held: int = 0

    @property
    def is_over(self) -> bool:
        """Whether Spark has closed the connection, after the whole answer or an abort."""
        if self.task is None:
            return False
        look = select.poll()
        look.register(self.task, 0)
        return bool(look.poll(0))


class Daemon:
    """`run` returns when Spark closes stdin. Single-threaded, since it forks."""

    def __init__(self, listening: socket.socket, work: Work) -> None:
        """`work` answers one task in a process; a result other than 0 ends the process."""
        self._listening, self._work = listening, work
        self._workers: list[StickyWorker] = []
        self._unknown: dict[int, socket.socket] = {}  # tasks whose index is not read yet
        # tasks with their index, without a process
        self._waiting: list[tuple[int, socket.socket]] = []
        self._poller = select.poll()
        self._poller.register(0, select.POLLIN)
        self._poller.register(listening, select.POLLIN)

    def run(self) -> None:
        looked_s = time.monotonic()
        while True:
            for fd, _ in self._poller.poll(TICK_S * 1000):
                if fd == 0:
                    if not os.read(0, 4096):
                        return
                elif fd == self._listening.fileno():
                    self._accept()
                elif fd in self._unknown:
                    self._ask(fd)
                else:
                    self._hear(fd)
            if time.monotonic() - looked_s >= TICK_S:
                looked_s = time.monotonic()
                self._end_useless(looked_s)
            self._waiting = [w for w in self._waiting if not self._place(*w)]

    def _accept(self) -> None:
        try:
            task, _ = self._listening.accept()
        except OSError:  # Spark has closed the connection, or no file descriptor is left
            return
        try:
            task.sendall(_INT.pack(os.getpid()))  # any living process: Spark only kills by it
        except OSError:  # Spark has closed the connection
            task.close()
            return
        self._unknown[task.fileno()] = task
        self._poller.register(task, select.POLLIN)

    def _ask(self, fd: int) -> None:
        """Reads the index of a task without consuming it."""
        task = self._unknown[fd]
        try:
            header = task.recv(_HEADER.size, socket.MSG_PEEK)
        except OSError:
            header = b""
        if header and len(header) < _HEADER.size:
            return
        self._poller.unregister(fd)
        del self._unknown[fd]
        if header:
            self._waiting.append((_HEADER.unpack(header)[2], task))
        else:  # Spark has closed the connection
            task.close()

    def _place(self, index: int, task: socket.socket) -> bool:
        """Passes a task to a process; False while a process of its index is about to be free."""
        workers = [h for h in self._workers if h.index == index]
        worker = next((h for h in workers if h.task is None), None)
        if worker is None and any(h.is_over for h in workers):
            return False
        try:
            worker = worker or self._fork(index)
        except OSError as error:  # no process or file descriptor left: Spark will retry
            sys.stderr.write(f"perseid: no process for task {index}: {error}\n")
            task.close()
            return True
        try:
            socket.send_fds(worker.control, [_IDLE], [task.fileno()])
        except OSError:  # the process has just died
            self._forget(worker)
            return self._place(index, task)
        worker.task, worker.since_s = task, None
        return True

    def _fork(self, index: int) -> StickyWorker:
        mine, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            mine.close()
            theirs.close()
            raise
        if pid == 0:
            mine.close()
            self._close_all()
            _live(theirs, self._work)
        theirs.close()
        worker = StickyWorker(index, pid, mine)
        self._workers.append(worker)
        self._poller.register(mine, select.POLLIN)
        return worker

    def _close_all(self) -> None:
        """In a new process: closes the daemon's sockets."""
        others = [h.control for h in self._workers] + [h.task for h in self._workers if h.task]
        waiting = [task for _, task in self._waiting]
        for theirs in [self._listening, *others, *self._unknown.values(), *waiting]:
            theirs.close()

    def _hear(self, fd: int) -> None:
        """A process has become idle, has started or ended a background activity, or has ended."""
        worker = next(h for h in self._workers if h.control.fileno() == fd)
        try:
            byte = worker.control.recv(1)
        except ConnectionResetError:  # it died before it took its task, so another process may
            if worker.task is not None:
                self._waiting.append((worker.index, worker.task))
                worker.task = None
            byte = b""
        if byte in (occupied.HOLD, occupied.RELEASE):
            worker.held += 1 if byte == occupied.HOLD else -1
            if worker.task is None:
                worker.since_s = time.monotonic()
            return
        if byte != _IDLE:
            self._forget(worker)
            return
        if worker.task is not None:
            worker.task.close()
        worker.task, worker.since_s = None, time.monotonic()

    def _forget(self, worker: StickyWorker) -> None:
        self._poller.unregister(worker.control)
        worker.control.close()
        if worker.task is not None:
            worker.task.close()
        self._workers.remove(worker)

    def _end_useless(self, now_s: float) -> None:
        for worker in list(self._workers):
            if worker.since_s is None and worker.is_over:
                worker.since_s = now_s
            if worker.task is None and worker.held:
                continue
            limit_s = IDLE_S if worker.task is None else ABANDONED_S
            if worker.since_s is not None and now_s - worker.since_s > limit_s:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)
                self._forget(worker)


def _live(control: socket.socket, work: Work) -> NoReturn:
    """The main loop of a process: serves tasks one after the other."""
    occupied.connect(control)
    sys.setswitchinterval(SWITCH_S)
    code = 1
    # SIGINT, too: a KeyboardInterrupt would look like an error of the user's code.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        with open(os.devnull, "rb") as null:
            os.dup2(null.fileno(), 0)
        with enable_faulthandler():
            code = _serve(control, work)
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _serve(control: socket.socket, work: Work) -> int:
    spare = spare_memory.of_process()
    while True:
        _, received, _, _ = socket.recv_fds(control, 1, 1)
        if not received:  # the daemon has ended
            return 0
        with socket.socket(fileno=received[0]) as task:
            if work(task):
                return 1
        gc.collect(1)  # not the old generation, which has the resident state (decisions/0003)
        control.send(_IDLE)
        spare.give_back_when_due()


def _end(_number: int, _frame: Any) -> NoReturn:
    sys.exit(1)


def serve(work: Work = lambda task: pyspark.daemon.worker(task, True)) -> None:
    """Spark's entry point: see the module's docstring. Ends all processes when it ends."""
    os.setpgid(0, 0)
    if os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        raise RuntimeError("expected spark.python.unix.domain.socket.enabled=true (session.py)")
    path = Path(os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]) / f".{uuid.uuid4()}.sock"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(path))
    listening.listen()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the processes are not waited for
    sys.stdout.buffer.write(_INT.pack(len(bytes(path))) + bytes(path))
    sys.stdout.buffer.flush()
    try:
        Daemon(listening, work).run()
    finally:
        path.unlink(missing_ok=True)
        os.killpg(0, signal.SIGHUP)  # ends the processes; this one ignores it
