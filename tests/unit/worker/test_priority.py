from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.worker.process import priority

IN_A_SESSION = (
    "from perseid.worker.process.priority import set_share;"
    "print(set_share(10), open('/proc/self/autogroup').read().split()[-1:]);"
    "print(set_share(0), open('/proc/self/autogroup').read().split()[-1:])"
)


class Group:
    """Of a host where other sessions' values are changed `busy` times before."""

    def __init__(self, busy: int = 0, error: type[OSError] = BlockingIOError) -> None:
        self.busy, self.error, self.values = busy, error, list[str]()

    def write_text(self, value: str) -> None:
        if self.busy:
            self.busy -= 1
            raise self.error(11 if self.error is BlockingIOError else 1, "not now")
        self.values.append(value)


@pytest.fixture
def leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr(priority, "_AGAIN_S", 0.0)


def set_share(group: object, nice: int = 10) -> bool:
    return priority.set_share(nice, group)  # type: ignore[arg-type]


@pytest.mark.usefixtures("leads")
def test_a_value_is_set_as_soon_as_linux_allows_it() -> None:
    group = Group(busy=3)
    assert set_share(group)
    assert group.values == ["10"]


@pytest.mark.usefixtures("leads")
def test_what_cannot_be_set_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    always = Group(busy=1000)
    assert not set_share(always)
    assert not set_share(Group(busy=1, error=PermissionError))
    assert not priority.set_share(10, Path("/proc/self/no-such-file-of-linux/autogroup"))
    assert always.values == []
    assert [r.message[:40] for r in caplog.records] == ["the session's nice value cannot be 10: o",
                                                        "the session's nice value cannot be 10: ["]


def test_a_process_that_leads_no_session_sets_none() -> None:
    code = "from perseid.worker.process.priority import set_share; print(set_share(10))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout == "False\n"


def test_a_session_has_a_low_share_and_its_share_again() -> None:
    reported = Path("/proc/self/autogroup")
    if not reported.exists() or not reported.read_text():  # a cgroup shares the CPU here
        assert not priority.set_share(10)
        return
    found = subprocess.run(
        [sys.executable, "-c", IN_A_SESSION],
        capture_output=True, check=True, text=True, start_new_session=True,
    )  # fmt: skip
    assert found.stdout.splitlines() == ["True ['10']", "True ['0']"]
