"""The Nexmark jobs on a whole cluster: fed, run to the end of their input, judged at the sinks.

`python -m benches.nexmark_run RECORDS RUNS DATA` measures all of them on a cluster of its
own below DATA and prints the rows of `perseid bench nexmark` as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benches.host_stall import steady
from benches.nexmark import QUERIES, TOPICS, Event, Events, Row, answers, key_of, value_of
from perseid.embedded import Cluster
from perseid.errors import PermanentError
from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics.admin import TopicAdmin

PARTITIONS = 4
SEED = 1
FINISH_S = 600.0
WARM_UP_SHARE = 0.2  # of the input, which is left out of the rate: JVM and first epochs
_QUEUE_MAX = 100_000


def feed(kafka: str, events: Events, prefix: str = "") -> list[Event]:
    """Writes all events by key, then the closing ones to every partition; returns them all.

    `prefix`: of the topics' names.
    """
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 20,
        "partitioner": "murmur2_random", "queue.buffering.max.messages": 2 * _QUEUE_MAX,
    })  # fmt: skip
    sent: list[Event] = []
    for topic, event in events:
        producer.produce(prefix + topic, value_of(event), key_of(topic, event))
        sent.append((topic, event))
        while len(producer) > _QUEUE_MAX:
            producer.poll(0.01)
    if producer.flush(120):
        raise PermanentError("events were not written in 120 s")
    for topic, event in events.closing:
        for partition in range(PARTITIONS):
            value, key = value_of(event), key_of(topic, event)
            producer.produce(prefix + topic, value, key, partition=partition)
            sent.append((topic, event))
    if producer.flush(60):
        raise PermanentError("the closing events were not written in 60 s")
    return sent


@dataclass
class Progress:
    """What is left of a job's input over time, as the leader reports it."""

    closed_ms: int
    lags: list[tuple[float, int]] = field(default_factory=list)

    def finished(self, job: dict[str, Any]) -> bool:
        """Whether all input is committed and the watermark has passed all windows."""
        if job.get("state") != "running" or job.get("lag") is None:
            return False
        self.lags.append((time.monotonic(), job["lag"]))
        mark = job.get("watermark_ms")
        return (
            job["lag"] == 0 and job["committed_epoch"] == job["epoch"]
            and (mark is None or mark >= self.closed_ms)
        )  # fmt: skip

    def rate(self) -> float:
        """Records a second, from the end of the warm-up to the end of the input; 0: too short."""
        most = max(lag for _, lag in self.lags)
        end_s = next(at for at, lag in self.lags if lag == 0)
        warm = [at for at, lag in self.lags if lag <= (1 - WARM_UP_SHARE) * most]
        counted = {at: lag for at, lag in self.lags}[warm[0]]
        return counted / (end_s - warm[0]) if end_s > warm[0] else 0.0


def run_query(
    running: RunningCluster, query: str, events: Events,
    meanwhile: Callable[[str], object] = lambda _job: None,
) -> tuple[Counter[Row], float]:  # fmt: skip
    """Runs a job to the end of its input; its sink's rows, and records a second."""
    name = f"nexmark-{query}"
    last = events.closing[0][1]["time"]
    progress = Progress(last - 2_000 if query in {"q5", "q7", "q8"} else 0)
    running.do("jobs", "apply", f"example:{name}")
    meanwhile(name)
    until(lambda: progress.finished(running.job(name)), FINISH_S, f"{name} to finish")
    return sink_rows(running.kafka, name), progress.rate()


def sink_rows(kafka: str, topic: str) -> Counter[Row]:
    """The committed rows of a sink."""
    return Counter(tuple(json.loads(r.value or b"").values()) for r in read_topic(kafka, topic))


def difference(found: Counter[Row], expected: Counter[Row]) -> str:
    """What is wrong with `found`, with examples; empty when nothing is."""
    lost, more = expected - found, found - expected
    if not lost and not more:
        return ""
    return (
        f"{lost.total()} of {expected.total()} rows are missing, such as {list(lost)[:3]}; "
        f"{more.total()} are too many or wrong, such as {list(more)[:3]}"
    )


def measure(running: RunningCluster, events: Events, runs: int) -> Iterator[dict[str, Any]]:
    """A row for each query; PermanentError when an answer is wrong."""
    for topic in TOPICS:
        running.topic(topic, PARTITIONS)
    sent = feed(running.kafka, events)
    for query in QUERIES:
        expected = answers(query, sent)
        once = partial(_judged, running, query, events, expected)
        rates = [steady(f"nexmark {query}", once, _note) for _ in range(runs)]
        _note(f"nexmark {query}: {expected.total()} rows, {rates} records/s")
        yield row_of(query, expected.total(), rates)


def row_of(query: str, rows_out: int, rates: Sequence[float]) -> dict[str, Any]:
    """A query's row; no rate when the input was too short for one in any run (0). Pure."""
    row = {
        "system": "perseid", "query": query, "guarantee": "exactly once", "messages_out": rows_out,
        "runs": len(rates),
    }  # fmt: skip
    return {**row, "rows_per_s": round(statistics.median(rates), 1)} if all(rates) else row


def _judged(running: RunningCluster, query: str, events: Events, expected: Counter[Row]) -> float:
    """Records a second of one run, which leaves nothing; PermanentError for a wrong answer."""
    found, rate = run_query(running, query, events)
    wrong = difference(found, expected)
    if wrong:
        raise PermanentError(f"nexmark {query}: {wrong}")
    running.do("jobs", "remove", f"nexmark-{query}", "--purge")
    TopicAdmin(running.kafka).delete([f"nexmark-{query}"])
    return rate


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    records, runs, data = int(arguments[0]), int(arguments[1]), Path(arguments[2])
    cluster = Cluster(data, note=_note)
    cluster.up(workers=1, coordinators=1)
    try:
        rows = list(measure(RunningCluster(cluster), Events(records, SEED), runs))
    finally:
        cluster.down()
    json.dump(rows, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
