"""A revision that is applied with a gate: it runs when its results are the same, else never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.testing.simulation.role_scripts import Gated
from perseid.testing.simulation.scenario import run

HARD = Gated(
    switch=0.1, kill_task=0.01, kill_worker=0.004, kill_leader=0.02, pause_worker=0.004,
    kafka_unanswered=0.02, kafka_late=0.02, zookeeper_unknown=0.02,
)  # fmt: skip


@pytest.mark.drawn(4)
@pytest.mark.parametrize("replicas", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_revision_with_the_same_results_runs_at_last(seed: int, replicas: bool) -> None:
    shape = replace(Gated.SHAPE, workers=4 if replicas else 3, replicas=replicas)
    outcome = run(seed, shape, HARD)
    assert not outcome.error, outcome.explain()
    assert outcome.struck["gate placed"]
    assert outcome.struck["revision switched"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("spread", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_revision_with_approved_differences_runs_at_last(seed: int, spread: int) -> None:
    shape = replace(Gated.SHAPE, workers=2 + spread, spread=spread)
    outcome = run(seed, shape, replace(HARD, revised=True, approves="total"))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["differences approved"]
    assert outcome.struck["revision switched"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("approves", ["", "key"])
@pytest.mark.parametrize("seed", range(4))
def test_a_job_of_several_fragments_is_compared_as_one(seed: int, approves: str) -> None:
    shape = replace(Gated.SHAPE, workers=4, spread=2)
    outcome = run(seed, shape, replace(HARD, revised=bool(approves), approves=approves))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["several fragments"]
    assert outcome.struck["gate placed"]
    assert bool(outcome.struck["revision switched"]) is not bool(approves)


@pytest.mark.parametrize("seed", range(4))
def test_other_differences_than_the_approved_ones_refuse_a_revision(seed: int) -> None:
    outcome = run(seed, Gated.SHAPE, replace(HARD, revised=True, approves="key"))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["differences approved"]
    assert outcome.struck["gate refused"]
    assert not outcome.struck["revision switched"]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("replicas", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_revision_with_other_results_is_refused(seed: int, replicas: bool) -> None:
    shape = replace(Gated.SHAPE, workers=4 if replicas else 3, replicas=replicas)
    outcome = run(seed, shape, replace(HARD, revised=True))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["gate refused"]
    assert not outcome.struck["revision switched"]
