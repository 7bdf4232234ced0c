from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.clocks import ManualClock
from perseid.coordinator.api.limits import Rate, RateLimit

WAITS = st.lists(st.floats(0, 5), min_size=1, max_size=60)


@pytest.mark.security("5.6", "5.12")
def test_a_burst_and_then_the_rate() -> None:
    clock = ManualClock()
    limit = RateLimit(clock.monotonic_s, Rate(per_s=2, burst=3))
    assert [limit.wait_s("ann") for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.wait_s("bob") == 0  # has a bucket of his own
    clock.sleep(0.5)
    assert [limit.wait_s("ann") for _ in range(2)] == [0, pytest.approx(0.5)]


@given(WAITS, st.floats(0.1, 20), st.floats(1, 10))
@pytest.mark.security("5.6", "5.12")
def test_never_more_than_burst_and_rate_allow(
    waits: list[float], per_s: float, burst: float
) -> None:
    """In any stretch of time, and who waits as long as it was asked to gets through."""
    clock = ManualClock()
    limit = RateLimit(clock.monotonic_s, Rate(per_s, burst))
    served: list[float] = []
    for wait in waits:
        clock.sleep(wait)
        reported_s = limit.wait_s("ann")
        if reported_s > 0:
            clock.sleep(reported_s + 1e-9)
            assert limit.wait_s("ann") == 0
        served.append(clock.monotonic_s())
    for i, first_s in enumerate(served):
        for j in range(i, len(served)):
            assert j - i + 1 <= burst + (served[j] - first_s) * per_s + 1e-6


def test_a_clock_that_goes_back_gives_nothing() -> None:
    rate = Rate(per_s=1, burst=1)
    empty, _ = rate.taken(rate.full(10.0), 10.0)
    assert rate.taken(empty, 5.0)[1] == 1.0
