"""Jobs with replicas: nothing is lost or doubled, whichever worker dies in whichever role."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.testing.simulation.faults import REPLICA_BRANCHES, STRENGTHS
from perseid.testing.simulation.role_scripts import Diverging, DivergingAtDeath
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Corrected, Rescaled
from support.mutants import far_soon
from support.playing import Player, Seeds

SEEDS = Seeds(first=5000, whole=2000, few=24, cover=(5039, 5002, 5005, 5056, 5006))


@pytest.mark.timeout(0)  # as long as --seeds asks; a simulation ends by itself
def test_jobs_with_replicas_hold(player: Player) -> None:
    played = player.play(SEEDS, [*STRENGTHS, *REPLICA_BRANCHES], replicas=True)
    assert played.failed == []
    assert played.missing == []


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_makes_other_outputs_is_reported(seed: int) -> None:
    outcome = run(seed, Diverging.SHAPE, Diverging(switch=0.02))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["diverged"]


@pytest.mark.parametrize("seed", range(3))
def test_other_outputs_of_the_last_moments_are_found_when_a_replica_takes_over(seed: int) -> None:
    outcome = run(seed, DivergingAtDeath.SHAPE, DivergingAtDeath(switch=0.02))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["diverged at its promotion"]


def test_replicas_that_are_late_begin_again() -> None:
    began = 0
    for seed in range(6):
        outcome = far_soon(seed)
        assert not outcome.error, outcome.explain()
        began += outcome.struck["replica began again"]
    assert began


HARD = Corrected(
    switch=0.1, twin_task=0.01, kill_task=0.01, kill_worker=0.003, kill_leader=0.02,
    pause_worker=0.004, kafka_unanswered=0.02, kafka_late=0.02, zookeeper_unknown=0.02,
)  # fmt: skip


@pytest.mark.parametrize("where", ["source", "totals-0", "after"])
def test_code_that_raises_in_both_roles_is_corrected(where: str) -> None:
    ended = 0
    for seed in range(2):
        shape = replace(Corrected.SHAPE, workers=3, replicas=True)
        outcome = run(seed, shape, replace(HARD, where=where))
        assert not outcome.error, outcome.explain()
        ended += sum(
            outcome.struck[what]
            for what in ("tokens taken back", "epoch ended by another revision",
                         "only settings differ")
        )  # fmt: skip
    assert ended


@pytest.mark.parametrize("what", ["worker", "leader"])
def test_another_parallelism_has_a_replica_of_its_own(what: str) -> None:
    shape = replace(Rescaled.SHAPE, workers=3, replicas=True)
    outcome = run(1, shape, Rescaled(what, 0.9))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["replica placed again"] >= len(Rescaled.SIZES)
