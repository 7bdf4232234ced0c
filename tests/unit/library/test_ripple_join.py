"""Estimates against the joins themselves, and against sums over plain pairs."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import NormalDist
from typing import Any

import pytest

from perseid.errors import BadInputError

INPUTS = {"left": "rows", "right": "others"}
Side = list[tuple[str, int]]


def side_of(size: int, seed: int, keys: int = 20) -> Side:
    chance = random.Random(seed)
    return [(f"k{chance.randrange(keys)}", chance.randint(-3, 9)) for _ in range(size)]


def given(left: Side, right: Side) -> dict[str, dict[str, list[Any]]]:
    return {
        name: {"g": [key for key, _ in side], "n": [n for _, n in side]}
        for name, side in (("left", left), ("right", right))
    }


def truth(left: Side, right: Side, summed: bool) -> int:
    """The join, pair by pair of keys."""
    rights = Counter(key for key, _ in right)
    return sum((n if summed else 1) * rights[key] for key, n in left)


@pytest.mark.parametrize("summed", [False, True])
def test_the_whole_as_a_sample_is_the_truth(harness: Any, summed: bool) -> None:
    with_ = {"sample": 1, **({"sum": "n"} if summed else {})}
    join = harness("RippleJoin", with_, key="g", inputs=INPUTS)
    left: Side = []
    right: Side = []
    for epoch in range(6):
        more = side_of(30, epoch), side_of(0 if epoch == 3 else 25, 50 + epoch)
        left, right = left + more[0], right + more[1]
        (row,) = join.epoch(given(*more))
        assert (row["left"], row["right"]) == (len(left), len(right))
        assert row["estimate"] == pytest.approx(truth(left, right, summed))
        assert row["error"] == 0
        join.crash()


@pytest.mark.parametrize("summed", [False, True])
def test_the_error_covers_the_truth_as_often_as_promised(harness: Any, summed: bool) -> None:
    """At 90 % of 200 joins, whose 10 % samples differ since the rows do."""
    with_ = {"sample": 0.1, "confidence": 0.9, **({"sum": "n"} if summed else {})}
    inside, errors = 0, []
    join = harness("RippleJoin", with_, key="g", inputs=INPUTS)
    fresh = join.snapshot()
    for seed in range(200):
        left, right = side_of(600, seed), side_of(500, 1000 + seed)
        join.restore(fresh)
        (row,) = join.epoch(given(left, right))
        off = row["estimate"] - truth(left, right, summed)
        inside += abs(off) <= row["error"]
        errors.append(off)
        assert row["error"] > 0
    assert 0.85 <= inside / 200  # four standard deviations below are 81.5 %
    mean = sum(errors) / 200
    spread = math.sqrt(sum((e - mean) ** 2 for e in errors) / 199)
    assert abs(mean) < 4 * spread / math.sqrt(200)  # no bias


def test_the_error_is_that_of_plain_pairs(harness: Any) -> None:
    """From the sampled rows, pair by pair, as the paper writes it."""
    join = harness("RippleJoin", {"sample": 0.3, "sum": "n"}, key="g", inputs=INPUTS)
    left, right = side_of(200, 1, 5), side_of(150, 2, 5)
    (row,) = join.epoch(given(left, right))
    sampled_left, sampled_right = [], []
    alone = harness("RippleJoin", {"sample": 0.3, "sum": "n"}, key="g", inputs=INPUTS)
    kept = 0
    for one in left:  # which rows are drawn shows when they come one by one
        alone.epoch(given([one], []))
        if (now := alone.rows("seen")[2]["value"]) > kept:
            sampled_left.append(one)
            kept = now
    kept = 0
    for one in right:
        alone.epoch(given([], [one]))
        if (now := alone.rows("seen")[3]["value"]) > kept:
            sampled_right.append(one)
            kept = now
    of_left = [
        sum(n for other, _ in sampled_right if other == key) / len(sampled_right)
        for key, n in sampled_left
    ]
    of_right = [
        sum(n for other, n in sampled_left if other == key) / len(sampled_left)
        for key, _ in sampled_right
    ]
    mean = sum(of_left) / len(of_left)
    variance = 0.0
    for means, rows in ((of_left, left), (of_right, right)):
        n = len(means)
        spread = sum((m - mean) ** 2 for m in means) / (n - 1)
        variance += spread / n * (1 - n / len(rows))
    scale = len(left) * len(right)
    assert 40 < len(sampled_left) < 80
    assert row["estimate"] == pytest.approx(scale * mean)
    normal = NormalDist().inv_cdf(0.975)
    assert row["error"] == pytest.approx(normal * scale * math.sqrt(variance))


def test_partitions_add_up(harness: Any) -> None:
    join = harness("RippleJoin", {"sample": 1}, key="g", inputs=INPUTS, partitions=3)
    left, right = side_of(200, 3), side_of(150, 4)
    found = join.epoch(given(left, right))
    assert [row["partition"] for row in found] == [0, 1, 2]
    assert sum(row["estimate"] for row in found) == pytest.approx(truth(left, right, False))


def test_the_cut_into_epochs_does_not_matter(harness: Any) -> None:
    left, right = side_of(300, 5), side_of(300, 6)
    found = []
    for size in (300, 41, 3):
        join = harness("RippleJoin", {"sample": 0.2, "sum": "n"}, key="g", inputs=INPUTS)
        for at in range(0, 300, size):
            join.epoch(given(left[at : at + size], right[at : at + size]))
        keys = sorted(map(repr, join.rows("keys")))
        found.append((keys, join.rows("seen"), join.rows("sums")))  # whole numbers: exact
    assert all(state == found[0] for state in found)


def test_nothing_is_estimated_from_nothing(harness: Any) -> None:
    join = harness("RippleJoin", {"sample": 1}, key="g", inputs=INPUTS)
    (row,) = join.epoch(given(side_of(5, 1), side_of(1, 2)))
    assert (row["left"], row["right"], row["estimate"], row["error"]) == (5, 1, None, None)


def test_amounts_that_are_no_numbers_are_refused(harness: Any) -> None:
    join = harness("RippleJoin", {"sample": 1, "sum": "n"}, key="g", inputs=INPUTS)
    with pytest.raises(BadInputError, match="column 'n' is null in row 0, expected a number"):
        join.epoch({"left": {"g": ["a"], "n": [None]}, "right": {"g": ["a"], "n": [1]}})


@pytest.mark.parametrize(
    ("parameters", "inputs", "text"),
    [
        ({}, INPUTS, "with.sample is missing, expected a number above 0 and up to 1"),
        ({"sample": 10}, INPUTS, "with.sample is 10"),
        ({"sample": 1, "confidence": 1}, INPUTS, "with.confidence is 1, expected a number above 0"),
        (
            {"sample": 1},
            {"a": "rows", "right": "others"},
            "write `inputs: {left: NAME, right: NAME",
        ),
    ],
)
def test_parameters(
    harness: Any, parameters: dict[str, Any], inputs: dict[str, str], text: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        harness("RippleJoin", parameters, key="g", inputs=inputs)
    assert text in str(caught.value)
