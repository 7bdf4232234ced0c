"""Rankings against sorted plain dictionaries."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest

from perseid.errors import BadInputError

Row = dict[str, Any]


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def ranking(totals: dict[Any, int], k: int) -> list[tuple[int, str, int]]:
    """The plain one: by weight, then by name."""
    best = sorted(totals.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
    return [(place, item, n) for place, (item, n) in enumerate(best, 1)]


def rows_of(size: int, seed: int, low: int = 0) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "g": f"g{chance.randrange(3)}",
            "w": f"w{int(chance.paretovariate(0.7)) % 40}",
            "n": chance.randint(low, 9),
        }
        for _ in range(size)
    ]


@pytest.mark.parametrize("low", [0, -9])  # with negative amounts ranked items fall
@pytest.mark.parametrize("partitions", [1, 3])
def test_changed_rankings_are_those_of_plain_dictionaries(
    harness: Any, low: int, partitions: int
) -> None:
    top = harness("TopK", {"of": "w", "k": 4, "sum": "n"}, key="g", partitions=partitions)
    totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    shown: dict[str, list[Any]] = {}
    for epoch in range(12):
        rows = rows_of(30 if epoch % 3 else 3, epoch, low)
        for row in rows:
            totals[row["g"]][row["w"]] += row["n"]
        wanted = {g: ranking(items, 4) for g, items in totals.items()}
        found: dict[str, list[Any]] = defaultdict(list)
        for row in top.epoch(columns(rows), splits=2):
            found[row["g"]].append((row["rank"], row["w"], row["sum"]))
        assert found == {g: r for g, r in wanted.items() if shown.get(g) != r}
        shown = wanted
        top.crash()


def test_counts_with_a_composite_item_and_group(harness: Any) -> None:
    top = harness("TopK", {"of": ["w", "i"], "k": 1, "types": {"i": "int64"}}, key=["g", "h"])
    rows = {"g": ["a"] * 4, "h": ["b", "b", "b", "c"], "w": ["x", "y", "y", "x"], "i": [1, 2, 2, 1]}
    assert top.epoch(rows) == [
        {"g": "a", "h": "b", "rank": 1, "w": "y", "i": 2, "n": 2},
        {"g": "a", "h": "c", "rank": 1, "w": "x", "i": 1, "n": 1},
    ]
    assert top.epoch({"g": ["a"], "h": ["b"], "w": ["x"], "i": [9]}) == []


def test_the_cut_into_epochs_does_not_matter(harness: Any) -> None:
    rows = rows_of(200, 5, -5)
    found = []
    for size in (200, 50, 7, 1):
        top = harness("TopK", {"of": "w", "k": 3, "sum": "n"}, key="g")
        for at in range(0, len(rows), size):
            top.epoch(columns(rows[at : at + size]))
        found.append([sorted(map(repr, top.rows(name))) for name in ("ranking", "totals")])
    assert all(state == found[0] for state in found)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"g": ["a"], "w": [None], "n": [1]}, "key column 'w' is null in row 0"),
        ({"g": ["a"], "w": ["x"], "n": [1.5]}, "column 'n': expected int64"),
        ({"g": ["a"] * 2, "w": ["x"] * 2, "n": [2**63 - 1] * 2}, "does not fit into int64"),
    ],
)
def test_bad_rows_are_refused(harness: Any, rows: dict[str, list[Any]], text: str) -> None:
    top = harness("TopK", {"of": "w", "k": 2, "sum": "n"}, key="g")
    with pytest.raises(BadInputError, match=text):
        top.epoch(rows)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"k": 3},
            "with.of is missing, expected the name of a column, or a list of names; write `of: w",
        ),
        ({"of": "w"}, "with.k is missing, expected a whole number from 1 to 10000; write `k: 10`"),
        ({"of": "w", "k": 0}, "with.k is 0, expected a whole number from 1 to 10000"),
        ({"of": "w", "k": True}, "with.k is True"),
        ({"of": ["w", "w"], "k": 1}, "with.of is ['w', 'w'], expected columns that are different"),
        ({"of": "g", "k": 1}, "two columns would be called 'g'"),
        ({"of": "rank", "k": 1}, "two columns would be called 'rank'"),
        ({"of": "w", "k": 1, "summ": "n"}, "write `sum`"),
        (
            {"of": "w", "k": 1, "types": {"z": "int64"}},
            "expected types of some of the columns g, w",
        ),
        ({"of": "w", "k": 1, "types": {"w": "float64"}}, "a key is a string, binary, integer"),
    ],
)
def test_parameters(harness: Any, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        harness("TopK", parameters, key="g")
    assert text in str(caught.value)
