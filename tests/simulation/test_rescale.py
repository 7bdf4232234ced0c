"""1 -> 3 -> 2 partitions, and a worker or the leader dies at some moment of each."""

from __future__ import annotations

import pytest

from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Rescaled

SHAPE, SIZES = Rescaled.SHAPE, Rescaled.SIZES
# A switch takes about one second; then the new layout is restored.
MOMENTS_S = [round(0.15 * n, 2) for n in range(1, 11)]


@pytest.mark.drawn(8)
@pytest.mark.parametrize("moment_s", MOMENTS_S)
@pytest.mark.parametrize("what", ["worker", "leader"])
def test_a_kill_at_any_moment_of_a_rescale_is_survived(what: str, moment_s: float) -> None:
    outcome = run(1, SHAPE, Rescaled(what, moment_s))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["state redistributed"] >= 2 * sum(SIZES), outcome.explain()
    assert outcome.struck["restored from scratch"] == 2, outcome.explain()


def test_without_a_kill_each_layout_is_restored_once() -> None:
    outcome = run(2, SHAPE, Rescaled())
    assert not outcome.error, outcome.explain()
    assert outcome.struck["state redistributed"] == 2 * sum(SIZES), outcome.explain()
    reported = [line for line in outcome.lines if ": plan " in line]
    assert len(reported) == 3, outcome.explain()
