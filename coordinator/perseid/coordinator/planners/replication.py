"""Which partitions to replicate under a budget: the common result and the simple algorithms.

A plan is judged by the worst case of PPA definition 2: everything outside of it has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.fidelity import fidelities
from perseid.coordinator.planners.flow import Ids, Rates
from perseid.coordinator.planners.mc_trees import Tree, mc_trees
from perseid.coordinator.planners.topology import Mask, Topology
from perseid.errors import RefusedError, UsageError

PLANS_MAX = 500_000  # candidate plans of the dynamic programme: some 100 MB
_AT_ONCE = 4096  # masks evaluated together: 40 MB at 10,000 partitions


@dataclass(frozen=True, slots=True)
class ReplicationPlan:
    """The replicated partitions in topological order, and the fidelity that they keep."""

    replicate: tuple[tuple[str, int], ...]
    fidelity: float


def check_budget(topology: Topology, budget: int) -> None:
    """Raises UsageError unless 0 <= budget <= partitions."""
    if budget not in range(topology.partitions + 1):
        raise UsageError(
            f"a budget of {checks.shown(budget)}: the topology has {topology.partitions} "
            f"partitions, so 0 to {topology.partitions}"
        )


def plan_of(topology: Topology, numbers: Iterable[int]) -> ReplicationPlan:
    chosen = sorted(numbers)
    (kept,) = kept_by(topology, [chosen])
    return ReplicationPlan(tuple(topology.name_of(i) for i in chosen), float(kept))


def kept_by(topology: Topology, plans: Sequence[Iterable[int]]) -> Rates:
    """The fidelity of each plan when all partitions outside of it have failed."""
    found = []
    for start in range(0, len(plans), _AT_ONCE):
        some = plans[start : start + _AT_ONCE]
        failed: Mask = np.ones((len(some), topology.partitions), dtype=bool)
        for row, plan in enumerate(some):
            failed[row] = ~topology.mask(plan)
        found.append(fidelities(topology, failed))
    return np.concatenate(found) if found else np.zeros(0)


def greedy(topology: Topology, budget: int) -> ReplicationPlan:
    """The partitions whose failure alone would hurt most (PPA algorithm 2).

    O(partitions * substreams). It ignores that only complete trees contribute, so it serves as a
    baseline.
    """
    check_budget(topology, budget)
    alone = alone_failed(topology)
    order: Ids = np.argsort(alone, kind="stable")
    return plan_of(topology, order[:budget].tolist())


def alone_failed(topology: Topology) -> Rates:
    """The fidelity when exactly this one partition has failed, for each."""
    rows = []
    for start in range(0, topology.partitions, _AT_ONCE):
        some = np.arange(start, min(start + _AT_ONCE, topology.partitions))
        failed = np.zeros((len(some), topology.partitions), dtype=bool)
        failed[np.arange(len(some)), some] = True
        rows.append(fidelities(topology, failed))
    return np.concatenate(rows)


def optimal(topology: Topology, budget: int, plans_max: int = PLANS_MAX) -> ReplicationPlan:
    """The best plan, the smallest of equally good ones (PPA algorithm 1 and theorem 1).

    >>> from perseid.coordinator.planners.graph import Node, Stream
    >>> pairs = ((0, 0, 1.0), (1, 1, 3.0))
    >>> nodes = [Node("a", 2), Node("b", 2, output_rates=(1.0, 3.0))]
    >>> topology = Topology(nodes, [Stream("a", "b", pairs)])
    >>> optimal(topology, 2), greedy(topology, 1).fidelity
    (ReplicationPlan(replicate=(('a', 1), ('b', 1)), fidelity=0.75), 0.0)

    Dynamic programming over unions of MC-trees, each plan once: at worst O(2^trees) plans,
    O(trees) each. RefusedError beyond `plans_max` of them, or when the trees cannot be listed.
    """
    check_budget(topology, budget)
    trees = [tree for tree in mc_trees(topology) if len(tree) <= budget]
    plans: set[Tree] = {frozenset()}
    fresh = plans
    while fresh:
        fresh = {
            grown
            for plan in fresh
            for tree in trees
            if len(grown := plan | tree) <= budget and grown not in plans
        }
        plans |= fresh
        if len(plans) > plans_max:
            raise RefusedError(
                f"more than {plans_max} candidate plans: use structure-aware, or a smaller budget"
            )
    ordered = sorted(plans, key=lambda plan: (len(plan), sorted(plan)))
    kept = kept_by(topology, ordered)
    # Rounding must not make a larger plan look better.
    best = int(np.flatnonzero(kept >= kept.max() - 1e-12)[0])
    return plan_of(topology, ordered[best])
