"""Whom the scenarios take for the owner of a job."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from perseid.cli.scenario.nemesis import Nemesis
from perseid.errors import RetryableError
from perseid.records import Assignment, Plan, WorkerInfo


class Shown:
    """What ZooKeeper shows."""

    def __init__(self, owner: str | None, pid: int, *others: str) -> None:
        owners = (owner, *others)
        self._plan = replace(
            Plan.fused("wordcount", "u", 1, owner, "r", "a", 1, 0, 0),
            assignments=tuple(Assignment(str(n), (n,), one, 1) for n, one in enumerate(owners)),
        )
        self._workers = [WorkerInfo("w1", "w1-a", "here", pid, 1, 2, "local[2]", 0)]

    def plan(self, job: str) -> Plan:
        assert job == "wordcount"
        return self._plan

    def workers(self) -> list[WorkerInfo]:
        return self._workers


class Away(Shown):
    def workers(self) -> list[WorkerInfo]:
        raise RetryableError("ZooKeeper is away")


@pytest.mark.parametrize(
    ("kind", "owner", "seen"),
    [(Shown, "w1-a", "w1-a"), (Shown, None, None), (Shown, "w2-a", None), (Away, "w1-a", None)],
)
def test_a_worker_that_zookeeper_still_shows_after_its_death_owns_nothing(
    kind: type[Shown], owner: str | None, seen: str | None
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        shown: Any = kind(owner, worker.pid)
        nemesis = Nemesis(None, shown, "wordcount")  # type: ignore[arg-type]
        assert nemesis.owner_id() == seen
        found = nemesis.find("worker")
        assert (found.pid if found is not None else None) == (worker.pid if seen else None)
        if found is not None:
            assert nemesis.kill(found)
        else:
            worker.kill()
        worker.wait()
        assert nemesis.owner_id() is None
        assert nemesis.find("worker") is None


def test_a_job_of_several_fragments_has_the_owners_of_all() -> None:
    one: Any = Shown("w1-a", os.getpid(), "w1-a")
    assert Nemesis(None, one, "wordcount").owner_id() == "w1-a"  # type: ignore[arg-type]
    lacking: Any = Shown("w9-a", os.getpid(), "w1-a")
    nemesis = Nemesis(None, lacking, "wordcount")  # type: ignore[arg-type]
    assert nemesis.owner_id() is None
    found = nemesis.find("worker")
    assert found is not None
    assert found.pid == os.getpid(), "the first fragment with a live worker"
