"""Defects of approximate fault tolerance."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator.planners.backups import Backups
from perseid.coordinator.planners.thresholds import Bounds, Thresholds, thresholds
from perseid.testing.simulation import approximate
from perseid.testing.simulation.approximate import Owner, Store


def checked_afterwards() -> AbstractContextManager[Any]:
    """A backup is due only once the threshold is exceeded, after the exceeding item was applied."""

    def room(self: Backups) -> int:
        return 1000 if self.since_durable <= self.theta else 0

    return patch.object(Backups, "room", property(room))


def reset_on_issue() -> AbstractContextManager[Any]:
    """The divergence is reset when a backup is sent, not when it is known to be durable."""

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
    """The divergence is read from Redis."""
    publish = Owner.publish

    def mutant(self: Owner) -> None:
        publish(self)
        found, sent = self.counter(), self.backups.at_issue
        value = found.value if found else 0.0
        at_issue = None if sent is None else min(sent, value)
        self.backups = replace(self.backups, since_durable=value, at_issue=at_issue)

    return patch.object(Owner, "publish", mutant)


def failures_count_late() -> AbstractContextManager[Any]:
    """Work starts first, and the failure is counted some time later."""

    def mutant(self: Owner) -> None:
        def count() -> None:
            self.world.simulation.sleep(0.5)
            self.world.failures += 1

        if self.generation > 1:
            self._spawn(count)

    return patch.object(Owner, "count_failure", mutant)


def old_backups_are_taken() -> AbstractContextManager[Any]:
    """A backup that arrives late, or from a previous owner, becomes the newest."""

    def mutant(self: Store, stamp: tuple[int, int], applied: float, cursor: int) -> None:
        self.stamp, self.applied, self.cursor = stamp, applied, cursor

    return patch.object(Store, "put", mutant)
