"""The soak: `perseid test --soak 30m` kills something every 20 s under 2,000 lines a second.

Every kill waits until an epoch with input was committed since the one before, so none hits a dead
system only; the verifier has the last word. The seed decides the order of the kills and the lines;
PERSEID_SOAK_SEED repeats one.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Iterator

import pytest

from perseid.cli.scenario.bed import Names, ScenarioBed, connect
from perseid.cli.scenario.follow import Follower
from perseid.cli.scenario.kills import KillReport
from perseid.cli.scenario.load_generator import LoadGenerator, judge
from perseid.cli.scenario.nemesis import Nemesis
from perseid.cli.scenario.progress import Progress
from perseid.embedded import Cluster
from support import soaking

RATE = 2_000.0
HEALED_S = 240.0  # between a kill and the next committed epoch: a worker may need 75 s to start
NO_LIMIT = 2**31


@pytest.fixture
def bed(cluster: Cluster) -> Iterator[ScenarioBed]:
    with connect(cluster.deployment) as made:
        yield made


class Soak:
    """One job under fire."""

    def __init__(
        self, cluster: Cluster, bed: ScenarioBed, load: LoadGenerator, follower: Follower, job: str
    ):
        self._load, self._follower = load, follower
        self._nemesis = Nemesis(cluster, bed.registry, job)
        self.reports: list[KillReport] = []
        self._began_s = time.monotonic()

    @property
    def progress(self) -> Progress:
        return self._follower.progress

    def run(self, kinds: Iterator[str], duration_s: float) -> None:
        """Kills until the time is up; ends with all input committed."""
        end_s = self._began_s + duration_s
        self._await_epochs_above(0)
        next_s = time.monotonic() + soaking.PERIOD_S
        while next_s < end_s:
            self._follow_until(next_s)
            next_s = max(next_s, time.monotonic()) + soaking.PERIOD_S
            epochs = self._kill(next(kinds))
            self._await_epochs_above(epochs)

    def drain(self) -> None:
        """Waits until every line that was sent is committed."""
        deadline_s = time.monotonic() + HEALED_S
        while self.progress.committed_records < self._load.sent:
            self._follower.poll(0.05)
            assert time.monotonic() < deadline_s, self._timeout_text("the last line")

    def _kill(self, what: str) -> int:
        """Kills one process; how many epochs were committed by then."""
        deadline_s = time.monotonic() + HEALED_S
        while (target := self._nemesis.find(what)) is None:
            self._follower.poll(0.1)  # it is being started again
            assert time.monotonic() < deadline_s, self._timeout_text(f"a process to kill: {what}")
        before = self._nemesis.owner_id()
        assert self._nemesis.kill(target)
        self._follower.poll(0.0)
        opened = self.progress.in_flight()
        at_s = round(time.monotonic() - self._began_s, 1)
        epoch = opened.epoch if opened is not None else None
        self.reports.append(KillReport(what, target.pid, at_s, epoch, before))
        return self.progress.committed_epochs

    def _await_epochs_above(self, epochs: int) -> None:
        deadline_s = time.monotonic() + HEALED_S
        while self.progress.committed_epochs <= epochs:
            self._follower.poll(0.05)
            assert time.monotonic() < deadline_s, self._timeout_text("a committed epoch")

    def _follow_until(self, time_s: float) -> None:
        while time.monotonic() < time_s:
            self._follower.poll(0.1)

    def _timeout_text(self, missing: str) -> str:
        kills = [f"{r.at_s} s {r.what}" for r in self.reports[-3:]]
        return f"{missing} did not come within {HEALED_S:.0f} s; last kills: {', '.join(kills)}"


@pytest.mark.soak
def test_soak(
    cluster: Cluster, bed: ScenarioBed, soak_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("PERSEID_SOAK_SEED") or secrets.randbelow(2**31))
    with capsys.disabled():
        print(f"\nsoak of {soak_s:.0f} s, seed {seed}")
    names = Names.fresh("soak")
    bed.make_topics(names.source, names.sink)
    applied = bed.start(names)
    progress = Progress(applied.job_uuid, applied.ledgers)
    follower = Follower(bed.bootstrap, names.job, progress)
    with LoadGenerator(bed.bootstrap, names.source, records=NO_LIMIT, seed=seed) as load:
        load.await_seed()
        load.order(RATE, NO_LIMIT)
        soak = Soak(cluster, bed, load, follower, names.job)
        soak.run(soaking.rounds(random.Random(seed)), soak_s)
        load.close()
        soak.drain()
    follower.close()
    verdict = judge(bed.bootstrap, names.source, names.sink)
    with capsys.disabled():
        print(f"{len(soak.reports)} kills in {soak_s:.0f} s, seed {seed}: {verdict}")
    bed.remove(names)
    assert verdict["records"] == load.sent
    faults = {kind: verdict[kind] for kind in ("lost", "duplicated", "reordered", "wrong")}
    assert faults == dict.fromkeys(faults, 0), f"seed {seed}: {verdict['examples']}"
    assert soaking.complaints(soak.reports, soak_s) == []
