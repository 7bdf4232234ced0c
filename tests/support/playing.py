"""Plays many seeds of the simulation, and shows what fails as soon as it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perseid.testing.simulation.many import Tally

if TYPE_CHECKING:
    import pytest

    from perseid.testing.simulation.scenario import Outcome

FAILED_SHOWN = 3
REPORTED_EVERY = 5000  # seeds


def shown(outcomes: Iterable[Outcome], tally: Tally, capsys: pytest.CaptureFixture[str]) -> Tally:
    """`tally` with the outcomes, up to the third that fails; a long run shows where it is."""
    for outcome in outcomes:
        tally.take(outcome)
        if outcome.error or tally.seeds % REPORTED_EVERY == 0:
            with capsys.disabled():  # a long run must not keep what it found to itself
                text = outcome.explain() if outcome.error else f"{tally.seeds} seeds"
                print(f"\n{text}", flush=True)
        if len(tally.failed) == FAILED_SHOWN:
            break
    with capsys.disabled():
        print(f"\n{tally.table()}")
    return tally
