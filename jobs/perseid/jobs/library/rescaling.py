"""What a partition gets of state that has no key, under another parallelism. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseid.state.undo import Values


def evenly(totals: Values, partition: int, parallelism: int) -> Values:
    """A partition's part of int64 `totals` that all have together; the first get what is over."""
    part: Values = totals // parallelism + (partition < totals % parallelism)
    return part


def averaged(models: Sequence[Values], weights: Values) -> Values:
    """The mean of arrays of one shape by their `weights`; the plain one when all weigh nothing."""
    shares = weights / weights.sum() if weights.any() else np.full(len(models), 1 / len(models))
    mean: Values = np.sum(
        [share * model for share, model in zip(shares, models, strict=True)], axis=0
    )
    return mean
