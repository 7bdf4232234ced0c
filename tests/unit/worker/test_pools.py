"""Fragments of several that run on one worker have pools of Python workers of their own."""

from __future__ import annotations

from perseid.worker.spark.pools import Pools


def test_each_has_its_own_and_the_first_one_has_those_that_are_warm() -> None:
    pools = Pools()
    taken = [pools.take() for _ in range(3)]
    assert taken[0] == ""
    assert len(set(taken)) == 3
    pools.release(taken[1])
    pools.release(taken[1])
    assert [pools.take(), pools.take()] == [taken[1], "3 "]
    pools.release("")
    assert pools.take() == ""
