"""Counts and sums by key against plain dictionaries."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from perseid.jobs.operator import combines

KEY = ["g", "i"]
TYPES = {"types": {"i": "int64"}}


def rows_of(chance: random.Random, count: int) -> dict[str, list[Any]]:
    return {
        "g": [chance.choice("abc") for _ in range(count)],
        "i": [chance.randrange(2) for _ in range(count)],
        "n": [chance.randint(-9, 9) for _ in range(count)],
        "x": [chance.randint(-9, 9) / 2 for _ in range(count)],
    }


@pytest.mark.parametrize(
    ("use", "with_", "column"),
    [
        ("CountByKey", {}, None),
        ("Sum", {"column": "n", "type": "int64"}, "n"),
        ("Sum", {"column": "x", "type": "float64"}, "x"),
    ],
)
def test_each_changed_key_is_reported_once_an_epoch_through_crashes(
    harness: Any, use: str, with_: dict[str, Any], column: str | None
) -> None:
    totals = harness(use, {**with_, **TYPES}, key=KEY, partitions=2)
    chance = random.Random(3)
    plain: Counter[tuple[str, int]] = Counter()
    for size in (30, 1, 0, 200):
        rows = rows_of(chance, size)
        amounts = [1] * size if column is None else rows[column]
        keys = list(zip(rows["g"], rows["i"], strict=True))
        for key, amount in zip(keys, amounts, strict=True):
            plain[key] += amount
        emitted = totals.epoch(rows if size else None, splits=3)
        found = {(row["g"], row["i"]): row["n" if column is None else "sum"] for row in emitted}
        assert found == {key: plain[key] for key in keys}
        assert len(emitted) == len(found)
        totals.crash()


def test_only_sums_that_do_not_round_are_combined(harness: Any) -> None:
    for kind, combined in (("int64", True), ("float64", False)):
        sums = harness("Sum", {"column": "n", "type": kind}, key="g")
        assert combines(sums.operator_class) == combined


def test_a_null_adds_nothing_to_a_running_sum(harness: Any) -> None:
    running = harness("RunningSum", {"column": "n", **TYPES}, key=KEY)
    rows = {"g": ["a", "a", "b", "a"], "i": [1, 2, 1, 1], "n": [1, 2, None, 3]}
    assert [row["sum"] for row in running.epoch(rows)] == [1, 2, 0, 4]
