"""Histories under all faults: from its events alone, each leader decides again what it decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from perseid.coordinator import events as ev
from perseid.coordinator.actions import Action
from perseid.coordinator.core import decide
from perseid.coordinator.decision_log.lines import Decided
from perseid.coordinator.model import ClusterState
from perseid.coordinator.token_time import Now
from perseid.testing.simulation import leader
from perseid.testing.simulation.job import Shape
from perseid.testing.simulation.scenario import run, short_transactions, small_numbers
from perseid.testing.simulation.scripts import Corrected
from perseid.testing.simulation.swarm import Script
from support.decisions import replayed, written

SIZE_TIMED = Shape(
    workers=2, hosts=1, totals=2, relays=0, period_s=5.0, input_s=60.0, every_s=0.5,
    size_timed=True,
)  # fmt: skip
DRAWN = [(seed, None, None) for seed in range(12)]
SET_UP = [
    (100, SIZE_TIMED, None),
    (0, Corrected.SHAPE, Corrected(where="relay-0")),
    (0, Corrected.SHAPE, Corrected(where="after")),
]


@contextmanager
def decisions() -> Iterator[dict[int, list[Decided]]]:
    """All decisions by the leader's epoch."""
    found: dict[int, list[Decided]] = {}

    def recorded(
        state: ClusterState, event: ev.Event, now: Now
    ) -> tuple[ClusterState, list[Action]]:
        after, actions = decide(state, event, now)
        found.setdefault(state.epoch, []).append(Decided(state, event, now, after, tuple(actions)))
        return after, actions

    with patch.object(leader, "decide", recorded):
        yield found


@pytest.mark.parametrize(("seed", "shape", "script"), [*DRAWN, *SET_UP])
def test_each_leader_decides_so_again(
    seed: int, shape: Shape | None, script: Script | None, tmp_path: Path
) -> None:
    with decisions() as found:
        outcome = run(seed, shape, script)
    assert not outcome.error, outcome.explain()
    kinds: Counter[str] = Counter()
    with small_numbers(), short_transactions():
        for epoch, decided in found.items():
            (path,) = written(tmp_path / f"c{epoch}", decided, epoch=epoch)
            again = replayed(path)
            assert again.same, (epoch, again.difference, again.differing)
            kinds += Counter(again.events)
    assert kinds["TokenAppended"] and kinds["ProgressSeen"] and kinds["JobLoaded"]
