"""Failure detector, placement of replicas, and how long a placement lasts."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from perseid.coordinator.planners.failure_detector import (
    HISTORY_MAX,
    Heartbeats,
    Hint,
    Limits,
    Verdict,
    judge,
    suspicion,
)
from perseid.coordinator.planners.mttf import mean_time_to_failure_s
from perseid.coordinator.planners.replica_placement import chain, place_replicas
from perseid.errors import BadInputError, RefusedError, UsageError


def regular(number: int, every_s: float = 1.0, jitter_s: float = 0.0) -> Heartbeats:
    random, beats = Random(1), Heartbeats(0.0)
    for _ in range(number):
        beats = beats.then(beats.last_s + every_s + random.uniform(-jitter_s, jitter_s))
    return beats


def test_suspicion_grows_with_time_and_shrinks_with_jitter() -> None:
    steady, jittery = regular(50), regular(50, jitter_s=0.8)
    late = [suspicion(steady, steady.last_s + 0.5 + i / 10) for i in range(20)]
    assert late == sorted(late)
    assert suspicion(steady, steady.last_s + 2.0) > suspicion(jittery, jittery.last_s + 2.0)
    assert suspicion(steady, steady.last_s + 1000.0) == math.inf


def test_the_chance_of_a_wrong_alarm_follows_suspicion() -> None:
    """Of normally distributed intervals one in ten is suspected by 1 before its heartbeat comes."""
    random = Random(7)
    beats = Heartbeats(0.0, tuple(random.gauss(1.0, 0.2) for _ in range(HISTORY_MAX)))
    draws = 20_000
    alarms = sum(suspicion(beats, random.gauss(1.0, 0.2)) >= 1 for _ in range(draws))
    assert 0.06 < alarms / draws < 0.16


def test_verdicts() -> None:
    beats = regular(20)
    last = beats.last_s
    assert judge(beats, Hint.UNKNOWN, last + 1.0) is Verdict.ALIVE
    assert judge(beats, Hint.UNKNOWN, last + 1.4) is Verdict.SUSPECTED
    assert judge(beats, Hint.UNKNOWN, last + 3.0) is Verdict.FAILED
    # A supervisor that sees the process knows better, up to a limit; one that saw it end, at once.
    assert judge(beats, Hint.ALIVE, last + 3.0) is Verdict.SUSPECTED
    assert judge(beats, Hint.ALIVE, last + Limits().silent_s + 1) is Verdict.FAILED
    assert judge(beats, Hint.ENDED, last + 0.1) is Verdict.FAILED
    assert judge(Heartbeats(0.0), Hint.UNKNOWN, 10.5) is Verdict.ALIVE  # not yet known how often


def test_history_is_bounded_and_a_clock_that_goes_back_adds_nothing() -> None:
    beats = regular(HISTORY_MAX + 50)
    assert len(beats.intervals_s) == HISTORY_MAX
    assert beats.then(beats.last_s - 5.0) == beats


@pytest.mark.parametrize("seed", range(30))
def test_copies_are_in_another_domain_and_on_few_pairs(seed: int) -> None:
    random = Random(seed)
    workers, domains = random.randint(2, 9), random.randint(2, 4)
    where = {f"w{i}": f"r{i if i < 2 else random.randrange(domains)}" for i in range(workers)}
    primaries = {("op", i): random.choice(sorted(where)) for i in range(40)}
    replicas = place_replicas(primaries, primaries.keys(), where)
    assert replicas.keys() == primaries.keys()
    assert all(where[replicas[p]] != where[w] for p, w in primaries.items())
    targets = {w: {replicas[p] for p, at in primaries.items() if at == w} for w in where}
    assert all(len(found) <= 1 for found in targets.values()), "the chain has one next worker"


def test_neighbours_of_the_chain_are_of_different_domains_where_that_can_be() -> None:
    order = chain({f"w{i}": f"r{i % 3}" for i in range(9)})
    assert sorted(order) == sorted(f"w{i}" for i in range(9))
    domains = [int(w[1:]) % 3 for w in order]
    assert all(a != b for a, b in pairwise(domains))
    # Evenly: each worker is the next of exactly one.
    primaries = {("op", i): f"w{i}" for i in range(9)}
    placed = place_replicas(primaries, primaries, {f"w{i}": f"r{i % 3}" for i in range(9)})
    assert max(Counter(placed.values()).values()) <= 2


def test_one_domain_is_refused_and_so_is_what_is_not_there() -> None:
    with pytest.raises(RefusedError, match="failure domain r1 of w1"):
        place_replicas({("a", 0): "w1"}, [("a", 0)], {"w1": "r1", "w2": "r1"})
    with pytest.raises(BadInputError, match="worker w9 runs partitions and has no failure domain"):
        place_replicas({("a", 0): "w9"}, [], {"w1": "r1"})
    with pytest.raises(BadInputError, match=r"b\[1\] is to be replicated and runs nowhere"):
        place_replicas({("a", 0): "w1"}, [("b", 1)], {"w1": "r1"})


def test_mttf_of_process_pairs_falls_off_linearly() -> None:
    """Flux section 2: N machines in pairs, 2 * MTTF^2 / (N * MTTR)."""
    for machines in (2, 4, 16):
        primaries = {("a", i): f"w{i}" for i in range(machines)}
        pairs = {("a", i): f"w{i ^ 1}" for i in range(machines)}
        found = mean_time_to_failure_s(primaries, pairs, 1e6, 100.0)
        assert found == pytest.approx(2 * 1e12 / (machines * 100.0))


def test_mttf_against_failures_that_are_played() -> None:
    """Exponential failures of a chain of workers, until both copies of something are gone."""
    workers, mttf_s, mttr_s = 4, 1000.0, 20.0
    primaries = {("a", i): f"w{i}" for i in range(workers)}
    replicas = {("a", i): f"w{(i + 1) % workers}" for i in range(workers)}
    random, lasted = Random(5), []
    for _ in range(400):
        now, down_until = 0.0, [0.0] * workers
        while True:
            now += random.expovariate(workers / mttf_s)
            target = random.randrange(workers)
            near = (down_until[(target + 1) % workers], down_until[target - 1])
            if max(near) > now:
                break
            down_until[target] = now + mttr_s
        lasted.append(now)
    # Either of a pair may fail first, so twice as often as the paper's formula for a pair gives.
    estimate = mean_time_to_failure_s(primaries, replicas, mttf_s, mttr_s)
    assert sum(lasted) / len(lasted) == pytest.approx(estimate / 2, rel=0.2)


def test_what_has_no_copy_decides() -> None:
    primaries = {("a", 0): "w1", ("a", 1): "w2"}
    one = mean_time_to_failure_s(primaries, {("a", 0): "w2"}, 1e6, 10.0)
    assert one == pytest.approx(1e6, rel=1e-4)
    assert mean_time_to_failure_s({}, {}, 1e6, 10.0) == math.inf
    with pytest.raises(UsageError, match=r"a worker's MTTR is 0\.0 s"):
        mean_time_to_failure_s(primaries, {}, 1e6, 0.0)
