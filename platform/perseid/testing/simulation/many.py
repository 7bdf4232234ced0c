"""Plays many seeds in several processes, and counts how often each fault and branch was hit.

One seed in a hundred is played twice: a different history is an error of the simulator itself.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from perseid.testing.simulation.faults import BRANCHES, STRENGTHS
from perseid.testing.simulation.scenario import Outcome, run

TWICE_EVERY = 100  # seeds
CHUNK = 10


@dataclass
class Tally:
    """The sums over all seeds."""

    seeds: int = 0
    events: int = 0
    virtual_s: float = 0.0
    hit: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)
    branches: Sequence[str] = BRANCHES

    def take(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.events += outcome.events
        self.virtual_s += outcome.virtual_s
        self.hit += outcome.struck
        self.hit[outcome.mode.value] += 1
        if outcome.error:
            self.failed.append(outcome)

    @property
    def never_hit(self) -> list[str]:
        """Faults and branches that no seed reached: the simulation does not cover them."""
        return [name for name in (*STRENGTHS, *self.branches) if not self.hit[name]]

    def table(self) -> str:
        """Returns the "sometimes" counters as a table."""
        lines = [f"{self.seeds} seeds, {self.virtual_s / 3600:.1f} virtual hours, "
                 f"{self.events} events, {len(self.failed)} failed"]  # fmt: skip
        lines += [f"  {count:8d}  {name}" for name, count in sorted(self.hit.items())]
        return "\n".join(lines + [f"  {0:8d}  {name}" for name in self.never_hit])


def play(
    seeds: Iterable[int], processes: int | None = None, *, spread: bool = False,
    replicas: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
    """Yields outcomes in the order of `seeds`; only failed ones have traces."""
    count = processes or len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(count) as pool:
        played = partial(_played, spread=spread, replicas=replicas)
        yield from pool.imap(played, seeds, chunksize=CHUNK)


def _played(seed: int, *, spread: bool, replicas: bool) -> Outcome:
    outcome = run(seed, spread=spread, replicas=replicas)
    if seed % TWICE_EVERY == 0 and not outcome.error:
        again = run(seed, spread=spread, replicas=replicas)
        if again.trace_hash != outcome.trace_hash:
            outcome = replace(outcome, error="played twice, it had two histories")
    return outcome if outcome.error else replace(outcome, lines=())
