"""SIGKILL for the worker, the leading coordinator and the broker under input."""

from __future__ import annotations

from typing import Any

RECORDS, RATE = 300_000, 4_000  # 75 s, so that each kill meets input


def test_kills_of_worker_leader_and_broker_lose_and_double_nothing(deployed: Any) -> None:
    stack = deployed.stack
    with deployed.fed(RECORDS, RATE):
        for target in (deployed.worker, stack.leader, lambda: "kafka"):
            deployed.at_work()
            name = target()
            stack.kill(name)
            stack.restart(name)
    deployed.judge()
