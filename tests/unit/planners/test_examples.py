"""The examples in the docstrings of the planners are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

from perseid.coordinator import planners

MODULES = sorted(path.stem for path in Path(planners.__path__[0]).glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    module = import_module(f"{planners.__name__}.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_every_module_has_an_example(name: str) -> None:
    found = doctest.DocTestFinder().find(import_module(f"{planners.__name__}.{name}"))
    assert any(test.examples for test in found)
