"""How far state is from its marked backup (AF-Stream, sections 3.3 and 3.4.1, Table 2).

Differences are stored one by one and summed up only on demand. A running sum would drift with
floats and could not follow a decreasing maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import numpy as np

from perseid.errors import BadInputError
from perseid.state.primitives.undo import Values


class Distance(StrEnum):
    """The kinds of `divergence`."""

    DIFFERENCE = "difference"  # of two values
    MANHATTAN = "manhattan"  # sum of the differences
    EUCLIDEAN = "euclidean"  # root of the sum of their squares
    MAXIMUM = "maximum"  # largest difference
    KEYS = "keys"  # number of changed keys, members or items


def distance(kind: Distance, differences: Iterable[Values]) -> float:
    """One number from arrays of non-negative differences."""
    parts = [part for part in differences if len(part)]
    if kind is Distance.MANHATTAN:
        return float(sum(part.sum() for part in parts))
    if kind is Distance.EUCLIDEAN:
        return float(np.sqrt(sum(np.square(part).sum() for part in parts)))
    return float(max((part.max() for part in parts), default=0.0))


def differences(now: Values, then: Values) -> Values:
    """|now - then| as float64, exact for close integers; infinite for NaN and infinity.

    So a NaN that appears or disappears requires a backup, and an unchanged one does not.
    """
    if np.issubdtype(now.dtype, np.integer):
        wide = np.uint64 if np.issubdtype(now.dtype, np.unsignedinteger) else np.int64
        one, other = now.astype(wide).view(np.uint64), then.astype(wide).view(np.uint64)
        apart: Values = np.where(now > then, one - other, other - one).astype(np.float64)
        return apart
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(now.astype(np.float64) - then)
    apart[same_bits(now, then)] = 0.0
    return np.nan_to_num(apart, copy=False, nan=np.inf, posinf=np.inf)


def same_bits(now: Values, then: Values) -> Values:
    """Where two arrays of one fixed-width type are equal, NaN included."""
    bits = np.dtype(f"u{now.dtype.itemsize}")
    same: Values = now.view(bits) == then.view(bits)
    return same


def chosen(kind: str, known: Iterable[Distance], what: str) -> Distance:
    """`kind` as one of the distances that `what` supports."""
    known = list(known)
    if kind not in known:
        raise BadInputError(
            f"a {what} has no divergence {str(kind)!r}; choose one of {', '.join(known) or 'none'}"
        )
    return Distance(kind)


def unmarked(what: str) -> BadInputError:
    return BadInputError(
        f"divergence of a {what} that has no backup to compare with; call mark_backup() once the "
        "backup is issued, and again after a restore"
    )
