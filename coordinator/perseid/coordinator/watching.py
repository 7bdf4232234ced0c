"""Threads that watch the registry, progress and sources and turn changes into events.

Each reads the current state repeatedly and emits what has changed; none decides. After a client
error it retries a moment later.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from perseid import logs
from perseid.clocks import growing_s
from perseid.coordinator.epoch_timeout import TOPICS_S  # identity, new partitions, retention
from perseid.coordinator.events import (
    EndsSeen,
    Event,
    ProgressLost,
    ProgressSeen,
    RegistrySeen,
    TopicsSeen,
)
from perseid.coordinator.loading import high_watermarks, source_topics
from perseid.errors import (
    DamagedFile,
    PermanentError,
    PerseidError,
    RetryableError,
    TopicIdentityChanged,
    TransientAnswer,
)
from perseid.records import JobEntry
from perseid.registry import Registry
from perseid.topics import names
from perseid.topics.admin import Partition, TopicReader
from perseid.topics.log import LogReader, ProgressLog
from perseid.topics.records import EpochDone

_log = logging.getLogger(__name__)

Emit = Callable[[Event], None]

REGISTRY_S = 1.0  # a look without a reported change, in case a report was lost
RETRY_S = 0.2
IDENTITY_S = 5.0  # between checks that the progress topic is still the same one
IDENTITY_MAX_S = 60.0  # without an answer: each check may wait for long, and delays its job
PROGRESS_WAIT_S = 0.5  # one blocking read; records are returned as soon as they arrive
PROGRESS_FETCH_MS = 1000  # a request each second of an idle job
ENDS_BUSY_S = 0.005  # an epoch could begin and input is flowing
ENDS_READY_S = 0.02  # an epoch could begin, but nothing has arrived for a while
ENDS_WAITING_S = 0.05  # no job has a free credit
ENDS_EMITTED_S = 1.0  # so that users see when a lag that does not move was looked at
FLOWING_S = 2.0
# A pause is so many times the look before it, or with many partitions the looks took a whole core.
ENDS_REST_BUSY, ENDS_REST = 3.0, 9.0
ENDS_REST_MAX_S = 0.2  # for a broker that is only slow


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at: source partitions, for which jobs, and whether one has a free credit.

    `jobs` are UUIDs: a job that was removed and applied again under its name is another one.
    `sinks`: topics of epochs that do not end.
    """

    jobs: frozenset[str] = frozenset()
    partitions: frozenset[Partition] = frozenset()
    ready: bool = False
    sinks: frozenset[str] = frozenset()


class Watcher:
    """A thread that calls `turn` until it is stopped. `wake` ends its pause early."""

    def __init__(self, name: str) -> None:
        self.stopped = False
        self.wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self.prepare()
        self._thread.start()

    def stop(self) -> None:
        self.stopped = True
        self.wake.set()

    def turn(self) -> float:
        """One look, whose error is logged; returns how long to pause after it."""
        try:
            return self._look()
        except PerseidError as error:
            _log.warning("%s: %s", self._thread.name, error)
            return RETRY_S

    def _run(self) -> None:
        while not self.stopped:
            try:
                pause_s = self.turn()
            except Exception:  # without its thread the leader would be blind and report nothing
                _log.exception("%s: a defect in the watcher, which continues", self._thread.name)
                pause_s = RETRY_S
            if pause_s > 0:
                self.wake.wait(pause_s)
            self.wake.clear()

    def prepare(self) -> None:
        """Runs before the first look."""

    def _look(self) -> float:
        """One look; returns how long to pause after it."""
        raise NotImplementedError


class RegistryWatcher(Watcher):
    """Emits RegistrySeen when entries or workers have changed."""

    def __init__(self, registry: Registry, emit: Emit) -> None:
        super().__init__("registry")
        self._registry, self._emit = registry, emit
        self._last: RegistrySeen | None = None

    def prepare(self) -> None:
        self._registry.watch(self.wake.set)

    def _look(self) -> float:
        entries, damaged = self._entries()
        seen = RegistrySeen(entries, self._registry.workers(), damaged)
        if seen != self._last:
            self._last = seen
            self._emit(seen)
        return REGISTRY_S

    def _entries(self) -> tuple[dict[str, JobEntry], dict[str, str]]:
        """The entries, and by job why an entry is damaged.

        A damaged entry keeps its last seen value: it must not block the other jobs.
        """
        entries, damaged = {}, {}
        for name in self._registry.job_names():
            try:
                stored = self._registry.job_entry(name)
            except DamagedFile as error:
                damaged[name] = str(error)
                if self._last is None or self._last.damaged.get(name) != damaged[name]:
                    _log.error("job %s: %s", name, error)
                if self._last is not None and name in self._last.entries:
                    entries[name] = self._last.entries[name]
                continue
            if stored is not None:
                entries[name] = stored.value
        return entries, damaged


class ProgressWatcher(Watcher):
    """Emits every record of one job's progress topic from an offset on.

    Once the topic no longer has that offset, or has something else there than a record of progress,
    ProgressLost, and then no more: the next load of the job creates another watcher.

    A topic that was made again and has grown as long is found by its id.

    `before_done` is called with the job in front of each epoch's end: another epoch may begin now.
    """

    def __init__(
        self, job: str, offset: int, reader: LogReader, topics: TopicReader, emit: Emit,
        before_done: Callable[[str], None], monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(f"progress-{job}")
        self._job, self._offset, self._reader, self._emit = job, offset, reader, emit
        self._topics, self._before_done, self._now = topics, before_done, monotonic_s
        self._topic_id = ""
        self._identify_at_s = float("-inf")
        self._unanswered = 0  # unanswered identity checks in a row
        self._log = ProgressLog(job, reader)

    def _look(self) -> float:
        try:
            self._identify()
            return self._read()
        except PermanentError as error:  # it is lost, of another topic, or damaged
            self._emit(ProgressLost(self._job, f"workers' words may be lost: {error}"))
            self.stop()
            return 0.0

    def _identify(self) -> None:
        """Checks the topic's id. Without an answer, records are still read: the job needs them."""
        if self._now() < self._identify_at_s:
            return
        topic = names.progress(self._job)
        try:
            found = self._topics.identities([topic]).get(topic, "")
        except RetryableError as error:
            self._unanswered += 1
            pause_s = growing_s(self._unanswered, IDENTITY_S, IDENTITY_MAX_S)
            self._identify_at_s = self._now() + pause_s
            _log.warning("whether %s was created again is not known now: %s", topic, error)
            return
        if found and self._topic_id not in ("", found):
            raise TopicIdentityChanged(topic, self._topic_id, found)
        self._topic_id, self._unanswered = found or self._topic_id, 0
        self._identify_at_s = self._now() + IDENTITY_S

    def _read(self) -> float:
        for offset, record in self._log.read_from(self._offset, timeout_s=PROGRESS_WAIT_S):
            self._offset = offset + 1
            if self.stopped:
                continue
            if isinstance(record, EpochDone):
                self._before_done(self._job)
            self._emit(ProgressSeen(self._job, record))
        return 0.0

    def _run(self) -> None:
        with logs.about(job=self._job):
            super()._run()
        self._reader.close()


class EndsWatcher(Watcher):
    """Emits the last stable offsets of source partitions when they move, or once a second.

    An offset that fell is emitted at every look, since the first may have been too early to judge.
    """

    def __init__(
        self, topics: TopicReader, wanted: Callable[[], Wanted], emit: Emit,
        monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__("ends")
        self._topics, self._wanted, self._emit, self._now = topics, wanted, emit, monotonic_s
        self._jobs: frozenset[str] = frozenset()
        self._last: dict[Partition, int] = {}
        self._highest: dict[Partition, int] = {}
        self._moved_s = self._emitted_s = float("-inf")

    def _look(self) -> float:
        wanted = self._wanted()
        if not wanted.partitions:
            self._jobs, self._last = wanted.jobs, {}
            return ENDS_WAITING_S
        if wanted.jobs != self._jobs:
            # No end has been emitted for a new job yet.
            self._jobs, self._last, self._highest = wanted.jobs, {}, {}
        asked_s = self._now()
        ends = self._ends(wanted.partitions)
        took_s = self._now() - asked_s
        moved = {
            place: end
            for place, end in ends.items()
            if self._last.get(place) != end or end < self._highest.get(place, end)
        }
        answered = ends.keys() == wanted.partitions
        if moved:
            self._moved_s = self._now()
        if moved or (answered and asked_s - self._emitted_s >= ENDS_EMITTED_S):
            self._emitted_s = asked_s
            self._emit(EndsSeen(moved, asked_s, answered))
        self._last = ends
        self._highest.update((p, max(end, self._highest.get(p, end))) for p, end in moved.items())
        flows = self._now() - self._moved_s < FLOWING_S
        rest_s = min((ENDS_REST_BUSY if flows else ENDS_REST) * took_s, ENDS_REST_MAX_S)
        if not wanted.ready:
            return max(ENDS_WAITING_S, rest_s)
        return max(ENDS_BUSY_S if flows else ENDS_READY_S, rest_s)

    def look_at(self, partitions: frozenset[Partition]) -> None:
        """Emits the ends of `partitions` as they are now, in the calling thread.

        After a transient error this watcher's next look reports them.
        """
        asked_s = self._now()
        try:
            self._emit(EndsSeen(self._ends(partitions), asked_s))
        except PerseidError as error:
            _log.info("ends: %s", error)

    def _ends(self, partitions: frozenset[Partition]) -> dict[Partition, int]:
        """Without those of a topic that is gone or a partition without a leader: others continue.

        TopicsWatcher reports a topic that is gone.
        """
        found, errors = self._topics.answered_ends(partitions)
        for error in errors:
            if not found and not isinstance(error, PermanentError | TransientAnswer):
                raise error  # no broker answers: not at once again
            _log.warning("ends: %s", error)
        return found


class TopicsWatcher(Watcher):
    """Emits what the source topics are, once a second, and what is wrong with sink topics."""

    def __init__(
        self, topics: TopicReader, wanted: Callable[[], Wanted], emit: Emit,
        monotonic_s: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__("topics")
        self._topics, self._wanted, self._emit, self._now = topics, wanted, emit, monotonic_s

    def _look(self) -> float:
        wanted = self._wanted()
        topics = {topic for topic, _ in wanted.partitions}
        if topics:
            asked_s = self._now()
            seen = source_topics(self._topics, topics)
            highs = high_watermarks(self._topics, seen)
            sinks = {topic: text for topic in sorted(wanted.sinks) if (text := self._ask(topic))}
            self._emit(TopicsSeen(seen, highs, asked_s, sinks))
        return TOPICS_S

    def _ask(self, topic: str) -> str | None:
        """What the broker answers about a sink topic that cannot be written to."""
        try:
            there = topic in self._topics.identities([topic])
        except TransientAnswer as error:
            return str(error)
        return (
            None
            if there
            else (
                f"sink topic {topic} does not exist; create it with "
                f"`perseid topics create {topic} --partitions N`"
            )
        )
