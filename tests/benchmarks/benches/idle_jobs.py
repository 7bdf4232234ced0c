"""`bench coordinator`: what many small idle jobs cost the leader, with Kafka and ZooKeeper as ever.

A stub (`stub_worker.py`) stands for the workers: it answers each token at once. In the window no
job has input, but for one record each second, to the jobs of a tenth in turn.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from benches import environment
from benches.bench_cluster import Place
from benches.memory import tree_bytes
from benches.reading import read_topic
from benches.stub_worker import READY
from perseid.cli import output
from perseid.cli.scenario.bed import Names, ScenarioBed, connect, edited
from perseid.coordinator.issue import IDLE_TOKEN_S
from perseid.errors import PermanentError
from perseid.topics import codec
from perseid.topics import names as topic_names
from perseid.topics.records import Token

_JOB = Path(__file__).parent / "jobs" / "keyed"


@dataclass(frozen=True, slots=True)
class Settings:
    """Numbers of jobs that are tried. `settle_s`: before the window."""

    jobs: tuple[int, ...] = (1, 30, 300)
    settle_s: float = 20.0
    window_s: float = 60.0


def run(place: Place, settings: Settings) -> list[dict[str, Any]]:
    """Rows, one a number of jobs."""
    rows = []
    for count in settings.jobs:
        row = {"system": "perseid", "figure": "idle jobs", "x": count,
               **_measured(place, count, settings)}  # fmt: skip
        output.note(f"{count} jobs: {row}")
        rows.append(row)
    return rows


def described(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "idle_token_s": IDLE_TOKEN_S}


def _measured(place: Place, count: int, settings: Settings) -> dict[str, Any]:
    deployment = place.cluster.up(workers=0, coordinators=1)
    names = [Names(f"idle-{time.time_ns() // 1_000_000:x}-{number}") for number in range(count)]
    with connect(deployment) as bed, ExitStack() as ended:
        ended.callback(place.cluster.up, workers=0, coordinators=0)
        for number, one in enumerate(names):
            _put(bed, one)
            if (number + 1) % 50 == 0:
                output.note(f"{number + 1} of {count} jobs are applied")
        ended.enter_context(_stub(place, count))
        time.sleep(settings.settle_s)
        (leader,) = [p for p in place.cluster.processes() if p.kind == "coordinator" and p.alive]
        process = psutil.Process(leader.pid)
        begin_ms, cpu_s = time.time_ns() // 1_000_000, _cpu_s(process)
        packets = _packets(deployment.zookeeper)
        sent = _fed(place.kafka, names, settings.window_s)
        end_ms = time.time_ns() // 1_000_000
        received = _packets(deployment.zookeeper) - packets
        row = {
            "cores": round((_cpu_s(process) - cpu_s) / settings.window_s, 3),
            "zookeeper_per_s": round(received / settings.window_s),
            "threads": process.num_threads(),
            "rss_mb": round(tree_bytes([process.pid]) / 1e6, 1),
        }
        row.update(_delays(place, names, sent, begin_ms, end_ms))
        for one in names:
            bed.remove(one)
    return row


def _put(bed: ScenarioBed, names: Names) -> None:
    bed.make_topics(names.source, names.sink, partitions=1)
    with tempfile.TemporaryDirectory(prefix="perseid-idle-") as scratch:
        bed.put(names, edited(_JOB, Path(scratch) / names.job, (
            ("name: keyed\n", f"name: {names.job}\n"),
            ("parallelism: 4\n", "parallelism: 1\n"),
            ("topic: keys,", f"topic: {names.source},"),
            ("topic: keys-counted,", f"topic: {names.sink},"),
            ('period: "30s"', 'period: "1d"'),
        )))  # fmt: skip


@contextmanager
def _stub(place: Place, jobs: int) -> Iterator[None]:
    deployment = place.cluster.deployment
    command = [
        sys.executable, "-m", "benches.stub_worker", deployment.model_dump_json(), str(jobs)
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != READY:
            raise PermanentError(f"the stub worker ended with exit code {process.wait()}")
        yield
        if process.poll() is not None:
            raise PermanentError(f"the stub worker ended with exit code {process.poll()}")
    finally:
        process.terminate()
        process.wait()


def _packets(zookeeper: str) -> int:
    """Received by ZooKeeper since its start, from all of its clients."""
    host, _, port = zookeeper.partition(",")[0].rpartition(":")
    with closing(socket.create_connection((host, int(port)), timeout=5.0)) as asked:
        asked.sendall(b"srvr")
        with asked.makefile() as answer:
            return next(int(line.split()[1]) for line in answer if line.startswith("Received:"))


def _cpu_s(process: psutil.Process) -> float:
    found = process.cpu_times()
    return float(found.user + found.system)


def _fed(kafka: str, names: Sequence[Names], seconds: float) -> list[tuple[str, int]]:
    """One record a second; the job and the time of each, in ms."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})
    sent, begin_s = [], time.monotonic()
    for number in range(int(seconds)):
        time.sleep(max(0.0, begin_s + number - time.monotonic()))
        one = names[number % max(1, len(names) // 10)]
        sent.append((one.job, time.time_ns() // 1_000_000))
        producer.produce(one.source, b"key")
        producer.flush()
    time.sleep(max(0.0, begin_s + seconds - time.monotonic()))
    return sent


def _delays(
    place: Place, names: Sequence[Names], sent: list[tuple[str, int]], begin_ms: int, end_ms: int
) -> dict[str, Any]:
    """How late tokens are: those of idle jobs after their period, others after the input."""
    late: list[float] = []
    waited: list[float] = []
    for one in names:
        topic = topic_names.tokens(one.job)
        found = [(r.time_ms, codec.decode(r.value)) for r in read_topic(place, topic)]
        tokens = [(at_ms, t) for at_ms, t in found if isinstance(t, Token)]
        for (last_ms, _), (at_ms, token) in pairwise(tokens):
            if begin_ms <= at_ms <= end_ms and not token.records:
                late.append(at_ms - last_ms - IDLE_TOKEN_S * 1000)
        for job, sent_ms in sent:
            if job == one.job:
                waited += [t - sent_ms for t, k in tokens if k.records and t >= sent_ms][:1]
    seconds = (end_ms - begin_ms) / 1000
    return {
        "tokens_per_s": round((len(late) + len(waited)) / seconds, 1),
        **_summary("late", late), **_summary("input", waited),
    }  # fmt: skip


def _summary(name: str, found: list[float]) -> dict[str, float]:
    """Nothing if there is none, as with a single job, which is never idle for long enough."""
    if not found:
        return {}
    return {
        f"{name}_p50_ms": round(statistics.median(found), 1),
        f"{name}_max_ms": round(max(found), 1),
    }
