from __future__ import annotations

import threading

import pytest

from perseid.clocks import ManualClock, SystemClock
from perseid.coordinator.leadership import LEASE_SHARE, Lease, LeaseKeeper
from perseid.errors import PermanentError
from perseid.records import LeaderInfo
from perseid.registry import FencedRegistry, Registry, lead
from perseid.testing.registry import FakeCoordination, FakeZooKeeper

SESSION_S = 3.0


def leader(epoch: int) -> LeaderInfo:
    return LeaderInfo("c1", epoch, 1, "")


class Setting:
    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.session: FakeCoordination = self.zookeeper.session()
        self.clock = ManualClock()
        self.lease = Lease(SESSION_S)
        self.lost: list[str] = []
        registry = Registry(self.session)
        fence = lead(registry, leader)
        assert fence is not None
        fenced = FencedRegistry(registry, fence)
        self.keeper = LeaseKeeper(fenced, self.lease, SESSION_S, self.clock, self.lost.append)

    @property
    def holds(self) -> bool:
        return self.lease.holds(self.clock.monotonic_s())


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_nothing_is_allowed_before_the_first_proof(setting: Setting) -> None:
    assert not setting.holds
    setting.keeper.prove()
    assert setting.holds


def test_the_lease_ends_at_two_thirds_of_the_session(setting: Setting) -> None:
    setting.keeper.prove()
    setting.clock.sleep(SESSION_S * LEASE_SHARE - 0.01)
    assert setting.holds
    setting.clock.sleep(0.01)
    assert not setting.holds


def test_it_runs_from_the_start_of_the_round_trip(setting: Setting) -> None:
    started_s = setting.clock.monotonic_s()
    setting.clock.sleep(1.5)
    setting.lease.proven(started_s)
    setting.clock.sleep(0.5)
    assert not setting.holds
    setting.lease.proven(started_s - 10)  # an older proof that arrives late takes nothing away
    assert not setting.holds


def test_a_round_trip_without_an_answer_proves_nothing(setting: Setting) -> None:
    setting.keeper.prove()
    setting.session.suspend()
    setting.clock.sleep(SESSION_S * LEASE_SHARE)
    setting.keeper.prove()
    assert not setting.holds
    assert setting.lost == []
    setting.session.resume()
    setting.keeper.prove()
    assert setting.holds


def test_a_suspended_connection_ends_it_at_once(setting: Setting) -> None:
    setting.keeper.prove()
    setting.lease.suspend()
    assert not setting.holds


def test_another_leader_means_the_end(setting: Setting) -> None:
    setting.session.expire()
    setting.session.resume()
    assert lead(Registry(setting.zookeeper.session()), leader) is not None
    setting.keeper.prove()
    assert not setting.holds
    assert len(setting.lost) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError("of nothing"), PermanentError("no rights")])
def test_an_error_that_is_no_missing_answer_ends_the_leader(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Its thread would be gone, and no other could lead for as long as the session lives."""

    def broken() -> None:
        raise error

    monkeypatch.setattr(setting.keeper._fenced, "confirm", broken)
    setting.keeper.prove()
    assert not setting.holds
    assert len(setting.lost) == 1
    assert str(error) in setting.lost[0]


def test_who_waits_for_the_lease_gets_it_with_the_next_proof() -> None:
    clock, lease = SystemClock(), Lease(SESSION_S)
    assert not lease.wait(clock, 0.0)
    waiting = threading.Thread(target=lease.wait, args=(clock, 30.0))
    waiting.start()
    lease.proven(clock.monotonic_s())
    waiting.join(timeout=20)
    assert not waiting.is_alive()
