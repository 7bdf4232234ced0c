"""`bench spread`: the same job of two levels on one worker and spread over three, in one run.

Speed and latency are taken as in `bench wordcount`, whose counts the job puts out. Then, in every
run at a steady rate, a worker of the job is killed: the gap is the longest time without output
after that, and every count must be right. Both have three live workers, so that no takeover waits
for a start.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benches import wordcount
from benches.bench_cluster import Place
from benches.measuring import STALLED_S, refuse_faults, run_window, steadily
from benches.sides import Perseid, running
from perseid.cli import output
from perseid.cli.scenario.bed import Names, connect, edited
from perseid.cli.scenario.load_generator import LoadGenerator, judge
from perseid.embedded import Cluster
from perseid.embedded.identity import send
from perseid.errors import PermanentError
from perseid.records.marks import Mark, mark
from perseid.testing.verify.read import read_topic

WORKERS = 3
JOB = Path(__file__).parent / "jobs" / "two-levels"
_PLACED_S = 60.0
_COUNTED_S = 600.0  # until all lines of a run are counted


@dataclass(frozen=True, slots=True)
class Settings:
    """`words`: of speed and latency. A kill comes `settle_s` after the first output."""

    words: wordcount.Settings = field(
        default_factory=lambda: wordcount.Settings(lines=20_000_000, runs=3)
    )
    rate: float = 500.0
    settle_s: float = 15.0
    after_s: float = 20.0


class TwoLevels(Perseid):
    """The job of `jobs/two-levels`, as so many fragments."""

    def __init__(self, cluster: Cluster, spread: int) -> None:
        super().__init__(cluster, workers=WORKERS)
        self.system = f"perseid, spread {spread}"
        self._spread = spread

    def start(self, names: Names) -> None:
        deployment = self._cluster.up(workers=self._workers, coordinators=2)
        self._names = names
        with (
            tempfile.TemporaryDirectory(prefix="perseid-job-") as scratch,
            connect(deployment) as bed,
        ):
            bed.apply(names, job_folder(Path(scratch), names, self._spread))

    def kill(self) -> int:
        """SIGKILL for the worker of the job's first fragment; the time just before, in ms."""
        deadline_s = time.monotonic() + _PLACED_S
        while (target := self._first_owner()) is None:
            if time.monotonic() > deadline_s:
                raise PermanentError(f"no worker has the job's first fragment for {_PLACED_S:g} s")
            time.sleep(0.05)
        now_ms = time.time_ns() // 1_000_000
        send(target, 9)
        return now_ms

    def _first_owner(self) -> Mark | None:
        if self._names is None:
            raise PermanentError("nothing was started")
        with connect(self._cluster.deployment) as bed:
            plan = bed.registry.plan(self._names.job)
            owner = plan.assignments[0].owner if plan is not None else None
            pids = (w.pid for w in bed.registry.workers() if w.incarnation == owner)
            pid = next(pids, None)
        return mark(pid) if pid is not None else None


def job_folder(folder: Path, names: Names, spread: int) -> Path:
    """The job under another name, with other topics and so many fragments."""
    return edited(JOB, folder / names.job, (
        ("name: two-levels\n", f"name: {names.job}\n"),
        ("topic: lines,", f"topic: {names.source},"),
        ("topic: word-counts,", f"topic: {names.sink},"),
        ("spread: 1", f"spread: {spread}"),
    ))  # fmt: skip


def run(place: Place, sides: Sequence[TwoLevels], settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a side, in their order."""
    gaps: dict[str, list[float]] = {side.system: [] for side in sides}
    rows = wordcount.run(place, sides, settings.words)
    for number in range(settings.words.runs):
        for side in sides if number % 2 else sides[::-1]:
            gap_s = steadily(side, "gap", partial(_gap_s, place, side, settings))
            output.note(f"kill {number + 1} of {settings.words.runs}: {side.system}: {gap_s} s")
            gaps[side.system].append(gap_s)
    for row in rows:
        each = gaps[row["system"]]
        row |= {"seconds": round(statistics.median(each), 3), "seconds_each": each}
    return rows


def _gap_s(place: Place, side: TwoLevels, settings: Settings) -> float:
    names = Names.fresh("bench")
    place.make_topics(names.source, names.sink)
    with running(side, names):
        with LoadGenerator(place.kafka, names.source, records=2**31, seed=3) as feed:
            feed.await_seed()
            feed.order(settings.rate, 2**31)
            run_window(place, names.sink, settings.settle_s)
            killed_ms = side.kill()
            run_window(place, names.sink, settings.after_s, STALLED_S)
        run_window(place, names.sink, _COUNTED_S)  # ends when nothing comes any more
    refuse_faults(side.system, judge(place.kafka, names.source, names.sink), "counts")
    shown = [record.time_ms for record in read_topic(place.kafka, names.sink)]
    place.topics.delete([names.source, names.sink])
    return longest_gap_s(shown, killed_ms, killed_ms + int(settings.after_s * 1000))


def longest_gap_s(shown_ms: Iterable[int], begin: int, end: int) -> float:
    """The longest time without output that has a part in [begin, end]. Pure.

    PermanentError when there is no output before or after it.
    """
    gaps = [
        after - before
        for before, after in pairwise(sorted(set(shown_ms)))
        if after > begin and before < end
    ]
    if not gaps:
        raise PermanentError(f"no output before or after the kill at {begin} ms")
    return max(gaps) / 1000


def described(settings: Settings) -> dict[str, Any]:
    own = {k: v for k, v in asdict(settings).items() if k != "words"}
    return {**wordcount.described(settings.words), **own, "workers": WORKERS}
