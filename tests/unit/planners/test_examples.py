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


def test_most_modules_have_an_example() -> None:
    finder = doctest.DocTestFinder()
    with_examples = [
        name
        for name in MODULES
        if any(t.examples for t in finder.find(import_module(f"{planners.__name__}.{name}")))
    ]
    assert len(with_examples) >= 4
