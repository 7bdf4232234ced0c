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
    rows, last = [[["unit"]], [["system"]]], [["contract"], ["deployment"]]
    assert ring_rows(root, None, together=False) == (rows, last)
    assert ring_rows(root, "system, unit", together=True) == ([[["unit", "system"]]], [])
    assert ring_rows(root, "system", together=False) == ([[["system"]]], [])
    assert ring_rows(root, "unit,contract", together=False) == ([[["unit"]]], last[:1])
    assert ring_rows(root, "deployment", together=False) == ([[]], last[1:])


@pytest.mark.parametrize("order", [["unit", "system"], ["system", "unit"]])
def test_a_row_that_has_ended_takes_a_ring_that_is_left(
    order: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, int]] = []
    taken, both = threading.Event(), threading.Barrier(2, timeout=60)

    def noted(_: Run, rings: Sequence[str], *__: object) -> None:
        ran.append((rings[0], threading.get_ident()))
        if rings[0] == "system":  # ends after unit
            assert taken.wait(60)
        elif rings[0] == "contract":
            taken.set()
        if rings[0] in {"contract", "deployment"}:
            both.wait()  # at the same time

    monkeypatch.setattr(Run, "pytest", noted)
    rows, last = [[[ring]] for ring in order], [["contract"], ["deployment"]]
    Run(tmp_path, [], tmp_path, sys.stdout).at_the_same_time(rows, last, static=False)
    by = dict(ran)
    assert len(ran) == len(by) == 4
    assert by["contract"] == by["unit"] != by["deployment"] == by["system"]


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
