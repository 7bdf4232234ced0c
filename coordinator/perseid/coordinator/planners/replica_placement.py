"""Where the copies of replicated partitions run: on the next worker of a chain, in another domain.

Chained declustering, as Flux places process pairs (section 5.4): the copies of one worker's
partitions are on the next worker, so that a failure's load goes to one neighbour, and only the
joint failure of two neighbours loses something. The chain is ordered so that neighbours are in
different failure domains wherever possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from perseid.errors import BadInputError, RefusedError

Partition = tuple[str, int]


def place_replicas(
    primaries: Mapping[Partition, str],
    replicate: Collection[Partition],
    domains: Mapping[str, str],
) -> dict[Partition, str]:
    """The worker of each replica. `primaries`: workers of partitions; `domains`: of workers.

    Raises RefusedError if no worker is in another domain than the primary's, BadInputError for
    unknown names. O(workers^2 + partitions).

    >>> place_replicas({("a", 0): "w1", ("a", 1): "w2"}, [("a", 0)], {"w1": "r1", "w2": "r2"})
    {('a', 0): 'w2'}
    """
    for worker in primaries.values():
        if worker not in domains:
            raise BadInputError(f"worker {worker} runs partitions and has no failure domain")
    order = chain(domains)
    after: dict[str, str] = {}
    found = {}
    for partition in sorted(replicate):
        if partition not in primaries:
            name, number = partition
            raise BadInputError(f"{name}[{number}] is to be replicated and runs nowhere")
        worker = primaries[partition]
        if worker not in after:
            after[worker] = _after(order, worker, domains)
        found[partition] = after[worker]
    return found


def chain(domains: Mapping[str, str]) -> list[str]:
    """The workers, one of each domain in turn, the domains with most workers first.

    >>> chain({"w1": "r1", "w2": "r1", "w3": "r2", "w4": "r2"})
    ['w1', 'w3', 'w2', 'w4']
    """
    of_domain: dict[str, list[str]] = defaultdict(list)
    for worker in sorted(domains):
        of_domain[domains[worker]].append(worker)
    # Fills every second place first, so that only a domain with more than half of all workers has
    # two next to each other.
    ranked = sorted(of_domain, key=lambda d: (-len(of_domain[d]), d))
    waiting = [worker for domain in ranked for worker in of_domain[domain]]
    places = [*range(0, len(waiting), 2), *range(1, len(waiting), 2)]
    order = [""] * len(waiting)
    for place, worker in zip(places, waiting, strict=True):
        order[place] = worker
    return order


def _after(order: list[str], worker: str, domains: Mapping[str, str]) -> str:
    start = order.index(worker)
    for step in range(1, len(order)):
        other = order[(start + step) % len(order)]
        if domains[other] != domains[worker]:
            return other
    raise RefusedError(
        f"all workers are in the failure domain {domains[worker]} of {worker}: a copy there would "
        "fail with it; start a worker in another domain"
    )
