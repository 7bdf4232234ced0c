"""Adapts a running replication plan to new rates, within a number of moves.

PPA leaves this open (section V-C). A move starts a replica, which costs a restore and a catch-up;
stopping one costs nothing. The least valuable partitions are removed from the running plan, step by
step more of them, and each time the freed budget is filled with at most `moves` new ones. The best
candidate is chosen if it gains enough: rates fluctuate, and a plan that follows every change would
never finish catching up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from perseid.coordinator.planners import checks
from perseid.coordinator.planners.completion import Completion, Piece
from perseid.coordinator.planners.replication import ReplicationPlan, check_budget, kept_by, plan_of
from perseid.coordinator.planners.structure_aware import grow
from perseid.coordinator.planners.topology import Topology

GAIN_MIN = 0.02  # of fidelity: hysteresis
TRIES_MAX = 64  # numbers of removed partitions that are tried, spread evenly
SINGLES_MAX = 64  # in so small a plan every partition is also removed alone


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The next plan and the changes; both are empty if the running plan stays."""

    plan: ReplicationPlan
    start: tuple[tuple[str, int], ...]
    stop: tuple[tuple[str, int], ...]


def adapt(
    topology: Topology,
    running: Collection[tuple[str, int]],
    budget: int,
    moves: int,
    gain_min: float = GAIN_MIN,
) -> Adaptation:
    """`topology` has the new rates. O(moves * substreams); grows TRIES_MAX + SINGLES_MAX plans.

    A running plan above the budget shrinks at once, at any loss.

    >>> from perseid.coordinator.planners.graph import Node, Stream
    >>> pairs = ((0, 0, 1.0), (1, 1, 3.0))
    >>> nodes = [Node("a", 2), Node("b", 2, output_rates=(1.0, 3.0))]
    >>> topology = Topology(nodes, [Stream("a", "b", pairs)])
    >>> adapt(topology, [("a", 0), ("b", 0)], budget=2, moves=2).start
    (('a', 1), ('b', 1))
    """
    check_budget(topology, budget)
    checks.whole("moves", moves)
    checks.within("the gain that a change must bring", gain_min, 0.0, 1.0)
    have = frozenset(topology.number(*partition) for partition in running)
    rests = _shrinking(topology, have, max(budget - moves, 0))
    if len(have) <= SINGLES_MAX:  # the order may remove the wrong one of two
        rests += [have - {one} for one in sorted(have)]
    candidates = [_filled(topology, rest, budget, moves) for rest in rests if len(rest) <= budget]
    kept = kept_by(topology, [sorted(have), *map(sorted, candidates)])
    best = int(np.argmax(kept[1:]))
    if len(have) <= budget and kept[best + 1] - kept[0] < gain_min:
        return Adaptation(plan_of(topology, have), (), ())
    chosen = candidates[best]
    return Adaptation(
        plan_of(topology, chosen),
        tuple(topology.name_of(i) for i in sorted(chosen - have)),
        tuple(topology.name_of(i) for i in sorted(have - chosen)),
    )


def _shrinking(topology: Topology, have: Piece, size_min: int) -> list[Piece]:
    """The plan with its least valuable partitions removed, one more in each step.

    A plan smaller than `size_min` cannot be filled up to the budget and is no better.
    """
    found, rest = [have], set(have)
    while len(rest) > size_min:
        value = Completion(topology, topology.mask(rest)).value()
        least = min(rest, key=lambda i: (value[i], i))
        rest.discard(least)
        found.append(frozenset(rest))
    step = -(-len(found) // TRIES_MAX)
    return [*found[::step], found[-1]]


def _filled(topology: Topology, rest: Piece, budget: int, moves: int) -> Piece:
    """Adds the densest pieces that moves and budget allow; removes what is in no complete tree.

    A partition that stays counts as no move, even if its tree must be completed again.
    """
    size = min(budget, len(rest) + moves)
    grown = grow(topology, topology.mask(rest), frozenset(), size)
    return Completion(topology, topology.mask(grown)).useful()
