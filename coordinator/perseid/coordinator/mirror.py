"""Mirrors a job's progress in its sources to the consumer group `perseid.<job>`, for lag tools.

Only a mirror: perseid never reads it, and no epoch waits for it. The leader writes it in a thread
of its own, at most once a second for each job. An old leader cannot set it back:

1. A writer acquires the group's transactional id, which fences all earlier writers.
2. Only then it checks that its lease holds, so no other process had led before it acquired the id.
3. It commits. A process that pauses before step 2 commits nothing; after step 2, the next leader
   has acquired the id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perseid.clocks import growing_s
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.model import JobState
from perseid.coordinator.watching import Watcher
from perseid.errors import PerseidError
from perseid.topics.admin import Partition
from perseid.topics.groups import GroupWriter

_log = logging.getLogger(__name__)

MIRROR_S = 1.0  # lag tools poll less often; a commit costs the broker a few milliseconds
REFRESH_S = 3600.0  # a broker drops the offsets of a group without members after a week
IDLE_S = 60.0  # after which a writer is let go: it has connections and three threads
RETRY_FIRST_S, RETRY_MAX_S = 2.0, 60.0  # between failed attempts


def committed(job: JobState) -> dict[Partition, int]:
    """The first offset of each source partition that no committed epoch has.

    The position after all tokens, moved back over those in flight. If two sources read one
    partition the lower offset counts.
    """
    at = {key: position.offset for key, position in job.inputs.positions.items()}
    for issued in reversed([i for i in job.chain.tokens if i.token.epoch > job.done]):
        for r in reversed(ranges_of(issued.token)):
            if (r.source, r.partition) in at:
                at[r.source, r.partition] = r.start
    found: dict[Partition, int] = {}
    for (source, partition), offset in at.items():
        place = (job.inputs.positions[source, partition].topic, partition)
        found[place] = min(offset, found.get(place, offset))
    return found


def is_mirrored(job: JobState) -> bool:
    """Whether the job's positions are meaningful and will still be needed."""
    return job.phase is not Phase.LOADING and job.chain.begun and job.entry.desired != "removed"


@dataclass
class _Mirrored:
    """One job's group. `failures`: in a row; no attempt before `due_s`."""

    writer: GroupWriter
    acquired: bool = False
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    written_s: float = float("-inf")
    failures: int = 0
    due_s: float = float("-inf")


class OffsetsMirror(Watcher):
    """Writes the groups of all jobs. `failed`: the number of failures by job."""

    def __init__(
        self, jobs: Callable[[], Mapping[str, JobState]], new_writer: Callable[[str], GroupWriter],
        leads: Callable[[], bool], monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        """`leads`: whether the lease holds now. All callables are called in this thread."""
        super().__init__("offsets")
        self._jobs, self._new_writer = jobs, new_writer
        self._leads, self._now = leads, monotonic_s
        self._groups: dict[str, _Mirrored] = {}
        self.failed: Mapping[str, int] = {}  # replaced, never changed: other threads read it

    def _look(self) -> float:
        known = self._jobs()
        jobs = {name: job for name, job in known.items() if is_mirrored(job)}
        if not self.failed.keys() <= known.keys():  # of jobs that were removed
            self.failed = {name: n for name, n in self.failed.items() if name in known}
        for name in self._groups.keys() - jobs.keys():
            self._groups.pop(name).writer.close()
        for name, job in jobs.items():
            if name not in self._groups:
                self._groups[name] = _Mirrored(self._new_writer(name))
            self._mirror(name, self._groups[name], committed(job))
        return MIRROR_S

    def _mirror(self, job: str, group: _Mirrored, offsets: Mapping[Partition, int]) -> None:
        now_s = self._now()
        fresh = offsets == group.offsets and now_s - group.written_s < REFRESH_S
        if group.acquired and fresh and now_s - group.written_s > IDLE_S:
            group.writer.close()  # the next acquire opens it again
            group.acquired = False
        if fresh or not offsets or now_s < group.due_s:
            return
        try:
            if not group.acquired:
                group.writer.acquire()
                group.acquired = True
            if not self._leads():
                return
            group.writer.commit(offsets)
        except PerseidError as error:  # also FencedError: the leader acquires the id again
            group.acquired = False
            self._count(job, group, error)
            return
        if group.failures:
            _log.info("consumer group offsets are mirrored again, after %d failures",
                      group.failures, extra={"job": job})  # fmt: skip
        group.offsets, group.written_s, group.failures = offsets, now_s, 0

    def _count(self, job: str, group: _Mirrored, error: PerseidError) -> None:
        """Logs the first of several failures in a row, and counts all."""
        if not group.failures:
            _log.warning("consumer group offsets are not mirrored, so lag tools see old ones; the "
                         "job continues: %s", error, extra={"job": job})  # fmt: skip
        group.failures += 1
        group.due_s = self._now() + growing_s(group.failures, RETRY_FIRST_S, RETRY_MAX_S)
        self.failed = {**self.failed, job: self.failed.get(job, 0) + 1}
