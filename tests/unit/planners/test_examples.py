"""The examples in the docstrings of the planners, and of what judges them, are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from perseid.coordinator import planners

NAMES = sorted(path.stem for path in Path(planners.__path__[0]).glob("*.py"))
JUDGES = ["benches.branch_and_bound", "benches.random_queries"]
MODULES = [*(f"{planners.__name__}.{name}" for name in NAMES if name != "__init__"), *JUDGES]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_an_example(name: str) -> None:
    found = doctest.DocTestFinder().find(import_module(name))
    assert any(test.examples for test in found)
