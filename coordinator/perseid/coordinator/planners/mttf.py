"""How long a placement of replicas lasts on average until something is lost (Flux section 2).

A pair of workers that has both copies of a partition loses it when one fails while the other is
being recovered: MTTF^2 / MTTR in the paper, and half of that if either may be the first, as a test
that plays it shows. A worker with a partition that has no copy loses it when it fails. Failures
are taken as independent, and MTTR as much smaller than MTTF.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perseid.errors import UsageError

Partition = tuple[str, int]


def mean_time_to_failure_s(
    primaries: Mapping[Partition, str],
    replicas: Mapping[Partition, str],
    worker_mttf_s: float,
    worker_mttr_s: float,
) -> float:
    """Seconds; infinite without partitions. O(partitions).

    UsageError for times that are not above 0.

    Four machines in two pairs, 2 * MTTF^2 / (N * MTTR):

    >>> primaries = {("a", i): f"w{i}" for i in range(4)}
    >>> replicas = {("a", i): f"w{i ^ 1}" for i in range(4)}
    >>> round(mean_time_to_failure_s(primaries, replicas, 1000.0, 10.0))
    50000
    """
    for name, value in (("MTTF", worker_mttf_s), ("MTTR", worker_mttr_s)):
        if not (math.isfinite(value) and value > 0):
            raise UsageError(f"a worker's {name} is {value} s: more than 0")
    alone = {worker for partition, worker in primaries.items() if partition not in replicas}
    pairs = {
        frozenset((worker, replicas[partition]))
        for partition, worker in primaries.items()
        if partition in replicas
    }
    rate = len(alone) / worker_mttf_s + len(pairs) * worker_mttr_s / worker_mttf_s**2
    return 1 / rate if rate else math.inf
