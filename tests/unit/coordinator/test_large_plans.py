"""What the leader's decisions cost in a plan of 10,000 operator partitions.

A checkpoint takes a report of each part, so the decision on one must not grow with the plan; those
on the begin and on the end of an epoch may, in proportion. A plan of 1,000 operator partitions is
measured in turn, in processor time, so the speed of the machine does not count.
"""

from __future__ import annotations

import time
from functools import cache

import pytest

from perseid.coordinator import events as ev
from perseid.coordinator.core import decide
from perseid.coordinator.decision_log.lines import Decided
from perseid.jobs.model.spec import OperatorSpec
from perseid.topics.records import EpochDone, PartDone, ProgressRecord
from support.coordinator import Leader
from support.spread_job import JOB, SpreadWorld, spread_spec, spread_world

SMALL, LARGE = 1_000, 10_000
WORKERS = 5
FACTOR_MAX = 3.0  # of what may be; 9.5 when the begin was quadratic, and a part's report linear
REPEATS = 5
ENOUGH_S = 0.02  # of processor time: what is shorter is repeated, and so measured


def world_of(partitions: int) -> SpreadWorld:
    """A job of two operators with half of the partitions each, spread over all workers."""
    world = spread_world(WORKERS)
    operators = {
        name: OperatorSpec(
            inputs={"in": source}, use="m:X", key=("value",), parallelism=partitions // 2
        )
        for name, source in (("a1", "a"), ("b1", "b"))
    }
    sinks = {name: sink for name, sink in spread_spec().sinks.items() if name == "b1"}
    spec = spread_spec(WORKERS, operators=operators, sinks=sinks)
    world.programs = {"archive-1": spec}
    return world


@cache
def decisions(partitions: int) -> dict[str, Decided]:
    """The decisions that are measured, as a leader made them: by name."""
    world = world_of(partitions)
    Leader(world).look()
    leader = Leader(world)
    leader.look()
    world.restore()
    leader.listen()
    world.time_s += 60  # a checkpoint is due
    for topic, partition in list(world.ends):
        world.produce(partition, 10, topic)
    leader.poll()
    world.run()
    records = world.progress[JOB]
    parts = [record for record in records if isinstance(record, PartDone)]
    ends = [record for record in records if isinstance(record, EpochDone)]
    assert (len(parts), len(ends)) == (partitions, WORKERS)
    seen: list[ProgressRecord] = [parts[0], *ends]
    for record in seen:
        leader.feed(ev.ProgressSeen(JOB, record))
    (begin,) = (one for one in leader.decided if isinstance(one.event, ev.JobLoaded))
    made = [one for one in leader.decided if isinstance(one.event, ev.ProgressSeen)]
    part, *_, end = made[-len(seen) :]
    return {"begin": begin, "end": end, "part": part}


def cost_s(decided: Decided) -> float:
    """Processor time of one such decision: the best of several."""

    def took_s(times: int) -> float:
        begun_s = time.process_time()
        for _ in range(times):
            decide(decided.before, decided.event, decided.now)
        return time.process_time() - begun_s

    times = 1
    while took_s(times) < ENOUGH_S:
        times *= 4
    return min(took_s(times) for _ in range(REPEATS)) / times


@pytest.mark.parametrize(
    ("what", "growth"), [("begin", LARGE / SMALL), ("end", LARGE / SMALL), ("part", 1)]
)
def test_decisions_cost_no_more_in_a_large_plan(what: str, growth: float) -> None:
    small, large = (cost_s(decisions(partitions)[what]) for partitions in (SMALL, LARGE))
    shown = f"{large * 1000:.3f} ms; {small * 1000:.3f} ms with {SMALL} operator partitions"
    assert large <= FACTOR_MAX * growth * small, shown
