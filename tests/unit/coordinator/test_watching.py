"""What the watchers report, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from perseid.coordinator.events import EndsSeen, Event, ProgressLost, ProgressSeen, RegistrySeen
from perseid.coordinator.watching import (
    ENDS_READY_S,
    ENDS_REST,
    ENDS_REST_MAX_S,
    FLOWING_S,
    IDENTITY_S,
    EndsWatcher,
    ProgressWatcher,
    RegistryWatcher,
    Wanted,
    Watcher,
)
from perseid.errors import LogTruncated, RetryableError
from perseid.records import JobEntry, WorkerInfo
from perseid.registry import Registry, paths
from perseid.registry.port import Set
from perseid.testing.kafka import FakeLogWriter
from perseid.testing.kafka_disk import ModelDisk
from perseid.testing.kafka_topics import FakeTopics
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.log import ProgressLog
from perseid.topics.records import Begin, EpochDone, FragmentState
from support import kafka_handle


def test_a_job_applied_again_under_its_name_is_reported_the_ends() -> None:
    kafka = kafka_handle.fake()
    topic = kafka.topic()
    place = (topic, 0)
    wanted = [Wanted(frozenset({"first-uuid"}), frozenset({place}), True)]
    seen: list[Event] = []
    watcher = EndsWatcher(kafka.topics, lambda: wanted[0], seen.append, lambda: 0.0)
    watcher._look()
    watcher._look()
    assert seen == [EndsSeen({place: 0}, 0.0, True)]
    wanted[0] = Wanted(frozenset({"second-uuid"}), frozenset({place}), True)
    watcher._look()
    assert seen == [EndsSeen({place: 0}, 0.0, True)] * 2
    wanted[0] = Wanted()  # nothing runs for a while
    watcher._look()
    wanted[0] = Wanted(frozenset({"second-uuid"}), frozenset({place}), True)
    watcher._look()
    assert seen == [EndsSeen({place: 0}, 0.0, True)] * 3


def test_ends_are_looked_at_in_front_of_the_end_of_an_epoch() -> None:
    """The token that it makes due would else name input as of the last look, 50 ms before."""
    kafka = kafka_handle.fake()
    source, job = kafka.topic(), kafka.job()
    kafka.topics.create(names.progress(job), 1)
    place, seen = (source, 0), list[Event]()
    ends = EndsWatcher(kafka.topics, Wanted, seen.append, lambda: 0.0)
    watcher = ProgressWatcher(
        job, 0, kafka.reader(), kafka.topics, seen.append,
        lambda _: ends.look_at(frozenset({place})), lambda: 0.0,
    )  # fmt: skip
    kafka.writer.append(source, 0, b"record")
    running = FragmentState("u", 1, "w", "running", 0)
    done = EpochDone("u", 1, "w", 1, 1, 10, 10, 5)
    progress = ProgressLog(job, writer=kafka.writer)
    for record in (running, done):
        progress.append(record)
    watcher._look()
    expected = [ProgressSeen(job, running), EndsSeen({place: 1}, 0.0), ProgressSeen(job, done)]
    assert seen == expected


def test_a_broker_that_does_not_answer_with_ends_delays_no_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka, seen = kafka_handle.fake(), list[Event]()
    ends = EndsWatcher(kafka.topics, Wanted, seen.append, lambda: 0.0)

    def away(*_: object) -> None:
        raise RetryableError("no answer")

    monkeypatch.setattr(kafka.topics, "answered_ends", away)
    ends.look_at(frozenset({("t", 0)}))
    assert seen == []


def append_states(kafka: kafka_handle.Kafka, job: str, *states: str) -> None:
    """By a producer of its own each time: an earlier one is refused where the log was cut."""
    assert kafka.model is not None
    log = ProgressLog(job, writer=FakeLogWriter(kafka.model))
    for state in states:
        log.append(FragmentState("u", 1, "w", state, 0))


def progress_watcher(
    kafka: kafka_handle.Kafka, job: str, seen: list[Event], now: Callable[[], float] = lambda: 0.0
) -> ProgressWatcher:
    return ProgressWatcher(job, 0, kafka.reader(), kafka.topics, seen.append, lambda _: None, now)


def test_progress_is_read_while_it_is_unknown_whether_its_topic_is_the_same() -> None:
    """The client that is asked for that may hang while the reader gets all records."""
    kafka = kafka_handle.fake()
    job, seen, asked = kafka.job(), list[Event](), list[object]()

    class Hanging(FakeTopics):
        def identities(self, topics: Sequence[str]) -> dict[str, str]:
            asked.append(topics)
            raise RetryableError("no answer in 15 s")

    kafka.topics.create(names.progress(job), 1)
    assert kafka.model is not None
    watcher = ProgressWatcher(
        job, 0, kafka.reader(), Hanging(kafka.model), seen.append, lambda _: None, lambda: 0.0
    )
    progress = ProgressLog(job, writer=kafka.writer)
    for epoch in range(3):
        record = FragmentState("u", 1, "w", "running", epoch)
        progress.append(record)
        watcher.turn()
        assert seen[-1] == ProgressSeen(job, record)
    assert len(asked) == 1


@pytest.mark.parametrize("value", [b"not ours", codec.encode(Begin(1, "u", 0))])
def test_what_is_no_progress_is_reported_with_its_place_and_not_read_without_end(
    value: bytes,
) -> None:
    kafka = kafka_handle.fake()
    job, seen = kafka.job(), list[Event]()
    kafka.topics.create(names.progress(job), 1)
    watcher = progress_watcher(kafka, job, seen)
    append_states(kafka, job, "running")
    kafka.writer.append(names.progress(job), 0, value)
    while not watcher.stopped:
        assert watcher.turn() == 0.0
    assert isinstance(seen[-1], ProgressLost)
    assert f"{names.progress(job)}[0] at offset 1: " in seen[-1].text


def test_a_watcher_that_meets_a_defect_continues(caplog: pytest.LogCaptureFixture) -> None:
    """Without its thread the leader would see no entry and no input any more, and lead on."""
    looks: list[int] = []

    class Looks(Watcher):
        def _look(self) -> float:
            looks.append(1)
            if len(looks) == 1:
                raise ZeroDivisionError
            return 60.0

    watcher = Looks("looks")
    watcher.start()
    until(lambda: len(looks) == 2, 20, "a second look")
    watcher.stop()
    assert "looks: a defect in the watcher" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("grown", [0, 6])
def test_a_progress_topic_that_lost_its_end_is_reported_once(grown: int) -> None:
    """Also where it has grown beyond the watcher before that looked: what is there is not all."""
    kafka = kafka_handle.fake()
    job, seen = kafka.job(), list[Event]()
    assert kafka.model is not None
    kafka.topics.create(names.progress(job), 1)
    watcher = progress_watcher(kafka, job, seen)
    append_states(kafka, job, *["running"] * 10)
    watcher._look()
    assert len(seen) == 10
    ModelDisk(kafka.model).cut((names.progress(job), 0), 4)
    append_states(kafka, job, "failed", *["warning"] * grown)
    watcher._look()
    assert watcher.stopped
    lost = LogTruncated(names.progress(job), 0, 10, 5 + grown)
    assert seen[10:] == [ProgressLost(job, f"workers' words may be lost: {lost}")]


def test_a_progress_topic_that_was_made_again_is_reported_however_long_it_is() -> None:
    kafka, clock_s, seen = kafka_handle.fake(), [0.0], list[Event]()
    job = kafka.job()
    topic = names.progress(job)
    kafka.topics.create(topic, 1)
    append_states(kafka, job, "running")
    watcher = progress_watcher(kafka, job, seen, lambda: clock_s[0])
    watcher._look()
    kafka.topics.delete([topic])
    kafka.topics.create(topic, 1)
    append_states(kafka, job, "failed", "warning", "warning")
    clock_s[0] = IDENTITY_S
    watcher._look()
    (_, lost) = seen
    assert isinstance(lost, ProgressLost)
    assert "TopicIdentityChanged" in lost.text


def test_ends_that_fell_are_reported_at_every_look() -> None:
    """The first look may have come too early to be judged."""
    kafka, clock_s, seen = kafka_handle.fake(), [0.0], list[Event]()
    topic = kafka.topic(2)
    places = [(topic, 0), (topic, 1)]
    for place in places:
        for _ in range(9):
            kafka.writer.append(*place, b"record")
    wanted = Wanted(frozenset({"u"}), frozenset(places), True)
    watcher = EndsWatcher(kafka.topics, lambda: wanted, seen.append, lambda: clock_s[0])
    watcher._look()
    assert kafka.model is not None
    ModelDisk(kafka.model).cut(places[1], 5)
    for clock_s[0] in (1.0, 2.0):
        watcher._look()
    fell = {places[1]: 5}
    assert seen[1:] == [EndsSeen(fell, 1.0, True), EndsSeen(fell, 2.0, True)]
    for _ in range(4):
        FakeLogWriter(kafka.model).append(*places[1], b"record")
    watcher._look()
    watcher._look()
    assert seen[3:] == [EndsSeen({places[1]: 9}, 2.0, True)]
    for clock_s[0] in (2.9, 3.0, 3.9):
        watcher._look()
    assert seen[4:] == [EndsSeen({}, 3.0, True)], "the same ends, once a second"


def test_a_look_that_takes_long_is_followed_by_a_longer_pause() -> None:
    """With many partitions the looks of a leader would take a whole core."""
    kafka, clock_s, took_s = kafka_handle.fake(), [0.0], [0.0]
    place = (kafka.topic(), 0)

    def now() -> float:
        clock_s[0] += took_s[0]  # by each question, and a look asks after its answers
        return clock_s[0]

    wanted = Wanted(frozenset({"u"}), frozenset({place}), True)
    watcher = EndsWatcher(kafka.topics, lambda: wanted, lambda _: None, now)
    watcher._look()
    clock_s[0] += 2 * FLOWING_S
    assert watcher._look() == ENDS_READY_S
    took_s[0] = 0.01
    assert watcher._look() == pytest.approx(ENDS_REST * 0.01)
    took_s[0] = 1.0
    assert watcher._look() == ENDS_REST_MAX_S


def test_a_partition_without_a_leader_hides_no_other_jobs_input(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka, seen = kafka_handle.fake(), list[Event]()
    place = (kafka.topic(), 0)
    kafka.writer.append(*place, b"record")
    leaderless = (kafka.topic(), 9)
    wanted = Wanted(frozenset({"u"}), frozenset({place, leaderless, ("gone", 0)}), True)
    EndsWatcher(kafka.topics, lambda: wanted, seen.append, lambda: 0.0)._look()
    assert seen == [EndsSeen({place: 1}, 0.0)]
    assert f"{leaderless[0]}[9]" in caplog.text and "gone" in caplog.text


def test_a_look_without_any_answer_is_an_error_of_the_look() -> None:
    kafka = kafka_handle.fake()
    wanted = Wanted(frozenset({"u"}), frozenset({(kafka.topic(), 9)}), True)
    with pytest.raises(RetryableError, match="no leader"):
        EndsWatcher(kafka.topics, lambda: wanted, lambda _: None, lambda: 0.0)._look()


def test_a_damaged_entry_delays_no_other_entry(caplog: pytest.LogCaptureFixture) -> None:
    """Of jobs it is left as it was last seen, and of workers it is as if the worker were gone."""
    zookeeper, seen = FakeZooKeeper(), list[Event]()
    registry = Registry(zookeeper.session())
    entries = {name: JobEntry(name, f"u-{name}", "r", "a", "running", 1, 0) for name in ("a", "b")}
    for entry in entries.values():
        registry.put_job_entry(entry, None)
    for number in (1, 2):
        registry.register_worker(WorkerInfo(f"w{number}", f"w{number}-1", "h", 1, 1, 1, "m", 0))
    watcher = RegistryWatcher(registry, seen.append)
    watcher._look()
    for path in (paths.spec("b"), paths.worker("w2-1")):
        registry.coordination.write(Set(path, b"edited by hand"))
    watcher._look()
    watcher._look()
    (first, second) = seen
    assert isinstance(first, RegistrySeen)
    assert isinstance(second, RegistrySeen)
    assert (first.entries, first.damaged) == (entries, {})
    assert second.entries == entries
    assert list(second.damaged) == ["b"]
    assert "/b/spec does not hold a JobEntry" in second.damaged["b"]
    assert [worker.id for worker in second.workers] == ["w1"]
    logged = [record.getMessage() for record in caplog.records]
    assert sum("does not hold a WorkerInfo" in text for text in logged) == 1  # not at each look
    assert sum("does not hold a JobEntry" in text for text in logged) == 1
