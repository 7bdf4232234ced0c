"""Memory of the machine or the container: who has to stop when little is left, and what is read."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from perseid.clocks import ManualClock
from perseid.errors import PermanentError
from perseid.worker import machine
from perseid.worker.epoch.memory import MIB
from perseid.worker.machine import GIVEN_BACK_S, PACE_S, SHORT_S, MachineWatch, Memory

PLENTY = Memory(left=8000 * MIB, total=16_000 * MIB)
SHORT = Memory(left=400 * MIB, total=16_000 * MIB)


class Machine:
    """A machine whose memory and time a test sets."""

    def __init__(self) -> None:
        self.memory = PLENTY
        self.clock = ManualClock()
        self.watch = MachineWatch(lambda: self.memory, self.clock)
        self._epoch = 0

    def judge(self, job: str, *sizes: float, after_s: float = 0.0) -> tuple[str, ...]:
        """An epoch of the job, whose partitions have so many MiB after it."""
        self.clock.sleep(after_s)
        self._epoch += 1
        return self.watch.judge(job, self._epoch, sum(int(mib * MIB) for mib in sizes))

    def part(self, job: str, fragment: str, size: float, after_s: float = 0.0) -> tuple[str, ...]:
        """An epoch of one of the job's fragments."""
        self.clock.sleep(after_s)
        self._epoch += 1
        return self.watch.judge(job, self._epoch, int(size * MIB), fragment)

    def grows(self, job: str, *sizes: float) -> list[tuple[str, ...]]:
        """An epoch a second."""
        return [self.judge(job, size, after_s=1.0) for size in sizes]


@pytest.fixture
def host() -> Machine:
    return Machine()


def test_nothing_is_reported_while_there_is_plenty(host: Machine) -> None:
    assert host.grows("a", 100, 500, 900, 1300) == [(), (), (), ()]


def test_the_job_that_grows_is_stopped_and_reported_what_to_do(host: Machine) -> None:
    host.judge("a", 300, 300)
    host.memory = SHORT
    host.judge("a", 300, 305, after_s=1.0)
    with pytest.raises(PermanentError) as caught:
        host.judge("a", 300, 320, after_s=SHORT_S)
    text = str(caught.value)
    assert "has 400 MiB of its 16000 MiB left, after epoch 3 of job a" in text
    assert "whose state has 620.0 MiB" in text
    assert "it grows by 6826.7 KiB/s" in text
    assert "stopped after epoch 3, its state is kept. Give the worker more memory" in text


def test_a_moment_without_memory_stops_no_job(host: Machine) -> None:
    host.judge("a", 1)
    host.memory = SHORT
    assert len(host.judge("a", 100, after_s=1.0)) == 1
    assert host.judge("a", 200, after_s=SHORT_S - 0.1) == ()
    host.memory = PLENTY
    assert host.judge("a", 300, after_s=0.2) == ()
    host.memory = SHORT
    assert len(host.judge("a", 400, after_s=1.0)) == 1


def test_a_job_that_does_not_grow_only_warns_and_once_each_time(host: Machine) -> None:
    host.judge("a", 1)
    host.memory = SHORT
    (reported,) = host.judge("a", 1, after_s=1.0)
    assert reported.startswith("warning: the machine (or container) has 400 MiB")
    assert host.grows("a", *[1] * 20) == [()] * 20
    host.memory = PLENTY
    assert host.judge("a", 1) == ()
    host.memory = SHORT
    assert len(host.judge("a", 1)) == 1


def test_a_little_growth_stops_no_job_before_it_matters(host: Machine) -> None:
    host.memory = SHORT
    assert len(host.judge("a", 0.001)) == 1
    assert host.grows("a", *[0.001 * n for n in range(2, 60)]) == [()] * 58
    host.memory = Memory(left=MIB, total=16_000 * MIB)
    with pytest.raises(PermanentError, match=r"it grows by 1.0 KiB/s"):
        host.judge("a", 0.060, after_s=1.0)


def test_the_fastest_is_stopped_not_the_next_to_be_judged(host: Machine) -> None:
    host.memory = SHORT
    for number in range(5):
        host.judge("small", 2 * number, after_s=0.5)
        host.judge("still", 5000)
        if number < 4:
            host.judge("large", 100 + 10 * number)
    with pytest.raises(PermanentError, match="of job large"):
        host.judge("large", 140)


def test_the_next_one_waits_until_the_memory_of_the_first_is_back(host: Machine) -> None:
    host.memory = SHORT
    host.judge("small", 0)
    host.judge("large", 0)
    host.judge("large", 50, after_s=SHORT_S - 0.1)
    host.judge("small", 10, after_s=0.1)
    with pytest.raises(PermanentError, match="of job large"):
        host.judge("large", 100)
    host.watch.forget("large")
    host.grows("small", *range(20, 10 * int(GIVEN_BACK_S), 10))
    with pytest.raises(PermanentError, match="of job small"):
        host.judge("small", 1000, after_s=5.0)


def test_a_job_without_epochs_takes_no_more(host: Machine) -> None:
    host.grows("large", 100, 200)
    host.memory = SHORT
    host.judge("small", 1)
    host.judge("small", 1, after_s=100 * PACE_S)
    with pytest.raises(PermanentError, match="of job small"):
        host.grows("small", *range(1, 20))


def test_epochs_may_be_longer_than_the_pace_is_reckoned_over(host: Machine) -> None:
    host.memory = SHORT
    host.judge("a", 1)
    with pytest.raises(PermanentError, match=r"it grows by 2560.0 KiB/s"):
        host.judge("a", 51, after_s=2 * PACE_S)


def test_the_first_epoch_of_a_life_is_no_growth(host: Machine) -> None:
    """A state that was restored was there before."""
    host.memory = SHORT
    assert len(host.judge("a", 100)) == 1
    assert host.judge("a", 100, after_s=SHORT_S) == ()


def test_the_fragments_of_a_job_add_up(host: Machine) -> None:
    host.memory = SHORT
    host.judge("one", 0)
    for fragment in ("0", "1"):
        host.part("two", fragment, 100, after_s=0.5)
    host.judge("one", 8)
    host.part("two", "0", 103, after_s=0.5)
    with pytest.raises(PermanentError) as caught:  # each of them grows slower than the other job
        host.part("two", "1", 103, after_s=0.5)
    text = str(caught.value)
    assert "of job two, whose state has 206.0 MiB" in text
    assert "it grows by 5120.0 KiB/s, the fastest here" in text


def test_a_fragment_that_begins_is_no_growth_of_its_job(host: Machine) -> None:
    host.memory = SHORT
    assert len(host.part("a", "0", 100)) == 1
    assert host.part("a", "1", 900, after_s=SHORT_S) == ()
    assert host.part("a", "0", 100, after_s=SHORT_S) == ()


def test_the_end_of_a_fragment_leaves_the_others_of_its_job(host: Machine) -> None:
    host.memory = SHORT
    assert len(host.part("a", "0", 1)) == 1
    assert host.part("a", "1", 500) == ()
    host.watch.forget("a", "1")
    assert host.part("a", "0", 2, after_s=0.1) == ()  # the warning was given
    with pytest.raises(PermanentError, match=r"whose state has 100\.0 MiB"):
        host.part("a", "0", 100, after_s=SHORT_S)
    host.watch.forget("a", "0")
    assert len(host.part("a", "0", 1)) == 1


@pytest.mark.parametrize(
    ("left", "total", "short"),
    [(127, 1000, True), (128, 1000, False), (499, 10_000, True), (500, 10_000, False),
     (1023, 99_000, True), (1024, 99_000, False)],
)  # fmt: skip
def test_a_twentieth_is_kept_between_128_mib_and_one_gib(
    left: int, total: int, short: bool
) -> None:
    assert (Memory(left * MIB, total * MIB).spare < 0) is short


def group(folder: Path, version: int, limit: str) -> None:
    """300 MiB in use, of which 50 and 20 are files that the kernel would give up."""
    limits, used, spare = machine.V2 if version == 2 else machine.V1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limits).write_text(f"{limit}\n")
    (folder / used).write_text(f"{300 * MIB}\n")
    sizes = [f"{name} {size * MIB}" for name, size in zip(spare[:2], (50, 20), strict=True)]
    (folder / "memory.stat").write_text("\n".join(["anon 1", *sizes, "shmem 7"]) + "\n")


def looked(mount: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv(machine.CGROUPS, str(mount))
    return machine.look()


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    own = tmp_path / "own"
    own.write_text("4:memory:/\n" if version == 1 else "0::/\n")
    group(tmp_path / "memory" if version == 1 else tmp_path, version, str(400 * MIB))
    monkeypatch.setattr(machine.groups, "__defaults__", (own,))
    assert looked(tmp_path, monkeypatch) == Memory(left=170 * MIB, total=400 * MIB)


def test_each_group_above_the_own_one_may_have_a_limit(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("9:cpu,cpuacct:/c\n4:hugetlb,memory:/a/b\n0::/x.slice/y.service\n")
    found = [str(path.relative_to(tmp_path)) for path, _ in machine.groups(tmp_path, own)]
    assert found == ["memory/a/b", "memory/a", "memory", "x.slice/y.service", "x.slice", "."]


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_no_limit_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    for version, folder in ((1, tmp_path / "memory"), (2, tmp_path)):
        group(folder, version, limit)
    assert looked(tmp_path, monkeypatch).total == psutil.virtual_memory().total
    assert looked(tmp_path / "none", monkeypatch).total == psutil.virtual_memory().total


def test_what_is_short_counts_and_not_what_has_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container of 4 GiB may have less left than the machine, and enough all the same."""
    machines = type("Machine", (), {"available": 900 * MIB, "total": 24_000 * MIB})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machines)
    own = tmp_path / "own"
    own.write_text("0::/\n")
    group(tmp_path, 2, str(830 * MIB))
    monkeypatch.setattr(machine.groups, "__defaults__", (own,))
    assert looked(tmp_path, monkeypatch) == Memory(900 * MIB, 24_000 * MIB)


def test_what_cannot_be_read_is_logged_once_and_stops_no_job() -> None:
    def unreadable() -> Memory:
        raise PermissionError("memory.max")

    watch = MachineWatch(unreadable)
    (reported,) = watch.judge("a", 1, 1)
    assert reported == "warning: what memory is left cannot be read: memory.max"
    assert watch.judge("a", 2, 2) == ()
