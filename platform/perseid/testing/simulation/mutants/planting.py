"""Planted defects: patches of production code that some seed must find."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

Mutant = Callable[[], AbstractContextManager[Any]]
SEEDS_MAX = 2000


def find(play: Callable[[int], Any], mutant: Mutant, seeds: Iterable[int]) -> tuple[int, str]:
    """The first of `seeds` that fails with `mutant`, and its error; (-1, "") without one."""
    with mutant():
        for seed in seeds:
            error: str = play(seed).error
            if error:
                return seed, error
    return -1, ""


def expect_found(play: Callable[[int], Any], mutant: Mutant, seed: int) -> None:
    """AssertionError when `seed` does not find `mutant`, or fails without it too."""
    assert find(play, mutant, [seed])[0] == seed, "look for another seed: run this file"
    assert not play(seed).error, "the seed fails without the planted defect too"


def search(play: Callable[[int], Any], mutants: Sequence[Mutant]) -> None:
    """Prints the first seed that finds each."""
    for mutant in mutants:
        print(mutant.__name__, *find(play, mutant, range(SEEDS_MAX)), flush=True)
