"""Replication plans for topologies of any size: always complete trees, the densest piece next.

PPA section IV-C grows a plan by the connected segments with the highest profit density, the gain in
fidelity a replicated partition. Here the pieces are found without units and sub-topologies, by two
passes over the topology (`completion.py`) that estimate the best piece of every partition at once.
Those with the best estimates are then measured, because estimates do not see what pieces share.
"""

from __future__ import annotations

import numpy as np

from perseid.coordinator.planners.completion import Completion, Piece, Plan
from perseid.coordinator.planners.replication import (
    ReplicationPlan,
    check_budget,
    greedy,
    kept_by,
    plan_of,
)
from perseid.coordinator.planners.topology import Topology

MEASURED = 16  # pieces whose gain is measured in each round
STARTS = 8     # first pieces that are tried: the densest one often leaves a rest that fits nothing
STARTS_PARTITIONS_MAX = 1000  # in larger topologies one piece matters little
ROUNDS = 32    # so many at most: with a large budget a round adds several pieces


def structure_aware(topology: Topology, budget: int) -> ReplicationPlan:
    """O(partitions + substreams) a round. UsageError for a budget outside of the topology."""
    check_budget(topology, budget)
    nothing: Plan = np.zeros(topology.partitions, dtype=bool)
    firsts = pieces(topology, nothing, budget)
    if topology.partitions <= STARTS_PARTITIONS_MAX:
        firsts = [*firsts[:STARTS], _useful_of_greedy(topology, budget)]
    else:
        firsts = firsts[:1]
    grown = [sorted(grow(topology, nothing, first, budget)) for first in firsts] or [[]]
    kept = kept_by(topology, grown)
    return plan_of(topology, grown[int(np.argmax(kept))])


def grow(topology: Topology, plan: Plan, first: Piece, budget: int) -> Piece:
    """What is in a plan that begins with one piece and then takes the densest ones that fit."""
    plan = plan.copy()
    plan[list(first)] = True
    at_once = max(1, budget // ROUNDS)
    while (left := budget - int(plan.sum())) > 0:
        found = pieces(topology, plan, left)
        if not found:
            break
        before = int(plan.sum())
        for piece in found:
            new = [i for i in piece if not plan[i]]
            added = int(plan.sum()) - before
            if added < at_once and added + len(new) <= left:
                plan[new] = True
    return frozenset(np.flatnonzero(plan).tolist())


def pieces(topology: Topology, plan: Plan, left: int) -> list[Piece]:
    """Sets of at most `left` partitions that raise the fidelity, highest measured density first."""
    found = _estimated(Completion(topology, plan), left)
    if not found:
        found = _estimated(Completion(topology, plan, cheapest=True), left)
    now = np.flatnonzero(plan).tolist()
    kept = kept_by(topology, [now, *([*now, *piece] for piece in found)])
    density = {p: (kept[i + 1] - kept[0]) / len(p) for i, p in enumerate(found)}
    return sorted((p for p in found if density[p] > 0), key=lambda p: -density[p])


def _useful_of_greedy(topology: Topology, budget: int) -> Piece:
    """With much budget the best plan is all but the least important, which is what greedy sees."""
    plan: Plan = np.zeros(topology.partitions, dtype=bool)
    plan[[topology.number(*name) for name in greedy(topology, budget).replicate]] = True
    return Completion(topology, plan).useful()


def _estimated(completion: Completion, left: int) -> list[Piece]:
    """Those with the best estimates that fit."""
    density = completion.density()
    found: dict[Piece, None] = {}
    for number in np.argsort(-density, kind="stable").tolist():
        if density[number] <= 0 or len(found) == MEASURED:
            break
        piece = completion.piece(number)
        if len(piece) <= left:
            found[piece] = None
    return list(found)
