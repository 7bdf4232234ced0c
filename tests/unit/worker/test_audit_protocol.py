"""Workers, their deaths and unknown outcomes in any order: what holds of audits; defects are found.

Deterministic: each step of each worker is drawn from a seed, and nothing runs in a thread.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perseid.errors import RefusedError, RetryableError
from perseid.jobs.operations import audits
from perseid.records.audits import ATTEMPTS_MAX, REPORT, VALUES, AuditRequest
from perseid.registry import codec, paths
from perseid.registry.audits import AuditNodes
from perseid.registry.port import Set
from perseid.state.durability.store import open_store
from perseid.worker import audit_runs
from perseid.worker.audit_runs import AuditRun, AuditRuns
from support.audits import Audited, Host

SEEDS, STEPS, HOSTS = 40, 120, 3
HEAL_MAX = 400


class Play:
    """One seed. `broken`: what does not hold, in words."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.world, self.chance = Audited(folder), random.Random(seed)
        self.hosts: list[Host] = []
        self.steps: dict[Host, AuditRun] = {}
        self.ended: dict[str, AuditRequest] = {}
        self.broken: list[str] = []
        self._names = iter(range(10_000))
        for _ in range(HOSTS):
            self.join()

    def join(self) -> None:
        made: list[Host] = []
        host = Host(
            self.world, f"w{next(self._names)}", lambda run: self.steps.update({made[0]: run})
        )
        made.append(host)
        self.hosts.append(host)

    def run(self) -> list[str]:
        for _ in range(STEPS):
            self.chance.choice([
                self.ask, self.look, self.look, self.step, self.step, self.step, self.end,
                self.die, self.hint, self.cancel, self.unknown, self.progress, self.wait,
            ])()  # fmt: skip
            self.check()
        self.heal()
        return self.broken

    # -- what happens ----------------------------------------------------------------------------

    def ask(self) -> None:
        try:
            self.world.ask()
        except RefusedError:
            assert len(audits.every(self.world.registry)) >= audits.OPEN_MAX

    def look(self) -> None:
        host = self.chance.choice(self.hosts)
        try:
            host.runs.look()
        except RetryableError:
            assert host.session.unknown_next is None, "an unknown outcome"

    def step(self) -> None:
        host = self.chance.choice(self.hosts)
        run = self.steps.get(host)
        if run is not None and not run.over:
            run.step()

    def end(self) -> None:
        for process in self.chance.choice(self.hosts).processes[-1:]:
            if process.code is None:
                process.end() if self.chance.random() < 0.8 else process.end(None, code=137)

    def progress(self) -> None:
        for process in self.chance.choice(self.hosts).processes[-1:]:
            if process.code is None:
                process.progress(self.chance.randrange(9))

    def die(self) -> None:
        if self.chance.random() < 0.3:
            host = self.hosts.pop(self.chance.randrange(len(self.hosts)))
            host.die()
            self.steps.pop(host, None)
            self.join()

    def hint(self) -> None:
        """A worker that is taken for dead lives on for a while."""
        if self.chance.random() < 0.3:
            host = self.chance.choice(self.hosts)
            self.world.registry.remove_worker(host.incarnation.rpartition("-")[0], 1)
            self.join()

    def cancel(self) -> None:
        found = [a for a in audits.every(self.world.registry) if a.is_open]
        if found and self.chance.random() < 0.3:
            audits.cancel(self.world.registry, self.world.clock, found[0].id, "ann")

    def unknown(self) -> None:
        self.chance.choice(self.hosts).session.unknown_next = self.chance.choice(
            ["done", "not done"]
        )

    def wait(self) -> None:
        self.world.clock.sleep(audit_runs.NOTE_S)

    def heal(self) -> None:
        """No more faults: everything that is open ends, and no process is left."""
        for host in self.hosts:
            host.session.unknown_next = None
        for _ in range(HEAL_MAX):
            for host in self.hosts:
                host.runs.look()
                run = self.steps.get(host)
                if run is not None and not run.over:
                    run.step()
                if host.processes and host.processes[-1].code is None:
                    host.processes[-1].end()
            self.wait()
            self.check()
            left = [p for host in self.hosts for p in host.processes if p.code is None]
            if not left and not any(a.is_open for a in audits.every(self.world.registry)):
                return
        self.broken.append("something never ends")

    # -- what holds ------------------------------------------------------------------------------

    def check(self) -> None:
        store = open_store(self.world.deployment.store)
        for audit in audits.every(self.world.registry):
            before = self.ended.get(audit.id)
            if before is not None and audit != before and not _repeats(before, audit):
                self.broken.append(f"{audit.id} had ended as {before.state}, now {audit.state}")
            if not audit.is_open:
                self.ended[audit.id] = audit
            if audit.attempt > ATTEMPTS_MAX:
                self.broken.append(f"{audit.id} is run for the {audit.attempt}th time")
            if audit.state == "done" and store.list(audit.report) != [
                f"{audit.report}/{name}" for name in sorted((REPORT, VALUES))
            ]:
                self.broken.append(f"{audit.id} names a report that is not there")
        for host in self.hosts:
            if sum(process.code is None for process in host.processes) > 1:
                self.broken.append(f"{host.incarnation} runs two")


def _repeats(before: AuditRequest, now: AuditRequest) -> bool:
    """The same result, written again after an unknown outcome."""
    return replace(now, ended_ms=before.ended_ms) == before


def played(seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return Play(Path(folder), seed).run()


@pytest.mark.drawn(12)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_holds_whatever_happens(seed: int) -> None:
    assert played(seed) == []


def _unfenced(nodes: AuditNodes, audit: AuditRequest, _version: int) -> int:
    there = nodes.one(audit.id)
    version = there.version if there is not None else -1
    nodes._coordination.write(Set(paths.audit(audit.id), codec.encode(audit), version))
    return version + 1


def _keeps_running(run: AuditRun) -> None:
    """As if a run did not end its process."""


def _own_is_not_free(audit: AuditRequest, live: Any) -> bool:
    return audit.state == "waiting"


def _named_first(run: AuditRun) -> str:
    return f"audits/d/{run.id}/{run._audit.attempt}"


DEFECTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a write without a version": (AuditNodes, "put", _unfenced),
    "a process that outlives its run": (AuditRun, "_kill", _keeps_running),
    "an audit of a dead worker stays": (AuditRequest, "is_free", _own_is_not_free),
    "a result before its report": (AuditRun, "_stored_report", _named_first),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(_fails(seed) for seed in range(SEEDS))


def _fails(seed: int) -> bool:
    try:
        return bool(played(seed))
    except RetryableError:
        return True


def test_a_look_that_forgets_its_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    look = AuditRuns.look

    def forgets(runs: AuditRuns) -> None:
        runs._running = None
        look(runs)

    monkeypatch.setattr(AuditRuns, "look", forgets)
    assert any(_fails(seed) for seed in range(SEEDS))
