import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from perseid.errors import RefusedError, UsageError
from support.checks import STUCK, Found, Run, pytest_options, ring_rows


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for ring in ("unit", "system"):
        (tmp_path / "tests" / ring / "x").mkdir(parents=True)
        (tmp_path / "tests" / ring / "x" / "test_it.py").touch()
    (tmp_path / "tests" / "simulation").mkdir()
    return tmp_path


def test_rings_that_compute_run_at_once_with_those_that_wait(root: Path) -> None:
    assert ring_rows(root, None, together=False) == ([[["unit"]], [["system"]]], [])
    for ring in ("deployment", "contract"):
        (root / "tests" / ring).mkdir()
        (root / "tests" / ring / "test_it.py").touch()
    rows, last = [[["unit"], ["contract"]], [["system"]]], [["deployment"]]
    assert ring_rows(root, None, together=False) == (rows, last)
    assert ring_rows(root, "system, unit", together=True) == ([[["unit", "system"]]], [])
    assert ring_rows(root, "system", together=False) == ([[["system"]]], [])
    assert ring_rows(root, "deployment", together=False) == ([[]], last)


@pytest.mark.parametrize("order", [["contract", "system"], ["system", "contract"]])
def test_the_row_that_ends_first_runs_the_deployment_ring(
    order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []
    deployed = threading.Event()

    def noted(run: Run, rings: Sequence[str], *_: object) -> None:
        ran.append((rings[0], threading.get_ident()))
        if rings[0] == "contract":  # it takes longest
            assert deployed.wait(60)
        if rings[0] == "deployment":
            deployed.set()

    monkeypatch.setattr(Run, "pytest", noted)
    rows = [[[ring]] for ring in order]
    Run(tmp_path, [], tmp_path, sys.stdout).at_the_same_time(rows, [["deployment"]], static=False)
    by = dict(ran)
    assert len(ran) == len(by) == 3
    assert by["deployment"] == by["system"] != by["contract"]


def test_options_are_passed_on() -> None:
    assert pytest_options(None, None, None) == [*STUCK]
    assert pytest_options(None, None, None, 5, matrix=True) == ["--seed", "5", "--matrix"]
    given = pytest_options("ledger", 7, "30m")
    assert given == ["-k", "ledger", "--seeds", "7", "--soak", "30m"]


def test_a_test_that_hangs_in_a_c_library_ends_its_ring_with_all_stacks(tmp_path: Path) -> None:
    stuck = tmp_path / "test_stuck.py"
    stuck.write_text(
        "import ctypes\n"
        "def test_stuck():\n"
        "    ctypes.PyDLL(None).sleep(600)  # holds Python's lock, so no signal gets through\n"
    )
    options = [option.replace("=1200", "=1") for option in STUCK]
    ran = subprocess.run(
        [sys.executable, "-Im", "pytest", "-p", "no:cacheprovider", *options, str(stuck)],
        cwd=tmp_path, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert 'test_stuck.py", line 3 in test_stuck' in ran.stdout + ran.stderr


def test_unknown_and_empty_rings_are_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="unti"):
        ring_rows(root, "unti", together=False)
    with pytest.raises(RefusedError, match="no tests in tests/simulation"):
        ring_rows(root, "simulation", together=False)


@pytest.mark.parametrize(
    ("checks", "codes", "ok"),
    [
        ([], [0, 0], True),
        ([], [5, 0], True),  # -k selected tests of one group
        ([], [5, 5], False),
        ([], [0, 1], False),
        ([], [], False),
        (["mypy"], [0, 0], False),
    ],
)
def test_whether_all_went_well(checks: list[str], codes: list[int], ok: bool) -> None:
    assert Found(checks, codes).ok is ok


def test_the_closing_line_counts_everything() -> None:
    system = {"passed": 2, "failed": 1, "seconds": 9.0}
    line = Found(["ruff"], [0, 1], {"unit": {"passed": 3, "seconds": 1.5}, "system": system}).line
    assert line == "perseid test: FAILED: 1 failed, 5 passed; failed checks: ruff"
