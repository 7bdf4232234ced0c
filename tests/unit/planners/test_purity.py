"""The planners decide from what they are given: no clock, no file, no randomness of their own.

Clients and clocks are forbidden by import-linter too; this also sees calls and numpy's generator.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.coordinator import planners

FILES = sorted(Path(planners.__path__[0]).glob("*.py"))
PURE = {
    "__future__", "abc", "bisect", "collections", "contextlib", "dataclasses", "enum", "fractions",
    "functools", "graphlib", "heapq", "itertools", "math", "numpy", "operator", "statistics",
    "typing",
}  # fmt: skip
PROJECT = (
    "perseid.coordinator.planners", "perseid.errors", "perseid.jobs", "perseid.topics.records",
)  # fmt: skip
CALLS = {"open", "print", "input", "eval", "exec", "__import__", "hash"}  # str hashes are salted


def impure(source: str) -> Iterator[str]:
    """Each thing in a module that depends on more than its arguments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if not _is_pure(a.name))
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            seeded = name == "random" and [a.name for a in node.names] == ["Random"]
            if not (seeded or _is_pure(name)):
                yield f"from {name} import {', '.join(a.name for a in node.names)}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in ("np.random", "numpy.random"):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (*CALLS, "Random"):
            if node.args and ast.unparse(node.func) == "Random":
                continue  # with a seed
            yield f"{ast.unparse(node.func)}()"


def _is_pure(module: str) -> bool:
    if module.startswith("numpy."):
        return module == "numpy.typing"
    project = any(module == name or module.startswith(f"{name}.") for name in PROJECT)
    return project or module.split(".", maxsplit=1)[0] in PURE


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_planner_is_pure(path: Path) -> None:
    assert list(impure(path.read_text())) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", "import time"),
        ("import random", "import random"),
        ("from random import Random, choice", "from random import Random, choice"),
        ("from time import monotonic", "from time import monotonic"),
        ("from confluent_kafka import Consumer", "from confluent_kafka import Consumer"),
        ("from perseid.clocks import wall", "from perseid.clocks import wall"),
        ("from numpy.random import default_rng", "from numpy.random import default_rng"),
        ("np.random.rand()", "np.random"),
        ("Random()", "Random()"),
        ("open('f')", "open()"),
    ],
)
def test_what_is_not_pure_is_seen(source: str, found: str) -> None:
    assert found in list(impure(source))


def test_what_is_pure_passes() -> None:
    source = "import numpy as np\nfrom random import Random\nfrom math import inf\nRandom(7)\n"
    assert list(impure(source)) == []
