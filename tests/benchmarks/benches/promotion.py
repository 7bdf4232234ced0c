"""`bench promotion`: seconds from `kill -9` of the primary's worker to output of its replica.

The job numbers the visits of each key; the keys are its state. Every key comes once, then keys
come at a steady rate while the primary's worker is killed again and again, each time as soon as
the replica has caught up. At the end every record is compared with a count of the input.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Producer

from benches.bench_cluster import PARTITIONS, Place
from benches.host_stall import HostStallDetector, steady
from benches.keyed import ROW_OVERHEAD, engines
from benches.reading import read_topic
from perseid.cli import output
from perseid.cli.scenario.bed import Names, ScenarioBed, edited
from perseid.embedded.identity import send
from perseid.errors import PermanentError
from perseid.records import Assignment, Plan
from perseid.records.marks import mark
from perseid.topics import codec, names
from perseid.topics.cursor import Cursor
from perseid.topics.records import EpochDone, FragmentState

JOB = Path(__file__).parent / "jobs" / "visits"
KEY_BYTES = 88
_TICK_S = 0.02
_LOOK_S = 0.01
_PROTECTED_LOOK_S = 0.2
_LAG_MAX = 5  # epochs
_WAIT_S = 300.0
_QUEUE_RECORDS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Settings:
    """`rate` in records a second. Before a kill come up to `pause_s` with a replica."""

    state_bytes: int = 100_000_000
    rate: float = 500.0
    kills: int = 20
    pause_s: float = 5.0
    seed: int = 3

    @property
    def keys(self) -> int:
        return max(self.state_bytes // (KEY_BYTES + ROW_OVERHEAD), 1)


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one kill, in ms since 1970: until the leader's plan has another primary, until that one
    reports that it runs, and until a reader has a committed record that was sent after the kill.
    """

    killed: int
    planned: int
    runs: int
    shown: int

    @property
    def parts_s(self) -> dict[str, float]:
        """The time from each to the next, and all together."""
        killed, planned, runs, shown = astuple(self)
        found = {
            "first output": shown - killed, "of it until the plan": planned - killed,
            "until the role has changed": runs - planned, "until the commit": shown - runs,
        }  # fmt: skip
        return {name: ms / 1000 for name, ms in found.items()}


@dataclass(frozen=True, slots=True)
class Protected:
    """The next replica, in ms since 1970: the kill, when its worker began to restore it, when it
    ran, and when it had caught up. `to_run`: epochs that it lacked when it ran.
    """

    killed: int
    restores: int
    runs: int
    caught_up: int
    to_run: int

    @property
    def parts_s(self) -> dict[str, float]:
        found = {
            "a replica again": self.caught_up - self.killed,
            "of it until it is placed": self.restores - self.killed,
            "until it is restored": self.runs - self.restores,
            "until it has caught up": self.caught_up - self.runs,
        }
        return {name: ms / 1000 for name, ms in found.items()}


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows: of the first output after a kill, of its parts, and of the next replica."""
    topics = Names.fresh("bench")
    place.make_topics(topics.source, topics.sink)
    moments: list[dict[str, float]] = []
    with (
        engines(place, workers=2) as bed,
        _job(bed, topics),
        Visits(place, topics, settings) as fed,
    ):
        with Outputs(place.kafka, topics.sink) as shown:
            shown.await_count(settings.keys)
            fed.begin()
            copies = Copies(place, bed, topics.job)
            chance = random.Random(settings.seed)
            copies.await_protected()
            for number in range(settings.kills):
                time.sleep(chance.uniform(0, settings.pause_s))
                what = f"kill {number + 1} of {settings.kills}"
                found = steady(what, partial(_kill, copies, shown), output.note, watched=True)
                again = copies.await_protected(found.killed)
                moments.append(found.parts_s | again.parts_s)
                output.note(f"{what}: {moments[-1]}, {again.to_run} epochs to run")
            fed.end()
            shown.await_count(len(fed.numbers))
        verdict = judged(fed.numbers, _rows(place, topics.sink))
        copies.close()
    if any(verdict.values()):
        raise PermanentError(f"{topics.job}: {verdict} of {len(fed.numbers):,} records")
    place.topics.delete([topics.source, topics.sink])
    return rows({name: [m[name] for m in moments] for name in moments[0]}, verdict)


def rows(each: Mapping[str, Sequence[float]], verdict: dict[str, int]) -> list[dict[str, Any]]:
    """A row for each of the times, the verdict in the first. Pure."""
    found: list[dict[str, Any]] = [
        {
            "system": "perseid", "setting": name, "seconds": round(statistics.median(values), 3),
            "p95_s": percentile(values, 95), "max_s": max(values), "seconds_each": list(values),
            "runs": len(values),
        }
        for name, values in each.items()
    ]  # fmt: skip
    return [found[0] | verdict, *found[1:]]


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many of all do not exceed. Pure."""
    at = -(-len(values) * percent // 100) - 1
    return sorted(values)[max(at, 0)]


def judged(numbers: Sequence[int], found: Iterable[tuple[int, int]]) -> dict[str, int]:
    """How many records are lost, doubled or wrong. `numbers`: of each record, by `i`. Pure."""
    times = np.zeros(len(numbers), dtype=np.int64)
    wrong = 0
    for i, n in found:
        if 0 <= i < len(numbers):
            times[i] += 1
            wrong += n != numbers[i]
        else:
            wrong += 1
    return {
        "lost": int((times == 0).sum()), "duplicated": int((times > 1).sum()), "wrong": wrong,
    }  # fmt: skip


def _rows(place: Place, sink: str) -> Iterator[tuple[int, int]]:
    for record in read_topic(place, sink):
        row = orjson.loads(record.value)
        yield row["i"], row["n"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _until(what: str, wanted: Callable[[], bool], look_s: float = _LOOK_S) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not wanted():
        if time.monotonic() > deadline_s:
            raise PermanentError(f"{what} did not come within {_WAIT_S:.0f} s; see the logs")
        time.sleep(look_s)


@contextmanager
def _job(bed: ScenarioBed, topics: Names) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="perseid-visits-") as scratch:
        bed.apply(topics, job_folder(Path(scratch), topics))
    yield
    bed.end(topics)


def job_folder(folder: Path, topics: Names) -> Path:
    """The job under another name, with other topics."""
    return edited(JOB, folder / topics.job, (
        ("name: visits\n", f"name: {topics.job}\n"),
        ("topic: visits,", f"topic: {topics.source},"),
        ("topic: visits-numbered,", f"topic: {topics.sink},"),
    ))  # fmt: skip


class Visits:
    """The input: each key once, and from `begin` to `end` keys at a steady rate, from a thread.

    `numbers`: by `i`, which number a record is among those of its key.
    """

    def __init__(self, place: Place, topics: Names, settings: Settings) -> None:
        self.numbers = [1] * settings.keys
        self._topic, self._settings = topics.source, settings
        self._seen = np.ones(settings.keys, dtype=np.int64)
        self._chance = np.random.default_rng(settings.seed)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._refused: list[str] = []
        self._producer = Producer({
            "bootstrap.servers": place.kafka, "enable.idempotence": True, "linger.ms": 5,
            "queue.buffering.max.messages": 2 * _QUEUE_RECORDS_MAX, "compression.type": "lz4",
        })  # fmt: skip

    def __enter__(self) -> Visits:
        for i in range(self._settings.keys):
            self._send(i, i)
            while len(self._producer) > _QUEUE_RECORDS_MAX:
                self._producer.poll(0.01)
        self._flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._flush()

    def _run(self) -> None:
        begun_s, count = time.monotonic(), 0
        while not self._ended.wait(_TICK_S):
            due = int((time.monotonic() - begun_s) * self._settings.rate)
            for key in self._chance.integers(0, self._settings.keys, due - count).tolist():
                self._seen[key] += 1
                self.numbers.append(int(self._seen[key]))
                self._send(len(self.numbers) - 1, key)
            count = max(due, count)

    def _send(self, i: int, key: int) -> None:
        name = f"{key:0{KEY_BYTES}d}"
        value = orjson.dumps({"i": i, "k": name, "ms": _now_ms()})
        self._producer.produce(self._topic, value, name, on_delivery=self._answered)
        self._producer.poll(0)

    def _answered(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.append(str(error))

    def _flush(self) -> None:
        left = self._producer.flush(_WAIT_S)
        if left or self._refused:
            raise PermanentError(f"{left} records were not written: {self._refused[:1]}")


class Outputs:
    """A reader of the sink, read_committed, in a thread: how many came, and how new they are."""

    def __init__(self, kafka: str, sink: str) -> None:
        self.count = 0
        self._sent_ms: int | None = None  # one that was sent later is awaited
        self._shown_ms = 0  # when that one came
        self._kafka, self._sink = kafka, sink
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Outputs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def await_count(self, records: int) -> None:
        _until(f"record {records:,} of {self._sink}", lambda: self.count >= records)

    def expect(self, sent_ms: int) -> None:
        """From now on a record is awaited that was sent after that time, in ms."""
        self._sent_ms = sent_ms

    def await_expected(self) -> int:
        """The time when it came, in ms."""
        _until(f"an expected record of {self._sink}", lambda: self._sent_ms is None)
        return self._shown_ms

    def _run(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        with closing(Consumer({
            "bootstrap.servers": self._kafka, "group.id": "bench", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
        })) as reader:  # fmt: skip
            wanted = range(PARTITIONS)
            reader.assign([TopicPartition(self._sink, p, OFFSET_BEGINNING) for p in wanted])
            while not self._ended.is_set():
                message = reader.poll(0.1)
                if message is None or message.error() is not None:
                    continue
                self.count += 1
                after = self._sent_ms
                if after is not None and orjson.loads(message.value() or b"")["ms"] > after:
                    self._shown_ms, self._sent_ms = _now_ms(), None


class Copies:
    """The primary and the replica of the job, by its plan and what both report."""

    def __init__(self, place: Place, bed: ScenarioBed, job: str) -> None:
        self._bed, self._job = bed, job
        self._reports = Cursor(place.kafka, names.progress(job), 0, 0, "read_committed")
        self._done: dict[tuple[int, str], int] = {}  # last epoch, by generation and name
        # The first reports, of the broker's time, that it restores, and that it runs.
        self._restores_ms: dict[tuple[int, str], int] = {}
        self._runs_ms: dict[tuple[int, str], int] = {}
        self._to_run: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        self._reports.close()

    def primary(self) -> Assignment:
        return self._plan().only

    def _plan(self) -> Plan:
        plan = self._bed.registry.plan(self._job)
        if plan is None:
            raise PermanentError(f"{self._job} has no plan")
        return plan

    def await_protected(self, killed_ms: int = 0) -> Protected:
        """Waits for a replica that lacks _LAG_MAX epochs at most."""
        found: list[tuple[int, str]] = []

        def protected() -> bool:
            self._read()
            plan = self._plan()
            wanted = self._done.get(_place(plan.only), _LAG_MAX) - _LAG_MAX
            found[:] = [
                _place(own) for own in plan.replicas if self._done.get(_place(own), -1) >= wanted
            ]
            return bool(found)

        _until(f"a replica of {self._job} that has caught up", protected, _PROTECTED_LOOK_S)
        own = found[0]
        return Protected(
            killed_ms, self._restores_ms[own], self._runs_ms[own], _now_ms(), self._to_run[own]
        )

    def kill(self) -> tuple[int, Assignment]:
        """SIGKILL for the primary's worker; the time just before, in ms, and that primary."""
        own = self.primary()
        pids = [w.pid for w in self._bed.registry.workers() if w.incarnation == own.owner]
        target = mark(pids[0]) if pids else None
        if target is None:
            raise PermanentError(f"the primary of {self._job} has no live worker")
        now_ms = _now_ms()
        send(target, 9)
        return now_ms, own

    def await_plan(self, after: Assignment) -> tuple[int, Assignment]:
        """The time, in ms and to _LOOK_S, when the plan has another primary; that one."""
        _until("a plan", lambda: self.primary().generation > after.generation)
        return _now_ms(), self.primary()

    def await_runs(self, own: Assignment) -> int:
        """When the broker had the report that it runs, in ms."""

        def runs() -> bool:
            self._read()
            return _place(own) in self._runs_ms

        _until(f"generation {own.generation} of {self._job}", runs, 0.2)
        return self._runs_ms[_place(own)]

    def _read(self) -> None:
        while found := self._reports.fetch(1000, 0.05):
            for message in found:
                report = codec.decode(message.value() or b"")
                if isinstance(report, EpochDone | FragmentState):
                    self._note(report, message.timestamp()[1])

    def _note(self, report: EpochDone | FragmentState, time_ms: int) -> None:
        place = report.generation, report.fragment
        if isinstance(report, FragmentState):
            if report.state == "restoring":
                self._restores_ms.setdefault(place, time_ms)
            if report.state != "running":
                return
            self._runs_ms.setdefault(place, time_ms)
            self._to_run.setdefault(place, max(self._done.values(), default=0) - report.epoch)
        self._done[place] = max(report.epoch, self._done.get(place, -1))


def _place(own: Assignment) -> tuple[int, str]:
    return own.generation, own.name


def _kill(copies: Copies, shown: Outputs) -> Moments:
    """Raises HostStalled if the host stalled between the kill and the first output."""
    copies.await_protected()
    with HostStallDetector() as still:
        killed_ms, before = copies.kill()
        shown.expect(killed_ms)
        planned_ms, promoted = copies.await_plan(before)
        shown_ms = shown.await_expected()
    still.check()
    return Moments(killed_ms, planned_ms, copies.await_runs(promoted), shown_ms)


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "keys": settings.keys, "partitions": PARTITIONS, "workers": 2}
