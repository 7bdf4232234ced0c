"""Rows through a buffer topic come once and whole, whatever fails. Planted: `test_mutants.py`."""

from __future__ import annotations

from collections import Counter

from perseid.testing.simulation.buffered import BRANCHES, STRENGTHS, run

SEEDS = 60


def test_every_tokens_rows_come_once_and_every_fault_strikes() -> None:
    hit: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run(seed)
        assert not outcome.error, outcome.explain()
        hit += outcome.hit
    faults = [name for name in STRENGTHS if name != "switch"]
    assert not [name for name in (*faults, *BRANCHES) if not hit[name]]


def test_a_seed_plays_the_same_history_again() -> None:
    assert run(7).trace_hash == run(7).trace_hash
