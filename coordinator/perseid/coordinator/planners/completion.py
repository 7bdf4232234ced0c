"""For every partition outside a plan: which partitions must join it so that it contributes.

Replaces the units and connected segments of PPA section IV-C.

1. Down the topology: how much of its output a partition would have, with the best choice of what to
   add before it, and how many partitions that costs. A join needs each of its inputs, any other
   operator one; inputs that the plan keeps alive cost nothing.
2. Up the topology: how much of its output would reach a sink, with the best choice of what to add
   after it, and what these partitions need in addition.

>>> from perseid.coordinator.planners.graph import Node, Stream
>>> pairs = ((0, 0, 1.0), (1, 1, 3.0))
>>> nodes = [Node("a", 2), Node("b", 2, output_rates=(1.0, 3.0))]
>>> topology = Topology(nodes, [Stream("a", "b", pairs)])
>>> completion = Completion(topology, topology.mask(()))
>>> completion.density().tolist(), sorted(completion.piece(1))
([0.125, 0.375, 0.125, 0.375], [1, 3])

Best is the highest share a partition added. Each pass is O(substreams), vectorised by operator.
"""

from __future__ import annotations

import numpy as np

from perseid.coordinator.planners.fidelity import kept
from perseid.coordinator.planners.flow import Flow, Ids, Rates
from perseid.coordinator.planners.topology import Mask, Topology

Plan = Mask  # by partition: whether it is replicated
Piece = frozenset[int]  # numbers of partitions that contribute together
NONE = -1


class Completion:
    """Both passes over one plan, in which all trees are complete."""

    def __init__(self, topology: Topology, plan: Plan, *, cheapest: bool = False) -> None:
        """`cheapest` looks for the fewest partitions instead, whatever they contribute."""
        n = topology.partitions
        self._cheapest = cheapest
        self._topology, self._plan = topology, plan
        self._alive = kept(topology, ~plan)
        # Upstream: the output it would have, and the number of partitions to add; by operator and
        # input, which partition it needs.
        self._have, self._cost = np.ones(n), np.zeros(n)
        self._needs: dict[str, list[Ids]] = {}
        self._there: dict[str, list[Rates]] = {}
        self._price: dict[str, list[Rates]] = {}
        # Downstream: what reaches a sink, the number of partitions to add, through which partition,
        # and as which of its inputs.
        self._reach, self._cost_downstream = topology.output_weights.copy(), np.zeros(n)
        self._through, self._as_input = np.full(n, NONE), np.full(n, NONE)
        self._kept_reach, self._offered = np.zeros(n), np.zeros(n)
        for node in topology.nodes:
            self._look_before(node.name)
        for node in reversed(topology.nodes):
            self._look_downstream(node.name)

    def density(self) -> Rates:
        """By partition: estimated fidelity gain of its piece per partition; 0 inside the plan."""
        gain = self._have * self._reach / (1 + self._cost + self._cost_downstream)
        return np.asarray(np.where(self._plan, 0.0, gain))

    def value(self) -> Rates:
        """By partition of the plan: the fidelity that is lost with it alone."""
        return np.asarray(np.where(self._plan, self._alive * self._reach, 0.0))

    def useful(self) -> Piece:
        """The partitions of the plan that are in a complete tree."""
        return frozenset(np.flatnonzero(self.value() > 0).tolist())

    def piece(self, number: int) -> Piece:
        """The partition and all that it needs, without what the plan has."""
        found: set[int] = set()
        self._add(number, found)
        while (downstream := int(self._through[number])) != NONE:
            came_as = int(self._as_input[number])
            self._add(downstream, found, but=came_as)
            number = downstream
        return frozenset(found)

    def _add(self, number: int, found: set[int], but: int = NONE) -> None:
        """Adds it with its upstream needs: not those of input `but`; none if it is no join."""
        found.add(number)
        name, partition = self._topology.name_of(number)
        if but != NONE and self._topology.node(name).input == "independent":
            return
        # Not recursive: a pipeline may be longer than Python's stack allows.
        waiting = [needs[partition] for i, needs in enumerate(self._needs[name]) if i != but]
        while waiting:
            if (needed := int(waiting.pop())) != NONE:
                found.add(needed)
                name, partition = self._topology.name_of(needed)
                waiting += [needs[partition] for needs in self._needs[name]]

    def _look_before(self, name: str) -> None:
        node, place = self._topology.node(name), self._topology.slice(name)
        flows = self._topology.flows[name]
        if not flows:
            self._needs[name] = []
            return
        options = [self._best_option(flow, place.start, node.parallelism) for flow in flows]
        base = [self._base(flow, place.start, node.parallelism) for flow in flows]
        if node.input == "correlated":
            there = [np.where(b > 0, b, o[0]) for b, o in zip(base, options, strict=True)]
            price = [np.where(b > 0, 0, o[1]) for b, o in zip(base, options, strict=True)]
            needs = [np.where(b > 0, NONE, o[2]) for b, o in zip(base, options, strict=True)]
            self._have[place] = np.prod(there, axis=0)
        else:
            shares = self._topology.shares[name]
            lives = np.sum([s * b for s, b in zip(shares, base, strict=True)], axis=0)
            worth = np.array([s * o[0] for s, o in zip(shares, options, strict=True)])
            price_each = np.array([o[1] for o in options])
            best = np.argmax(self._score(worth, np.maximum(price_each, 1)), axis=0)
            chosen = np.arange(len(flows))[:, None] == best
            wanted = chosen & (lives == 0)
            price = list(np.where(wanted, price_each, 0))
            needs = list(np.where(wanted, np.array([o[2] for o in options]), NONE))
            there = list(np.where(wanted, worth, 0))
            self._have[place] = lives + np.sum(there, axis=0)
        self._there[name], self._price[name], self._needs[name] = there, price, needs
        self._cost[place] = np.sum(price, axis=0)

    def _base(self, flow: Flow, first: int, parallelism: int) -> Rates:
        """The share of this input that the plan keeps alive."""
        base = np.zeros(parallelism)
        base[flow.targets - first] = flow.received(self._alive)
        return base

    def _best_option(self, flow: Flow, first: int, parallelism: int) -> tuple[Rates, Rates, Ids]:
        """By partition: the input partition to add, what it contributes of this input, its cost."""
        worth = np.where(self._plan[flow.sources], 0.0, self._have[flow.sources])
        price = 1 + self._cost[flow.sources]
        at, weight = flow.best_source(self._score(worth, price), alike=self._cheapest)
        brings, costs = np.zeros(parallelism), np.zeros(parallelism)
        whom = np.full(parallelism, NONE)
        here = flow.targets - first
        brings[here], costs[here], whom[here] = weight * worth[at], price[at], flow.sources[at]
        return brings, costs, whom

    def _look_downstream(self, name: str) -> None:
        """Closes this operator's partitions, then offers them to those before it."""
        self._close(self._topology.slice(name))
        node, first = self._topology.node(name), self._topology.slice(name).start
        for index, flow in enumerate(self._topology.flows[name]):
            here = flow.targets - first
            if node.input == "correlated":
                others = [t for i, t in enumerate(self._there[name]) if i != index]
                more = [p for i, p in enumerate(self._price[name]) if i != index]
                part = np.prod(others, axis=0)[here] if others else 1.0
                alongside = np.sum(more, axis=0)[here] if more else 0.0
            else:
                part, alongside = self._topology.shares[name][index][here], 0.0
            reach = part * self._reach[flow.targets]
            lives = self._plan[flow.targets]
            self._kept_reach[flow.sources] += flow.sent(np.where(lives, reach, 0.0))
            price = 1 + alongside + self._cost_downstream[flow.targets]
            self._offer(flow, np.where(lives, 0.0, reach), price, index)

    def _score(self, value: Rates, price: Rates) -> Rates:
        return np.asarray((value > 0 if self._cheapest else value) / price)

    def _close(self, place: slice) -> None:
        """All consumers have made their offers: takes the best one if it is worth its price."""
        lives, offered = self._kept_reach[place], self._offered[place]
        whole = self._score(lives + offered, 1 + self._cost_downstream[place])
        better = ~self._plan[place] & (whole > self._score(lives, np.ones(len(lives))))
        self._reach[place] += lives + np.where(better, offered, 0.0)
        self._cost_downstream[place] *= better
        self._through[place] = np.where(better, self._through[place], NONE)

    def _offer(self, flow: Flow, reach: Rates, price: Rates, index: int) -> None:
        """Offers a stream's best target to the partitions before it, if it beats earlier ones."""
        at, weight = flow.best_target(self._score(reach, price), alike=self._cheapest)
        sources, reach, price = flow.sources, weight * reach[at], price[at]
        before = self._score(self._offered[sources], np.maximum(self._cost_downstream[sources], 1))
        won = self._score(reach, price) > before
        sources, at = sources[won], at[won]
        self._offered[sources], self._cost_downstream[sources] = reach[won], price[won]
        self._through[sources], self._as_input[sources] = flow.targets[at], index
