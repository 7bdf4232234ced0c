"""compose/FAULTS.md names a test for each scenario; each of them exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "compose" / "FAULTS.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| what ")]
    return rows


def test_every_row_names_a_test_that_exists() -> None:
    for row in _rows():
        named = _TEST.findall(row)
        assert named, f"FAULTS.md: this row names no test: {row}"
        for path, test in named:
            assert (ROOT / path).is_file(), f"FAULTS.md names {path}, which is not there"
            if test:
                assert test in _tests_of(ROOT / path), f"FAULTS.md: {path} has no test {test}"
