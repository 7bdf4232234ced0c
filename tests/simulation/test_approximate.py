"""The error of approximate fault tolerance stays within its bounds. Planted: `test_mutants.py`."""

from __future__ import annotations

from collections import Counter

from perseid.testing.simulation.approximate import BRANCHES, STRENGTHS, run

SEEDS = 500


def test_the_bounds_hold_in_every_seed_and_every_fault_strikes() -> None:
    hit: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run(seed)
        assert not outcome.error, outcome.explain()
        hit += outcome.hit
    assert not [name for name in (*STRENGTHS, *BRANCHES) if not hit[name]]
