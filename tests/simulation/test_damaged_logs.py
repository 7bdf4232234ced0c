"""State logs that are damaged under a running job: a restore mends it, and nothing is lost."""

from __future__ import annotations

import pytest

from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import DamagedLogs


@pytest.mark.parametrize("seed", range(1, 7))
def test_damage_that_an_epoch_meets_is_mended_by_a_restore(seed: int) -> None:
    outcome = run(seed, DamagedLogs.SHAPE, DamagedLogs())
    assert not outcome.error, outcome.explain()
    met = [line for line in outcome.lines if "; it has to be restored" in line]
    assert met, outcome.explain()
    assert outcome.struck["damage found"], outcome.explain()
    assert outcome.struck["restored from checkpoint"], outcome.explain()
