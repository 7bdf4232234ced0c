"""Which fragments move to which worker, so that each worker has its share. Pure.

1. A job's fragments are on as many workers as it wants, as far as there are so many.
2. The numbers of fragments of any two workers differ by one at most, over all jobs.

No fragment moves twice, and none that need not. A move for the second rule keeps the first: of a
job that has more fragments on the source than on the target, one moves. Among equals those that
were placed first move first; workers count in the order of their incarnations, as in `placement`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

UNEVEN = 2  # a difference that a move lessens


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the fragments of one job run: `owners` by fragment, those placed first before others.

    `wanted`: on how many workers. `replicas`: by fragment, the worker with its replica, to which it
    does not move. `may_move`: False for a job that is not to be disturbed now; it only counts.
    """

    job: str
    owners: Mapping[str, str]
    wanted: int = 1
    replicas: Mapping[str, str] = field(default_factory=dict)
    may_move: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """One fragment to another worker. Workers are incarnations."""

    job: str
    fragment: str
    source: str
    target: str
    why: str


def moves(workers: Collection[str], jobs: Sequence[Placed]) -> tuple[Move, ...]:
    """The moves that make it even, in order; empty where it is. `jobs`: the oldest first.

    `workers`: the live ones that may get fragments. What others own neither counts nor moves.
    """
    board = _Board(workers, jobs)
    found: list[Move] = []
    while (move := board.next_move()) is not None:
        board.make(move)
        found.append(move)
    return tuple(found)


class _Board:
    """Where everything is after the moves so far."""

    def __init__(self, workers: Collection[str], jobs: Sequence[Placed]) -> None:
        self._workers, self._jobs = sorted(workers), jobs
        self._owners = {job.job: dict(job.owners) for job in jobs}
        self._moved: set[tuple[str, str]] = set()
        live = set(workers)
        self._own = {
            job.job: Counter(owner for owner in job.owners.values() if owner in live)
            for job in jobs
        }  # fmt: skip
        self._loads = sum(self._own.values(), Counter({worker: 0 for worker in workers}))

    def next_move(self) -> Move | None:
        return next(self._spreading(), None) or next(self._evening(), None)

    def make(self, move: Move) -> None:
        self._owners[move.job][move.fragment] = move.target
        self._moved.add((move.job, move.fragment))
        for counts in (self._own[move.job], self._loads):
            counts[move.source] -= 1
            counts[move.target] += 1

    def _spreading(self) -> Iterator[Move]:
        """Moves of jobs that are on too few workers, to one that has none of the job."""
        for job in self._jobs:
            own = self._own[job.job]
            has, wanted = sum(n > 0 for n in own.values()), min(job.wanted, len(self._workers))
            if not job.may_move or has >= wanted:
                continue
            why = f"{job.job} runs on {has} of the {wanted} workers that it may have"
            crowded = sorted(
                (w for w in self._workers if own[w] > 1),
                key=lambda w: (-own[w], -self._loads[w]),
            )
            for source in crowded:
                for target in self._lightest():
                    if not own[target]:
                        yield from self._of(job, source, target, why)

    def _evening(self) -> Iterator[Move]:
        """Moves from a worker that has at least two fragments more than the target."""
        lightest = self._lightest()
        for source in sorted(self._workers, key=lambda w: -self._loads[w]):
            for target in lightest:
                more, fewer = self._loads[source], self._loads[target]
                if more - fewer < UNEVEN:
                    break
                why = f"{source} has {more} fragments, and {target} has {fewer}"
                for job in self._by_surplus(source, target):
                    yield from self._of(job, source, target, why)

    def _by_surplus(self, source: str, target: str) -> list[Placed]:
        """The jobs with more fragments on `source`, the largest difference first."""
        surplus = {name: own[source] - own[target] for name, own in self._own.items()}
        able = [job for job in self._jobs if job.may_move and surplus[job.job] > 0]
        return sorted(able, key=lambda job: -surplus[job.job])

    def _of(self, job: Placed, source: str, target: str, why: str) -> Iterator[Move]:
        for fragment, owner in self._owners[job.job].items():
            if (
                owner == source and (job.job, fragment) not in self._moved
                and job.replicas.get(fragment) != target
            ):  # fmt: skip
                yield Move(job.job, fragment, source, target, why)

    def _lightest(self) -> list[str]:
        return sorted(self._workers, key=lambda w: self._loads[w])
