"""The error of approximate fault tolerance stays within its bounds. Planted: `test_mutants.py`."""

from __future__ import annotations

from collections import Counter

import pytest

from perseid.testing.simulation.approximate import BRANCHES, STRENGTHS, run

SEEDS, FEW = 500, 150  # each fault strikes in a quarter of them


def test_the_bounds_hold_in_every_seed_and_every_fault_strikes(
    seed: int, request: pytest.FixtureRequest
) -> None:
    whole = request.config.getoption("--matrix")
    hit: Counter[str] = Counter()
    for one in range(SEEDS) if whole else range(seed, seed + FEW):
        outcome = run(one)
        assert not outcome.error, outcome.explain()
        hit += outcome.hit
    assert not [name for name in (*STRENGTHS, *BRANCHES) if not hit[name]]
