from __future__ import annotations

from perseid.cli.scenario.kills import KillReport
from perseid.cli.scenario.report import complaints

GOOD = {"lost": 0, "duplicated": 0, "reordered": 0, "wrong": 0}
HIT = KillReport("worker", 7, 1.0, 5, "a", "b", 2.0)


def test_nothing_to_complain_about() -> None:
    assert complaints(GOOD, [HIT], 20, 20) == []
    assert complaints(GOOD, [], None, 20) == []


def test_every_fault_is_named() -> None:
    assert complaints({**GOOD, "lost": 3, "wrong": 1}, [], None, 20) == [
        "3 records lost",
        "1 records wrong",
    ]


def test_kills_that_hit_nothing_and_too_few_epochs_after_the_last() -> None:
    kills = [
        KillReport("redis", None, 1.0, 5, "a", "a", 0.1),
        KillReport("worker", 7, 1.0, None, "a", "b", 2.0),
        KillReport("broker", 7, 1.0, 5, "a", "b", None),
    ]
    found = complaints(GOOD, kills, 19, 20)
    assert len(found) == 4
    assert "redis met no process" in found[0]
    assert "worker met no epoch" in found[1]
    assert "after the kill of broker" in found[2]
    assert "only 19 epochs" in found[3]
