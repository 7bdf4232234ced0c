"""A recovery in several plans: capacity, placement, life cycle, invariants."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from benches.random_queries import DrawnQueries, draw_queries
from perseid.coordinator.planners.best_density import best_density
from perseid.coordinator.planners.recovery import (
    Partition,
    Query,
    RecoveryPlan,
    RecoveryProblem,
    optimal,
)
from perseid.coordinator.planners.recovery_capacity import (
    SHARE_MAX,
    Worker,
    free_cores,
    place,
    placed_plan,
)
from perseid.coordinator.planners.recovery_schedule import (
    ALLOWED,
    InvalidStep,
    Phase,
    Plan,
    Recovery,
)
from perseid.errors import BadInputError

PARTITIONS = [Partition("p1", 0.5), Partition("p2", 0.5), Partition("p3", 0.5)]
WIDE, NARROW = Query("wide", 9, ("p1", "p2", "p3")), Query("narrow", 1, ("p3",))
ALL = frozenset(p.id for p in PARTITIONS)


def test_a_worker_is_filled_up_to_the_bound_only() -> None:
    workers = [Worker("w1", 2.0), Worker("w2", 1.0, used=0.9), Worker("w3", 1.0, used=0.3)]
    assert free_cores(workers, {"w1": 0.6}) == pytest.approx({"w1": 1.0, "w2": 0.0, "w3": 0.5})
    with pytest.raises(BadInputError, match=r"worker w1: cores is -1\.0: 0 or more"):
        Worker("w1", -1.0)
    with pytest.raises(BadInputError, match="worker w1: used is nan: 0 or more"):
        Worker("w1", 1.0, used=float("nan"))


def test_each_partition_goes_where_most_is_free() -> None:
    assert place({"a": 0.2, "b": 0.6, "c": 0.2}, {"w1": 0.7, "w2": 0.9}) == {
        "b": "w2", "a": "w1", "c": "w1",
    }  # fmt: skip
    assert place({"a": 0.2}, {}) == {}


def test_a_query_that_fits_only_in_sum_waits_and_lets_others_go_first() -> None:
    """1.6 cores are free, but of three halves only two fit on two workers with 0.8 each."""
    free = {"w1": 0.8, "w2": 0.8}
    assert placed_plan(PARTITIONS, [WIDE, NARROW], ALL, free) == {"p3": "w1"}
    assert placed_plan(PARTITIONS, [WIDE, NARROW], ALL, {"w1": 1.6}).keys() == ALL
    # Each of these fits alone, so the less important one waits.
    pair, single = Query("pair", 2, ("p1", "p2")), Query("single", 1, ("p3",))
    assert placed_plan(PARTITIONS, [pair, single], ALL, free).keys() == {"p1", "p2"}


def test_a_plan_takes_no_more_schedules_than_queries() -> None:
    """At worst: each needs one partition that is larger than any worker."""
    for n in (5, 10, 20):
        partitions = [Partition(f"p{i}", 1.0) for i in range(n)]
        queries = [Query(f"q{i}", 1, (f"p{i}",)) for i in range(n)]
        asked: list[int] = []

        def scheduler(problem: RecoveryProblem, asked: list[int] = asked) -> RecoveryPlan:
            asked.append(len(problem.queries))
            return best_density(problem)

        free = {f"w{i}": 0.9 for i in range(2 * n)}
        names = [p.id for p in partitions]
        assert placed_plan(partitions, queries, names, free, scheduler=scheduler) == {}
        assert asked == list(range(n, -1, -1))


def test_what_replicas_keep_is_not_installed() -> None:
    free = {"w1": 1.0}
    assert placed_plan(PARTITIONS, [WIDE], ALL, free, replicated={"p1"}).keys() == {"p2", "p3"}
    recovery = Recovery(ALL)
    assert recovery.planned(PARTITIONS, [WIDE], [Worker("w1", 9.0)], replicated=ALL) == recovery
    assert recovery.answering([WIDE, NARROW], replicated=ALL) == ["wide", "narrow"]
    assert recovery.answering([WIDE, NARROW], replicated={"p3"}) == ["narrow"]


def test_only_the_first_plan_rolls_back_and_one_is_under_way_at_a_time() -> None:
    first = Recovery(ALL).planned(PARTITIONS, [WIDE, NARROW], [Worker("w1", 1.0)])
    assert first.plan == Plan(1, {"p3": "w1"})
    more = [Worker("w1", 1.0), Worker("w2", 4.0)]
    assert first.planned(PARTITIONS, [WIDE, NARROW], more) == first
    second = first.announced().installed("p3", "w1").planned(PARTITIONS, [WIDE, NARROW], more)
    assert second.plan == Plan(2, {"p1": "w2", "p2": "w2"})
    assert (Plan(1, {}).rolls_back, Plan(2, {}).rolls_back) == (True, False)


def test_an_interrupted_plan_continues_with_what_is_missing() -> None:
    running = Recovery(ALL).planned(PARTITIONS, [WIDE], [Worker("w1", 2.0)]).announced()
    again = running.installed("p2", "w1").interrupted()
    assert again.plan is not None
    assert again.plan.phase is Phase.INTERRUPTED
    assert again.missing == {"p1": "w1", "p3": "w1"}
    done = again.announced().installed("p1", "w1").installed("p3", "w1")
    assert done.plan is not None
    assert done.plan.phase is Phase.DONE
    assert done.interrupted() == done
    assert (done.failed, done.answering([WIDE])) == (frozenset(), ["wide"])


def test_a_lost_worker_gives_its_partitions_back() -> None:
    workers = [Worker("w1", 1.0), Worker("w2", 1.5)]
    running = Recovery(ALL).planned(PARTITIONS, [WIDE], workers).announced()
    assert running.missing == {"p1": "w2", "p2": "w1", "p3": "w2"}
    left = running.installed("p1", "w2").installed("p2", "w1").lost("w2")
    assert left.plan == Plan(1, {"p2": "w1"}, Phase.DONE)
    assert left.failed == {"p1", "p3"}
    assert left.recovered == {"p2": "w1"}
    assert left.installed("p3", "w2") == left, "an answer that came late changes nothing"


def test_steps_outside_of_the_table_are_refused() -> None:
    with pytest.raises(InvalidStep, match="no recovery plan is there to become RUNNING"):
        Recovery(ALL).announced()
    for start in Phase:
        for finish in set(Phase) - ALLOWED[start] - {start}:
            with pytest.raises(InvalidStep, match=f"3 cannot go from {start.name} to") as caught:
                Plan(3, {"p1": "w1"}, start).then(finish)
            assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.drawn(20)
@pytest.mark.parametrize("seed", range(60))
def test_invariants_of_random_recoveries(seed: int) -> None:
    """Workers come, go and are slow, coordinators are lost; at the end there is room for all."""
    random = Random(seed)
    problem = draw_queries(random, DrawnQueries(queries=8, partitions=24, share_max=3))
    cost = {p.id: p.cost for p in problem.failed}
    recovery = Recovery(frozenset(cost))
    workers = {"w0": Worker("w0", 2.0, used=0.4)}
    # A replica may run for some time; who loses it has the partition to recover again.
    replicated = set(random.sample(sorted(cost), 4))
    installs: Counter[str] = Counter()
    for step in range(400):
        final = step >= 300
        before = recovery
        event = random.choices(
            ("plan", "report", "install", "interrupt", "join", "lose", "replica"),
            (3, 3, 9, 0, 0, 0, 0) if final else (3, 3, 9, 1, 0.7, 0.5, 0.2),
        )[0]
        if step == 300:
            workers["big"] = Worker("big", 40.0)
        elif event == "join":
            workers[f"w{step}"] = Worker(f"w{step}", random.uniform(0.5, 4), random.uniform(0, 1))
        elif event == "lose" and workers:
            gone = random.choice(sorted(workers))
            del workers[gone]
            installs.subtract(p for p, w in recovery.recovered.items() if w == gone)
            recovery = recovery.lost(gone)
        elif event == "replica" and replicated:
            replicated.pop()
        elif event == "plan":
            scheduler = {"scheduler": optimal} if seed % 2 else {}
            live = list(workers.values())
            recovery = recovery.planned(
                problem.failed, problem.queries, live, replicated, **scheduler
            )
        elif event == "interrupt":
            recovery = recovery.interrupted()
            assert recovery.recovered == before.recovered
        elif event == "report" and recovery.missing:
            recovery = recovery.announced()
        elif event == "install" and recovery.plan and recovery.plan.phase is Phase.RUNNING:
            partition, worker = random.choice(sorted(recovery.missing.items()))
            recovery = recovery.installed(partition, worker)
            installs[partition] += 1
        check(recovery, workers, cost, installs)
    assert recovery.failed <= replicated
    assert recovery.answering(problem.queries, replicated) == [q.id for q in problem.queries]


def check(
    recovery: Recovery, workers: dict[str, Worker], cost: dict[str, float], installs: Counter[str]
) -> None:
    """No worker above the bound, nothing twice or lost, a plan only on workers that live."""
    load: Counter[str] = Counter()
    for partition, worker in (*recovery.recovered.items(), *recovery.missing.items()):
        load[worker] += cost[partition]  # type: ignore[assignment]
    for name, taken in load.items():
        worker_ = workers[name]
        assert taken <= max(SHARE_MAX * worker_.cores - worker_.used, 0.0) + 1e-6
    assert recovery.failed.isdisjoint(recovery.recovered)
    assert recovery.failed | recovery.recovered.keys() == cost.keys()
    assert {p: 1 for p in recovery.recovered} == +installs, "installed twice, or forgotten"


def test_a_recovery_is_data() -> None:
    """So that another coordinator continues with what was stored."""
    recovery = Recovery(ALL).planned(PARTITIONS, [WIDE], [Worker("w1", 2.0)])
    assert pickle.loads(pickle.dumps(recovery)) == recovery
    assert replace(recovery).announced().missing == recovery.missing
