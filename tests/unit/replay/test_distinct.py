"""The count of different things: exact up to its bound, near the truth above."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.replay.distinct import KEPT_MAX, Distinct


@given(st.lists(st.lists(st.none() | st.binary(max_size=2), max_size=40), max_size=20))
def test_few_things_are_counted_exactly(batches: list[list[bytes | None]]) -> None:
    counted = Distinct()
    for batch in batches:
        counted.add(pa.array(batch, pa.binary()))
    assert counted.count == len({t for batch in batches for t in batch if t is not None})


@pytest.mark.parametrize("number", [KEPT_MAX, KEPT_MAX + 1, 50_000, 400_000])
def test_many_things_are_estimated_in_any_order_and_with_repeats(number: int) -> None:
    counts = []
    for order in (range(number), reversed(range(number))):
        counted = Distinct()
        things = [b"%d" % i for i in order]
        for start in range(0, number, 30_000):
            part = pa.array(things[max(0, start - 5_000) : start + 30_000], pa.binary())
            counted.add(part)
            counted.add(part)
        counts.append(counted.count)
    assert counts[0] == counts[1]
    assert counts[0] == number if number <= KEPT_MAX else abs(counts[0] - number) < 0.05 * number
