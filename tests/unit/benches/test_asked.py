"""Options of `perseid bench` as text; what is none is refused by the option's name."""

from __future__ import annotations

import pytest

from benches.asked import parse_numbers, parse_size, parse_sizes
from perseid.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"), [("100MB", 100_000_000), ("64MiB", 64 << 20), ("1.5 GB", 1_500_000_000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("--state", text) == size


@pytest.mark.parametrize("text", ["100", "MB", "100mb", "-1MB", ""])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=f"--state {text}: .*100MB"):
        parse_size("--state", text)


@pytest.mark.parametrize(
    ("text", "sizes", "timed"),
    [
        ("10MB,1kB,10MB", (10_000_000, 1000), False),
        ("tmi", (), True),
        ("1kB,tmi", (1000,), True),
        (None, None, True),
    ],
)
def test_sizes_of_checkpoint_may_name_the_tmi_job(
    text: str | None, sizes: tuple[int, ...] | None, timed: bool
) -> None:
    assert parse_sizes("--sizes", text, may_be_timed=True) == (sizes, timed)


@pytest.mark.parametrize("text", ["", "tmi", "1kB,", "1kB,tmi"])
def test_sizes_of_others_may_not(text: str) -> None:
    with pytest.raises(UsageError, match="--sizes"):
        parse_sizes("--sizes", text, may_be_timed=False)


@pytest.mark.parametrize("text", ["", "0", "a", "10,,", "1.5"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--keys {text}"):
        parse_numbers("--keys", text)


def test_numbers_come_in_order() -> None:
    assert parse_numbers("--jobs", "20,1,5,5") == (1, 5, 20)
    assert parse_numbers("--jobs", None) is None
