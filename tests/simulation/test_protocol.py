"""Nothing is lost, doubled or reordered, and everything finishes, whatever goes wrong."""

from __future__ import annotations

import pytest

from perseid.testing.simulation.faults import BRANCHES, STRENGTHS
from perseid.testing.simulation.scenario import run
from support.playing import Player, Seeds

SEEDS = Seeds(
    first=2000, whole=1000, few=200, cover=(2348, 2438, 2061, 2819, 2758, 2782, 2005, 2058)
)
# Each of these seeds failed once: with the code of then, and with the engine of then.
REGRESSIONS = (
    6, 8, 22, 27, 29, 30, 57, 2129, 2201, 2332, 2385, 1334, 466, 1079, 1199, 1779, 1899, 3016,
    8419, 8929, 15254, 30769, 50890, 57413, 58753, 79864, 21609, 23268, 24656, 22747, 28412, 16107,
    109, 927, 13171, 49, 2829, 1279,
)  # fmt: skip


@pytest.mark.timeout(0)  # as long as --seeds asks; a simulation ends by itself
def test_seeds_hold(player: Player) -> None:
    played = player.play(SEEDS, [*STRENGTHS, *BRANCHES])
    assert played.failed == []
    assert played.missing == []


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_found_defects_hold(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.error, outcome.explain()


# Of brokers that lose what they had acknowledged; each hung once, or continued in silence.
TAILS = (
    2022, 2061, 2087, 2112, 2122, 2159, 2167, 3354, 3430, 3714, 4384, 4792, 4912, 10198,
)  # fmt: skip


@pytest.mark.parametrize("seed", TAILS)
def test_seeds_that_lose_tails_finish_or_report_why(seed: int) -> None:
    outcome = run(seed)
    assert not outcome.error, outcome.explain()
    assert outcome.struck["tails lost"]
