"""The engine alone drives epochs: Spark, the simulation and the harness are executors of it.

A second driver would be another order of steps: the simulation would then show something of its own
order, and not of the one that jobs run.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perseid

ENGINE = "perseid/engine/"
# The steps of an epoch, and with how many arguments in place they are called at least:
# `work.run()` and `transaction.commit(s)` are other functions.
STEPS = {"run": 4, "commit": 3, "ordered": 3}
PARTS_OF_A_LIFE = {"TokenLoop", "EpochFeed", "read_history", "epoch_done"}


def product() -> Iterator[Path]:
    for area in perseid.__path__:
        yield from Path(area).rglob("*.py")


def driven(source: str) -> set[str]:
    """The steps that the module calls."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if len(node.args) >= STEPS.get(node.func.attr, sys.maxsize):
                found.add(node.func.attr)
    return found


def lived(source: str) -> set[str]:
    """The parts of a fragment's life that the module calls."""
    called = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = {func.attr for func in called if isinstance(func, ast.Attribute)}
    return (names | {func.id for func in called if isinstance(func, ast.Name)}) & PARTS_OF_A_LIFE


@pytest.mark.parametrize(
    ("called", "names"), [(driven, set(STEPS)), (lived, PARTS_OF_A_LIFE)], ids=["epoch", "life"]
)
def test_only_the_engine_drives(called: Callable[[str], set[str]], names: set[str]) -> None:
    drivers = {str(path): found for path in product() if (found := called(path.read_text()))}
    assert {name for found in drivers.values() for name in found} == names
    assert [path for path in drivers if ENGINE not in path] == []


@pytest.mark.parametrize(
    "text",
    [
        "state.run(token, offset, generation, tables, out)",
        "self._states[0].run(token, offset, 1, inputs, out, others=None)",
        "session.commit(epoch, offset, generation, batches)",
        "state.ordered(job, generation, epoch, offset, base=None)",
    ],
)
def test_a_second_driver_is_found(text: str) -> None:
    assert driven(text)
    assert not lived(text)


def test_a_second_life_is_found() -> None:
    assert lived("token_loop.TokenLoop(plan)") == {"TokenLoop"}


@pytest.mark.parametrize("text", ["work.run(order)", "transaction.commit(1.0)", "super().run(*of)"])
def test_other_functions_of_these_names_are_none(text: str) -> None:
    assert not driven(text)
