"""Plays many seeds of the simulation, and shows what fails as soon as it does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.testing.simulation.faults import STRENGTHS
from perseid.testing.simulation.many import Tally, play

if TYPE_CHECKING:
    import pytest

    from perseid.testing.simulation.scenario import Outcome

FAILED_SHOWN = 3
REPORTED_EVERY = 5000  # seeds
DRAWN_BELOW = 100_000  # a normal run draws its first seed of these


@dataclass(frozen=True, slots=True)
class Seeds:
    """What a test plays.

    A whole run: `whole` seeds from `first` on. A normal one: `cover`, which together hit all that
    is asked for, and `few` more, from a drawn one on.
    """

    first: int
    whole: int
    few: int
    cover: tuple[int, ...]

    def first_ones(self, count: int) -> range:
        return range(self.first, self.first + count)

    def normal(self, seed: int) -> list[int]:
        """Those of a normal run that draws by `seed`."""
        start = random.Random(seed).randrange(DRAWN_BELOW)
        return [*self.cover, *range(start, start + self.few)]


@dataclass(frozen=True, slots=True)
class Played:
    """`missing`: what no seed hit; empty for `--seeds N` with fewer seeds than a whole run's."""

    failed: list[int]
    missing: list[str]


@dataclass(frozen=True, slots=True)
class Player:
    """Plays what the options ask for: `count` seeds (`--seeds`), or a whole or a normal run."""

    count: int | None
    whole: bool
    seed: int
    capsys: pytest.CaptureFixture[str]

    def play(
        self, seeds: Seeds, wanted: Sequence[str], *, spread: bool = False, replicas: bool = False
    ) -> Played:
        """`wanted`: the faults and branches that have to be hit.

        When histories have changed so that the cover hits no longer all of it, seeds of the whole
        run are played until all is hit, and the cover to be written is printed.
        """
        hits: dict[int, AbstractSet[str]] = {}
        tally = Tally(branches=[name for name in wanted if name not in STRENGTHS])

        def missing() -> list[str]:
            return [name for name in wanted if not tally.hit[name]]

        def noted(chosen: Iterable[int]) -> Iterator[Outcome]:
            for outcome in play(chosen, spread=spread, replicas=replicas):
                hits[outcome.seed] = {*outcome.struck, outcome.mode.value}
                yield outcome

        whole = seeds.first_ones(self.count or seeds.whole)
        if self.whole or self.count is not None:
            shown(noted(whole), tally, self.capsys)
            searched = len(whole) >= seeds.whole
        else:
            shown(noted(seeds.normal(self.seed)), tally, self.capsys)
            searched = bool(missing()) and not tally.failed
            if searched:
                shown(noted(whole), tally, self.capsys, lambda: not missing())
        if searched:
            with self.capsys.disabled():
                print(f"\ncover: {cover(hits, wanted)}")
        short = self.count is not None and not searched
        return Played([one.seed for one in tally.failed], [] if short else missing())


def cover(hits: Mapping[int, AbstractSet[str]], wanted: Iterable[str]) -> tuple[int, ...]:
    """A few seeds that together hit all that is wanted, as far as any does: the rarest first."""
    by_name = {name: [seed for seed in hits if name in hits[seed]] for name in wanted}
    left, chosen = {name for name, found in by_name.items() if found}, list[int]()
    while left:
        rarest = min(sorted(left), key=lambda name: len(by_name[name]))
        best = max(by_name[rarest], key=lambda seed: len(hits[seed] & left))
        chosen.append(best)
        left -= hits[best]
    return tuple(chosen)


def shown(
    outcomes: Iterable[Outcome], tally: Tally, capsys: pytest.CaptureFixture[str],
    enough: Callable[[], bool] = lambda: False,
) -> Tally:  # fmt: skip
    """`tally` with the outcomes, up to the third that fails; a long run shows where it is."""
    for outcome in outcomes:
        tally.take(outcome)
        if outcome.error or tally.seeds % REPORTED_EVERY == 0:
            with capsys.disabled():  # a long run must not keep what it found to itself
                text = outcome.explain() if outcome.error else f"{tally.seeds} seeds"
                print(f"\n{text}", flush=True)
        if len(tally.failed) == FAILED_SHOWN or enough():
            break
    with capsys.disabled():
        print(f"\n{tally.table()}")
    return tally
