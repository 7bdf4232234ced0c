"""Jobs with replicas: nothing is lost or doubled, whichever worker dies in whichever role."""

from __future__ import annotations

import pytest

from perseid.testing.simulation.faults import REPLICA_BRANCHES
from perseid.testing.simulation.many import Tally, play
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Diverging

SEEDS, SEEDS_OF_MATRIX = 100, 2000
FIRST = 5000
FAILED_SHOWN = 3


def play_all(count: int, capsys: pytest.CaptureFixture[str]) -> Tally:
    tally = Tally(branches=REPLICA_BRANCHES)
    for outcome in play(range(FIRST, FIRST + count), replicas=True):
        tally.take(outcome)
        if outcome.error:
            with capsys.disabled():
                print(f"\n{outcome.explain()}", flush=True)
        if len(tally.failed) == FAILED_SHOWN:
            break
    with capsys.disabled():
        print(f"\n{tally.table()}")
    return tally


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
