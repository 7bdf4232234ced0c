"""How long a placement of replicas lasts on average until something is lost (Flux section 2).

A pair of workers that has both copies of a partition loses it if one fails while the other is being
recovered. The paper's time is MTTF^2 / MTTR. It is half of that if either may fail first, as a
simulation in the tests shows. A worker with an unreplicated partition loses it when it fails.
Failures are assumed independent, and MTTR much smaller than MTTF.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from perseid.coordinator.planners import checks
from perseid.errors import BadInputError, UsageError

Partition = tuple[str, int]


def mean_time_to_failure_s(
    primaries: Mapping[Partition, str],
    replicas: Mapping[Partition, str],
    worker_mttf_s: float,
    worker_mttr_s: float,
) -> float:
    """Seconds; infinite without partitions. O(partitions).

    Raises UsageError for times that are not above 0, or an MTTR that is not below the MTTF;
    BadInputError for a replica without a primary, or on its primary's worker.

    Four machines in two pairs, 2 * MTTF^2 / (N * MTTR):

    >>> primaries = {("a", i): f"w{i}" for i in range(4)}
    >>> replicas = {("a", i): f"w{i ^ 1}" for i in range(4)}
    >>> round(mean_time_to_failure_s(primaries, replicas, 1000.0, 10.0))
    50000
    """
    checks.positive("a worker's MTTF", worker_mttf_s, unit=" s")
    checks.positive("a worker's MTTR", worker_mttr_s, unit=" s")
    if worker_mttr_s >= worker_mttf_s:
        raise UsageError(
            f"a worker's MTTR is {worker_mttr_s}: less than its MTTF, {worker_mttf_s}, both in s"
        )
    _check(primaries, replicas)
    alone = {worker for partition, worker in primaries.items() if partition not in replicas}
    pairs = {
        frozenset((worker, replicas[partition]))
        for partition, worker in primaries.items()
        if partition in replicas
    }
    # In units of the MTTF, because its square may exceed a float.
    rate = len(alone) + len(pairs) * (worker_mttr_s / worker_mttf_s)
    return worker_mttf_s / rate if rate else math.inf


def _check(primaries: Mapping[Partition, str], replicas: Mapping[Partition, str]) -> None:
    for (name, number), worker in replicas.items():
        if (name, number) not in primaries:
            raise BadInputError(f"the replica of {name}[{number}] on {worker} has no primary")
        if primaries[name, number] == worker:
            raise BadInputError(
                f"{name}[{number}] has its primary and its replica on {worker}: a replica is on "
                "another worker"
            )
