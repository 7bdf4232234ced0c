"""What cannot be is refused by every planner with an error that names it; nothing is let pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from benches.branch_and_bound import branch_and_bound
from benches.random_queries import DrawnQueries
from perseid.coordinator.planners import checks, delta_timing, recovery
from perseid.coordinator.planners.adaptation import adapt
from perseid.coordinator.planners.backups import Backups
from perseid.coordinator.planners.best_density import best_density
from perseid.coordinator.planners.checkpoint_timing import (
    FirstMinimum,
    Profile,
    Stopping,
    fixed,
    periods,
)
from perseid.coordinator.planners.delta_stopping import DeltaStopping
from perseid.coordinator.planners.delta_timing import Changes
from perseid.coordinator.planners.error_bounds import (
    count_min_margin,
    for_count_min,
    for_ripple_join,
    ripple_join_growth,
)
from perseid.coordinator.planners.failure_detector import (
    Heartbeats,
    Hint,
    Limits,
    Verdict,
    judge,
    suspicion,
)
from perseid.coordinator.planners.fidelity import fidelities
from perseid.coordinator.planners.graph import RATE_MAX, Node, Stream, TopologyError
from perseid.coordinator.planners.live_timing import Timing
from perseid.coordinator.planners.mttf import mean_time_to_failure_s
from perseid.coordinator.planners.random_sizes import draw_changes, draw_sizes
from perseid.coordinator.planners.random_topology import Drawn, substreams
from perseid.coordinator.planners.recovery import Partition, Query, RecoveryProblem
from perseid.coordinator.planners.recovery_capacity import Worker, free_cores, place
from perseid.coordinator.planners.recovery_schedule import Recovery
from perseid.coordinator.planners.replication import greedy, optimal, plan_of
from perseid.coordinator.planners.state_sizes import Point, Sizes, turning_points
from perseid.coordinator.planners.structure_aware import structure_aware
from perseid.coordinator.planners.thresholds import (
    RECORDS_MAX,
    Bounds,
    Share,
    Thresholds,
    compensation,
    failures_that_count,
    records_before_backup,
    thresholds,
)
from perseid.coordinator.planners.topology import Topology
from perseid.errors import BadInputError, PermanentError, UsageError

NAN, INF = math.nan, math.inf
HUGE = 10**400  # more than a float holds
BOUNDS = Bounds(8.0, 4, 4)
BEATS = Heartbeats(10.0, (1.0, 1.2))
SIZES = Sizes({"a": [Point(float(t), float(t % 3)) for t in range(9)]})
CHANGES = Changes(SIZES, {"a": [Point(0.0, 0.0), Point(8.0, 16.0)]})
PROFILE = Profile(4.0, ((Point(1.0, 5.0),),), (9.0,))
PAIRS = ((0, 0, 1.0), (1, 1, 3.0))
TOPOLOGY = Topology(
    [Node("a", 2), Node("b", 2, output_rates=(1.0, 3.0))], [Stream("a", "b", PAIRS)]
)
P1, P2 = Partition("p1", 0.5), Partition("p2", 0.5)
Q1 = Query("q1", 3, ("p1",))


def topology_with(rates: tuple[float, ...], rows: tuple[tuple[int, int, float], ...]) -> Topology:
    return Topology([Node("a", 2), Node("b", 2, output_rates=rates)], [Stream("a", "b", rows)])


def mttf(replicas: dict[tuple[str, int], str], mttf_s: float = 1e6, mttr_s: float = 10.0) -> float:
    return mean_time_to_failure_s({("a", 0): "w1", ("a", 1): "w2"}, replicas, mttf_s, mttr_s)


def problem(*partitions: Partition, query: Query = Q1, free: float = 1.0) -> RecoveryProblem:
    return RecoveryProblem(partitions, [query], ["p1"], free)


Wrong = tuple[Callable[[], Any], type[PermanentError], str]

OF_THRESHOLDS: list[Wrong] = [
    (lambda: Bounds(HUGE, 1, 1), UsageError, "theta is a number of 1329 bits: 0 or more"),
    (lambda: Bounds(1.0, HUGE, 1), UsageError, "l is a number of 1329 bits"),
    (lambda: Bounds(1.0, 1, -1), UsageError, "gamma is -1: a whole number, 0 or more"),
    (lambda: Share(copies=0), UsageError, "copies is 0: a whole number, 1 or more"),
    (lambda: Share(stages=0), UsageError, "stages is 0"),
    (lambda: Share(stages=HUGE), UsageError, "stages is a number of 1329 bits"),
    (lambda: Share(beta=NAN), UsageError, "beta is nan: a finite number"),
    (lambda: thresholds(BOUNDS, 0, window="daily"), UsageError, "window is 'daily': one of none"),  # type: ignore[arg-type]
    (lambda: thresholds(BOUNDS, HUGE), UsageError, "failures is a number of 1329 bits"),
    (
        lambda: failures_that_count([1.0], 2.0, "daily", 1.0),  # type: ignore[arg-type]
        UsageError, "window is 'daily'",
    ),
    (
        lambda: failures_that_count([1.0, NAN], 2.0, "sliding", 1.0),
        UsageError, "time of a failure is nan s",
    ),
    (lambda: failures_that_count([], NAN, "hopping", 1.0), UsageError, "now is nan s"),
    (lambda: failures_that_count([], 1.0, "hopping", 0.0), UsageError, "length is 0.0 s: more"),
    (lambda: records_before_backup(NAN, 0.0, 1.0), UsageError, "theta is nan: 0 or more"),
    (lambda: records_before_backup(INF, 0.0, 1.0), UsageError, "theta is inf"),
    (lambda: records_before_backup(1.0, NAN, 1.0), UsageError, "the divergence is nan"),
    (lambda: records_before_backup(1.0, -1.0, 1.0), UsageError, "the divergence is -1.0"),
    (lambda: records_before_backup(1.0, 0.0, 0.0), UsageError, "alpha is 0.0: more than 0"),
    (lambda: compensation(BOUNDS, -3, 1.0), UsageError, "failures is -3"),
    (lambda: compensation(BOUNDS, 1, NAN), UsageError, "alpha is nan"),
    (lambda: compensation(Bounds(1.0, 10**300, 0), 1, 1e300), UsageError, "alpha is inf: a finite"),
    (lambda: Backups(NAN, 1.0), UsageError, "theta is nan"),
    (lambda: Backups(1.0, 0.0), UsageError, "alpha is 0.0"),
    (lambda: Backups(1.0, 1.0, since_durable=-1.0), UsageError, "the divergence is -1.0"),
    (lambda: Backups(1.0, 1.0, at_issue=5.0), UsageError, "at issue is 5.0: 0 to 0"),
    (lambda: Backups(1.0, 1.0).applied(NAN), PermanentError, "added a divergence of nan"),
    (lambda: for_count_min(0.1, 1e308, 1e-10), UsageError, "threshold / alpha is inf"),
    (lambda: for_count_min(NAN, 1.0, 1.0), UsageError, "an error of nan"),
    (lambda: for_ripple_join(0.1, HUGE, 1.0), UsageError, "sampled is a number of 1329 bits"),
    (lambda: for_ripple_join(0.1, 10**9, 1e-310), UsageError, "sampled / beta is inf"),
    (lambda: count_min_margin(BOUNDS, NAN, 1.0, 1.0), UsageError, "epsilon is nan: 0 to 1"),
    (lambda: count_min_margin(BOUNDS, 0.5, -1.0, 1.0), UsageError, "threshold is -1.0"),
    (lambda: ripple_join_growth(BOUNDS, 100, NAN), UsageError, "beta is nan"),
]  # fmt: skip

OF_FAILURES: list[Wrong] = [
    (lambda: Heartbeats(NAN), UsageError, "time of the last heartbeat is nan s"),
    (lambda: Heartbeats(1.0, (NAN,)), UsageError, "an interval of heartbeats is nan s: more than"),
    (lambda: Heartbeats(1.0, (1.0, 0.0)), UsageError, "an interval of heartbeats is 0.0 s"),
    (lambda: Heartbeats(1.0, (1e300,)), UsageError, r"is 1e\+300 s: 0 to 1e\+12"),
    (lambda: BEATS.then(NAN), UsageError, "time of a heartbeat is nan s"),
    (lambda: suspicion(BEATS, NAN), UsageError, "now is nan s"),
    (lambda: suspicion(Heartbeats(1.0), 2.0, first_s=0.0), UsageError, "first interval is 0.0 s"),
    (lambda: judge(BEATS, Hint.ALIVE, INF), UsageError, "now is inf s"),
    (lambda: Limits(suspect=NAN), UsageError, "the suspicion of a suspect is nan"),
    (lambda: Limits(suspect=9.0), UsageError, "suspected from 9.0, failed from 8.0"),
    (lambda: Limits(silent_s=0.0), UsageError, "the limit of silence is 0.0 s"),
    (lambda: mttf({("b", 0): "w2"}), BadInputError, r"replica of b\[0\] on w2 has no primary"),
    (lambda: mttf({("a", 0): "w1"}), BadInputError, r"a\[0\] has its primary and its"),
    (lambda: mttf({}, NAN), UsageError, "a worker's MTTF is nan s"),
    (lambda: mttf({}, 10.0, 10.0), UsageError, "MTTR is 10.0: less than its MTTF, 10.0"),
]  # fmt: skip

OF_TOPOLOGIES: list[Wrong] = [
    (lambda: adapt(TOPOLOGY, [], 2, 1, gain_min=NAN), UsageError, "must bring is nan: 0 to 1"),
    (lambda: adapt(TOPOLOGY, [], 2, 1, gain_min=-0.1), UsageError, "must bring is -0.1"),
    (lambda: adapt(TOPOLOGY, [("c", 0)], 2, 1), TopologyError, "no operator c"),
    (
        lambda: topology_with((1e308, 1e308), PAIRS),
        TopologyError, r"b\[0\] has output rate 1e\+308: 0 to 1e\+18 records/s",
    ),
    (lambda: topology_with((1.0, HUGE), PAIRS), TopologyError, r"b\[1\] has output rate a number"),
    (
        lambda: topology_with((1.0, 1.0), ((0, 0, 1e308), (1, 1, 1.0))),
        TopologyError, r"stream a -> b, substream \[0, 0, 1e\+308\]: the rate must be 0 to 1e\+18",
    ),
    (lambda: Topology([Node("a", 10**9)], []), TopologyError, "1000000000 partitions together"),
    (lambda: Topology([Node("a", 1.5)], []), TopologyError, "a: parallelism 1.5"),  # type: ignore[arg-type]
    (lambda: TOPOLOGY.slice("c"), TopologyError, "no operator c"),
    (lambda: TOPOLOGY.inputs("c"), TopologyError, "no operator c"),
    (lambda: TOPOLOGY.number("a", -1), TopologyError, "partitions 0 to 1, not -1"),
    (lambda: TOPOLOGY.name_of(4), TopologyError, "4 partitions, and no number 4"),
    (lambda: TOPOLOGY.name_of(-1), TopologyError, "4 partitions, and no number -1"),
    (lambda: TOPOLOGY.mask([0, -1]), TopologyError, "4 partitions, and no number -1"),
    (lambda: plan_of(TOPOLOGY, [9]), TopologyError, "4 partitions, and no number 9"),
    (lambda: fidelities(TOPOLOGY, np.ones(3, dtype=bool)), TopologyError, r"shape \(3,\)"),
    (lambda: substreams("full", [1.0], [0.0]), TopologyError, "share is 0.0: more than 0"),
    (lambda: Drawn(joins=7), UsageError, "joins is 7: 0 to 1"),
    (lambda: Drawn(operators=(0, 3)), UsageError, "the least of operators is 0"),
    (lambda: Drawn(parallelism=(3, 2)), UsageError, "the most of parallelism is 2"),
    (lambda: Drawn(skew=1000.0), UsageError, "skew is 1000.0: 0 to 20"),
    (lambda: Drawn(rate=NAN), UsageError, "rate is nan"),
    (lambda: Drawn(selectivity=-1.0), UsageError, "selectivity is -1.0"),
    (lambda: Drawn(structure="flat"), UsageError, "structure is 'flat'"),  # type: ignore[arg-type]
    *(
        (lambda planner=planner: planner(TOPOLOGY, NAN), UsageError, "a budget of nan")
        for planner in (greedy, optimal, branch_and_bound, structure_aware)
    ),
]  # fmt: skip

OF_RECOVERIES: list[Wrong] = [
    (lambda: problem(Partition("p1", 1e300)), BadInputError, r"partition p1 costs 1e\+300"),
    (lambda: problem(Partition("p1", NAN)), BadInputError, "partition p1 costs nan"),
    (
        lambda: problem(P1, query=Query("q1", 2**62, ("p1",))),
        BadInputError, "query q1 has priority 4611686018427387904",
    ),
    (lambda: problem(P1, free=HUGE), BadInputError, "free is a number of 1329 bits cores"),
    (
        lambda: problem(Partition("p1", 1.0, ("p2",)), Partition("p2", 1.0, ("p1",))),
        BadInputError, "read each other: p1 -> p2 -> p1; leave out",
    ),
    (lambda: best_density(problem(P1), seed_queries=-1), UsageError, "seed_queries is -1"),
    (lambda: free_cores([Worker("w", 1.0)] * 2, {}), BadInputError, "worker w is there twice"),
    (lambda: free_cores([], {"w": NAN}), BadInputError, "recovered cores of worker w is nan"),
    (lambda: place({"p1": NAN}, {}), BadInputError, "the cost of partition p1 is nan"),
    (lambda: place({}, {"w": -1.0}), BadInputError, "free cores of worker w is -1.0"),
    (
        lambda: Recovery(frozenset({"p1"}), {"p9": "w"}).planned([P1], [Q1], [Worker("w", 1.0)]),
        BadInputError, "recovered partition p9 is not there",
    ),
    (lambda: DrawnQueries(queries=0), UsageError, "queries is 0"),
    (lambda: DrawnQueries(share_max=0), UsageError, "share_max is 0"),
    (lambda: DrawnQueries(skew=NAN), UsageError, "skew is nan"),
    (lambda: DrawnQueries(free=INF), UsageError, "free is inf"),
    (lambda: DrawnQueries(priority="none"), UsageError, "priority is 'none'"),  # type: ignore[arg-type]
]  # fmt: skip

OF_SIZES: list[Wrong] = [
    (lambda: Sizes({"a": [Point(0.0, 0.0), Point(1.0, 1e300)]}), BadInputError, "a at 1.0 s: 1e"),
    (lambda: Sizes({"a": [Point(0.0, 0.0), Point(INF, 1.0)]}), BadInputError, "a at inf s"),
    (
        lambda: Sizes({"a": [Point(0.0, 0.0), Point(5e-324, 1e9)]}),
        BadInputError, "operator a: 0.0 bytes at 0.0 s and 1000000000.0 at 5e-324 s: too close",
    ),
    (lambda: SIZES.of(["b"]), BadInputError, "no sizes of operator b"),
    (lambda: SIZES.at([NAN]), UsageError, "finite seconds"),
    (lambda: turning_points([]), BadInputError, "0 sizes have no turning points"),
    (lambda: periods(SIZES, NAN), UsageError, "the period is nan s"),
    (lambda: periods(SIZES, 1e-300), UsageError, "at most 1000000 periods, so a longer one"),
    (lambda: fixed(SIZES, INF), UsageError, "the period is inf s"),
    (lambda: Profile(4.0, (), ()), UsageError, "minima of 0 periods and 0 ends"),
    (lambda: Profile(4.0, ((),), (NAN,)), UsageError, "the total at a period's end is nan"),
    (lambda: Profile(4.0, ((Point(-1.0, 2.0),),), (3.0,)), UsageError, "of a minimum is -1.0 s"),
    (lambda: Profile(0.0, ((),), (3.0,)), UsageError, "the period of a profile is 0.0 s"),
    (lambda: Stopping(PROFILE).about_to_grow(NAN, 1.0), UsageError, "in the period is nan s"),
    (lambda: Stopping(PROFILE).about_to_grow(-1.0, 1.0), UsageError, "in the period is -1.0 s"),
    (lambda: Stopping(PROFILE).about_to_grow(1.0, NAN), UsageError, "the total is nan"),
    (lambda: FirstMinimum(PROFILE).begin(NAN), UsageError, "the total is nan"),
    (lambda: FirstMinimum(PROFILE).halved(-1.0), UsageError, "the total is -1.0"),
    (
        lambda: Changes(SIZES, {"a": [Point(0.0, 0.0), Point(5.0, 1.0)]}),
        BadInputError, "sizes are of 0.0 to 8.0 s, and the changed bytes of 0.0 to 5.0 s only",
    ),
    (lambda: CHANGES.shown(4.0, {}), BadInputError, "operator a has no change rate"),
    (lambda: CHANGES.shown(4.0, {"a": -1.0}), UsageError, "the change rate of a is -1.0 bytes/s"),
    (lambda: CHANGES.shown(NAN, {"a": 1.0}), UsageError, "the period is nan s"),
    (lambda: CHANGES.checkpoints([3.0, 1.0]), UsageError, "at 1.0 s after one at 3.0 s"),
    (lambda: CHANGES.checkpoints([NAN]), UsageError, "finite seconds"),
    (lambda: delta_timing.oracle(CHANGES, 0.0), UsageError, "the period is 0.0 s"),
    (lambda: DeltaStopping(CHANGES, NAN), UsageError, "the period is nan s"),
    (lambda: DeltaStopping(CHANGES, 2.0).takes(NAN, 0.0, 1.0), UsageError, "checkpoint is nan s"),
    (lambda: DeltaStopping(CHANGES, 2.0).takes(0.0, -1.0, 1.0), UsageError, "period is -1.0 s"),
    (lambda: DeltaStopping(CHANGES, 2.0).takes(0.0, 0.0, NAN), UsageError, "writes is nan"),
    (lambda: Timing(NAN, 0.0), UsageError, "the period is nan s"),
    (lambda: Timing(30.0, NAN), UsageError, "the begin of the period is nan s"),
    (lambda: Timing(30.0, 0.0).due(NAN), UsageError, "now is nan s"),
    (lambda: Timing(30.0, 0.0).took(INF), UsageError, "now is inf s"),
    (lambda: Timing(30.0, 0.0).seen(NAN, {"a": (1, 1)}), UsageError, "time of an epoch is nan s"),
    (lambda: Timing(30.0, 0.0).seen(1.0, {}), BadInputError, "epoch at 1.0 s has no sizes"),
    (lambda: Timing(30.0, 0.0).seen(1.0, {"a": (-1, 0)}), BadInputError, "state of a is -1 B"),
    (lambda: Timing(30.0, 0.0).seen(1.0, {"a": (1, -5)}), BadInputError, "changed state of a is"),
    (lambda: draw_sizes(Random(1), "flat"), UsageError, "the shape is 'flat': one of tmi"),  # type: ignore[arg-type]
    (lambda: draw_sizes(Random(1), "tmi", NAN), UsageError, "the length is nan s: more than 0"),
    (lambda: draw_sizes(Random(1), "bcp", INF), UsageError, "the length is inf s"),
    (lambda: draw_sizes(Random(1), "bcp", 1e300), UsageError, r"is 1e\+300 s: 0 to 1e\+08"),
    (lambda: draw_changes(Random(1), "bcp", 9.0, -1.0), UsageError, "the age is -1.0 s"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("decide", "error", "named"),
    [*OF_THRESHOLDS, *OF_FAILURES, *OF_TOPOLOGIES, *OF_RECOVERIES, *OF_SIZES],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_named(decide: Callable[[], Any], error: type[PermanentError], named: str) -> None:
    with pytest.raises(error, match=named):
        decide()


def test_what_is_extreme_and_can_be_has_an_answer() -> None:
    share = Share(stage=1, stages=1000, beta=10)
    assert thresholds(Bounds(1e5, 1000, 1000), 0, share) == Thresholds(0.0, 0, 0)
    assert compensation(BOUNDS, 2000, 1.0) == 12.0  # all that the bounds allow
    assert records_before_backup(1e300, 0.0, 1e-300) == RECORDS_MAX
    assert records_before_backup(1.0, 5.0, 1.0) == 0
    assert failures_that_count([1e300], 1e300, "hopping", 1e-300) == 1
    assert judge(Heartbeats(0.0, (5e-324,) * 2), Hint.UNKNOWN, 1.0) is Verdict.FAILED
    assert mttf({}, 1e200) == 1e200 / 2
    equal = topology_with((RATE_MAX, RATE_MAX), PAIRS)
    assert equal.output_weights.tolist() == [0.0, 0.0, 0.5, 0.5]
    assert recovery.optimal(problem(P1, P2)).priority == 3


def test_a_pipeline_may_be_longer_than_the_stack_is_deep() -> None:
    length = 1500
    nodes = [Node(f"o{i}", 1, output_rates=(1.0,)) for i in range(length)]
    rows = ((0, 0, 1.0),)
    streams = [Stream(f"o{i}", f"o{i + 1}", rows) for i in range(length - 1)]
    assert structure_aware(Topology(nodes, streams), length).fidelity == 1.0


@pytest.mark.parametrize("value", [NAN, INF, -INF, HUGE, "5", None])
def test_what_is_no_number_is_none_for_any_check(value: Any) -> None:
    for check in (checks.finite, checks.not_negative, checks.positive, checks.whole):
        with pytest.raises(BadInputError, match="it is "):
            check("it", value, error=BadInputError)
    with pytest.raises(BadInputError, match="it is "):
        checks.within("it", value, 0.0, 1.0, BadInputError)


def test_counts_are_whole() -> None:
    checks.whole("it", np.int64(3), least=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"it is 2\.0: a whole number, 0 or more"):
        checks.whole("it", 2.0)  # type: ignore[arg-type]
