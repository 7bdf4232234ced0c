"""Checks of a planner's arguments; each raises an error that names the argument. O(1) each.

They are shared because a plain comparison lets NaN through, and because a Python integer may be
larger than any float, so that a division raises OverflowError. `unit` is the value's unit, such as
" s".

>>> whole("failures", -3)
Traceback (most recent call last):
    ...
perseid.errors.UsageError: failures is -3: a whole number, 0 or more
"""

from __future__ import annotations

import math
from collections.abc import Collection
from operator import index
from typing import Any

from perseid.errors import PermanentError, UsageError

_BITS_MAX = 1000  # of an integer that is printed in full and fits into a float


def finite(
    what: str, value: float, error: type[PermanentError] = UsageError, *, unit: str = ""
) -> None:
    if not _is_finite(value):
        raise error(f"{what} is {shown(value)}{unit}: a finite number")


def not_negative(
    what: str, value: float, error: type[PermanentError] = UsageError, *, unit: str = ""
) -> None:
    if not (_is_finite(value) and value >= 0):
        raise error(f"{what} is {shown(value)}{unit}: 0 or more")


def positive(
    what: str, value: float, error: type[PermanentError] = UsageError, *, unit: str = ""
) -> None:
    if not (_is_finite(value) and value > 0):
        raise error(f"{what} is {shown(value)}{unit}: more than 0")


def within(
    what: str,
    value: float,
    least: float,
    most: float,
    error: type[PermanentError] = UsageError,
    *,
    unit: str = "",
) -> None:
    """Both bounds are allowed."""
    if not (_is_finite(value) and least <= value <= most):
        raise error(f"{what} is {shown(value)}{unit}: {least:g} to {most:g}")


def whole(what: str, value: int, least: int = 0, error: type[PermanentError] = UsageError) -> None:
    """A count: an integer, including numpy's, and no float."""
    try:
        good = index(value) >= least and _is_finite(value)
    except TypeError:
        good = False
    if not good:
        raise error(f"{what} is {shown(value)}: a whole number, {least} or more")


def one_of(
    what: str, value: str, known: Collection[str], error: type[PermanentError] = UsageError
) -> None:
    if value not in known:
        raise error(f"{what} is {value!r}: one of {', '.join(known)}")


def shown(value: Any) -> str:
    """The value as text at any size: Python refuses to print more than 4,300 digits.

    >>> shown(10**400), shown(float("nan"))
    ('a number of 1329 bits', 'nan')
    """
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (OverflowError, TypeError):  # too large for a float, or no number
        return False
