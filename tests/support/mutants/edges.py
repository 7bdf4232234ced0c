"""Defects of the count of sets between operators, through shuffles and through buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from perseid.topics import buffer_limits, sets
from perseid.topics.records import BufferRecord
from perseid.topics.sets import Attempt
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


def attempts_are_mixed() -> AbstractContextManager[Any]:
    """Chunks of several attempts at a set make up one set of a buffer."""

    def mutant(record: BufferRecord) -> Attempt:
        return Attempt(0, 0, record.epoch, record.revision, record.chunks, record.rows_crc)

    return patch.object(sets, "_attempt", mutant)


def buffers_are_trimmed_after_the_newest() -> AbstractContextManager[Any]:
    """A buffer is trimmed up to the newest checkpoint, though an older one may be needed."""

    def mutant(checkpoints: Iterable[int], readers: Iterable[int]) -> int:
        return min(max(checkpoints), *readers)

    return patch.object(buffer_limits, "floor", mutant)
