"""Grep against Python's own regular expressions."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from perseid.errors import BadInputError
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.validation import parse

PATTERNS = ["b", "^a.*c$", "(?i)AB|ca", r"a{2,3}", r"\bab\b", "[^abc ]", ""]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("invert", [False, True])
def test_rows_are_those_that_python_finds(harness: Any, pattern: str, invert: bool) -> None:
    chance = random.Random(pattern)
    lines = ["".join(chance.choices("abcä ", k=chance.randrange(8))) for _ in range(300)]
    grep = harness("Grep", {"column": "w", "pattern": pattern or "^", "invert": invert})
    rows = {"w": [*lines, None], "n": list(range(301))}
    plain = re.compile(pattern, re.ASCII)
    wanted = [i for i, line in enumerate(lines) if (plain.search(line) is None) == invert]
    found = grep.epoch(rows, splits=3)
    assert [row["n"] for row in found] == wanted
    assert all(row["w"] == lines[row["n"]] for row in found)


@pytest.mark.parametrize(
    ("parameters", "more", "text"),
    [
        (
            {"column": "w"},
            {},
            'with.pattern is missing, expected a text; write `pattern: "error|fatal"`',
        ),
        ({"pattern": "x"}, {}, "with.column is missing, expected the name of a column"),
        ({"column": "w", "pattern": r"(a)\1"}, {}, "without look-around and back-references"),
        ({"column": "w", "pattern": "(?=a)b"}, {}, "which RE2 does not take"),
        ({"column": "w", "pattern": "((a{99}){99}){99}"}, {}, "with smaller repetitions"),
        ({"column": "w", "pattern": "(a"}, {}, "missing )"),
        ({"column": "w", "pattern": "a", "invert": 1}, {}, "with.invert is 1, expected true or"),
        ({"column": "w", "pattern": "a", "types": {"w": "string"}}, {}, "parameter 'types'"),
        ({"column": "w", "pattern": "a"}, {"key": "g"}, "remove the line `key:`"),
    ],
)
def test_mistakes_are_found_by_validation(
    job: Any, parameters: dict[str, Any], more: dict[str, Any], text: str
) -> None:
    folder: Path = job("Grep", parameters, **more)
    with pytest.raises(JobFileErrors) as caught:
        load_checked(parse.load(folder), folder)
    assert text in str(caught.value)
    assert str(caught.value).startswith("job.yaml:1: operators.tried.use: library:Grep: ")


def test_a_pattern_that_ruins_others_takes_linear_time(harness: Any) -> None:
    """Python's own engine needs 2^40000 steps for this one: it would never end."""
    grep = harness("Grep", {"column": "w", "pattern": "^(a+)+$"})
    assert grep.epoch({"w": ["a" * 40_000 + "b", "a" * 40_000]}) == [{"w": "a" * 40_000}]


def test_a_column_of_numbers_is_refused(harness: Any) -> None:
    with pytest.raises(BadInputError, match="column 'n' is of type int64, expected a string"):
        harness("Grep", {"column": "n", "pattern": "1"}).epoch({"n": [1]})
