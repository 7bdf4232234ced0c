"""Which seeds a normal run plays, and that they hit what it asks for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from perseid.testing.simulation.scenario import Outcome
from support import playing
from support.playing import DRAWN_BELOW, Player, Seeds, cover

SEEDS = Seeds(first=2000, whole=60, few=5, cover=(2003,))


def test_a_cover_hits_all_that_any_seed_hits_and_takes_what_is_rare_first() -> None:
    hits = {1: {"a", "b"}, 2: {"a", "c"}, 3: {"a", "b", "c"}, 4: {"rare", "a"}}
    assert cover(hits, ["a", "b", "c", "rare", "never"]) == (4, 3)
    assert cover(hits, ["never"]) == ()


def test_a_normal_run_has_the_cover_and_seeds_that_others_do_not_have() -> None:
    first, same, other = (SEEDS.normal(seed) for seed in (1, 1, 2))
    assert first == same != other
    assert [one[0] for one in (first, other)] == [2003, 2003]
    assert first[1:] == list(range(first[1], first[1] + 5))
    assert 0 <= first[1] < DRAWN_BELOW


@pytest.mark.parametrize(
    ("count", "whole", "seeds"),
    [(7, False, range(2000, 2007)), (7, True, range(2000, 2007)), (None, True, range(2000, 2060))],
)
def test_options_choose_the_seeds(
    count: int | None, whole: bool, seeds: range, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    played: list[int] = []

    def play(chosen: Iterable[int], **_: bool) -> list[Outcome]:
        played.extend(chosen)
        return []

    monkeypatch.setattr(playing, "play", play)
    found = Player(count, whole, 1, capsys).play(SEEDS, ["a"])
    assert played == list(seeds)
    assert found.missing == ([] if count else ["a"])


def test_when_histories_are_others_seeds_are_played_until_all_is_hit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The one of the cover hits not both modes; those of the whole run do."""
    found = Player(None, False, 1, capsys).play(
        Seeds(first=2000, whole=60, few=0, cover=(2003,)), ["safety", "liveness"]
    )
    assert (found.failed, found.missing) == ([], [])
    none = Player(None, False, 1, capsys).play(
        Seeds(first=2000, whole=2, few=0, cover=(2003,)), ["is never hit"]
    )
    assert (none.failed, none.missing) == ([], ["is never hit"])
