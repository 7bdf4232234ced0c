"""Thresholds: whatever fails, however often, the errors together stay within the user's bounds."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator.planners.error_bounds import (
    count_min_margin,
    for_count_min,
    for_ripple_join,
    ripple_join_growth,
)
from perseid.coordinator.planners.thresholds import (
    Bounds,
    Share,
    Thresholds,
    compensation,
    failures_that_count,
    records_before_backup,
    thresholds,
)
from perseid.errors import UsageError

Ints = npt.NDArray[np.int64]
JOINED = 4000  # sampled items of the ripple join
BOUNDS = st.builds(
    Bounds, st.floats(0, 1e9), st.integers(0, 10**9), st.integers(0, 10**9)
)  # fmt: skip


def test_the_papers_figures() -> None:
    bounds = Bounds(1e5, 1000, 1000)
    assert thresholds(bounds, 0) == Thresholds(5e4, 500, 500)
    assert thresholds(bounds, 3) == Thresholds(6250.0, 62, 62)
    assert thresholds(bounds, 0, Share(copies=4)) == Thresholds(12500.0, 125, 125)
    assert thresholds(bounds, 0, Share(stage=1, stages=3, beta=5.0)) == Thresholds(2000.0, 20, 20)
    assert thresholds(bounds, 0, Share(stage=3, stages=3, beta=5.0)) == Thresholds(5e4, 500, 500)


@given(BOUNDS, st.integers(1, 60))
def test_the_errors_of_all_failures_stay_within_the_bounds(bounds: Bounds, failures: int) -> None:
    """The k-th failure loses what the thresholds of k - 1 failures allow."""
    each = [thresholds(bounds, k) for k in range(failures)]
    assert sum(t.theta for t in each) <= bounds.theta
    assert sum(t.l for t in each) <= bounds.l
    assert sum(t.gamma for t in each) <= bounds.gamma


@given(BOUNDS, st.integers(1, 9), st.lists(st.integers(0, 8), max_size=30))
def test_copies_share_the_bounds(bounds: Bounds, copies: int, failing: list[int]) -> None:
    """Failures strike the copies in any order; each halves its own thresholds."""
    failed = [0] * copies
    theta = lost = 0.0
    for target in (f % copies for f in failing):
        now = thresholds(bounds, failed[target], Share(copies=copies))
        theta, lost = theta + now.theta, lost + now.l
        failed[target] += 1
    assert theta <= bounds.theta * (1 + 1e-12)
    assert lost <= bounds.l


@given(BOUNDS, st.integers(1, 5), st.floats(1, 10))
def test_a_pipeline_loses_no_more_outputs_than_one_operator(
    bounds: Bounds, stages: int, beta: float
) -> None:
    """Items lost at stage i are beta^(m-i) outputs, each stage within what one alone may lose."""
    for stage in range(1, stages + 1):
        now = thresholds(bounds, 0, Share(stage=stage, stages=stages, beta=beta))
        assert now.gamma * beta ** (stages - stage) <= bounds.gamma / 2 * (1 + 1e-9)


def test_thresholds_without_room_for_an_item_mean_exact_mode() -> None:
    bounds = Bounds(1e5, 1000, 1000)
    assert not thresholds(bounds, 8).exact
    assert thresholds(bounds, 9).exact  # 1000 / 2^10 is less than one item
    assert thresholds(bounds, 5000) == Thresholds(0.0, 0, 0)
    assert thresholds(bounds, 5000, window="decaying") == Thresholds(1e5, 1000, 1000)


def test_windows_forget_failures() -> None:
    failed = [5.0, 19.9, 20.0, 25.0]
    assert failures_that_count(failed, 29.0, "none", 0.0) == 4
    assert failures_that_count(failed, 29.0, "hopping", 10.0) == 2
    assert failures_that_count(failed, 30.0, "hopping", 10.0) == 0
    assert failures_that_count(failed, 29.95, "sliding", 10.0) == 2
    assert failures_that_count(failed, 29.0, "decaying", 10.0) == 0


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1e-3, 1e4))
def test_what_is_processed_before_a_backup_cannot_overshoot(
    theta: float, divergence: float, alpha: float
) -> None:
    records = records_before_backup(theta, divergence, alpha)
    if divergence <= theta:
        assert divergence + records * alpha <= theta * (1 + 1e-9)
        assert divergence + (records + 1) * alpha > theta * (1 - 1e-9)
    else:
        assert records == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_compensated_sketch_misses_no_heavy_hitter(seed: int) -> None:
    """Theorem 1 on a Count-Min sketch that really loses state and items at failures."""
    random, rng = Random(seed), np.random.default_rng(seed)
    bounds, alpha, rows, width = Bounds(4000.0, 64, 64), 50.0, 4, 512
    keys = (rng.zipf(1.3, 30_000) - 1) % 5000
    sizes = rng.integers(1, int(alpha) + 1, len(keys))
    hashed = rng.integers(0, width, (rows, 5000))
    sketch, durable = np.zeros((rows, width)), np.zeros((rows, width))
    failures, diverged, total = 0, 0.0, sum(sizes)
    fail_at = set(random.sample(range(len(keys)), 6))
    skip = 0
    for number, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        if number in fail_at:  # back to the last backup; what was waiting is lost too
            skip = thresholds(bounds, failures).l
            sketch, diverged, failures = durable.copy(), 0.0, failures + 1
        if skip:
            skip -= 1
            continue
        if records_before_backup(thresholds(bounds, failures).theta, diverged, alpha) == 0:
            durable, diverged = sketch.copy(), 0.0
        sketch[np.arange(rows), hashed[:, key]] += size
        diverged += size
    added = compensation(bounds, failures, alpha)
    assert added <= bounds.theta + bounds.l * alpha
    true = np.bincount(keys, sizes, 5000)
    estimate = sketch[np.arange(rows)[:, None], hashed].min(axis=0) + added
    assert (estimate >= true).all(), "a key is underestimated"
    assert (sketch[np.arange(rows)[:, None], hashed].min(axis=0) < true).any(), "nothing was lost"
    # Beyond the sketch's own error, which is U / width a row, by theorem 1 no more than the bounds.
    over = (estimate - true) > 2 * total / width + bounds.theta + bounds.l * alpha
    assert over.mean() <= 1 / 2**rows


def sampled_sides(seed: int) -> tuple[Ints, Ints]:
    """The sampled items of both streams of a ripple join, as they come: (stream, key)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, JOINED), rng.integers(0, 40, JOINED)


def pairs_estimate(streams: Ints, keys: Ints) -> float:
    """The share of all pairs of items of the two streams that have the same key."""
    left, right = (np.bincount(keys[streams == side], minlength=40) for side in (0, 1))
    return float(left @ right) / float(left.sum() * right.sum())


def lost_items(bounds: Bounds, seed: int) -> tuple[npt.NDArray[np.bool_], int]:
    """Which items a join that fails now and then never has, and how often it failed.

    Its divergence is the number of items, so alpha is 1. A failure takes it back to the last
    backup; up to l items that had been acknowledged, and gamma of those that wait for it, are gone.
    """
    lost, fail_at = np.zeros(JOINED, dtype=bool), set(Random(seed).sample(range(JOINED), 5))
    begun = failures = skip = 0  # the first item that no backup has
    now = thresholds(bounds, failures)
    for item in range(JOINED):
        if item in fail_at:
            lost[begun:item] = True
            begun, skip, failures = item, now.l + now.gamma, failures + 1
            now = thresholds(bounds, failures)
        if skip:
            lost[item], begun, skip = True, item + 1, skip - 1
        elif records_before_backup(now.theta, item - begun, 1.0) == 0:
            begun = item
    return lost, failures


def test_a_ripple_join_that_loses_samples_has_the_error_of_theorem_2() -> None:
    """Against the join of the same items that never fails, whose interval is z / sqrt(n).

    An item that is lost is one sample less, so beta is 1: what is lost has the least room.
    """
    bounds, beta = for_ripple_join(0.1, JOINED, 1.0), 1.0
    growth = ripple_join_growth(bounds, JOINED, beta)
    exact, failing = [], []
    for seed in range(300):
        streams, keys = sampled_sides(seed)
        lost, failures = lost_items(bounds, seed)
        assert failures == 5
        assert 0 < lost.sum() <= bounds.theta + bounds.l * beta + bounds.gamma
        exact.append(pairs_estimate(streams, keys))
        failing.append(pairs_estimate(streams[~lost], keys[~lost]))
    truth = 1 / 40
    z = np.quantile(np.abs(np.array(exact) - truth), 0.95) * np.sqrt(JOINED)
    within = np.abs(np.array(failing) - truth) <= z / np.sqrt(JOINED) * (1 + growth)
    assert exact != failing
    assert within.mean() >= 0.93  # 0.95 are promised; two standard deviations are 0.025


@given(st.floats(0.001, 0.5), st.floats(1e3, 1e9), st.floats(1, 1e3))
def test_bounds_for_count_min_keep_the_error(error: float, threshold: float, alpha: float) -> None:
    bounds = for_count_min(error, threshold, alpha)
    margin = count_min_margin(bounds, 0.5, threshold, alpha)
    assert margin >= (0.5 - error) * threshold * (1 - 1e-9) - 1e-6


@given(st.floats(0.001, 0.5), st.integers(10**4, 10**9), st.floats(1, 1e3))
def test_bounds_for_a_ripple_join_keep_the_error(error: float, sampled: int, beta: float) -> None:
    bounds = for_ripple_join(error, sampled, beta)
    assert ripple_join_growth(bounds, sampled, beta) <= error * (1 + 1e-9)


def test_what_cannot_be_is_refused() -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=f"theta is {wrong}"):
            Bounds(wrong, 1, 1)
    with pytest.raises(UsageError, match="stage 4 of 3: 1 to 3"):
        Share(stage=4, stages=3)
    with pytest.raises(UsageError, match=r"beta is 0\.5"):
        Share(beta=0.5)
    with pytest.raises(UsageError, match="failures is -1"):
        thresholds(Bounds(1.0, 1, 1), -1)
    with pytest.raises(UsageError, match="an error of 1: between 0 and 1"):
        for_ripple_join(1, 100, 1.0)
    with pytest.raises(UsageError, match="lose all of 100 sampled items"):
        ripple_join_growth(Bounds(50.0, 10, 10), 100, 5.0)
