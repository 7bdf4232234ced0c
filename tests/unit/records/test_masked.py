"""What is taken out of a text of a library that quotes rows that are not at hand."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from perseid.records.redaction import LEFT_OUT, blotted, masked


@pytest.mark.security("5.15")
@pytest.mark.parametrize(
    ("text", "masked_text"),
    [
        ("KeyError: 'ann'", "KeyError: <value>"),
        ("Could not convert 'ann' with type str: tried to convert to int64",
         "Could not convert <value> with type str: tried to convert to int64"),
        ("can't read b'\\x00ann' at 17", "can't read <value> at <value>"),
        ("Expected bytes, got a 'decimal.Decimal' object",
         "Expected bytes, got a 'decimal.Decimal' object"),
        ("not closed: 'ann of the valley", "not closed: <value>"),
        ('got "it\'s ann" and \'ann\'s\'', "got <value> and <value>"),
        ("ann@example.org has 12.5e-7", "<value> has <value>"),
        ("J\u00f6rg", "<value>"),
        ("date value out of range", "date value out of range"),
    ],
)  # fmt: skip
def test_what_may_be_a_value_is_masked(text: str, masked_text: str) -> None:
    assert masked(text) == masked_text


@pytest.mark.parametrize("part", ["'a\\", "it's ", "a", "a.-", '"', "'", "b'"])
def test_a_long_text_takes_no_long_time(part: str) -> None:
    began_s = time.monotonic()
    masked(part * 200_000)
    assert time.monotonic() - began_s < 20, "it must grow with the text, and not with its square"


def test_a_long_text_about_many_values_is_left_out_and_not_looked_through() -> None:
    row = pa.table({"items": [[f"item {i}" for i in range(50_000)]]})
    assert blotted("x" * 2_000_000, row) == LEFT_OUT
