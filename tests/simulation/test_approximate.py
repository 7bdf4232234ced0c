"""The error of approximate fault tolerance stays within its bounds, and planted defects do not.

`python tests/simulation/test_approximate.py` looks for the seeds that find the planted defects.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from perseid.coordinator.planners.backups import Backups
from perseid.coordinator.planners.thresholds import Bounds, Thresholds, thresholds
from perseid.testing.simulation import approximate
from perseid.testing.simulation.approximate import BRANCHES, STRENGTHS, Owner, Store, run
from perseid.testing.simulation.planted import Mutant, expect_found, search

SEEDS = 500


def checked_afterwards() -> AbstractContextManager[Any]:
    """A backup is due once the threshold is passed, and the item that passes it is applied."""

    def room(self: Backups) -> int:
        return 1000 if self.since_durable <= self.theta else 0

    return patch.object(Backups, "room", property(room))


def reset_on_issue() -> AbstractContextManager[Any]:
    """The divergence starts anew when a backup is sent, not when it is known to be durable."""

    def mutant(self: Backups) -> Backups:
        return replace(self, at_issue=0.0, since_durable=0.0)

    return patch.object(Backups, "issued", mutant)


def starts_at_theta() -> AbstractContextManager[Any]:
    """The first threshold is the bound itself, not half of it."""

    def mutant(bounds: Bounds, failures: int) -> Thresholds:
        double = Bounds(2 * bounds.theta, 2 * bounds.l, 2 * bounds.gamma)
        return thresholds(double, failures)

    return patch.object(approximate, "thresholds", mutant)


def redis_is_the_truth() -> AbstractContextManager[Any]:
    """The divergence is what Redis says."""
    publish = Owner.publish

    def mutant(self: Owner) -> None:
        publish(self)
        found, sent = self.counter(), self.backups.at_issue
        value = found.value if found else 0.0
        at_issue = None if sent is None else min(sent, value)
        self.backups = replace(self.backups, since_durable=value, at_issue=at_issue)

    return patch.object(Owner, "publish", mutant)


def failures_count_late() -> AbstractContextManager[Any]:
    """Work goes on first, and the failure is counted some time later."""

    def mutant(self: Owner) -> None:
        def count() -> None:
            self.world.simulation.sleep(0.5)
            self.world.failures += 1

        if self.generation > 1:
            self._spawn(count)

    return patch.object(Owner, "count_failure", mutant)


def old_backups_are_taken() -> AbstractContextManager[Any]:
    """A backup that comes late, or from an owner of before, becomes the newest."""

    def mutant(self: Store, stamp: tuple[int, int], applied: float, cursor: int) -> None:
        self.stamp, self.applied, self.cursor = stamp, applied, cursor

    return patch.object(Store, "put", mutant)


FOUND_BY: list[tuple[Mutant, int]] = [
    (checked_afterwards, 2),
    (reset_on_issue, 115),
    (starts_at_theta, 18),
    (redis_is_the_truth, 42),
    (failures_count_late, 7),
    (old_backups_are_taken, 18),
]


def test_the_bounds_hold_in_every_seed_and_every_fault_strikes() -> None:
    hit: Counter[str] = Counter()
    for seed in range(SEEDS):
        outcome = run(seed)
        assert not outcome.error, "\n".join([*outcome.lines[-30:], outcome.error, f"seed {seed}"])
        hit += outcome.hit
    assert not [name for name in (*STRENGTHS, *BRANCHES) if not hit[name]]


@pytest.mark.parametrize(("mutant", "seed"), FOUND_BY, ids=lambda v: getattr(v, "__name__", ""))
def test_a_planted_defect_is_found(mutant: Mutant, seed: int) -> None:
    expect_found(run, mutant, seed)


if __name__ == "__main__":
    search(run, [mutant for mutant, _ in FOUND_BY])
