"""Code that raises or kills its process, and its correction: the epoch is taken back, or ended."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Corrected

SHAPE = Corrected.SHAPE
TAKEN_BACK, ENDED = "tokens taken back", "epoch ended by another revision"
CONTINUED = "only settings differ"
BETWEEN = ["limit", "after"]  # two epochs
WHERE = ["source", "totals-0", "totals-2", "relay-1"]
STILL: dict[str, Any] = {"switch": 0.3, "twin_task": 0.05, "pause_worker": 0.02}
HARD: dict[str, Any] = {
    "switch": 0.1, "twin_task": 0.01, "kill_task": 0.01, "kill_worker": 0.003, "kill_leader": 0.02,
    "pause_worker": 0.004, "kafka_unanswered": 0.02, "kafka_late": 0.02, "zookeeper_unknown": 0.02,
}  # fmt: skip
DYING: dict[str, Any] = {**STILL, "dies": True}


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_committed_nowhere_is_taken_back(dies: bool) -> None:
    outcome = run(0, SHAPE, Corrected(where="source", dies=dies))
    assert not outcome.error, outcome.explain()
    assert outcome.struck[TAKEN_BACK] == len(Corrected.TIMES_S), outcome.explain()
    assert not outcome.struck[ENDED], outcome.explain()


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_committed_in_part_is_ended(dies: bool) -> None:
    """The first level has a sink: it has committed what the second one raises at."""
    outcome = run(1, SHAPE, Corrected(where="relay-0", dies=dies))
    assert not outcome.error, outcome.explain()
    assert outcome.struck[ENDED] == len(Corrected.TIMES_S), outcome.explain()
    assert not outcome.struck[TAKEN_BACK], outcome.explain()


@pytest.mark.parametrize("where", BETWEEN)
def test_what_stops_between_two_epochs_is_corrected_at_once(where: str) -> None:
    """Also where the old revision cannot run the epoch that would keep its state for another."""
    outcome = run(2, SHAPE, Corrected(where=where))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["failed, to be corrected"] >= len(Corrected.TIMES_S), outcome.explain()
    assert outcome.struck[CONTINUED], outcome.explain()


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("where", "faults"), [
    *((where, faults) for where in WHERE for faults in (STILL, HARD, DYING)),
    *((where, faults) for where in BETWEEN for faults in (STILL, HARD)),
])  # fmt: skip
def test_under_faults_nothing_is_lost_or_doubled(where: str, faults: dict[str, Any]) -> None:
    seen = 0
    for seed in range(12):
        outcome = run(seed, SHAPE, Corrected(**faults, where=where))
        assert not outcome.error, outcome.explain()
        seen += sum(outcome.struck[what] for what in (TAKEN_BACK, ENDED, CONTINUED))
    assert seen > 12
