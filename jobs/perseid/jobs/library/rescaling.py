"""What a partition gets of state that has no key, under another parallelism. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseid.state.primitives.undo import Values


def evenly(totals: Values, partition: int, parallelism: int) -> Values:
    """A partition's part of int64 `totals` that all have together; the first get what is over."""
    part: Values = totals // parallelism + (partition < totals % parallelism)
    return part


def averaged(models: Sequence[Values], weights: Values) -> Values:
    """The mean of arrays of one shape by their `weights`; the plain one when all weigh nothing."""
    mean: Values = np.average(models, axis=0, weights=weights if weights.any() else None)
    return mean
