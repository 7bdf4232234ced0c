"""The best replication plan, by trying partitions, not trees: the reference for other planners.

It does not use MC-trees, only that fidelity is a sum of products of "this partition lives" with
weights of 0 or more (equations 1 to 3 of PPA). So a partition brings more the more others live, and
its gain while everything undecided lives is the most that it can bring.

>>> from perseid.coordinator.planners.graph import Node, Stream
>>> from perseid.coordinator.planners.topology import Topology
>>> pairs = ((0, 0, 1.0), (1, 1, 3.0))
>>> nodes = [Node("a", 2), Node("b", 2, output_rates=(1.0, 3.0))]
>>> branch_and_bound(Topology(nodes, [Stream("a", "b", pairs)]), 3)
ReplicationPlan(replicate=(('a', 1), ('b', 1)), fidelity=0.75)
"""

from __future__ import annotations

import numpy as np

from perseid.coordinator.planners.fidelity import fidelities
from perseid.coordinator.planners.flow import Ids, Rates
from perseid.coordinator.planners.replication import ReplicationPlan, check_budget, plan_of
from perseid.coordinator.planners.topology import Mask, Topology
from perseid.errors import RefusedError

PARTITIONS_MAX = 24  # 20 take up to a second
SLACK = 1e-9  # relative: gains are differences of sums


def branch_and_bound(topology: Topology, budget: int) -> ReplicationPlan:
    """A best plan within the budget. O(2^partitions) nodes at worst, O(partitions) plans each.

    Raises RefusedError above PARTITIONS_MAX partitions, UsageError for a budget outside the
    topology.
    """
    check_budget(topology, budget)
    if topology.partitions > PARTITIONS_MAX:
        raise RefusedError(
            f"{topology.partitions} partitions, and branch and bound takes {PARTITIONS_MAX} at "
            "most: use structure-aware"
        )
    search = _Search(topology, budget)
    nothing = topology.mask(())
    search.visit(nothing, ~nothing)
    return plan_of(topology, np.flatnonzero(search.best).tolist())


class _Search:
    """Depth first: with the partition that can bring most, then without it."""

    def __init__(self, topology: Topology, budget: int) -> None:
        self._topology, self._budget = topology, budget
        self._operators = [topology.slice(node.name) for node in topology.nodes]
        self.best, self._kept = topology.mask(()), 0.0

    def visit(self, taken: Mask, open_: Mask) -> None:
        """Visits all plans with all of `taken` and no partition outside `taken` and `open_`."""
        left = self._budget - int(taken.sum())
        open_ = open_ & (left > 0)
        whole, gains = self._gains(taken | open_)
        if (taken & (gains == 0)).any():
            return  # it is as good without that one, and another branch visits that plan
        open_ = open_ & (gains > 0)
        if open_.sum() <= left:
            self._offer(taken | open_, whole)
        elif self._bound(taken, open_, gains, left) > self._kept * (1 + SLACK):
            number = int(np.argmax(np.where(open_, gains, -1.0)))
            one = self._topology.mask((number,))
            self.visit(taken | one, open_ & ~one)
            self.visit(taken, open_ & ~one)

    def _offer(self, plan: Mask, kept: float) -> None:
        if kept > self._kept * (1 + SLACK):
            self.best, self._kept = plan, kept

    def _gains(self, living: Mask) -> tuple[float, Rates]:
        """What all these partitions keep together, and how much of it each of them brings."""
        numbers: Ids = np.flatnonzero(living)
        failed = np.tile(~living, (len(numbers) + 1, 1))
        failed[np.arange(len(numbers)), numbers] = True
        kept = fidelities(self._topology, failed)
        gains = np.zeros(len(living))
        gains[numbers] = kept[-1] - kept[:-1]
        gains[gains <= SLACK * kept[-1]] = 0.0
        return float(kept[-1]), gains

    def _bound(self, taken: Mask, open_: Mask, gains: Rates, left: int) -> float:
        """The least over operators: what is kept without its open ones, plus its best gains."""
        failed = np.tile(~(taken | open_), (len(self._operators), 1))
        for row, place in zip(failed, self._operators, strict=True):
            row[place] |= open_[place]
        without = fidelities(self._topology, failed)
        lacking = [bool(w == 0) and not taken[p].any() for w, p in self._pairs(without)]
        bounds = []
        for (kept, place), lacks in zip(self._pairs(without), lacking, strict=True):
            room = left - (sum(lacking) - lacks)  # others that need at least one each
            best = np.sort(np.where(open_, gains, 0.0)[place])[::-1][: max(room, 0)]
            bounds.append(float(kept + best.sum()))
        return min(bounds)

    def _pairs(self, values: Rates) -> list[tuple[float, slice]]:
        return list(zip(values.tolist(), self._operators, strict=True))
