from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from perseid.cli.scenario.kills import KillReport
from support.soaking import SOAK_KINDS, complaints, rounds, wanted_kills


@pytest.mark.parametrize("seed", range(20))
def test_rounds_are_even_and_never_repeat_a_kind_at_once(seed: int) -> None:
    kinds = list(itertools.islice(rounds(random.Random(seed)), 64))
    assert set(Counter(kinds).values()) == {64 // len(SOAK_KINDS)}
    assert all(a != b for a, b in itertools.pairwise(kinds))


def test_a_seed_gives_the_same_kills() -> None:
    def kills(seed: int) -> list[str]:
        return list(itertools.islice(rounds(random.Random(seed)), 30))

    assert kills(1) == kills(1) != kills(2)


def test_half_an_hour_needs_sixty_kills_and_four_of_each_kind() -> None:
    assert wanted_kills(1800) == 60
    reports = [
        KillReport(kind, 1, 0.0, 1, None) for kind in itertools.islice(rounds(random.Random(1)), 60)
    ]
    assert complaints(reports, 1800) == []
    assert complaints(reports[:59], 1800) == ["59 kills, 60 are needed"]
    few = [r for r in reports if r.what != "redis"]
    assert "redis was killed 0 times, 4 are needed" in complaints(few, 1800)
