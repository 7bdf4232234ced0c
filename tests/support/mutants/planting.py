"""Plants a defect, and searches for a seed that detects it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from perseid.testing.simulation import again
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import run
from perseid.testing.simulation.swarm import Script

Mutant = Callable[[], AbstractContextManager[Any]]
SEEDS_MAX = 2000
# Errors of a patch that no longer fits the patched code: then no history has detected anything.
MISFITS = ("TypeError: ", "AttributeError: ", "NameError: ")


class Ended(Protocol):
    """The result of playing a seed."""

    @property
    def error(self) -> str: ...
    @property
    def trace_hash(self) -> str: ...
    def explain(self) -> str: ...


@dataclass(frozen=True)
class Planted:
    """A defect and the histories that are searched for it; by default those that the seeds draw.

    `misfits`: the defect shows by errors that otherwise mean that its patch does not fit.
    """

    mutant: Mutant
    shape: Shape | None = None
    script: Script | None = None
    play: Callable[[int], Ended] = field(default=run)
    misfits: bool = False

    @property
    def name(self) -> str:
        return self.mutant.__name__

    def played(self, seed: int) -> Ended:
        if self.shape is None and self.script is None:
            return self.play(seed)
        return run(seed, self.shape, self.script)


@contextmanager
def planted(one: Planted) -> Iterator[None]:
    """Plants the defect; commands that are printed meanwhile plant it too."""
    again.active.append(one.name)
    try:
        with one.mutant():
            yield
    finally:
        again.active.remove(one.name)


def find(one: Planted, seeds: Iterable[int]) -> tuple[int, Ended] | None:
    """The first of `seeds` that fails with the defect, and how. AssertionError for a misfit."""
    with planted(one):
        for seed in seeds:
            ended = one.played(seed)
            if ended.error:
                fits = one.misfits or not ended.error.startswith(MISFITS)
                assert fits, f"{one.name} does not fit the code any more:\n{ended.explain()}"
                return seed, ended
    return None
