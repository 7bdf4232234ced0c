"""Pauses between attempts that fail."""

from __future__ import annotations

from perseid.clocks import growing_s


def test_pauses_double_up_to_the_longest_and_stay_there() -> None:
    assert [growing_s(n, 0.5, 3.0) for n in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert growing_s(1, 5.0, 2.0) == 2.0
    assert growing_s(100_000, 2.0, 60.0) == 60.0  # two months of attempts a minute apart
