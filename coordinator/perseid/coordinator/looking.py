"""A leader's watchers: one of each kind, and a progress watcher for each job.

The given state determines which jobs exist. The caller runs the watchers: `begin` gets each watcher
that is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from perseid.coordinator import events as ev
from perseid.coordinator import issue, sink_topics
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import ClusterState, JobState
from perseid.coordinator.watching import (
    Emit,
    EndsWatcher,
    ProgressWatcher,
    RegistryWatcher,
    TopicsWatcher,
    Wanted,
    Watcher,
)
from perseid.registry import Registry
from perseid.topics.admin import TopicReader
from perseid.topics.log import LogReader

_ACTIVE = (Phase.WAITING, Phase.RESTORING, Phase.RUNNING)


@dataclass(frozen=True, slots=True)
class Sources:
    """What the watchers read. `topics` and `more_topics` are used in different threads."""

    registry: Registry
    topics: TopicReader
    more_topics: TopicReader
    new_reader: Callable[[], LogReader]


class Looking:
    """All watchers of one leader."""

    def __init__(
        self, sources: Sources, state: Callable[[], ClusterState], emit: Emit,
        begin: Callable[[Watcher], None], monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self._sources, self._state, self._emit, self._begin = sources, state, emit, begin
        self._now = monotonic_s
        self._ends = EndsWatcher(sources.topics, self.wanted, emit, monotonic_s)
        self._watchers: list[Watcher] = [
            RegistryWatcher(sources.registry, emit),
            self._ends,
            TopicsWatcher(sources.more_topics, self.wanted, emit, monotonic_s),
        ]
        self._progress: dict[str, ProgressWatcher] = {}

    def __iter__(self) -> Iterator[Watcher]:
        return iter([*self._watchers, *self._progress.values()])

    def begin(self) -> None:
        for watcher in self._watchers:
            self._begin(watcher)

    def stop(self) -> None:
        for watcher in self:
            watcher.stop()

    def wanted(self) -> Wanted:
        """What the watchers of topics are to look at now."""
        jobs = [job for job in self._state().jobs.values() if job.phase in _ACTIVE]
        now_s = self._now()
        return Wanted(
            frozenset(job.entry.uuid for job in jobs),
            frozenset().union(*(job.inputs.partitions for job in jobs)),
            any(issue.may_issue(job, now_s) for job in jobs),
            frozenset().union(*(sink_topics.asked(job) for job in jobs)),
        )

    def follow(self, event: ev.Event, before: Mapping[str, JobState]) -> None:
        """Follows a job's progress from where its load ended; stops following removed jobs.

        `event` has been decided on; `before` are the jobs before that event.
        """
        jobs = self._state().jobs
        if isinstance(event, ev.JobLoaded) and _is_loaded(jobs.get(event.job)):
            old = self._progress.pop(event.job, None)
            if old is not None:
                old.stop()
            watcher = ProgressWatcher(
                event.job, event.progress_offset, self._sources.new_reader(),
                self._sources.more_topics, self._emit, self._look_at_ends, self._now,
            )  # fmt: skip
            self._progress[event.job] = watcher
            self._begin(watcher)
        if jobs is not before:
            for name in [n for n in self._progress if n not in jobs]:
                self._progress.pop(name).stop()

    def _look_at_ends(self, name: str) -> None:
        """Reads the ends, so that the epoch after one without backlog takes the newest input."""
        job = self._state().jobs.get(name)
        if job is not None and not job.inputs.has_backlog:
            self._ends.look_at(job.inputs.partitions)


def _is_loaded(job: JobState | None) -> bool:
    return job is not None and job.phase is not Phase.LOADING
