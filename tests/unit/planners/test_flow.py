"""The three forms of a stream against loops over its substreams."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from perseid.coordinator.planners import flow as module
from perseid.coordinator.planners.flow import Even, Flow, Full, Listed, Rates, flow_of

SOURCE, TARGET = 3, 20  # numbers of the first partitions
Substreams = list[tuple[int, int, float]]


def drawn(random: Random, chance: float) -> Substreams:
    """Pairs that exist with this chance, some of them without records."""
    sources, targets = random.randint(1, 7), random.randint(1, 7)
    pairs = [(i, j) for i in range(sources) for j in range(targets) if random.random() < chance]
    return [(i, j, random.choice([0.0, random.random()])) for i, j in pairs or [(0, 0)]]


def shuffled(random: Random) -> Substreams:
    """Each target with its share of every source."""
    targets = [random.random() for _ in range(random.randint(1, 7))]
    sources = [random.choice([0.0, random.random()]) for _ in range(random.randint(1, 7))]
    return [(i, j, a * b) for i, a in enumerate(sources) for j, b in enumerate(targets)]


def forms(substreams: Substreams, patch: pytest.MonkeyPatch) -> list[Flow]:
    """The stream as a list, as a matrix, and as what it is taken for."""
    found = [flow_of(substreams, SOURCE, TARGET)]
    for full_min, alike in ((2.0, -1.0), (0.0, -1.0)):
        patch.setattr(module, "FULL_MIN", full_min)
        patch.setattr(module, "ALIKE", alike)
        found.append(flow_of(substreams, SOURCE, TARGET))
    patch.undo()
    assert isinstance(found[1], Listed)
    assert isinstance(found[2], Full)
    return found


def matrix(substreams: Substreams, flow: Flow) -> Rates:
    """By the definition: a substream's rate as a share of all that its target gets."""
    sources, targets = flow.sources.tolist(), flow.targets.tolist()
    cells = np.zeros((len(targets), len(sources)))
    for i, j, rate in substreams:
        got = [r for _, other, r in substreams if other == j]
        share = rate / sum(got) if sum(got) else 1 / len(got)
        cells[targets.index(j + TARGET), sources.index(i + SOURCE)] = share
    return cells


@pytest.mark.parametrize("seed", range(60))
def test_every_form_agrees_with_the_substreams(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    substreams = shuffled(random) if seed % 3 == 0 else drawn(random, (0.3, 0.9)[seed % 2])
    for flow in forms(substreams, monkeypatch):
        assert flow.sources.tolist() == sorted({i + SOURCE for i, _, _ in substreams})
        assert flow.targets.tolist() == sorted({j + TARGET for _, j, _ in substreams})
        cells = matrix(substreams, flow)
        values = np.array([[random.random() for _ in range(40)] for _ in range(2)])
        assert flow.received(values) == pytest.approx(values[:, flow.sources] @ cells.T)
        assert flow.received(values[0]) == pytest.approx(cells @ values[0][flow.sources])
        worth = values[1][flow.targets]
        assert flow.sent(worth) == pytest.approx(worth @ cells)
        for alike in (False, True):
            weighed = (cells > 0 if alike else cells) * 1.0
            at, weight = flow.best_source(values[0][flow.sources], alike=alike)
            best = weighed * values[0][flow.sources]
            assert best[np.arange(len(at)), at] == pytest.approx(best.max(axis=1))
            assert weight == pytest.approx(cells[np.arange(len(at)), at])
            at, weight = flow.best_target(worth, alike=alike)
            best = weighed * worth[:, None]
            assert best[at, np.arange(len(at))] == pytest.approx(best.max(axis=0))
            assert weight == pytest.approx(cells[at, np.arange(len(at))])


def test_a_stream_is_kept_in_the_form_that_suits_it() -> None:
    random = Random(1)
    pairs = [(i, j) for i in range(9) for j in range(9)]
    assert isinstance(flow_of([(i, j, (i + 1) * (j + 2)) for i, j in pairs], 0, 9), Even)
    assert isinstance(flow_of([(i, j, random.random()) for i, j in pairs], 0, 9), Full)
    assert isinstance(flow_of([(i, i, 1.0) for i in range(9)], 0, 9), Listed)
