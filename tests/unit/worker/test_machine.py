"""Memory of the machine or the container: who has to stop when little is left, and what is read."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from perseid.clocks import ManualClock
from perseid.errors import PermanentError
from perseid.worker import machine
from perseid.worker.machine import RECENT_S, MachineWatch, Memory
from perseid.worker.memory import MIB

PLENTY = Memory(left=8000 * MIB, total=16_000 * MIB)
SHORT = Memory(left=400 * MIB, total=16_000 * MIB)


class Machine:
    """A machine whose memory a test sets."""

    def __init__(self) -> None:
        self.memory = PLENTY
        self.clock = ManualClock()
        self.watch = MachineWatch(lambda: self.memory, self.clock)

    def judge(self, job: str, epoch: int, *sizes: int) -> tuple[str, ...]:
        reports = [{"gid": gid, "state_bytes": size} for gid, size in enumerate(sizes)]
        return self.watch.judge(job, epoch, [*reports, {"gid": 99}])


@pytest.fixture
def host() -> Machine:
    return Machine()


def test_nothing_is_said_while_there_is_plenty(host: Machine) -> None:
    assert host.judge("a", 1, 100 * MIB) == ()
    assert host.judge("a", 2, 900 * MIB) == ()


def test_the_job_that_grows_is_stopped_and_told_what_to_do(host: Machine) -> None:
    host.judge("a", 1, 300 * MIB, 300 * MIB)
    host.memory = SHORT
    with pytest.raises(PermanentError) as told:
        host.judge("a", 2, 300 * MIB, 301 * MIB)
    text = str(told.value)
    assert "has 400 MiB of its 16000 MiB left, behind epoch 2 of job a" in text
    assert "whose state has 601.0 MiB" in text
    assert "stopped behind epoch 2, its state is kept. Give the worker more memory" in text


def test_a_job_that_does_not_grow_only_warns_and_once_each_time(host: Machine) -> None:
    host.judge("a", 1, MIB)
    host.memory = SHORT
    (told,) = host.judge("a", 2, MIB)
    assert told.startswith("warning: the machine (or container) has 400 MiB")
    assert host.judge("a", 3, MIB) == ()
    host.memory = PLENTY
    assert host.judge("a", 4, MIB) == ()
    host.memory = SHORT
    assert len(host.judge("a", 5, MIB)) == 1


def test_the_largest_of_those_that_grow_is_stopped_not_the_next_to_be_judged(
    host: Machine,
) -> None:
    for epoch, mib in enumerate((100, 200), 1):
        host.judge("large", epoch, mib * MIB)
        host.judge("small", epoch, mib)
        host.judge("still", epoch, 5000 * MIB)
    host.memory = SHORT
    assert len(host.judge("small", 3, 300)) == 1
    assert len(host.judge("still", 3, 5000 * MIB)) == 1
    with pytest.raises(PermanentError, match="of job large"):
        host.judge("large", 3, 300 * MIB)
    with pytest.raises(PermanentError, match="of job small"):  # it is the next, if that was not it
        host.judge("small", 4, 400)


def test_a_job_that_has_left_is_not_counted(host: Machine) -> None:
    host.judge("large", 1, 100 * MIB)
    host.judge("large", 2, 200 * MIB)
    host.judge("small", 1, 1)
    host.watch.forget("large")
    host.memory = SHORT
    with pytest.raises(PermanentError, match="of job small"):
        host.judge("small", 2, 2)


def test_a_job_without_epochs_takes_no_more(host: Machine) -> None:
    host.judge("large", 1, 100 * MIB)
    host.judge("large", 2, 200 * MIB)
    host.judge("small", 1, 1)
    host.memory = SHORT
    assert len(host.judge("small", 2, 2)) == 1
    host.clock.sleep(RECENT_S)
    with pytest.raises(PermanentError, match="of job small"):
        host.judge("small", 3, 3)


def test_the_first_epoch_of_a_life_is_no_growth(host: Machine) -> None:
    """A state that was restored was there before."""
    host.memory = SHORT
    assert len(host.judge("a", 1, 100 * MIB)) == 1


@pytest.mark.parametrize(
    ("left", "total", "short"),
    [(127, 1000, True), (128, 1000, False), (499, 10_000, True), (500, 10_000, False)],
)
def test_a_twentieth_is_kept_and_128_mib_at_least(left: int, total: int, short: bool) -> None:
    assert Memory(left * MIB, total * MIB).short is short


def cgroup(folder: Path, version: int, limit: str) -> None:
    """300 MiB in use, 50 of which are files that nobody has looked at for long."""
    names = (
        ("memory.max", "memory.current", "memory.stat", "inactive_file")
        if version == 2
        else ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat",
              "total_inactive_file")
    )  # fmt: skip
    (folder / "memory").mkdir(parents=True, exist_ok=True)
    contents = (f"{limit}\n", f"{300 * MIB}\n", f"anon 1\n{names[3]} {50 * MIB}\n")
    for name, content in zip(names[:3], contents, strict=True):
        (folder / name).write_text(content)


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setenv(machine.CGROUPS, str(tmp_path))
    cgroup(tmp_path, version, str(400 * MIB))
    assert machine.look() == Memory(left=150 * MIB, total=400 * MIB)


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_no_limit_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv(machine.CGROUPS, str(tmp_path))
    cgroup(tmp_path, 1 if limit != "max" else 2, limit)
    assert machine.look().total == psutil.virtual_memory().total
    monkeypatch.setenv(machine.CGROUPS, str(tmp_path / "none"))
    assert machine.look().total == psutil.virtual_memory().total


def test_what_cannot_be_read_is_said_once_and_stops_nobody() -> None:
    def unreadable() -> Memory:
        raise PermissionError("memory.max")

    watch = MachineWatch(unreadable)
    (told,) = watch.judge("a", 1, [{"gid": 0, "state_bytes": 1}])
    assert told == "warning: what memory is left cannot be read: memory.max"
    assert watch.judge("a", 2, [{"gid": 0, "state_bytes": 2}]) == ()
