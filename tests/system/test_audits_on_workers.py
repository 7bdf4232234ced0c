"""Audits that workers run: one of a worker that is killed is finished by another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from support.audited import AUDIT_S, LOAD, generation, stop, written
from support.ranks import RankedJob


def shown(running: RunningCluster, id_: str) -> Any:
    return running.do("audits", "show-run", id_)


def touched(running: RunningCluster, job: str) -> Any:
    """What an audit must not change of a stopped job: topics, generation, state logs."""
    logs = Path(running.cluster.deployment.state) / running.tokens(job)[-1].job_uuid
    # Another owner of the logs has a directory. Files change: the last parts are folded and
    # uploaded after the stop.
    owned = sorted(path for path in logs.rglob("*") if path.is_dir())
    return written(running, job), generation(running, job), owned


@pytest.mark.drawn(group="longest")
def test_an_audit_is_finished_by_another_worker_and_touches_nothing_of_the_job(
    running: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(running, tmp_path, "onworkers")
    running.wait_workers(2)
    job.apply(spread=1)
    running.keep_tokens(job.name)
    job.feed(LOAD)
    job.judge()
    stop(running, job.name)
    before = touched(running, job.name)

    ran = running.run("replay", job.name, "--on-worker", "--epochs", "1:", timeout_s=AUDIT_S)
    assert ran.code == 0, ran.stderr
    assert (ran.document["verdict"], ran.document["records_in"]) == ("equal", len(job.rows))
    assert touched(running, job.name) == before

    id_ = running.do("replay", job.name, "--on-worker", "--no-wait", "--epochs", "1:")["id"]
    until(lambda: shown(running, id_)["state"] == "running", AUDIT_S, "a worker to take it")
    first = shown(running, id_)["worker"]
    name = first.rpartition("-")[0]
    own = running.below(name, "perseid.replay")
    running.kill(name)
    until(lambda: shown(running, id_)["ended_ms"] is not None, AUDIT_S, "another one to end it")
    found = shown(running, id_)
    assert (found["state"], found["verdict"], found["attempt"]) == ("done", "equal", 2), found
    assert found["worker"] != first
    assert own and not [process for process in own if process.is_running()]
    assert touched(running, job.name) == before
    report = running.run("audits", "show-run", id_, "--format", "json")
    assert report.document["verdict"] == "equal"
    running.do("jobs", "remove", job.name, "--purge")
