"""Jobs of several fragments: nothing is lost, doubled or reordered, whatever goes wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.testing.simulation.faults import SPREAD_BRANCHES, STRENGTHS
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Corrected, PartLost, Rescaled
from support.playing import Player, Seeds

SEEDS = Seeds(first=1000, whole=150, few=24, cover=(1069, 1044, 1035, 1055, 1023))


@pytest.mark.timeout(0)  # as long as --seeds asks; a simulation ends by itself
def test_spread_jobs_hold(player: Player) -> None:
    played = player.play(SEEDS, [*STRENGTHS, *SPREAD_BRANCHES], spread=True)
    assert played.failed == []
    assert played.missing == []


def test_a_component_commits_while_the_worker_of_another_is_lost() -> None:
    ahead = 0
    for seed in range(8):
        outcome = run(seed, PartLost.SHAPE, PartLost())
        assert not outcome.error, outcome.explain()
        ahead += outcome.struck["ahead of the lost part"]
    assert ahead


TWO_LEVELS = replace(Corrected.SHAPE, spread=2)
HARD = Corrected(
    switch=0.1, twin_task=0.01, kill_task=0.01, kill_worker=0.003, kill_leader=0.02,
    pause_worker=0.004, kafka_unanswered=0.02, kafka_late=0.02, zookeeper_unknown=0.02,
)  # fmt: skip


@pytest.mark.drawn(2)
@pytest.mark.parametrize("where", ["source", "totals-0", "totals-2", "relay-1", "after"])
def test_code_that_raises_in_one_fragment_is_corrected(where: str) -> None:
    seen = 0
    for seed in range(6):
        outcome = run(seed, TWO_LEVELS, replace(HARD, where=where))
        assert not outcome.error, outcome.explain()
        seen += sum(
            outcome.struck[what]
            for what in ("tokens taken back", "epoch ended by another revision",
                         "only settings differ")
        )  # fmt: skip
    assert seen > 6


@pytest.mark.drawn(3)
@pytest.mark.parametrize("moment_s", [0.3, 0.9, 1.5])
@pytest.mark.parametrize("what", ["worker", "leader"])
def test_another_parallelism_is_another_cut(what: str, moment_s: float) -> None:
    outcome = run(1, replace(Rescaled.SHAPE, echoed=False, spread=2), Rescaled(what, moment_s))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["state redistributed"] >= 2 * sum(Rescaled.SIZES), outcome.explain()
