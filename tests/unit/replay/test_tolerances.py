"""Tolerances of columns: what counts as equal, against exact arithmetic, and how they are given."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import UsageError
from perseid.replay.tolerances import Tolerance, of_options, parsed, same

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = FLOATS | st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=3)


@given(FLOATS, st.integers(0, 40), st.integers(-40, 40))
def test_ulps_count_the_floats_from_one_number_to_the_other(
    start: float, limit: int, steps: int
) -> None:
    other = start
    for _ in range(abs(steps)):
        other = math.nextafter(other, math.inf if steps > 0 else -math.inf)
    if math.isfinite(other):
        assert Tolerance("ulp", limit).holds(start, other) == (abs(steps) <= limit)


@given(NUMBERS, NUMBERS, st.floats(0, 1))
def test_relative_and_absolute_are_exact(one: float, other: float, limit: float) -> None:
    a, b = Fraction(one), Fraction(other)
    absolute = abs(a - b) <= Fraction(limit)
    relative = abs(a - b) <= Fraction(limit) * max(abs(a), abs(b))
    assert Tolerance("absolute", limit).holds(one, other) == absolute
    assert Tolerance("relative", limit).holds(one, other) == relative


@pytest.mark.parametrize("kind", ["ulp", "relative", "absolute"])
@pytest.mark.parametrize(
    ("one", "other", "holds"),
    [
        (math.nan, math.nan, True), (math.inf, math.inf, True), (math.inf, -math.inf, False),
        (math.inf, 1e308, False), (math.nan, 1.0, False), (0.0, -0.0, True), (1, 1.0, True),
        (Decimal("1.0"), 1, True), (True, 1, False), ("1", 1, False), ("a", "a", True),
        (None, None, True), (None, 0, False), ([1.0], [1.0], True), (10**400, 10**400 + 1, False),
        (10**400, Decimal(10**400), True),
    ],
)  # fmt: skip
def test_other_values_must_be_the_same(kind: str, one: object, other: object, holds: bool) -> None:
    limit = 0 if one == 10**400 else 1e-12
    tolerance = Tolerance(kind, limit)  # type: ignore[arg-type]
    assert tolerance.holds(one, other) == tolerance.holds(other, one) == holds


def test_same_is_of_type_and_bits() -> None:
    assert same(math.nan, math.nan)
    assert not same(0.0, -0.0)
    assert not same(1, 1.0)
    assert same({"a": [math.nan]}, {"a": [math.nan]})


def test_how_tolerances_are_given() -> None:
    expected = {"a": Tolerance("ulp", 4), "b.c": Tolerance("relative", 1e-9)}
    assert parsed({"a": {"ulp": 4}, "b.c": {"relative": 1e-9}}) == expected
    assert of_options(["a=ulp:4", "b.c=relative:1e-9"]) == expected
    assert of_options(["x=y=absolute:2"]) == {"x=y": Tolerance("absolute", 2)}
    assert parsed({}) == {}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([1], "tolerances: expected a mapping of columns"),
        ({1: {"ulp": 1}}, "tolerances: expected names of columns, found 1"),
        ({"a": 1e-9}, 'tolerances.a: expected {"ulp": n}'),
        ({"a": {"ulp": 1, "relative": 0}}, "tolerances.a: expected"),
        ({"a": {"percent": 1}}, "tolerances.a: expected"),
        ({"a": {"ulp": 1.5}}, "tolerances.a: expected"),
        ({"a": {"relative": 1.5}}, "tolerances.a: expected"),
        ({"a": {"absolute": -1}}, "tolerances.a: expected"),
        ({"a": {"absolute": math.inf}}, "tolerances.a: expected"),
        ({"a": {"absolute": True}}, "found {'absolute': True}"),
    ],
)
def test_what_is_refused_of_a_document(document: object, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(document)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["amount"], "--tolerance 'amount': expected COLUMN=ulp:N"),
        (["amount=ulp:x"], "expected COLUMN=ulp:N"),
        (["=ulp:1"], "expected COLUMN=ulp:N"),
        (["a=percent:1"], "--tolerance.a: expected"),
        (["a=ulp:1", "a=ulp:2"], "the column a has a tolerance already"),
        (["a=absolute:nan"], "--tolerance.a: expected"),
    ],
)
def test_what_is_refused_of_options(texts: list[str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        of_options(texts)
    assert words in str(refused.value)
