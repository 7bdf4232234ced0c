"""The top README's table of questions: each answer names a file and what it defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (.+\?) \| `([\w./-]+\.py)::([\w.]+)` \|$", re.MULTILINE)
QUESTIONS = _ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def _names(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    """Functions and classes of a module, and "Class.method"."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield before + node.name
        elif isinstance(node, ast.ClassDef):
            yield before + node.name
            yield from _names(node.body, f"{before}{node.name}.")


def test_the_readme_answers_ten_questions() -> None:
    assert len({question for question, _, _ in QUESTIONS}) == 10


@pytest.mark.parametrize(("question", "path", "name"), QUESTIONS)
def test_each_answer_names_code_that_exists(question: str, path: str, name: str) -> None:
    assert (ROOT / path).is_file(), f"{question} README.md names {path}, expected a file there"
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    assert name in set(_names(body)), f"{question} {path} defines no {name}"
