"""A run with a host stall does not count, and is made again."""

from __future__ import annotations

import signal
import subprocess

import pytest

from benches import host_stall
from benches.host_stall import HostStallDetector, HostStalled, steady
from perseid.errors import PermanentError

GAPS_S: list[float] = []  # the next runs' longest ones


class StubStallDetector(HostStallDetector):
    def __enter__(self) -> StubStallDetector:
        return self

    def __exit__(self, *_: object) -> None:
        self.gaps_s = [0.6, GAPS_S.pop(0)]


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    GAPS_S.clear()
    monkeypatch.setattr(host_stall, "HostStallDetector", StubStallDetector)
    return []


class Runs:
    """Gives its results in turn, raises those that are errors."""

    def __init__(self, *results: int | PermanentError) -> None:
        self.left = list(results)

    def __call__(self) -> int:
        found = self.left.pop(0)
        if isinstance(found, PermanentError):
            raise found
        return found


def test_the_watchers_end_with_the_run() -> None:
    with HostStallDetector() as detector:
        assert len(detector._processes) > 0
    assert {process.returncode for process in detector._processes} == {-signal.SIGTERM}
    detector.gaps_s = [0.6, 1.9]
    assert not detector.stalled
    detector.gaps_s.append(2.0)
    assert detector.stalled


def test_a_watcher_that_ends_by_itself_is_an_error() -> None:
    with pytest.raises(PermanentError, match="ended by itself, with exit code 3"):
        with HostStallDetector() as detector:
            detector._processes.append(
                subprocess.Popen(["sh", "-c", "exit 3"], stdout=subprocess.PIPE, text=True)
            )
            detector._processes[-1].wait(30)


def test_a_quiet_run_counts(text: list[str]) -> None:
    GAPS_S.append(1.9)
    assert steady("a run", Runs(7), text.append) == 7
    assert text == []


def test_a_run_with_a_host_stall_is_made_again(text: list[str]) -> None:
    GAPS_S.extend([5.5, 2.0, 0.0])
    assert steady("a run", Runs(1, 2, 3), text.append) == 3
    assert ["host stalled for 5.5 s" in text[0], "try 2 of 3 is void" in text[1]] == [True, True]
    assert len(text) == 2


def test_it_is_not_made_again_without_end(text: list[str]) -> None:
    GAPS_S.extend([3.0] * 3)
    with pytest.raises(PermanentError, match="a run: the host stalled in all of 3 tries"):
        steady("a run", Runs(1, 2, 3), text.append)
    assert len(text) == 3


@pytest.mark.parametrize(("exact", "gap_s"), [(True, 5.0), (True, 0.0), (False, 0.0)])
def test_a_failure_is_shown(text: list[str], exact: bool, gap_s: float) -> None:
    GAPS_S.append(gap_s)
    with pytest.raises(PermanentError, match="wrong answers"):
        steady("a run", Runs(PermanentError("wrong answers")), text.append, exact=exact)


def test_who_claims_less_than_exactly_once_may_repeat_when_torn_out(text: list[str]) -> None:
    GAPS_S.extend([5.0, 0.0])
    runs = Runs(PermanentError("repeated 3"), 8)
    assert steady("a run", runs, text.append, exact=False) == 8
    assert text == ["a run: repeated 3, in a try that is void: the host stalled"]


def test_a_run_may_watch_itself_alone(text: list[str]) -> None:
    runs = Runs(HostStalled("the host stalled for 3.0 s"), 8)
    assert steady("a run", runs, text.append, watched=True) == 8
    assert text == ["a run: the host stalled for 3.0 s; try 1 of 3 is void"]
