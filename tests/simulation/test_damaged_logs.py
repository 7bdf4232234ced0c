"""State logs that are damaged under a running job: a restore mends it, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from perseid.state.durability.outputs import OUTPUTS
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import Outcome, run
from perseid.testing.simulation.scripts import DamagedLogs

SEEDS = range(1, 13)
MET = "; it has to be restored"


def played(script: DamagedLogs, shape: Shape) -> list[Outcome]:
    found = [run(seed, shape, script) for seed in SEEDS]
    for outcome in found:
        assert not outcome.error, outcome.explain()
    return found


def met(found: list[Outcome]) -> Counter[str]:
    """In how many histories each thing was."""
    seen = Counter(name for outcome in found for name in outcome.struck)
    seen["damage met"] = sum(any(MET in line for line in outcome.lines) for outcome in found)
    return seen


@pytest.mark.parametrize("echoed", [False, True])
def test_damage_that_an_epoch_meets_is_mended_by_a_restore(echoed: bool) -> None:
    """By a process that has just begun, or by rows that are fed back out of the log."""
    found = met(played(DamagedLogs(), replace(DamagedLogs.SHAPE, echoed=echoed)))
    assert found["damage met"] >= 2
    assert found["damage found"] >= 2
    assert found["restored from checkpoint"] >= 2


def test_damaged_outputs_cost_no_checkpoint() -> None:
    """The state is in the deltas: a log whose outputs are needed again goes back by itself."""
    shape = replace(DamagedLogs.SHAPE, echoed=False, retains=True)
    found = met(played(DamagedLogs(kind=OUTPUTS, kills=True), shape))
    assert found["damage found"] >= len(SEEDS) // 2
    assert not found["restored from checkpoint"]


def test_damage_that_only_a_checkpoint_meets_is_mended_too() -> None:
    """No process dies, so all have the state. No checkpoint was complete any more."""
    shape = replace(DamagedLogs.SHAPE, echoed=False, period_s=9.0)
    found = [
        outcome
        for outcome in played(DamagedLogs(kill_task=0.0, spared=2), shape)
        if outcome.struck["part failed"]
    ]
    assert len(found) >= len(SEEDS) // 2
    for outcome in found:
        assert outcome.struck["damage found"], outcome.explain()
