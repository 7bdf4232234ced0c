"""A broker that takes an epoch's output too slowly: longer transactions, or a sentence; no loop."""

from __future__ import annotations

from perseid.testing.simulation.ports import TRANSACTION_S
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.scripts import Slow

SEEDS = 12
GIVEN, CORRECTED = "slow, and given longer", "failed, to be corrected"


def test_what_takes_longer_is_given_longer() -> None:
    given = 0
    for seed in range(SEEDS):
        outcome = run(seed, Slow.SHAPE, Slow())
        assert not outcome.error, outcome.explain()
        assert not outcome.struck[CORRECTED], outcome.explain()
        given += outcome.struck[GIVEN]
    assert given >= SEEDS / 2


def test_what_no_transaction_has_time_for_fails_with_a_sentence_and_resumes_when_mended() -> None:
    corrected = 0
    for seed in range(SEEDS):
        outcome = run(seed, Slow.SHAPE, Slow(longest_s=TRANSACTION_S))
        assert not outcome.error, outcome.explain()
        corrected += outcome.struck[CORRECTED]
    assert corrected >= SEEDS / 2
