"""Defects of the count of sets between operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from perseid.worker.dataflow import barriers


def barriers_are_miscounted() -> AbstractContextManager[Any]:
    """A set that did not come is not missed, so its partition runs without it."""
    faults = barriers._faults

    def mutant(*given: Any) -> Iterator[str]:
        return (fault for fault in faults(*given) if not fault.endswith("is missing"))

    return patch.object(barriers, "_faults", mutant)


def chunks_of_other_attempts_are_taken() -> AbstractContextManager[Any]:
    """A chunk that comes twice, from two attempts of its sender, counts once and is read twice."""
    whole_sets = barriers._whole_sets

    def mutant(found: Counter[tuple[int, int]]) -> int | None:
        return whole_sets(Counter(dict.fromkeys(found, 1)))

    return patch.object(barriers, "_whole_sets", mutant)
