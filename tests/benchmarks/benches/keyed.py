"""The job of the state benchmarks on one worker: `jobs/keyed`, its speed, memory, state and judge.

Its input is `keys.py`. A run: the job starts on a topic that waits, counts every key
once, and then keys drawn uniformly; speed is taken from its committed outputs. Its state is
then read as `perseid state` does and compared key by key with a count of the same offsets.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from benches.bench_cluster import PARTITIONS, Place
from benches.host_stall import HostStallDetector
from benches.keys import Keys, ends_of, write
from benches.memory import PeakMemory, by_program, tmpfs_bytes
from benches.reading import read_topic
from benches.timeline import Timeline, ends_at, progress_of, speed, tokens_of
from perseid.cli import output
from perseid.cli.scenario.bed import Names, ScenarioBed, connect, edited
from perseid.cli.state import gids_of, place_of, root_of
from perseid.clocks import SystemClock
from perseid.errors import PermanentError
from perseid.jobs.operations import backup
from perseid.topics.records import FragmentState

OPERATOR = "counts"
ROW_OVERHEAD = 12  # of a row in Arrow's form, besides the key: its offset (4) and the count (8)
MASTER = "local[2]"
NEVER = "1d"  # a period of checkpoints that no run reaches
FASTEST_SHORT = 4_500_000  # records a second with keys of 10 bytes; 3,420,000 were seen
FASTEST = 2_300_000  # with keys of 88 bytes; 2,185,000 were seen
LONGER_MAX = 3  # times its length a window lasts at most, on a machine that is slow
_LONGER_LOOK_S = 5.0
_PRELOAD_S = 600.0
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Shape:
    """A job of this kind. `period` of its checkpoints, as in job.yaml."""

    keys: Keys
    parallelism: int = PARTITIONS
    period: str = NEVER

    @property
    def state_bytes(self) -> int:
        """Of a snapshot, as Arrow keeps it."""
        return self.keys.keys * (self.keys.key_bytes + ROW_OVERHEAD)


@dataclass(frozen=True, slots=True)
class Window:
    """`warm_up_s` begins when all keys are there; `records` wait after the keys."""

    warm_up_s: float
    window_s: float
    records: int

    @classmethod
    def of(cls, warm_up_s: float, window_s: float, records: int | None, fastest: int) -> Window:
        """By default with as many records as the `fastest` would count a second meanwhile."""
        return cls(warm_up_s, window_s, records or int((warm_up_s + window_s) * fastest))


def filled(place: Place, keys: Keys, records: int) -> str:
    """A topic with every key once and then `records` draws."""
    topic = f"bench-keys-{time.time_ns() // 1_000_000:x}"
    place.make_topics(topic)
    output.note(f"filling {topic}: {keys.keys:,} keys and {records:,} draws")
    write(place.kafka, topic, keys, {}, ends_of(keys, records))
    return topic


@contextmanager
def engines(place: Place, workers: int = 1, master: str = MASTER) -> Iterator[ScenarioBed]:
    """One coordinator and the workers, which go again.

    They begin without the state logs of removed jobs: a worker keeps them for half a minute, and of
    a state of 1 GB they are memory that the next side needs.
    """
    _forget_removed(place)
    try:
        deployment = place.cluster.up(workers=workers, coordinators=1, master=master)
        with connect(deployment) as bed:
            yield bed
    finally:
        place.cluster.up(workers=0, coordinators=0)


def _forget_removed(place: Place) -> None:
    """Deletes at once what a worker would delete later; none may run."""
    from perseid.worker.removed_jobs import RemovedJobs

    removed = RemovedJobs(place.cluster.deployment)
    with connect(place.cluster.deployment) as bed:
        known = {entry.uuid for entry in bed.registry.jobs().values()}
    removed.collect(removed.unknown(known))


class KeyedJob:
    """One job, applied; a worker may come later. `remove` takes it and its sink away."""

    def __init__(self, place: Place, bed: ScenarioBed, shape: Shape, source: str) -> None:
        self.place, self.bed, self.shape = place, bed, shape
        self.names = Names.fresh("bench", source)
        self._scratch = tempfile.TemporaryDirectory(prefix="perseid-keyed-")
        self._folder = self._written(Path(self._scratch.name) / self.names.job)
        place.make_topics(self.names.sink)
        self.uuid = bed.put(self.names, self._folder).job_uuid

    def _written(self, folder: Path) -> Path:
        return edited(Path(__file__).parent / "jobs" / "keyed", folder, (
            ("name: keyed\n", f"name: {self.names.job}\n"),
            ("parallelism: 4\n", f"parallelism: {self.shape.parallelism}\n"),
            ("topic: keys,", f"topic: {self.names.source},"),
            ("topic: keys-counted,", f"topic: {self.names.sink},"),
            ('period: "30s"', f'period: "{self.shape.period}"'),
        ))  # fmt: skip

    def await_counted(self, records: int, timeout_s: float = _PRELOAD_S) -> None:
        """Waits until it runs and so many records are counted in committed epochs."""
        self.bed.await_running(self.names)
        backup.mark(self.bed.registry, self.names.job, SystemClock().wall_ms(), whole=True)
        deadline_s = time.monotonic() + timeout_s
        while (found := self._counted()) < records:
            if time.monotonic() > deadline_s:
                raise PermanentError(
                    f"{self.names.job}: {found:,} of {records:,} records counted in {timeout_s} s"
                )
            time.sleep(_LOOK_S)

    def _counted(self) -> int:
        """Records in front of the group's offsets: those of committed epochs."""
        return sum(row for _, _, row in _latest(self.outputs()).values())

    def is_through(self) -> bool:
        """Whether all records of the source are counted."""
        return self._counted() == self.place.records(self.names.source)

    def await_running(self, before: int, timeout_s: float) -> FragmentState:
        """What the owner reports when it runs; the first `before` words of fragments are old."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            for _, reported in self.progress().fragments[before:]:
                if reported.state == "failed":
                    raise PermanentError(f"{self.names.job} failed: {reported.error}")
                if reported.state == "running":
                    return reported
            time.sleep(_LOOK_S)
        raise PermanentError(f"{self.names.job} does not run {timeout_s:.0f} s after its start")

    def outputs(self) -> list[tuple[int, str, int]]:
        """(time in ms, partition, records so far) of the sink, read_committed."""
        found = []
        for record in read_topic(self.place, self.names.sink):
            row = orjson.loads(record.value)
            found.append((record.time_ms, row["part"], row["records"]))
        return found

    def progress(self) -> Timeline:
        return progress_of(self.place, self.names.job, self.shape.parallelism)

    def changed_shares(self, timeline: Timeline) -> list[float]:
        """The share of all keys that occur between two checkpoints of the timeline."""
        tokens = tokens_of(self.place, self.names.job)
        ends = [ends_at(tokens, c.epoch) for c in timeline.checkpoints]
        return [
            round(self.shape.keys.changed(before, after), 4) for before, after in pairwise(ends)
        ]

    def check_state(self) -> int:
        """Compares the state of the stopped job with a count; the epoch. Raises PermanentError."""
        from perseid.jobs.environments.loading import load
        from perseid.jobs.validation import parse
        from perseid.state.durability.files import LocalFiles
        from perseid.state.durability.store import open_store
        from perseid.worker.inspection import Inspector, Moment, Read
        from perseid.worker.recovery.resplit import share_of

        job = parse.load(self._folder)
        spec = job.operators[OPERATOR]
        kind = load(spec, self._folder, allow_code=True)
        partitions = range(self.shape.parallelism)
        tokens = tokens_of(self.place, self.names.job)

        def use(moment: Moment, read: Read) -> int:
            found = np.zeros(self.shape.keys.keys, dtype=np.int64)
            for partition in partitions:
                rows = read(partition)["total"].snapshot()
                found[rows["key"].cast(pa.int64()).to_numpy()] += rows["n"].to_numpy()
            expected = self.shape.keys.counts(ends_at(tokens, moment.epoch))
            wrong = int((found != expected).sum())
            if wrong:
                raise PermanentError(
                    f"{self.names.job} at epoch {moment.epoch} from the {moment.source}: {wrong:,} "
                    f"of {len(expected):,} keys have another count than the input"
                )
            return moment.epoch

        inspector = Inspector(
            LocalFiles(), root_of(self.place.data), open_store(self.place.cluster.deployment.store),
            SystemClock(), OPERATOR,
            lambda p: share_of(self.names.job, OPERATOR, spec, kind, p), gids_of(job, OPERATOR),
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="perseid-state-") as scratch:
            return inspector.look(
                lambda: place_of(self.bed.registry, self.names.job), partitions, use,
                Path(scratch),
            )  # fmt: skip

    @property
    def log_folder(self) -> Path:
        """The job's state logs on this host."""
        return Path(root_of(self.place.data)) / self.uuid

    def forget_log(self) -> None:
        """The state logs are lost; the job must be stopped."""
        shutil.rmtree(self.log_folder)

    def memory_bytes(self) -> int:
        """Proportional resident sets of all workers' processes, and their files on tmpfs."""
        return sum(self.memory().values())

    def memory(self) -> Counter[str]:
        """The same by "java", "python" and "tmpfs".

        On tmpfs are the state logs and Spark's folders next to them. The store is none of a
        worker's: a deployment has it elsewhere.
        """
        rows = self.place.cluster.processes()
        workers = [p.pid for p in rows if p.kind == "worker" and p.pid is not None]
        on_tmpfs = tmpfs_bytes(Path(root_of(self.place.data)))
        return by_program(workers) + Counter(tmpfs=on_tmpfs)

    def newest_checkpoint(self) -> int:
        """The epoch that the newest pointer names. PermanentError when there is none."""
        found = self.bed.registry.pointers(self.names.job)
        if found is None or not found.pointers:
            raise PermanentError(f"{self.names.job} has no complete checkpoint")
        return found.pointers[0].epoch

    def resume_from_newest(self, timeout_s: float) -> int:
        """Starts the stopped job and waits until it runs; the time before, in ms.

        PermanentError unless the newest complete checkpoint was restored.
        """
        before, newest = len(self.progress().fragments), self.newest_checkpoint()
        asked_ms = time.time_ns() // 1_000_000
        self.bed.resume(self.names)
        check_origin(self.await_running(before, timeout_s).restored_from, newest)
        return asked_ms

    def remove(self) -> None:
        self.bed.end(self.names)
        self.place.topics.delete([self.names.sink])
        self._scratch.cleanup()


def check_origin(restored_from: str, newest: int) -> None:
    """PermanentError unless all partitions came from the checkpoint of epoch `newest`. Pure.

    Some may come from another log: that of an owner that had lost its session when it had
    restored them, since the earlier logs are gone.
    """
    expected = f"checkpoint:{newest}"
    found = set(restored_from.partition(" (")[0].split(", "))
    if expected not in found or not found <= {expected, "log"}:
        raise PermanentError(
            f"restored from {restored_from!r}, not from {expected}, the newest complete checkpoint"
        )


def measured(
    jobs: Sequence[KeyedJob], window: Window, memory: PeakMemory | None = None,
    enough: Callable[[Timeline], bool] | None = None,
) -> tuple[dict[str, Any], list[Timeline]]:  # fmt: skip
    """Runs all jobs through the window and stops them: columns of all together, what each did.

    `memory` is watched through the window, after the warm-up. The window lasts until what each
    job did in it is `enough`, at most to LONGER_MAX times its length. HostStalled when the machine
    stalled in it.
    """
    for job in jobs:
        job.await_counted(job.shape.keys.keys)
    start_ms = time.time_ns() // 1_000_000 + round(window.warm_up_s * 1000)
    time.sleep(window.warm_up_s)
    with memory or nullcontext(), HostStallDetector() as still:
        time.sleep(window.window_s)
        if enough is not None:
            _extend(jobs, start_ms, window.window_s, enough)
    end_ms = time.time_ns() // 1_000_000
    rate, timelines = 0.0, []
    for job in jobs:
        job.bed.stop(job.names)
        outputs = job.outputs()
        found = speed(outputs, start_ms, end_ms)
        if found is None:
            raise PermanentError(
                f"{job.names.job}: no output after the warm-up: is the topic used up by then? "
                "More records (--records); else see the logs"
            )
        if max(time_ms for time_ms, _, _ in outputs) <= end_ms and job.is_through():
            short = f"{job.names.job} used its topic up within the window: more --records"
            if len(jobs) > 1:  # the others had its share of the machine
                raise PermanentError(short)
            output.note(f"perseid: {short}")
        rate += found[0]
        timelines.append(job.progress().within(*found[1:]))
    still.check()
    return {
        "rows_per_s": round(rate, 1), "us_per_record": round(1e6 / rate, 3),
        "window_s": round((end_ms - start_ms) / 1000, 1),
    }, timelines  # fmt: skip


def _extend(
    jobs: Sequence[KeyedJob], start_ms: int, window_s: float, enough: Callable[[Timeline], bool]
) -> None:
    """Waits until all have done enough in the window, or it is LONGER_MAX times as long."""
    deadline_s = time.monotonic() + (LONGER_MAX - 1) * window_s
    while time.monotonic() < deadline_s:
        now_ms = time.time_ns() // 1_000_000
        spans = [speed(job.outputs(), start_ms, now_ms) for job in jobs]
        if all(
            span is not None and enough(job.progress().within(*span[1:]))
            for job, span in zip(jobs, spans, strict=True)
        ):
            return
        time.sleep(_LONGER_LOOK_S)


def _latest(outputs: list[tuple[int, str, int]]) -> dict[str, tuple[int, str, int]]:
    """The last output of each partition: its count only rises."""
    found: dict[str, tuple[int, str, int]] = {}
    for one in outputs:
        if one[1] not in found or one[2] > found[one[1]][2]:
            found[one[1]] = one
    return found
