"""Tasks find the process that had their index, in any order of ends. The JVM's side is played here.

A task of these tests is its index and one letter: `x` ends the process, else it sends its id, and
continues until another byte comes (`w`) or hangs (`h`). With `k` the process holds work besides
its tasks, with `l` it lets go.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.testing.wait import until
from perseid.worker.spark import sticky_workers

_DAEMON = """
import os, time
from perseid.worker.process import occupied
from perseid.worker.spark import sticky_workers

def work(task):
    letter = task.recv(13)[12:]
    if letter == b"x":
        os._exit(3)
    task.sendall(os.getpid().to_bytes(4, "big"))
    if letter == b"w":
        task.recv(1)
    elif letter == b"h":
        time.sleep(600)
    elif letter == b"k":
        occupied.hold()
    elif letter == b"l":
        occupied.release()
    return 0

sticky_workers.IDLE_S = float(os.environ.get("IDLE_S", sticky_workers.IDLE_S))
sticky_workers.serve(work)
"""


class Daemon:
    def __init__(self, folder: Path, **more: str) -> None:
        environment = {
            **os.environ,
            **more,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", _DAEMON], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        (length,) = struct.unpack(">i", self.process.stdout.read(4))
        self.path = self.process.stdout.read(length).decode()

    def task(self, index: int, letter: bytes) -> socket.socket:
        task = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        task.settimeout(20)
        task.connect(self.path)
        assert task.recv(4, socket.MSG_WAITALL) == self.process.pid.to_bytes(4, "big")
        task.sendall(struct.pack(">iii", -10, 5, index) + letter)
        return task

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0
        self.process.stdout.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.end()
    assert not list(tmp_path.iterdir())  # the socket is gone


def read_pid(task: socket.socket) -> int:
    """The id of the process that has begun with the task."""
    return int.from_bytes(task.recv(4, socket.MSG_WAITALL), "big")


def finish(task: socket.socket) -> None:
    """Returns as soon as the JVM would: when the process has hung up or may still be about to."""
    with task:
        task.sendall(b".")


def run(daemon: Daemon, index: int) -> int:
    with daemon.task(index, b"p") as task:
        return read_pid(task)


def lives(pid: int) -> bool:
    """A process that was not waited for yet is no life."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is read
        return False


def test_a_task_meets_the_process_of_its_index_in_any_order_of_ends(daemon: Daemon) -> None:
    seen = set()
    for turn in range(20):
        begun = {index: daemon.task(index, b"w") for index in ((0, 1) if turn % 2 else (1, 0))}
        seen.add((read_pid(begun[0]), read_pid(begun[1])))
        for index in (0, 1) if turn % 4 < 2 else (1, 0):
            finish(begun[index])
    assert len(seen) == 1
    assert len(set(seen.pop())) == 2


def test_a_second_task_of_an_index_gets_a_process_of_its_own(daemon: Daemon) -> None:
    busy = daemon.task(0, b"w")
    assert run(daemon, 0) != read_pid(busy)
    finish(busy)


def test_a_task_that_is_aborted_before_it_is_greeted_costs_no_other_task(daemon: Daemon) -> None:
    before = run(daemon, 0)
    daemon.process.send_signal(signal.SIGSTOP)
    for _ in range(3):
        gone = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        gone.connect(daemon.path)
        gone.close()
    daemon.process.send_signal(signal.SIGCONT)
    assert run(daemon, 0) == before


def test_a_host_without_room_for_a_process_gives_the_task_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_room)
    with socket.socket(socket.AF_UNIX) as listening:
        ours, spark = socket.socketpair()
        assert sticky_workers.Daemon(listening, lambda task: 0)._place(0, ours)
        assert spark.recv(1) == b""  # hung up: Spark tries the task again
        spark.close()


def test_a_dead_process_is_replaced(daemon: Daemon) -> None:
    before = run(daemon, 0)
    with daemon.task(0, b"x") as task:
        assert task.recv(1) == b""  # as the JVM sees it
    after = run(daemon, 0)
    assert after != before
    os.kill(after, signal.SIGKILL)
    assert run(daemon, 0) not in {before, after}


def test_a_process_whose_task_was_aborted_is_ended(daemon: Daemon) -> None:
    """By then Spark tries the task elsewhere, and this one may hang for good."""
    with daemon.task(0, b"h") as task:
        pid = read_pid(task)
    until(lambda: not lives(pid), 20.0, f"the end of process {pid}")
    assert run(daemon, 0) != pid


def test_the_end_of_the_daemon_ends_all(tmp_path: Path) -> None:
    made = Daemon(tmp_path)
    idle, busy = run(made, 0), made.task(1, b"w")
    at_work = read_pid(busy)
    made.end()
    for pid in (idle, at_work):
        until(lambda pid=pid: not lives(pid), 20.0, f"the end of process {pid}")  # type: ignore[misc]
    busy.close()


def test_a_process_with_work_besides_its_tasks_is_not_idle(tmp_path: Path) -> None:
    """One that wrote a part of a checkpoint was ended after a minute, when no epoch followed."""
    made = Daemon(tmp_path, IDLE_S="0.5")
    with made.task(0, b"k") as task:
        holding = read_pid(task)
    with made.task(1, b"p") as task:
        idle = read_pid(task)
    until(lambda: not lives(idle), 20.0, f"the end of process {idle}")
    assert lives(holding)
    with made.task(2, b"p") as task:  # a whole time later
        idle = read_pid(task)
    until(lambda: not lives(idle), 20.0, f"the end of process {idle}")
    assert lives(holding)
    with made.task(0, b"l") as task:
        assert read_pid(task) == holding
    until(lambda: not lives(holding), 20.0, f"the end of process {holding}")
    made.end()


def test_idle_processes_outlive_a_pause_between_epochs() -> None:
    assert sticky_workers.IDLE_S > 10  # an idle job has an epoch every 10 s
