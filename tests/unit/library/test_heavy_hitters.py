"""Count-Min against plain counts: never too low, too high as rarely as promised."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.library.heavy_hitters import COLUMNS, ROWS
from perseid.testing.operator_checks import check


def words(size: int, seed: int, distinct: int = 50_000) -> list[str]:
    """Zipf-like: a few words make up much."""
    chance = random.Random(seed)
    return [f"w{int(chance.paretovariate(0.4)) % distinct}" for _ in range(size)]


def live(harness: Any) -> Any:
    """The operator instance of partition 0."""
    return harness._states[0].operator


def test_every_heavy_key_is_found_and_few_others(harness: Any) -> None:
    heavy = harness("HeavyHitters", {"share": 0.01}, key="w")
    counts: Counter[str] = Counter()
    emitted: dict[str, int] = {}
    for epoch in range(5):
        rows = words(20_000, epoch)
        counts.update(rows)
        for row in heavy.epoch({"w": rows}, splits=2):
            emitted.pop(row["w"], None)
            if row["heavy"]:
                emitted[row["w"]] = row["n"]
        heavy.crash()
    total = counts.total()
    assert heavy.rows("total") == [{"value": total}]
    wanted = {w for w, n in counts.items() if n >= 0.01 * total}
    assert 1 < len(wanted) <= len(emitted)
    slack = math.e / COLUMNS * total
    for word, n in emitted.items():
        assert counts[word] <= n
        assert counts[word] >= 0.01 * total - slack
    assert wanted <= emitted.keys()
    assert emitted == {row["w"]: row["n"] for row in heavy.rows("hitters")}


def test_estimates_are_too_high_as_rarely_as_promised(harness: Any) -> None:
    heavy = harness("HeavyHitters", {"threshold": 1}, key="w")
    counts = Counter(words(200_000, 9))
    heavy.epoch({"w": list(counts.elements())})
    found = {row["w"]: row["n"] for row in heavy.rows("hitters")}
    assert found.keys() == counts.keys()
    over = np.array([found[w] - n for w, n in counts.items()])
    assert over.min() >= 0
    assert (over > 0).any()  # the sketch is small enough to be wrong
    assert (over > math.e / COLUMNS * 200_000).mean() <= math.exp(-ROWS)


def test_sums_over_a_threshold_with_several_partitions(harness: Any) -> None:
    with_ = {"threshold": 100, "sum": "n"}
    heavy = harness("HeavyHitters", with_, key=["g", "w"], partitions=3)
    rows = {"g": ["a", "a", "b"], "w": ["x", "y", "x"], "n": [60, 99, 100]}
    assert heavy.epoch(rows) == [{"g": "b", "w": "x", "n": 100, "heavy": True}]
    assert heavy.epoch({"g": ["a"], "w": ["x"], "n": [40]}) == [
        {"g": "a", "w": "x", "n": 100, "heavy": True}
    ]
    assert heavy.epoch({"g": ["b"], "w": ["x"], "n": [0]}) == []


def test_a_key_that_falls_below_its_share_is_reported_once(harness: Any) -> None:
    heavy = harness("HeavyHitters", {"share": 0.5}, key="w")
    assert heavy.epoch({"w": ["a"]}) == [{"w": "a", "n": 1, "heavy": True}]
    assert heavy.epoch({"w": ["b", "c"]}) == [{"w": "a", "n": 1, "heavy": False}]
    assert heavy.epoch({"w": ["d"]}) == []
    assert heavy.epoch({"w": ["a"] * 4}) == [{"w": "a", "n": 5, "heavy": True}]


def test_the_cut_into_epochs_does_not_matter_to_the_sketch(harness: Any) -> None:
    rows = words(3000, 4)
    found = []
    for size in (3000, 700, 11):
        heavy = harness("HeavyHitters", {"share": 0.02}, key="w")
        for at in range(0, len(rows), size):
            heavy.epoch({"w": rows[at : at + size]})
        found.append((heavy.rows("counters"), heavy.rows("total")))
    assert all(state == found[0] for state in found)


def test_crashes_moves_processes_and_order(job: Any) -> None:
    folder = job("HeavyHitters", {"share": 0.1}, key="w", parallelism=1, order="free")
    check(folder, "tried", [{"w": words(20, 1)}, None, {"w": words(9, 2)}])


@pytest.mark.parametrize("failures", [1, 3])
def test_compensation_keeps_estimates_from_being_too_low(harness: Any, failures: int) -> None:
    """AF-Stream: the k-th failure loses at most theta / 2^k + l * alpha / 2^k of a counter."""
    with_ = {"threshold": 500, "sum": "n", "largest": 1500}
    heavy = harness("HeavyHitters", with_, key="w")
    chance = random.Random(failures)
    true: Counter[str] = Counter()
    operator = live(heavy)
    for epoch in range(4):
        keys, amounts = words(300, epoch), [chance.randint(1, 1500) for _ in range(300)]
        for word, n in zip(keys, amounts, strict=True):
            true[word] += n
        heavy.epoch({"w": keys, "n": amounts})
    before = {word: estimate(operator, word) for word in true}
    theta, l = 4000.0, 8  # noqa: E741 - the paper's name
    added = math.ceil((theta + l * 1500) / 2**failures)
    true.update(Counter({word: added for word in list(true)[:4]}))  # lost with the failure
    operator.theta, operator.l = theta, l
    operator.compensate(failures)
    assert {w: estimate(operator, w) for w in before} == {w: n + added for w, n in before.items()}
    assert any(n < true[word] for word, n in before.items())
    assert all(estimate(operator, word) >= n for word, n in true.items())


def test_divergence_is_the_largest_difference_of_a_counter(harness: Any) -> None:
    heavy = harness("HeavyHitters", {"share": 0.5}, key="w")
    heavy.epoch({"w": ["a"] * 3})
    operator = live(heavy)
    operator.counters.mark_backup()
    assert operator.state_divergence() == 0
    heavy.epoch({"w": ["a"] * 5 + ["b"] * 2})
    assert operator.state_divergence() == 5
    assert operator.alpha == 1


def test_compensation_needs_to_know_what_may_be_lost(harness: Any) -> None:
    operator = live(harness("HeavyHitters", {"threshold": 5, "sum": "n"}, key="w"))
    operator.theta, operator.l = 1.0, 1
    with pytest.raises(BadInputError, match="with `sum`, `largest:` under with"):
        operator.compensate(1)


def estimate(operator: Any, word: str) -> int:
    return int(operator.estimate(pa.table({"w": [word]}))[0])


@pytest.mark.parametrize(
    ("amounts", "text"),
    [([-1], "not from 0 to 9"), ([10], "not from 0 to 9"), ([0.5], "expected int64, found")],
)
def test_bad_amounts_are_refused(harness: Any, amounts: list[Any], text: str) -> None:
    heavy = harness("HeavyHitters", {"threshold": 5, "sum": "n", "largest": 9}, key="w")
    with pytest.raises(BadInputError, match=text):
        heavy.epoch({"w": ["a"], "n": amounts})


@pytest.mark.parametrize(
    ("parameters", "parallelism", "text"),
    [
        ({}, 1, "found neither of with.share and with.threshold"),
        ({"share": 0.1, "threshold": 3}, 1, "found both of with.share and with.threshold"),
        ({"share": 0.1}, 2, "no partition knows the total of all; write `parallelism: 1`"),
        ({"share": 0}, 1, "with.share is 0, expected a number above 0 and up to 1"),
        ({"threshold": 1.5}, 1, "with.threshold is 1.5, expected a whole number"),
        ({"threshold": 5, "largest": 9}, 1, "with.largest is for sums, with `sum` only; remove it"),
    ],
)
def test_parameters(harness: Any, parameters: dict[str, Any], parallelism: int, text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        harness("HeavyHitters", parameters, key="w", parallelism=parallelism)
    assert text in str(caught.value)
