"""Planted defects by name, and the search on all cores for seeds that detect them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from perseid.errors import UsageError
from support.mutants import PLANTED
from support.mutants.planting import SEEDS_MAX, find, planted


def named(name: str) -> AbstractContextManager[None]:
    """Plants the defect of this name. UsageError lists the names there are."""
    if name not in PLANTED:
        raise UsageError(f"there is no planted defect {name!r}: there are {', '.join(PLANTED)}")
    return planted(PLANTED[name])


def search(names: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yields each name with the first seed below SEEDS_MAX that detects it, or None."""
    count = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        yield from pool.imap_unordered(_searched, names)


def _searched(name: str) -> tuple[str, int | None]:
    found = find(PLANTED[name], range(SEEDS_MAX))
    return name, None if found is None else found[0]
