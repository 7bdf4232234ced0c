"""Replication plans for topologies of any size: always complete trees, the densest piece next.

PPA section IV-C grows a plan by the connected segments with the highest profit density, the
fidelity gain per replicated partition. Here two passes over the topology (`completion.py`) find the
pieces without units and sub-topologies, by estimating the best piece of every partition at once.
The best estimates are then measured, because estimates ignore what pieces share.
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
STARTS = 8  # first pieces that are tried: the densest one often leaves room that fits nothing
STARTS_PARTITIONS_MAX = 1000  # in larger topologies one piece matters little
EXCHANGES = 8  # the least valuable partitions, which are tried to be exchanged at the end
ROUNDS = 32  # at most: with a large budget a round adds several pieces


def structure_aware(topology: Topology, budget: int) -> ReplicationPlan:
    """O(partitions + substreams) a round. Raises UsageError for a budget outside the topology.

    >>> from random import Random
    >>> from perseid.coordinator.planners.random_topology import draw
    >>> topology = draw(Random(1))
    >>> plan = structure_aware(topology, 20)
    >>> topology.partitions, len(plan.replicate), plan.fidelity > greedy(topology, 20).fidelity
    (34, 20, True)
    """
    check_budget(topology, budget)
    nothing = topology.mask(())
    firsts = pieces(topology, nothing, budget)
    if topology.partitions <= STARTS_PARTITIONS_MAX:
        firsts = [*firsts[:STARTS], _useful_of_greedy(topology, budget)]
    else:
        firsts = firsts[:1]
    grown = [grow(topology, nothing, first, budget) for first in firsts] or [frozenset()]
    best = grown[int(np.argmax(kept_by(topology, grown)))]
    if topology.partitions <= STARTS_PARTITIONS_MAX:
        best = exchanged(topology, best, budget)
    return plan_of(topology, best)


def exchanged(topology: Topology, best: Piece, budget: int) -> Piece:
    """Improves the plan by replacing one partition with another piece, while that helps.

    The rest of a budget may fit nothing, while one partition less would leave room for a tree.
    """
    now = float(kept_by(topology, [best])[0])
    while len(best) < budget:
        value = Completion(topology, topology.mask(best)).value()
        least = sorted(best, key=lambda i: (value[i], i))[:EXCHANGES]
        others = [_without(topology, best, number, budget) for number in least]
        kept = kept_by(topology, others)
        if not others or kept.max() <= now * (1 + 1e-9):
            return best
        best, now = others[int(np.argmax(kept))], float(kept.max())
    return best


def _without(topology: Topology, plan: Piece, number: int, budget: int) -> Piece:
    """The plan without one partition, grown again from the densest piece that does not need it."""
    rest = topology.mask(Completion(topology, topology.mask(plan - {number})).useful())
    found = pieces(topology, rest, budget - int(rest.sum()))
    first = next((piece for piece in found if number not in piece), frozenset())
    return grow(topology, rest, first, budget)


def grow(topology: Topology, plan: Plan, first: Piece, budget: int) -> Piece:
    """Grows a plan that begins with one piece by the densest ones that fit."""
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
    """With a large budget the best plan lacks only the least important ones, as greedy finds."""
    numbers = frozenset(topology.number(*name) for name in greedy(topology, budget).replicate)
    return Completion(topology, topology.mask(numbers)).useful()


def _estimated(completion: Completion, left: int) -> list[Piece]:
    """The pieces with the best estimates that fit."""
    density = completion.density()
    found: dict[Piece, None] = {}
    for number in np.argsort(-density, kind="stable").tolist():
        if density[number] <= 0 or len(found) == MEASURED:
            break
        piece = completion.piece(number)
        if len(piece) <= left:
            found[piece] = None
    return list(found)
