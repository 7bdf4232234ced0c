from pathlib import Path

import pytest

from perseid.cli.checks import pytest_command
from perseid.errors import RefusedError, UsageError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for ring in ("unit", "system"):
        (tmp_path / "tests" / ring / "x").mkdir(parents=True)
        (tmp_path / "tests" / ring / "x" / "test_it.py").touch()
    (tmp_path / "tests" / "simulation").mkdir()
    return tmp_path


def test_all_rings_that_have_tests_in_one_run(root: Path) -> None:
    command = pytest_command(root, None, None, None, None)
    assert command == ["-Im", "pytest", "tests/unit", "tests/system"]


def test_options_are_passed_on(root: Path) -> None:
    drawn = pytest_command(root, "system", None, None, None, 5, matrix=True)
    assert drawn[-3:] == ["--seed", "5", "--matrix"]
    command = pytest_command(root, "system, unit", "ledger", 7, "30m")
    assert command[2:4] == ["tests/unit", "tests/system"]
    assert command[4:] == ["-k", "ledger", "--seeds", "7", "--soak", "30m"]


def test_unknown_and_empty_rings_are_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="unti"):
        pytest_command(root, "unti", None, None, None)
    with pytest.raises(RefusedError, match="no tests in tests/simulation"):
        pytest_command(root, "simulation", None, None, None)
