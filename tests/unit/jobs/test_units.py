"""Times as users write them; durations and sizes are tested with job files."""

from __future__ import annotations

import pytest

from perseid.clocks import time_text
from perseid.jobs.model import units


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:01.5", 1500),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59Z", -1000),
    ],
)
def test_a_time_is_in_utc_unless_it_has_an_offset(text: str, expected_ms: int) -> None:
    assert units.time_ms(text) == expected_ms
    assert units.time_ms(time_text(expected_ms)) == expected_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+01:00", None])
def test_what_is_no_time_is_a_value_error(text: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        units.time_ms(text)


def test_milliseconds_beyond_the_calendar_are_shown_as_they_are() -> None:
    assert time_text(1_000) == "1970-01-01T00:00:01.000+00:00"
    assert time_text(10**18) == f"{10**18} ms"
