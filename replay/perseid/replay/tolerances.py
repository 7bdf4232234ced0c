"""How much the columns of two records may differ and still count as equal. Pure.

In a job.yaml or a command a tolerance is a dict from column to one of `{"ulp": n}`,
`{"relative": x}` and `{"absolute": x}`. Numbers alone have tolerances; all else must be the same.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal, TypeGuard, get_args

from perseid.errors import UsageError

Kind = Literal["ulp", "relative", "absolute"]
EXPECTED = '{"ulp": n}, {"relative": x} with x from 0 to 1, or {"absolute": x}, and none below 0'
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`limit` is included. "ulp" counts the floats (64 bits) from one number to the other.

    "relative" is a share of the larger of both, without their signs.
    """

    kind: Kind
    limit: float | Decimal

    def holds(self, one: object, other: object) -> bool:
        """Whether both are the same, or numbers within the limit."""
        if same(one, other):
            return True
        if not (_is_number(one) and _is_number(other)):
            return False
        a, b = Fraction(one), Fraction(other)
        if self.kind == "ulp":
            return a == b or _ulps(a, b) <= self.limit
        allowed = Fraction(self.limit)
        return abs(a - b) <= (allowed if self.kind == "absolute" else allowed * max(abs(a), abs(b)))


Tolerances = Mapping[str, Tolerance]  # by column


def same(one: object, other: object) -> bool:
    """Whether two decoded values are the same in type and bits: NaN is NaN, 0.0 is not -0.0."""
    return type(one) is type(other) and repr(one) == repr(other)


def parsed(document: object, where: str = "tolerances") -> dict[str, Tolerance]:
    """The tolerances of such a dict. `where`: the place that an error names.

    >>> parsed({"amount": {"ulp": 4}})
    {'amount': Tolerance(kind='ulp', limit=4)}

    Raises:
        UsageError: names the column and what was expected.
    """
    if not isinstance(document, dict):
        raise UsageError(
            f"{where}: expected a mapping of columns, such as {{amount: {{relative: 1e-9}}}}, "
            f"found {_short(document)}"
        )
    return {
        _column(name, where): _one(value, f"{where}.{name}") for name, value in document.items()
    }


def of_options(texts: Iterable[str], option: str = "--tolerance") -> dict[str, Tolerance]:
    """The same of a command's options, each COLUMN=KIND:LIMIT.

    >>> of_options(["amount=relative:1e-9"])
    {'amount': Tolerance(kind='relative', limit=1e-09)}

    Raises:
        UsageError: as of `parsed`, or a column that has two.
    """
    document: dict[str, dict[str, float]] = {}
    for text in texts:
        column, equals, rest = text.rpartition("=")
        kind, colon, number = rest.partition(":")
        try:
            limit = float(number)
        except ValueError:
            equals = ""
        if not (column and equals and colon):
            raise UsageError(
                f"{option} {_short(text)}: expected COLUMN=ulp:N, COLUMN=relative:X or "
                "COLUMN=absolute:X, such as amount=relative:1e-9"
            )
        if column in document:
            raise UsageError(
                f"{option} {_short(text)}: the column {column} has a tolerance already"
            )
        document[column] = {kind: int(limit) if kind == "ulp" and limit.is_integer() else limit}
    return parsed(document, option)


def _column(name: object, where: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where}: expected names of columns, found {_short(name)}")
    return name


def _one(value: object, where: str) -> Tolerance:
    if isinstance(value, dict) and len(value) == 1:
        [(kind, limit)] = value.items()
        if kind in get_args(Kind) and _is_number(limit) and limit >= 0:
            whole = kind != "ulp" or limit == int(limit)
            if whole and (kind != "relative" or limit <= 1):
                return Tolerance(kind, limit)
    raise UsageError(f"{where}: expected {EXPECTED}, found {_short(value)}")


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    """Whether it is a finite number; True and False are none."""
    if isinstance(value, Decimal):
        return value.is_finite()
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole or (isinstance(value, float) and math.isfinite(value))


def _ulps(one: Fraction, other: Fraction) -> float:
    try:
        return abs(_rank(float(one)) - _rank(float(other)))
    except OverflowError:  # an int beyond all floats
        return math.inf


def _rank(number: float) -> int:
    """The number's place among all floats; 0.0 and -0.0 are both at 0."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits) if bits >= 0 else -(int(bits) & 0x7FFF_FFFF_FFFF_FFFF)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
