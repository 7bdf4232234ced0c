"""What audits of a job's horizon need stays, whatever dies; what is older goes."""

from __future__ import annotations

import pytest

from perseid.testing.simulation.role_scripts import Audited
from perseid.testing.simulation.scenario import run

HARD = Audited(
    switch=0.1, kill_task=0.01, kill_worker=0.004, kill_leader=0.02, pause_worker=0.004,
    kafka_unanswered=0.02, kafka_late=0.02, zookeeper_unknown=0.02,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_every_epoch_of_the_horizon_can_be_audited(seed: int) -> None:
    outcome = run(seed, Audited.SHAPE, HARD)
    assert not outcome.error, outcome.explain()
    assert outcome.struck["revision switched"]
