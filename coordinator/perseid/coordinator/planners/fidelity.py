"""How much of the input still reaches the output when partitions have failed (PPA section III-A).

The loss of a partition is the share of its output that is lost: 1 if it has failed, else what its
inputs lack. One pass over the topology, vectorised over partitions and over any number of failures
at once: O(substreams) for each failure.

Figure 2 of the paper, partition 1 of `right` has failed:

>>> from perseid.coordinator.planners.graph import Node, Stream
>>> from perseid.coordinator.planners.topology import Topology
>>> def figure(kind):
...     return Topology(
...         [Node("left", 2), Node("right", 2), Node("out", 1, kind, (1.0,))],
...         [Stream("left", "out", ((0, 0, 1.0), (1, 0, 2.0))),
...          Stream("right", "out", ((0, 0, 3.0), (1, 0, 2.0)))],
...     )
>>> [1 - fidelity(figure(kind), [("right", 1)]) for kind in ("correlated", "independent")]
[0.4, 0.25]
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perseid.coordinator.planners.flow import Rates
from perseid.coordinator.planners.graph import Node, TopologyError
from perseid.coordinator.planners.topology import Mask, Topology


def fidelity(topology: Topology, failed: Iterable[tuple[str, int]]) -> float:
    """Output fidelity when exactly these partitions have failed. TopologyError for unknown ones."""
    mask = topology.mask(topology.number(*partition) for partition in failed)
    return float(fidelities(topology, mask))


def fidelities(topology: Topology, failed: Mask) -> Rates:
    """Output fidelity of each row of `failed`, equation 4: shape (...), in [0, 1]."""
    return np.asarray(np.clip(kept(topology, failed) @ topology.output_weights, 0.0, 1.0))


def losses(topology: Topology, failed: Mask) -> Rates:
    """The information loss of every partition, equations 1 to 3: shape of `failed`, in [0, 1]."""
    return 1 - kept(topology, failed)


def kept(topology: Topology, failed: Mask) -> Rates:
    """1 less the loss, computed directly: kept shares of many joins are too small for 1 - loss."""
    if failed.shape[-1:] != (topology.partitions,):
        raise TopologyError(
            f"failures of shape {failed.shape}: one a partition, and there are "
            f"{topology.partitions}"
        )
    found = np.where(failed, 0.0, 1.0)
    for node in topology.nodes:
        if topology.flows[node.name]:
            found[..., topology.slice(node.name)] *= _passed_on(topology, node, found)
    return found


def _passed_on(topology: Topology, node: Node, found: Rates) -> Rates:
    """What an operator's partitions keep if they live, from what their upstream ones keep."""
    first, correlated = topology.slice(node.name).start, node.input == "correlated"
    result = np.full((*found.shape[:-1], node.parallelism), 1.0 if correlated else 0.0)
    for flow, share in zip(topology.flows[node.name], topology.shares[node.name], strict=True):
        of_input = flow.received(found)
        here = flow.targets - first
        if correlated:
            result[..., here] *= of_input
        else:
            result[..., here] += share[here] * of_input
    return result
