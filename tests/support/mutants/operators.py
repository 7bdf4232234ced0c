"""Defects of primitives and of the redistribution, which the drawn operators' results show."""

from __future__ import annotations

from contextlib import AbstractContextManager
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from perseid.jobs import operator
from perseid.state import Pool, Timers, Vector
from perseid.state.primitives import deltas
from perseid.state.primitives.keyed import Keyed
from perseid.worker.dataflow import operators


def deltas_of_pools_lack_a_row() -> AbstractContextManager[Any]:
    """Of the rows that a pool's delta adds, the first one is lost."""
    apply = Pool.apply
    return patch.object(Pool, "apply", lambda self, delta: apply(self, delta.slice(1)))


def discarded_members_come_back() -> AbstractContextManager[Any]:
    """Deltas by key, which also delete, are applied without what they delete."""
    apply = Keyed._apply_run

    def mutant(self: Keyed, run: Any) -> None:
        if not deltas.is_by_row(run):
            run = run.filter(~run[deltas.DELETED].to_numpy(zero_copy_only=False))
        apply(self, run)

    return patch.object(Keyed, "_apply_run", mutant)


def deltas_of_cells_are_lost() -> AbstractContextManager[Any]:
    """A vector's deltas are not applied."""
    return patch.object(Vector, "apply", lambda self, delta: None)


def due_timers_stay() -> AbstractContextManager[Any]:
    """A timer that is due is so in every later epoch too."""

    def mutant(self: Timers, now_ms: int) -> pa.Table:
        rows = self.scan()
        return rows.filter(pc.less_equal(rows["at"], now_ms))

    return patch.object(Timers, "due", mutant)


def rescales_are_not_called() -> AbstractContextManager[Any]:
    """State without a key begins empty under another parallelism."""
    return patch.object(operators, "rescale", lambda *_: None)


def random_numbers_are_the_processes() -> AbstractContextManager[Any]:
    """Each process draws its own random numbers in an epoch."""
    chance = Random(1)
    return patch.object(operator, "seeded", lambda *_: Random(chance.random()))
