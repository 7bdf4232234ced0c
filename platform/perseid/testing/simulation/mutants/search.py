"""Searches on all cores for seeds that detect the planted defects."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator

from perseid.testing.simulation.mutants import PLANTED
from perseid.testing.simulation.mutants.planting import SEEDS_MAX, find


def search(names: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yields each name with the first seed below SEEDS_MAX that detects it, or None."""
    count = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        yield from pool.imap_unordered(_searched, names)


def _searched(name: str) -> tuple[str, int | None]:
    found = find(PLANTED[name], range(SEEDS_MAX))
    return name, None if found is None else found[0]
