"""Crash points: who dies at them, and who continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perseid.records import crashpoints

REACH = "import sys; from perseid.records.crashpoints import reach; reach(*sys.argv[1:])"


def reached(folder: Path, *where: str) -> int:
    environment = {**os.environ, crashpoints.FOLDER: str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    ran = subprocess.run([sys.executable, "-c", REACH, *where], check=False, env=environment)
    return ran.returncode


@pytest.mark.parametrize(
    ("armed", "operator", "dies"),
    [("", "", True), ("", "counts", True), ("counts", "counts", True), ("counts", "top", False),
     ("counts", "", False)],
)  # fmt: skip
def test_a_point_may_wait_for_one_operator(
    tmp_path: Path, armed: str, operator: str, dies: bool
) -> None:
    name = f"log.after-rename@{armed}" if armed else "log.after-rename"
    crashpoints.arm(tmp_path, name)
    found = reached(tmp_path, "log.after-rename", *filter(None, [operator]))
    assert found == (-signal.SIGKILL if dies else 0)
    assert crashpoints.armed(tmp_path, name) is not dies


def test_another_point_is_not_reached(tmp_path: Path) -> None:
    crashpoints.arm(tmp_path, "log.before-rename@counts")
    assert reached(tmp_path, "log.after-rename", "counts") == 0
