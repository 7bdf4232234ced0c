"""Distinct counts against plain sets; HyperLogLog's error against its bound."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.library import hyperloglog
from perseid.jobs.library.hashing import hashed

APPROXIMATE = {"column": "w", "error": 0.05, "keys": 50}  # 512 registers: 1.04 / sqrt(512) = 0.046


def rows_of(size: int, seed: int) -> dict[str, list[Any]]:
    chance = random.Random(seed)
    return {
        "g": [f"g{chance.randrange(4)}" for _ in range(size)],
        "w": [None if chance.random() < 0.1 else f"w{chance.randrange(60)}" for _ in range(size)],
    }


@pytest.mark.parametrize("partitions", [1, 3])
def test_counts_that_changed_are_those_of_plain_sets(harness: Any, partitions: int) -> None:
    users = harness("Distinct", {"column": "w"}, key="g", partitions=partitions)
    seen: dict[str, set[str]] = defaultdict(set)
    for epoch in range(10):
        rows = rows_of(25, epoch)
        before = {key: len(values) for key, values in seen.items()}
        for key, value in zip(rows["g"], rows["w"], strict=True):
            if value is not None:
                seen[key].add(value)
        wanted = {k: len(v) for k, v in seen.items() if len(v) != before.get(k)}
        found = users.epoch(rows, splits=3)
        assert {row["g"]: row["distinct"] for row in found} == wanted
        assert len(found) == len(wanted)
        users.crash()


def test_integers_under_a_composite_key(harness: Any) -> None:
    with_ = {"column": "n", "types": {"n": "int64", "i": "int64"}}
    users = harness("Distinct", with_, key=["g", "i"])
    rows = {"g": ["a", "a", "a", "b"], "i": [1, 1, 2, 1], "n": [7, 8, 7, None]}
    assert users.epoch(rows) == [
        {"g": "a", "i": 1, "distinct": 2},
        {"g": "a", "i": 2, "distinct": 1},
    ]


@pytest.mark.parametrize("with_", [{"column": "w"}, APPROXIMATE])
def test_the_cut_into_epochs_does_not_matter(harness: Any, with_: dict[str, Any]) -> None:
    rows = rows_of(120, 3)
    found = []
    for size in (120, 13, 1):
        users = harness("Distinct", with_, key="g")
        for at in range(0, 120, size):
            users.epoch({name: values[at : at + size] for name, values in rows.items()})
        found.append({name: sorted(map(repr, users.rows(name))) for name in users.state_names})
    for state in found[1:]:
        assert state == found[0]


def test_an_approximate_count_is_as_close_as_promised(harness: Any) -> None:
    users = harness("Distinct", {**APPROXIMATE, "keys": 40}, key="g", partitions=1)
    sizes = {f"g{i}": size for i, size in enumerate([1, 5, 20, 300, 1000, 3000] * 6)}
    keys = [key for key, size in sizes.items() for _ in range(size)]
    values = [f"{key}/{i}" for key, size in sizes.items() for i in range(size)]
    users.epoch({"g": keys, "w": values})
    users.epoch({"g": keys[::-1], "w": values[::-1]})  # seen already: nothing changes
    found = {row["g"]: row["distinct"] for row in users.rows("rows")}
    errors = np.array([found[key] / size - 1 for key, size in sizes.items()])
    bound = 1.04 / 512**0.5
    assert np.sqrt(np.square(errors).mean()) < bound
    assert abs(errors).max() < 4 * bound
    assert all(found[key] == 1 for key, size in sizes.items() if size == 1)


@pytest.mark.parametrize("precision", [7, 11])
def test_estimates_are_unbiased_at_every_size(precision: int) -> None:
    """Of 100 counters each, of random 64-bit numbers and of hashed ones."""
    chance = np.random.default_rng(7)
    size, counters = 2**precision, 100
    for count in (0, 1, size // 2, 2 * size, 5 * size):
        numbers = chance.integers(0, 2**63, count * counters, dtype=np.int64)
        for hashes in (hashed([pa.array(numbers)]), numbers.view(np.uint64) << np.uint64(1)):
            register, least = hyperloglog.places(hashes, precision)
            registers = np.zeros((counters, size), np.uint8)
            row = np.repeat(np.arange(counters), count)
            np.maximum.at(registers, (row, register), least)
            errors = hyperloglog.estimates(registers) / max(1, count) - (count > 0)
            bound = hyperloglog.standard_error(precision)
            assert abs(errors.mean()) < 4 * bound / counters**0.5, (count, errors.mean())
            assert np.sqrt(np.square(errors).mean()) < 1.2 * bound


def test_registers_by_hand() -> None:
    hashes = np.array([0, 2**60, 2**64 - 1, 3 * 2**61 + 1], np.uint64)
    register, least = hyperloglog.places(hashes, 4)
    assert register.tolist() == [0, 1, 15, 6]
    assert least.tolist() == [54, 54, 1, 53]  # of 53 bits: none set, none, all, the last one
    full = np.full((1, 16), 54, np.uint8)
    assert hyperloglog.estimates(full)[0] == np.inf


def test_more_keys_than_registers_are_refused_and_nothing_is_lost(harness: Any) -> None:
    users = harness("Distinct", {**APPROXIMATE, "keys": 2}, key="g")
    users.epoch({"g": ["a", "b"], "w": ["x", "x"]})
    with pytest.raises(BadInputError, match="3 keys in partition 0, expected up to 2"):
        users.epoch({"g": ["c"], "w": ["x"]})
    users.crash()
    assert users.epoch({"g": ["a"], "w": ["y"]}) == [{"g": "a", "distinct": 2}]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({}, "with.column is missing, expected the name of a column; write `column: user`"),
        ({"column": "g"}, "two columns would be called 'g'"),
        ({"column": "x", "types": {"x": "float64"}}, "round it to int64 before"),
        ({"column": "w", "error": 0.001}, "a relative error from 0.023 to 0.092"),
        ({"column": "w", "error": 1}, "with.error is 1, expected a number above 0 and up to 0.092"),
        ({"column": "w", "error": 0.05, "keys": 2**20}, "a whole number from 1 to 524288"),
        ({"column": "w", "keys": 10}, "with.keys is for approximate counts"),
    ],
)
def test_parameters(harness: Any, parameters: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        harness("Distinct", parameters, key="g")
    assert text in str(caught.value)
