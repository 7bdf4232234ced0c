"""Jobs with replicas: nothing is lost or doubled, whichever worker dies in whichever role."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.testing.simulation.faults import REPLICA_BRANCHES
from perseid.testing.simulation.many import Tally, play
from perseid.testing.simulation.role_scripts import Diverging, DivergingAtDeath
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Corrected, Rescaled
from support.mutants import far_soon
from support.playing import shown

SEEDS, SEEDS_OF_MATRIX = 100, 2000
FIRST = 5000


def play_all(count: int, capsys: pytest.CaptureFixture[str]) -> Tally:
    outcomes = play(range(FIRST, FIRST + count), replicas=True)
    return shown(outcomes, Tally(branches=REPLICA_BRANCHES), capsys)


@pytest.mark.timeout(0)  # as long as --seeds asks; a simulation ends by itself
def test_jobs_with_replicas_hold(seeds: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    tally = play_all(seeds or SEEDS, capsys)
    assert not tally.failed, [outcome.seed for outcome in tally.failed]
    if tally.seeds >= SEEDS:
        assert not [name for name in REPLICA_BRANCHES if not tally.hit[name]]


@pytest.mark.matrix
@pytest.mark.timeout(0)
def test_many_jobs_with_replicas_hold(capsys: pytest.CaptureFixture[str]) -> None:
    tally = play_all(SEEDS_OF_MATRIX, capsys)
    assert not tally.failed, [outcome.seed for outcome in tally.failed]
    assert not tally.never_hit


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
