"""Guesses are proven, rows are searched where none is, and what fails is not taken for narrowed."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from perseid.replay.narrowing import Bools, contains, distinct, members, narrowed, texts


def mask(count: int, rows: set[int]) -> Bools:
    return np.isin(np.arange(count), list(rows))


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_each_make_something_are_found(seed: int) -> None:
    chance = Random(seed)
    count = chance.randrange(1, 60)
    wanted = {row for row in range(count) if chance.random() < 0.3}

    def makes(some: Bools) -> Counter[bytes]:
        return Counter(b"%d" % row for row in np.flatnonzero(some).tolist() if row in wanted)

    every = makes(np.ones(count, bool))
    found = narrowed(count, every, makes, [], lambda: True)
    assert set(np.flatnonzero(found.rows).tolist()) == wanted
    proven = narrowed(count, every, makes, [mask(count, wanted)], lambda: False)
    assert (proven.how, proven.rows.tolist()) == ("proven", mask(count, wanted).tolist())


def test_a_guess_with_a_row_too_few_or_of_the_wrong_rows_is_not_proven() -> None:
    def makes(some: Bools) -> Counter[bytes]:
        return Counter(b"x" for row in np.flatnonzero(some).tolist() if row in {1, 3})

    every = makes(np.ones(5, bool))
    for guess in (mask(5, {1}), mask(5, {0, 2}), mask(5, {0, 1, 3}), mask(4, {1, 3})):
        found = narrowed(5, every, makes, [guess], lambda: True)
        assert (found.how, found.rows.tolist()) == ("searched", mask(5, {1, 3}).tolist())


def test_an_idle_row_of_a_guess_is_found_where_another_makes_two() -> None:
    def makes(some: Bools) -> Counter[bytes]:
        return Counter({b"x": 2} if some[1] else {})

    found = narrowed(3, Counter({b"x": 2}), makes, [mask(3, {1, 2})], lambda: True)
    assert (found.how, found.rows.tolist()) == ("searched", [False, True, False])


def test_rows_that_make_something_together_alone_stay_whole() -> None:
    def makes(some: Bools) -> Counter[bytes]:
        return Counter({b"x": 1} if some[1] and some[3] else {})

    found = narrowed(5, Counter({b"x": 1}), makes, [], lambda: True)
    assert (found.how, found.rows.tolist()) == ("whole", [True] * 5)


def test_members_of_several_columns_and_nulls() -> None:
    table = pa.table({"a": ["x", "x", "y", None], "b": [1, 2, 1, 1], "c": [1, 2, 3, 4]})
    keys = pa.table({"a": ["x", "y", "y"], "b": pa.array([1, 2, 1], pa.int32())})
    assert members(table, keys).tolist() == [True, False, True, False]
    assert not members(table, keys.slice(0, 0)).any()
    assert sorted(distinct(table.select(["a"]))["a"].to_pylist()) == ["x", "y"]


def test_texts_count_rows_of_any_type() -> None:
    table = pa.table({"a": [b"\xff", b"\xff", None], "b": [[1], [1], []]})
    found = texts(table)
    assert sorted(found.values()) == [1, 2]
    assert contains(found, texts(table.slice(0, 1)))
    assert not contains(texts(table.slice(0, 1)), found)
