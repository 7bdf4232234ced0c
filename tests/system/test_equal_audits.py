"""Audits of jobs that nothing has changed: every range of every one must be equal.

Each job is recorded once: all library operators in one, and the Nexmark queries. A normal run draws
one job and a few of its ranges; `--matrix` has 200 audits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from benches.nexmark import QUERIES, TOPICS, Events
from benches.nexmark_run import PARTITIONS, feed
from perseid.testing.running import RunningCluster
from perseid.testing.stack import example
from support.audit_client import Audits
from support.library_job import Input, job_text

LIBRARY = "again"
JOBS = (LIBRARY, *QUERIES)
RANGES = 25  # of each job: 200 audits in all
DRAWN_RANGES = 3
FED = 4  # times 400 rows, each in epochs of its own
EVENTS = Events(20_000, seed=6)
EPOCH = 'epoch: {target: "200ms", maxRecords: 2000}\n'  # several epochs of the events


@dataclass(frozen=True)
class Recorded:
    job: str
    last: int  # committed epoch


class Recorder:
    """Records a job; its tokens are kept."""

    def __init__(self, running: RunningCluster, folder: Path) -> None:
        self._running, self._folder = running, folder
        self._fed = False

    def record(self, name: str) -> Recorded:
        job = LIBRARY if name == LIBRARY else f"{LIBRARY}-{name}"
        (self._library if name == LIBRARY else self._query)(job, name)
        return Recorded(job, self._running.wait_caught_up(job)["committed_epoch"])

    def _library(self, job: str, _name: str) -> None:
        self._running.topic(f"{job}-in", 1)
        folder = self._folder / job
        folder.mkdir()
        (folder / "job.yaml").write_text(job_text(job))
        self._apply(job, folder)
        input_ = Input(self._running, f"{job}-in")
        for _ in range(FED):
            input_.feed(400)
            self._running.wait_caught_up(job)

    def _query(self, job: str, name: str) -> None:
        if not self._fed:
            self._fed = True
            for topic in TOPICS:
                self._running.topic(f"{LIBRARY}-{topic}", PARTITIONS)
            feed(self._running.kafka, EVENTS, f"{LIBRARY}-")
        shipped = f"nexmark-{name}"
        folder = example(self._folder / job, shipped, {f" {shipped}": f" {job}"})
        text = (folder / "job.yaml").read_text()
        for topic in TOPICS:
            text = text.replace(f"topic: {topic}", f"topic: {LIBRARY}-{topic}")
        (folder / "job.yaml").write_text(text + EPOCH)
        self._apply(job, folder)

    def _apply(self, job: str, folder: Path) -> None:
        self._running.apply(folder)
        self._running.keep_tokens(job)


@pytest.fixture(scope="module")
def recorder(running: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(running, tmp_path_factory.mktemp("again"))


@pytest.mark.drawn
@pytest.mark.parametrize("name", JOBS)
def test_a_past_that_nothing_has_changed_is_equal(
    running: RunningCluster, recorder: Recorder, auditing: Audits, seed: int, name: str,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    recorded = recorder.record(name)
    running.do("jobs", "stop", recorded.job)
    chance = random.Random(seed)
    count = RANGES if request.config.getoption("--matrix") else DRAWN_RANGES
    ranges = [(1, recorded.last)]
    while len(ranges) < count:
        first = chance.randint(1, recorded.last)
        ranges.append((first, chance.randint(first, recorded.last)))
    found = [auditing.audit(recorded.job, f"{first}:{last}") for first, last in ranges]
    seen = [(r.get("verdict"), r.get("first_epoch"), r.get("last_epoch")) for r in found]
    assert seen == [("equal", first, last) for first, last in ranges], found
    assert found[0]["records_in"] > 0
    assert sum(one["records"] for one in found[0]["compared"]) > 0
    running.do("jobs", "remove", recorded.job, "--purge")
