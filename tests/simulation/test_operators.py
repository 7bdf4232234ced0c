"""Every library operator and every primitive of the state runs through the simulated failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid import state
from perseid.jobs.library.catalogue import NAMES
from perseid.state import Primitive
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.operators import CASES
from perseid.testing.simulation.scenario import drawn_operator, run
from perseid.testing.simulation.swarm import Swarm

SEEDS = range(400)
SHAPE = Shape(workers=2, hosts=2, totals=2, relays=0, period_s=1.0, retains=True)
FAULTS = Swarm(
    switch=0.02, kill_task=0.005, twin_task=0.003, kill_worker=0.003, erase_state=0.3, asks=True,
    rescales=True,
)  # fmt: skip


def test_cases_use_every_operator_and_primitive() -> None:
    used = {spec.use for case in CASES.values() for spec in case.specs(2).values()}
    kinds = {name: getattr(state, name) for name in state.__all__}
    primitives = {
        name for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, Primitive) and kind is not Primitive
    }  # fmt: skip
    wanted = {f"library:{name}" for name in NAMES} | {f"primitive:{name}" for name in primitives}
    assert used == wanted


@pytest.mark.parametrize("elsewhere", ["", "spread", "replicas"])
def test_some_hundred_seeds_draw_every_case(elsewhere: str) -> None:
    spread, replicas = elsewhere == "spread", elsewhere == "replicas"
    drawn = {drawn_operator(seed, spread=spread, replicas=replicas) for seed in SEEDS} - {""}
    fed_back = {name for name, case in CASES.items() if case.averaged}
    assert drawn == CASES.keys() - (fed_back if spread else set())


@pytest.mark.drawn(4)
@pytest.mark.parametrize("placed", ["alone", "spread", "replicas"])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_holds(name: str, placed: str) -> None:
    """Through kills, restores, checkpoints and another parallelism."""
    shape = SHAPE.drawing(name)
    if placed == "spread" and not CASES[name].averaged:
        shape = replace(shape, spread=2)
    shape = replace(shape, replicas=placed == "replicas")
    outcome = run(len(name), shape, FAULTS)
    assert not outcome.error, outcome.explain()
    assert outcome.struck[f"operator {name}"], outcome.explain()
