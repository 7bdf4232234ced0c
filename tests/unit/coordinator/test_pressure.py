"""State that nears its limit makes epochs smaller; the input waits, and none of it is left out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perseid.coordinator import issue, pressure
from perseid.coordinator.job.positions import ranges_of
from perseid.topics.records import OperatorState
from support.coordinator import Leader, World, job_spec

JOB = "wordcount"
LIMIT = 1 << 20


@pytest.fixture
def limited(world: World) -> World:
    spec = job_spec()
    operator = spec.operators["counts"].model_copy(update={"memory_bytes": LIMIT})
    world.programs["archive-1"] = spec.model_copy(update={"operators": {"counts": operator}})
    return world


def sizes_of_epochs(world: World, leader: Leader, filled: list[float]) -> list[int]:
    """The records of the token that is issued after an epoch that left the state so full."""
    named = []
    for share in filled:
        world.states = (OperatorState("counts", int(share * LIMIT), 100),)
        world.work(JOB, 2)
        leader.listen()
        leader.poll()
        last = list(world.valid(JOB).values())[-1]
        named.append(sum(r.end - r.start for r in ranges_of(last)))
    return named


def test_epochs_shrink_from_four_fifths_of_the_limit_on_and_grow_again(
    limited: World, leader: Leader
) -> None:
    limited.produce(0, 200 * issue.SIZE_FIRST)
    leader.poll()
    free, half, least, again = sizes_of_epochs(limited, leader, [0.5, 0.9, 1.0, 0.6])
    assert free >= issue.SIZE_FIRST
    assert free / 2 * 0.9 <= half <= free
    assert least <= half / 20
    assert again >= free
    events = " ".join(leader.job().health.events)
    assert "backpressure: the state of counts fills 90% of its `memory:`" in events
    assert "backpressure has ended" in events
    assert events.count("backpressure") == 2


def test_no_offset_is_left_out_under_pressure(limited: World, leader: Leader) -> None:
    limited.produce(0, 3 * issue.SIZE_FIRST)
    leader.poll()
    sizes_of_epochs(limited, leader, [0.95] * 40)
    ranges = [r for t in limited.valid(JOB).values() for r in ranges_of(t) if r.partition == 0]
    assert ranges[0].start == 0
    assert all(a.end == b.start for a, b in pairwise(ranges))
    assert ranges[-1].end > 2 * issue.SIZE_FIRST


def test_an_operator_without_a_limit_is_not_held_back(world: World, leader: Leader) -> None:
    world.produce(0, 100 * issue.SIZE_FIRST)
    leader.poll()
    named = sizes_of_epochs(world, leader, [0.5, 50.0])
    assert min(named) >= issue.SIZE_FIRST
    assert leader.job().inputs.throttle_factor == 1.0


def test_the_fullest_of_several_operators_decides() -> None:
    spec = job_spec()
    two = {
        name: spec.operators["counts"].model_copy(update={"memory_bytes": limit})
        for name, limit in (("small", 100), ("large", 1000), ("free", None))
    }
    spec = spec.model_copy(update={"operators": two})
    states = [OperatorState(name, 95, 0) for name in ("large", "small", "free", "gone")]
    assert pressure._fullest(spec, states) == ("small", 0.95)
    assert pressure._fullest(spec, []) == ("", 0.0)
