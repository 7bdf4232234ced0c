"""The two copies of a job's only fragment on a running cluster, and what both report.

What is known here comes from the plan and the progress topic alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import psutil

from perseid.records import Assignment, Plan
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.cursor import Cursor
from perseid.topics.records import EpochDone, FragmentState

PLACED_S = 300.0  # a killed worker is back after 75 s on a slow machine
LAG_MAX = 5  # epochs
PROTECTED_S = 0.5  # between two looks at all reports
PYTHON = "perseid.worker.spark.daemon"  # in the command of each Python process of Spark

Reported = TypeVar("Reported", EpochDone, FragmentState)


class Copies:
    """Who has the primary and the replica of a job that is one fragment."""

    def __init__(
        self, running: RunningCluster, registry: Registry, progress: Cursor, job: str
    ) -> None:
        self.running, self.job = running, job
        self._registry, self._progress = registry, progress
        self._reports: list[EpochDone | FragmentState] = []

    def plan(self) -> Plan:
        return until(lambda: self._registry.plan(self.job), PLACED_S, f"a plan of {self.job}")

    def primary(self) -> Assignment:
        return self.plan().only

    def replica(self) -> Assignment | None:
        """The replica, if its worker lives."""
        found = self.plan().replica_of(self.primary().fragment)
        live = {worker.incarnation for worker in self._registry.workers()}
        return found if found is not None and found.owner in live else None

    def reports(self, kind: type[Reported]) -> list[Reported]:
        """All reports of one kind, of both copies and all generations, in their order."""
        while records := self._progress.fetch(1000, 0.1):
            found = (codec.decode(record.value() or b"") for record in records)
            self._reports += [r for r in found if isinstance(r, EpochDone | FragmentState)]
        return [report for report in self._reports if isinstance(report, kind)]

    def done(self, own: Assignment) -> int:
        """The last epoch that the assignment has done; -1 while it does not run."""
        states = [s for s in self.reports(FragmentState) if _is_of(s, own)]
        if not states or states[-1].state not in {"running", "warning"}:
            return -1
        ends = [end.epoch for end in self.reports(EpochDone) if _is_of(end, own)]
        return max([states[-1].epoch, *ends])

    def await_protected(self) -> Assignment:
        """Returns a replica that has done all, but a few epochs, that its primary has done."""

        def look() -> Assignment | None:
            replica, wanted = self.replica(), self.done(self.primary()) - LAG_MAX
            done = self.done(replica) if replica is not None else -1
            return replica if done >= max(wanted, 0) else None

        return until(look, PLACED_S, f"a replica of {self.job} that has caught up", PROTECTED_S)

    def await_other_generation(self, before: Assignment) -> Assignment:
        """Returns the primary of the next generation, as soon as it runs."""

        def look() -> Assignment | None:
            own = self.primary()
            return own if own.generation > before.generation and self.done(own) >= 0 else None

        return until(look, PLACED_S, f"{self.job} to run after generation {before.generation}")

    def restores_since(self, generation: int) -> list[FragmentState]:
        """What primaries of later generations restored, and from where."""
        return [
            state for state in self.reports(FragmentState)
            if state.generation > generation and state.fragment == self.primary().name
            and (state.state == "restoring" or state.restored_from)
        ]  # fmt: skip

    def processes(self, own: Assignment) -> set[tuple[int, float]]:
        """The worker's driver and Spark's Python processes, each by pid and time of its start."""
        worker = worker_of(own)
        below = self.running.below(worker, PYTHON)
        driver = psutil.Process(self.running.cluster.pid(worker))
        return {(process.pid, process.create_time()) for process in (driver, *below)}


def worker_of(own: Assignment) -> str:
    assert own.owner is not None, f"fragment {own.name} has no worker"
    return own.owner.rpartition("-")[0]


def _is_of(report: EpochDone | FragmentState, own: Assignment) -> bool:
    return (report.generation, report.fragment) == (own.generation, own.name)


@contextmanager
def copies_of(running: RunningCluster, job: str) -> Iterator[Copies]:
    progress = Cursor(running.kafka, names.progress(job), 0, 0, "read_committed")
    with (
        closing(Registry.connect(running.cluster.deployment)) as registry, closing(progress),
    ):  # fmt: skip
        yield Copies(running, registry, progress, job)
