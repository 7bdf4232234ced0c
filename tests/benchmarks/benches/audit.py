"""`bench audit`: how fast an audit runs past epochs again, and what it costs a job that runs.

1. The shipped job `balances` answers payments that wait, as in running-sum, on one worker. It is
stopped, the engines end, and `perseid replay` runs the same epochs with as many cores. Both speeds
leave out the start. 2. The job runs at a steady rate, in windows in turn without and with an audit
of the first job; its processor time and the age of its answers are taken.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import psutil

from benches import updates
from benches.bench_cluster import Place
from benches.host_stall import steady
from benches.keyed import engines
from benches.measuring import DRAIN_S, STALLED_S, run_window
from benches.results import median_row, ratios
from benches.sides import ENGINES
from benches.timeline import tokens_of
from perseid.cli import output
from perseid.cli.scenario.bed import Names, Scenario, ScenarioBed
from perseid.cli.scenario.load_generator import LoadGenerator, measure
from perseid.clocks import SystemClock
from perseid.errors import PermanentError
from perseid.jobs.operations import backup

CORES = 2  # of the job's worker (`keyed.MASTER`) and of its audit
LIVE_PER_S = 20_000  # records of a job that an audit has to overtake
_JOB = "balances"
_MAIN = "from perseid.cli.main import main; main()"  # as the `perseid` script
_NOTE = re.compile(r"epoch (\d+) of \d+")
_JUDGED = "4"  # of the accounts those that end so, as in running-sum
_SETTLED_S = 20.0  # of the live job, from its first output
_END_S = 60.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """`records` wait for the first job, which has at most `warm_up_s` and `window_s` for them.

    The second one runs at `rate` records a second in windows of `live_s`, each after a warm-up in
    which an audit starts.
    """

    records: int = 24_000_000
    warm_up_s: float = 10.0
    window_s: float = 20.0
    rate: float = 5_000.0
    live_warm_up_s: float = 20.0
    live_s: float = 20.0
    runs: int = 5


def run(place: Place, settings: Settings) -> list[Row]:
    """Rows: the job, its audit; the live job without an audit, and with one."""
    source = updates.filled(place, settings.records, seed=1)
    job, audited = list[Row](), list[Row]()
    for number in range(settings.runs):
        names, row = steady("job", partial(_answered, place, source, settings), output.note)
        job.append(row)
        audited.append(steady("audit", partial(_audited, place, names.job), output.note))
        output.note(f"run {number + 1} of {settings.runs}: {job[-1]} {audited[-1]}")
        if number + 1 < settings.runs:
            _remove(place, names)
    return [*rows_of_speed(job, audited), *rows_of_cost(*_live(place, names, settings))]


def rows_of_speed(job: Sequence[Row], audited: Sequence[Row]) -> list[Row]:
    """Medians; `ratio`: the audit's speed over the job's, in one run. Pure."""
    speeds = [row["rows_per_s"] for row in audited]
    row = {"setting": "its audit", **median_row(audited)}
    row["ratio"] = ratios(speeds, [row["rows_per_s"] for row in job])
    row["times_live"] = ratios(speeds, [LIVE_PER_S] * len(speeds))
    return [{"setting": "job, all waits", **median_row(job)}, row]


def rows_of_cost(alone: Sequence[Row], audited: Sequence[Row]) -> list[Row]:
    """Medians; the ratios are over the window without an audit of the same pair. Pure."""
    row = {"setting": "live job, an audit runs", **median_row(audited)}
    columns = {"cpu_s_per_million": "cpu_ratio", "p50_ms": "p50_ratio", "p99_ms": "p99_ratio"}
    for column, name in columns.items():
        row[name] = ratios([r[column] for r in audited], [r[column] for r in alone])
    return [{"setting": "live job", **median_row(alone)}, row]


def speed(notes: Sequence[tuple[float, int]], records: Mapping[int, int]) -> float:
    """Records a second of an audit between its first and its last note. Pure.

    `notes`: (time in seconds, epoch that it has run). `records`: of each epoch. PermanentError when
    it was too short for two notes.
    """
    if len(notes) < 2 or notes[-1][1] <= notes[0][1]:
        raise PermanentError(
            f"the audit ended after {len(notes)} notes of its progress, which come each 5 s, and "
            "its speed is taken between the first and the last: give more --records"
        )
    (begin_s, first), (end_s, last) = notes[0], notes[-1]
    ran = sum(count for epoch, count in records.items() if first < epoch <= last)
    return ran / (end_s - begin_s)


# The job and its audit ----------------------------------------------------------------------------


def _answered(place: Place, source: str, settings: Settings) -> tuple[Names, Row]:
    """A job and its speed; it is stopped, and its past stays."""
    names = Names.fresh("bench", source)
    with engines(place) as bed:
        _start(place, bed, names)
        whole_s = settings.warm_up_s + settings.window_s + DRAIN_S
        cut = run_window(place, names.sink, whole_s, STALLED_S)
        bed.stop(names)
    found = measure(
        "answers", place.kafka, names.sink, source=names.source, job=_JOB, judged=_JUDGED,
        warm_up=settings.warm_up_s, seconds=settings.window_s, complete=not cut,
    )  # fmt: skip
    row = updates.row("perseid", found, 0.0)
    if "rows_per_s" not in row:
        raise PermanentError("the job was through within its warm-up: give more --records")
    return names, {name: row[name] for name in ("rows_per_s", "messages_out", "window_s")}


def _start(place: Place, bed: ScenarioBed, names: Names) -> None:
    """A job whose tokens are kept."""
    place.make_topics(names.source, names.sink)
    bed.start(names, Scenario(_JOB))
    backup.mark(bed.registry, names.job, SystemClock().wall_ms(), whole=True)


def _audited(place: Place, job: str) -> Row:
    """The audit's speed; PermanentError unless it finds all outputs equal."""
    notes: list[tuple[float, int]] = []
    others: list[str] = []
    with _audit(place, job, CORES) as process:
        assert process.stderr is not None and process.stdout is not None
        for line in process.stderr:
            found = _NOTE.search(line)
            if found is None:
                others.append(line)
            else:
                notes.append((time.monotonic(), int(found[1])))
        text = process.stdout.read()
        if process.wait() != 0:
            raise PermanentError(f"the audit of {job}: {text[-2000:]} {''.join(others[-20:])}")
    report = json.loads(text)
    records = {token.epoch: token.records for token in tokens_of(place, job)}
    (compared,) = report["compared"]
    return {
        "rows_per_s": round(speed(notes, records), 1), "messages_out": compared["records"],
        "window_s": round(notes[-1][0] - notes[0][0], 1), "seconds": report["seconds"],
    }  # fmt: skip


@contextmanager
def _audit(place: Place, job: str, cores: int) -> Iterator[subprocess.Popen[str]]:
    """`perseid replay` of all epochs of the job; it is interrupted at the end."""
    folder = place.data / "audit"
    process = subprocess.Popen(
        [
            sys.executable, "-c", _MAIN, "replay", job, "--epochs", "1:", "--cores", str(cores),
            "--folder", str(folder), "--data", str(place.data), "--json",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def _remove(place: Place, names: Names) -> None:
    with engines(place, workers=0) as bed:
        bed.end(names)
    place.topics.delete([names.sink])


# The live job -------------------------------------------------------------------------------------


def _live(place: Place, past: Names, settings: Settings) -> tuple[list[Row], list[Row]]:
    """Rows of the windows without and with an audit of `past`, in pairs whose order changes."""
    names = Names.fresh("bench")
    found: dict[bool, list[Row]] = {False: [], True: []}
    extra = ("--stamped", "--payments")
    with engines(place) as bed:
        _start(place, bed, names)
        with LoadGenerator(place.kafka, names.source, records=2**31, seed=2, extra=extra) as feed:
            feed.await_seed()
            feed.order(settings.rate, 2**31)
            run_window(place, names.sink, _SETTLED_S)
            for number in range(settings.runs):
                for audited in (False, True) if number % 2 else (True, False):
                    window = partial(_window, place, names, past if audited else None, settings)
                    found[audited].append(steady("live", window, output.note))
                    output.note(f"live, audited {audited}: {found[audited][-1]}")
        bed.remove(names)
        bed.end(past)
    return found[False], found[True]


def _window(place: Place, names: Names, past: Names | None, settings: Settings) -> Row:
    audit = _audit(place, past.job, 1) if past is not None else nullcontext()
    with audit as process:
        before_s, before = cpu_s(_roots(place)), place.records(names.sink)
        found = measure(
            "latency", place.kafka, names.sink,
            warm_up=settings.live_warm_up_s, seconds=settings.live_s,
        )  # fmt: skip
        used_s, after = cpu_s(_roots(place)) - before_s, place.records(names.sink)
        if process is not None and process.poll() is not None:
            raise PermanentError(
                f"the audit ended with exit code {process.returncode} before the window did: give "
                "more --records"
            )
    if before is None or after is None or not found["samples"]:
        raise PermanentError("the broker did not answer, or nothing came out within a window")
    return {
        "cpu_s_per_million": round(used_s / (after - before) * 1e6, 3),
        **{key: found[key] for key in ("p50_ms", "p99_ms", "samples")},
    }


def _roots(place: Place) -> list[int]:
    rows = place.cluster.processes()
    return [p.pid for p in rows if p.kind in ENGINES and p.pid is not None]


def cpu_s(roots: Iterable[int]) -> float:
    """Processor seconds of processes and all below them, also of those that have ended."""
    used = 0.0
    for root in map(psutil.Process, roots):
        for process in (root, *root.children(recursive=True)):
            try:
                found = process.cpu_times()
            except psutil.NoSuchProcess:  # its parent has its times then
                continue
            used += found.user + found.system + found.children_user + found.children_system
    return used


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "cores": CORES, "accounts": 100_000, "partitions": 4}
