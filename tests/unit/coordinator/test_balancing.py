"""Which fragments move: few, to an even end, the same ones wherever it is computed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from perseid.coordinator.balancing import Move, Placed, moves

JOBS = 4


def job(name: str, owners: str, wanted: int = 1, **changes: object) -> Placed:
    """`owners`: a letter for each fragment, the worker's."""
    found = Placed(name, {str(at): owner for at, owner in enumerate(owners)}, wanted)
    return replace(found, **changes)  # type: ignore[arg-type]


def short(found: Sequence[Move]) -> str:
    return " ".join(f"{m.job}.{m.fragment}:{m.source}>{m.target}" for m in found)


@pytest.mark.parametrize(
    ("workers", "jobs", "expected"),
    [
        ("ab", [job("x", "a")], ""),
        ("ab", [job("x", "a"), job("y", "b")], ""),
        ("ab", [job("x", "a"), job("y", "a")], "x.0:a>b"),
        ("abc", [job("x", "ab", 2)], ""),
        ("abc", [job("x", "aab", 3)], "x.0:a>c"),
        ("abc", [job("x", "aabb", 2)], "x.0:a>c"),
        ("ab", [job("x", "aa", 2), job("y", "b"), job("z", "b")], "x.0:a>b y.0:b>a"),
        ("abc", [job("x", "abababab", 8)], "x.0:a>c x.1:b>c"),
        ("abcd", [job("x", "aaaaaaaa", 8)],
         "x.0:a>b x.1:a>c x.2:a>d x.3:a>b x.4:a>c x.5:a>d"),
        ("ab", [job("x", "a"), job("y", "a"), job("z", "a")], "x.0:a>b"),
        ("ab", [job("x", "aa"), job("y", "a"), job("z", "a")], "x.0:a>b y.0:a>b"),
        ("a", [job("x", "aa", 2)], ""),
        ("", [job("x", "aa", 2)], ""),
        ("ab", [job("x", "cccc", 2)], ""),  # of a worker that leaves or is gone
    ],
)  # fmt: skip
def test_what_moves(workers: str, jobs: list[Placed], expected: str) -> None:
    assert short(moves(workers, jobs)) == expected


def test_a_job_that_may_not_move_counts_and_stays() -> None:
    jobs = [job("x", "a", may_move=False), job("y", "a"), job("z", "aa", 2, may_move=False)]
    assert short(moves("ab", jobs)) == "y.0:a>b"
    assert moves("ab", [replace(one, may_move=False) for one in jobs]) == ()


def test_no_fragment_moves_to_the_worker_of_its_replica() -> None:
    jobs = [job("x", "a", replicas={"0": "b"}), job("y", "a", replicas={"0": "c"})]
    assert short(moves("ab", jobs)) == "y.0:a>b"
    assert moves("ab", [jobs[0], job("y", "a", replicas={"0": "b"})]) == ()


def test_each_move_names_its_reason() -> None:
    spread, even = moves("ab", [job("x", "aa", 2), job("y", "b"), job("z", "b")])
    assert spread.why == "x runs on 1 of the 2 workers that it may have"
    assert even.why == "b has 3 fragments, and a has 1"


def drawn(seed: int) -> tuple[str, list[Placed]]:
    rng = random.Random(seed)
    workers = "abcde"[: rng.randint(2, 5)]
    return workers, [
        job(
            f"j{n}", "".join(rng.choice(workers) for _ in range(rng.randint(1, 6))),
            rng.randint(1, 5),
        )
        for n in range(rng.randint(1, JOBS))
    ]  # fmt: skip


def after(jobs: Sequence[Placed], made: Sequence[Move]) -> list[Placed]:
    moved: dict[str, Mapping[str, str]] = {}
    for name in {one.job for one in jobs}:
        moved[name] = {m.fragment: m.target for m in made if m.job == name}
    return [replace(one, owners={**one.owners, **moved[one.job]}) for one in jobs]


@pytest.mark.parametrize("seed", range(300))
def test_it_ends_even_and_spread_with_few_moves(seed: int) -> None:
    workers, jobs = drawn(seed)
    jobs = [replace(one, wanted=min(one.wanted, len(one.owners))) for one in jobs]
    found = moves(workers, jobs)
    end = after(jobs, found)
    loads = Counter(owner for one in end for owner in one.owners.values())
    counts = [loads[worker] for worker in workers]
    assert max(counts) - min(counts) <= 1
    for one in end:
        assert len(set(one.owners.values())) >= min(one.wanted, len(workers))
    assert moves(workers, end) == ()
    places = [(m.job, m.fragment) for m in found]
    assert len(set(places)) == len(places), "none moves twice"
    # A fragment that a job needs elsewhere may have to change places with another one.
    assert len(found) <= least(workers, jobs) + 2 * sum(lacking(workers, one) for one in jobs)
    assert moves(workers[::-1], jobs) == found, "the order of the workers does not matter"


def lacking(workers: str, one: Placed) -> int:
    """Workers that the job lacks: each costs a move at least."""
    return max(0, min(one.wanted, len(workers)) - len(set(one.owners.values())))


def least(workers: str, jobs: Sequence[Placed]) -> int:
    """Moves without which the numbers cannot differ by one only, whatever the jobs want."""
    loads = Counter(owner for one in jobs for owner in one.owners.values())
    counts = sorted((loads[worker] for worker in workers), reverse=True)
    share, more = divmod(sum(counts), len(workers))
    return sum(max(0, n - share - (at < more)) for at, n in enumerate(counts))
