"""The search for seeds that find the planted defects, on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator

from perseid.testing.simulation.mutants import PLANTED
from perseid.testing.simulation.mutants.planting import SEEDS_MAX, find


def search(names: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Each name with the first seed below SEEDS_MAX that finds it, None without one."""
    count = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        yield from pool.imap_unordered(_searched, names)


def _searched(name: str) -> tuple[str, int | None]:
    found = find(PLANTED[name], range(SEEDS_MAX))
    return name, None if found is None else found[0]
