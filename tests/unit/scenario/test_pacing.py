"""The pacing drives a model of a job: epochs one after another, dead for a while after a kill."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from perseid.cli.scenario.kills import Kill
from perseid.cli.scenario.pacing import (
    COMMITTED_MIN,
    EPOCHS_AFTER_MIN,
    UNCOMMITTED_MIN,
    Pacing,
    Scene,
    default_rate,
)

TICK_S = 0.02


@dataclass
class Model:
    """A job with epochs of `epoch_s` that commits nothing for `recovery_s` after a kill."""

    pacing: Pacing
    epoch_s: float = 0.25
    recovery_s: float = 4.0
    now_s: float = 0.0
    sent: float = 0.0
    committed: int = 0
    epochs: int = 0
    opened: tuple[int, float] | None = None  # sent when it was opened, since when
    dead_until_s: float = 0.0
    kills: list[Scene] = field(default_factory=list)
    dropped: list[Kill] = field(default_factory=list)

    def scene(self) -> Scene:
        age_s = self.now_s - self.opened[1] if self.opened else 0.0
        in_flight = self.epochs + 1 if self.opened else None
        return Scene(self.now_s, int(self.sent), self.committed, self.epochs, in_flight, age_s)

    def step(self) -> None:
        self.now_s += TICK_S
        self._work()
        scene = self.scene()
        decision = self.pacing.decide(scene)
        if decision.kill is not None:
            self.kills.append(scene)
            self.dead_until_s = self.now_s + self.recovery_s
            self.pacing = self.pacing.after_kill(scene)
        elif decision.give_up is not None:
            self.dropped.append(decision.give_up)
            self.pacing = self.pacing.after_kill(scene)
        self.sent = max(self.sent, min(self.sent + decision.rate * TICK_S, decision.limit))

    def _work(self) -> None:
        if self.now_s < self.dead_until_s:
            return
        if self.opened is not None and self.now_s - self.opened[1] >= self.epoch_s:
            self.committed, self.opened, self.epochs = self.opened[0], None, self.epochs + 1
        if self.opened is None and int(self.sent) > self.committed:
            self.opened = (int(self.sent), self.now_s)

    def run(self, until_s: float = 600.0) -> Model:
        while self.committed < self.pacing.total and self.now_s < until_s:
            self.step()
        return self


def plan(total: int, kills: list[Kill], rate: float | None = None) -> Pacing:
    return Pacing(total, rate or default_rate(total), tuple(kills), fixed_rate=rate is not None)


def assert_promises(model: Model) -> None:
    total = model.pacing.total
    for scene in model.kills:
        assert scene.in_flight is not None
        assert scene.committed >= COMMITTED_MIN * total
        assert total - scene.committed >= UNCOMMITTED_MIN * total
    assert model.committed == total
    assert model.epochs - model.kills[-1].epochs >= EPOCHS_AFTER_MIN


@pytest.mark.parametrize("total", [5_000, 30_000, 300_000, 2_000_000])
@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("recovery_s", [0.0, 4.0, 12.0])
def test_kills_keep_the_promises(total: int, count: int, recovery_s: float) -> None:
    model = Model(plan(total, [Kill("worker")] * count), recovery_s=recovery_s).run()
    assert len(model.kills) == count
    assert model.dropped == []
    assert_promises(model)


@pytest.mark.parametrize("rate", [1_000.0, 20_000.0, 100_000.0])
def test_a_fixed_rate_is_never_exceeded(rate: float) -> None:
    model = Model(plan(100_000, [Kill("worker"), Kill("broker")], rate))
    while model.committed < 100_000 and model.now_s < 600:
        before = model.sent
        model.step()
        assert model.sent - before <= rate * TICK_S + 1e-6
    assert_promises(model)


def test_a_kill_at_a_time_is_met() -> None:
    model = Model(plan(300_000, [Kill("worker", 8.0), Kill("coordinator", 40.0)])).run()
    assert [round(s.now_s) for s in model.kills] == [8, 40]
    assert_promises(model)


def test_an_early_time_waits_for_the_share_to_be_committed() -> None:
    model = Model(plan(100_000, [Kill("worker", 0.0)])).run()
    assert_promises(model)


def test_without_kills_the_base_rate_holds_to_the_end() -> None:
    model = Model(plan(10_000, [], 1_000.0)).run()
    assert model.committed == 10_000
    assert model.now_s < 11.5


def test_a_kill_that_never_finds_an_epoch_in_flight_is_dropped() -> None:
    pacing = plan(1_000, [Kill("redis")])
    scene = Scene(now_s=100.0, sent=680, committed=680, epochs=9)
    assert pacing.decide(scene).give_up == Kill("redis")
    assert pacing.after_kill(scene).decide(scene).limit == 1_000


def test_an_epoch_that_was_opened_long_ago_is_not_taken_for_one_in_flight() -> None:
    pacing = plan(1_000, [Kill("worker")])
    stale = Scene(10.0, 400, 300, 9, in_flight=10, in_flight_age_s=0.5)
    fresh = Scene(10.0, 400, 300, 9, in_flight=10, in_flight_age_s=0.01)
    assert pacing.decide(stale).kill is None
    assert pacing.decide(fresh).kill == Kill("worker")
