"""Jobs on several workers: a worker that joins gets its share, any may die, and parts are apart.

Every output is compared with the input row by row; see `support.ranks`.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType

import pytest
from confluent_kafka import Producer

from perseid.records import Plan
from perseid.registry import Registry
from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin
from support.ranks import RankedJob
from support.silences import (
    APPEND_TIMES,
    assert_not_waited,
    lasts,
    not_restarted,
    now_ms,
    silences_s,
    times_ms,
)

WORKERS = 3
LOAD = 1500  # rows: five epochs at least, so that what is killed has work
PLACED_S = 300.0
FULL_LOADS = 20  # of LOAD rows: several times the smallest bound


@pytest.fixture(scope="module")
def two(running: RunningCluster) -> Iterator[RunningCluster]:
    """The warm cluster; a third worker, which starts within this file, is stopped after it."""
    running.wait_workers(2)
    yield running
    running.cluster.up(workers=2, coordinators=2)


@pytest.fixture(scope="module")
def three(two: RunningCluster) -> RunningCluster:
    """The warm cluster with one more worker."""
    two.cluster.up(workers=WORKERS, coordinators=2)
    return two


class Plans:
    """Which worker has which fragment of a job."""

    def __init__(self, registry: Registry, job: str) -> None:
        self._registry, self._job = registry, job

    def plan(self) -> Plan:
        return until(lambda: self._registry.plan(self._job), PLACED_S, f"a plan of {self._job}")

    def owner(self, fragment: str) -> str | None:
        """The incarnation that runs it, if that lives."""
        found = self.plan().of_fragment(fragment)
        live = {worker.incarnation for worker in self._registry.workers()}
        return found.owner if found is not None and found.owner in live else None

    def await_owner(self, fragment: str, other_than: str | None = None) -> str:
        """Returns the incarnation of another owner, as soon as there is one."""

        def look() -> str | None:
            owner = self.owner(fragment)
            return owner if owner != other_than else None

        return until(look, PLACED_S, f"fragment {fragment} of {self._job} to be placed")

    def worker(self, fragment: str) -> str:
        """Returns the name of its worker, as soon as it has one."""
        return self.await_owner(fragment).rpartition("-")[0]

    def await_fragments(self, count: int, revision_after: str | None = None) -> str:
        """Waits for a plan of so many fragments and another revision; returns its revision."""

        def look() -> str | None:
            plan = self.plan()
            if len(plan.assignments) != count or plan.revision == revision_after:
                return None
            return plan.revision

        return until(look, PLACED_S, f"{count} fragments of {self._job}")


@contextmanager
def plans_of(running: RunningCluster, job: str) -> Iterator[Plans]:
    with closing(Registry.connect(running.cluster.deployment)) as registry:
        yield Plans(registry, job)


@pytest.mark.drawn(group="spread")
def test_a_worker_that_joins_gets_its_share_and_every_row_comes_once(
    two: RunningCluster, tmp_path: Path
) -> None:
    """The first in this file: the third worker is not there yet."""
    job = RankedJob(two, tmp_path, "shares")
    job.apply(spread=WORKERS)
    job.feed(LOAD)
    two.wait_caught_up(job.name)
    two.cluster.up(workers=WORKERS, coordinators=2)
    two.wait_workers(WORKERS)
    with plans_of(two, job.name) as plans:
        before = plans.plan()
        assert len({own.owner for own in before.assignments}) == WORKERS - 1
        job.feed(LOAD)
        shown = two.do("rebalance", job.name)
        assert shown["state"] == "moved"
        (moved,) = shown["moves"]
        after = plans.plan()
    assert set(Counter(own.owner for own in after.assignments).values()) == {1}
    assert [own.fragment for own in after.assignments if own not in before.assignments] == [
        moved["fragment"]
    ]
    assert two.job(job.name)["failures"] == 0
    job.feed(LOAD)
    job.judge()
    two.do("jobs", "remove", job.name, "--purge")


@pytest.mark.drawn(group="spread")
def test_workers_and_the_leader_die_or_stand_still_and_every_row_comes_once(
    three: RunningCluster, tmp_path: Path
) -> None:
    """Each worker in turn, two at once, leader and broker; then one is paused and comes back."""
    job = RankedJob(three, tmp_path, "spread")
    job.apply(spread=WORKERS)
    job.feed(LOAD)
    three.wait_caught_up(job.name)
    with plans_of(three, job.name) as plans:
        fragments = [a.fragment for a in plans.plan().assignments]
        assert len({plans.worker(fragment) for fragment in fragments}) == WORKERS
        for fragment in fragments:
            under_load(three, job, [plans.worker(fragment)])
        under_load(three, job, two_of({plans.worker(fragment) for fragment in fragments}))
        under_load(three, job, [three.leader()])
        under_load(three, job, ["kafka"])
        three.wait_workers(WORKERS)
        job.feed(LOAD)
        paused = plans.await_owner(fragments[0])
        three.pause(paused.rpartition("-")[0])
        try:
            plans.await_owner(fragments[0], other_than=paused)
            job.feed(LOAD)
            three.wait_caught_up(job.name)
        finally:
            three.resume(paused.rpartition("-")[0])
        job.feed(LOAD)
        three.wait_caught_up(job.name)
        job.judge()
    three.do("jobs", "remove", job.name, "--purge")


def two_of(owners: set[str]) -> list[str]:
    """Two workers, of those that own fragments if there are two."""
    others = {f"w{number}" for number in range(1, WORKERS + 1)} - owners
    return [*sorted(owners), *sorted(others)][:2]


def under_load(running: RunningCluster, job: RankedJob, names: Sequence[str]) -> None:
    """Kills these processes while rows wait; returns when all rows are committed."""
    running.wait_workers(WORKERS)
    job.feed(LOAD)
    for name in names:
        running.kill(name)
    job.feed(LOAD)
    running.wait_caught_up(job.name)


@pytest.mark.drawn(group="spread")
def test_spread_revision_and_partitions_change_and_state_is_kept(
    three: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(three, tmp_path, "respread")
    revision: str | None = None
    with plans_of(three, job.name) as plans:
        for spread, parallelism, version in ((1, 3, 1), (3, 3, 1), (3, 3, 2), (3, 4, 2), (1, 4, 2)):
            three.wait_workers(WORKERS)
            job.feed(LOAD)  # waits, or is under way, when the job is changed
            job.apply(spread, parallelism, version)
            revision = plans.await_fragments(spread, revision)
            job.feed(LOAD)
            done = three.wait_caught_up(job.name)
            assert done["parallelism"] == parallelism
    found = job.judge()
    assert {row["version"] for row in found} == {1, 2}
    three.do("jobs", "remove", job.name, "--purge")


@pytest.mark.drawn(group="spread")
def test_a_buffer_topic_that_was_deleted_fails_the_job_and_a_start_loses_nothing(
    three: RunningCluster, tmp_path: Path
) -> None:
    job = RankedJob(three, tmp_path, "unbuffered")
    job.apply(spread=WORKERS)
    job.feed(LOAD)
    three.wait_caught_up(job.name)
    topics = TopicAdmin(three.kafka)
    (buffer,) = (t for t in topics.list() if t.startswith(f"perseid.{job.name}.buffer.second."))
    topics.delete([buffer])
    job.feed(LOAD)
    failed = three.wait_job(job.name, lambda j: j["state"] == "failed", "failed")
    assert buffer in failed["error"]["text"], failed["error"]
    assert "perseid jobs start" in json.dumps(failed["error"])
    three.do("jobs", "stop", job.name)
    three.do("jobs", "start", job.name)
    job.feed(LOAD)
    job.judge()
    assert buffer in topics.list()
    three.do("jobs", "remove", job.name, "--purge")


@pytest.mark.drawn(group="spread")
def test_a_job_at_the_bound_of_its_buffers_takes_checkpoints_and_every_row_comes_once(
    three: RunningCluster, tmp_path: Path
) -> None:
    """Without a period that would take one: each comes of the bound."""
    job = RankedJob(three, tmp_path, "bounded")
    job.apply(spread=WORKERS, buffer_bytes="1MiB", period="1h")
    held, reasons = [0], set[str]()
    for _ in range(FULL_LOADS):
        job.feed(LOAD)
        seen = three.job(job.name)
        held += ((seen.get("buffers") or {}).get("bytes") or {}).values()
        reasons |= {event for event in seen.get("events", ()) if "no input is taken" in event}
        three.wait_caught_up(job.name)
    assert reasons, f"{max(held)} bytes at most"
    assert 0 < max(held) <= 1 << 20
    job.judge()
    shown = three.do("jobs", "show", job.name)
    assert shown["buffers"]["bytes_max"] == 1 << 20
    assert len(shown["checkpoints"]) >= 2
    topics = TopicAdmin(three.kafka)
    (buffer,) = (t for t in topics.list() if t.startswith(f"perseid.{job.name}.buffer.second."))
    assert all(topics.starts([(buffer, p) for p in range(3)]).values()), "trimmed"
    three.do("jobs", "remove", job.name, "--purge")


PARTS = ("left", "right")
JOB = """\
name: parts
parallelism: 2
placement: {spread: 2}
sources:
  left-in: {topic: parts-left-in, format: json, columns: {i: int64, k: string}}
  right-in: {topic: parts-right-in, format: json, columns: {i: int64, k: string}}
operators:
  left: {input: left-in, key: k, use: "parts:Counted"}
  right: {input: right-in, key: k, use: "parts:Counted"}
sinks:
  left: {input: left, topic: parts-left-out, format: json, key: k}
  right: {input: right, topic: parts-right-out, format: json, key: k}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class Counted(Operator):
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        self.seen.add(batch["k"], n=1)
        out.emit(batch.select(["i", "k"]))
"""
TICK_S = 0.05
LOOK_S = 0.5  # at a whole topic: more often costs the job its cores
CALM_S = 5.0  # of both parts, before one dies
DEAD_S = 1.0  # at least, or nothing was shown: a session lasts two seconds


class SteadyInput:
    """A row into the source of each part every TICK_S, from a thread; how many: `rows`."""

    def __init__(self, kafka: str) -> None:
        self.rows = 0
        self._producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> SteadyInput:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "input was not written in 60 s"

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            row = json.dumps({"i": self.rows, "k": f"k{self.rows % 7}"})
            for part in PARTS:
                self._producer.produce(f"parts-{part}-in", row)
            self._producer.poll(0)
            self.rows += 1


def first_output_ms(running: RunningCluster, part: str) -> int:
    topic = f"parts-{part}-out"
    return until(lambda: times_ms(running, topic), PLACED_S, f"output of {part}", LOOK_S)[0]


@pytest.mark.drawn(group="spread")
def test_a_part_without_the_dead_worker_puts_out_as_before(
    three: RunningCluster, tmp_path: Path
) -> None:
    topics = TopicAdmin(three.kafka)
    for part in PARTS:
        for end in ("in", "out"):
            topics.create(f"parts-{part}-{end}", 2, APPEND_TIMES)
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "parts.py").write_text(CODE)
    three.wait_workers(WORKERS)
    three.apply(tmp_path)
    with plans_of(three, "parts") as plans, SteadyInput(three.kafka) as steady:
        plans.await_fragments(2)
        left, right = (plans.await_owner(fragment) for fragment in ("0", "1"))
        assert left != right
        begun = max(first_output_ms(three, part) for part in PARTS)
        lasts(CALM_S)
        with not_restarted(three, right.rpartition("-")[0]):
            killed = now_ms()
            three.kill(right.rpartition("-")[0])
            plans.await_owner("1", other_than=right)
            until(
                lambda: times_ms(three, "parts-right-out")[-1] > killed + DEAD_S * 1000,
                120.0, "output of the part that was taken over", poll_s=LOOK_S,
            )  # fmt: skip
            healed = now_ms()
        assert plans.await_owner("0") == left, "its fragment was moved too"
    three.wait_caught_up("parts")
    shown = {part: times_ms(three, f"parts-{part}-out") for part in PARTS}
    given = {part: times_ms(three, f"parts-{part}-in") for part in PARTS}
    calm = silences_s(given["left"], shown["left"], begun, killed)
    dead = silences_s(given["left"], shown["left"], killed, healed)
    away = max(silences_s(given["right"], shown["right"], killed, healed))
    for part in PARTS:
        found = Counter((row["i"], row["k"]) for row in three.rows(f"parts-{part}-out"))
        assert found == Counter((i, f"k{i % 7}") for i in range(steady.rows)), part
    assert away >= DEAD_S, f"{away} s: nothing stopped, so nothing is shown"
    assert_not_waited(three, calm, dead)
    three.do("jobs", "remove", "parts", "--purge")
