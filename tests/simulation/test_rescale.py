"""1 -> 3 -> 2 partitions, and a worker or the leader dies at some moment of each."""

from __future__ import annotations

from functools import partial

import pytest

from perseid.testing.simulation import job
from perseid.testing.simulation.engine import Simulation
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import Script, run
from perseid.testing.simulation.world import World

SHAPE = Shape(workers=2, hosts=2, totals=1, relays=1, sink_on_totals=True, echoed=True)
STEPS_S = (4.0, 12.0)  # when the user applies
SIZES = (3, 2)
# A switch takes about one second; then the new layout is restored.
MOMENTS_S = [round(0.15 * n, 2) for n in range(1, 11)]


def rescaled(what: str, moment_s: float, seen: dict[str, object]) -> Script:
    """Applies both, and kills `what` a moment behind each of them."""

    def kill(simulation: Simulation, world: World) -> None:
        plan, leader = world.registry.plan(job.JOB), world.registry.leader()
        name = plan.owner if what == "worker" and plan is not None else leader and leader.id
        simulation.say(f"KILLED {name}")
        simulation.kill_named(name or "")

    def look(world: World) -> None:
        plan = world.registry.plan(job.JOB)
        assert plan is not None
        seen.update(layout=plan.layout, archive=plan.archive)

    def script(simulation: Simulation, world: World) -> None:
        for at_s, size in zip(STEPS_S, SIZES, strict=True):
            simulation.after(at_s, partial(world.rescale, size, size))
            if what:
                simulation.after(at_s + moment_s, lambda: kill(simulation, world))
        simulation.after(SHAPE.input_s, lambda: look(world))

    return script


@pytest.mark.parametrize("moment_s", MOMENTS_S)
@pytest.mark.parametrize("what", ["worker", "leader"])
def test_a_kill_at_any_moment_of_a_rescale_is_survived(what: str, moment_s: float) -> None:
    seen: dict[str, object] = {}
    outcome = run(1, SHAPE, rescaled(what, moment_s, seen))
    assert not outcome.error, outcome.explain()
    assert seen == {"layout": 3, "archive": "archive-3"}
    assert outcome.struck["state dealt out anew"] >= 2 * sum(SIZES)
    assert outcome.struck["restored from scratch"] == 2


def test_without_a_kill_each_layout_is_restored_once() -> None:
    seen: dict[str, object] = {}
    outcome = run(2, SHAPE, rescaled("", 0.0, seen))
    assert not outcome.error, outcome.explain()
    assert outcome.struck["state dealt out anew"] == 2 * sum(SIZES)
    told = [line for line in outcome.lines if ": plan " in line]
    assert len(told) == 3, told
