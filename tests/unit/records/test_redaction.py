"""What messages quote of records: nothing that is in them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from perseid.records.redaction import blotted, redacted


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array(["hidden"]), "string of 6 characters"),
        (pa.array([b"hid"]), "binary of 3 bytes"),
        (pa.array([4711]), "int64"),
        (pa.array([-math.inf]), "-inf"),
        (pa.array([None], pa.int64()), "null"),
        (pa.array([[1, 2]]), "list<item: int64>"),
    ],
)
@pytest.mark.security("5.15")
def test_a_sample_does_not_show_what_is_in_it(column: pa.Array, shown: str) -> None:
    assert redacted(pa.table({"c": column})) == f"{{c: {shown}}}"


@pytest.mark.parametrize(
    ("value", "text", "shown"),
    [
        ("ann", "KeyError: 'ann'", "KeyError: '<c>'"),
        ("ann", "banned: ann.", "banned: <c>."),
        ("a\tb", r"no 'a\tb' here", "no '<c>' here"),
        (b"\x00hid", r"found b'\x00hid'", "found b'<c>'"),
        (-17, "found -17, expected 1 to 170", "found <c>, expected 1 to 170"),
        (0.25, "0.25 is odd, 10.25 is not", "<c> is odd, 10.25 is not"),
        ({"names": ["ann", "bob"]}, "bob or ann", "<c> or <c>"),
        ("a", "a(b", "<c>(b"),
        (None, "None of it", "None of it"),
        ("", "nothing", "nothing"),
    ],
)
@pytest.mark.security("5.15")
def test_the_values_of_a_row_are_blotted_out(value: Any, text: str, shown: str) -> None:
    assert blotted(text, pa.table({"c": [value]})) == shown


def test_the_longer_of_two_values_is_taken() -> None:
    row = pa.table({"first": ["ann"], "mail": ["ann@x.org"]})
    assert blotted("ann@x.org, for ann", row) == "<mail>, for <first>"
