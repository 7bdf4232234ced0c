"""A partition's share of state without a key, under another parallelism. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perseid.state.primitives.undo import Values


def evenly(totals: Values, partition: int, parallelism: int) -> Values:
    """A partition's share of the int64 `totals` of all; the first ones get the remainder."""
    part: Values = totals // parallelism + (partition < totals % parallelism)
    return part


def averaged(models: Sequence[Values], weights: Values) -> Values:
    """The mean of arrays of one shape by `weights`; the plain mean if all weights are zero."""
    mean: Values = np.average(models, axis=0, weights=weights if weights.any() else None)
    return mean
