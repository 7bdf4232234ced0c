"""A job on a Spark standalone master, as Spark itself shows it, and what a killed executor costs.

Executors have one core each, and the anchor keeps operator partitions on them. Spark's progress of
the query is compared with the job's own topics.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from benches.spark_events import EVENT_LOG, events
from perseid.embedded import Cluster
from perseid.embedded.prepare import Outside
from perseid.testing.running import RunningCluster
from perseid.testing.server import free_port
from perseid.testing.stack import example, lines
from perseid.testing.verify import verify_wordcount
from perseid.testing.verify.read import read_topic
from perseid.testing.wait import until
from perseid.topics import codec, names
from perseid.topics.records import EpochDone, Token

JOB = "standalone"  # no other test has a query of that name in the event log
PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


@pytest.fixture(scope="module")
def ui() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def standalone(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, ui: str
) -> Iterator[RunningCluster]:
    """A cluster of its own; the warm one is paused, since there are only two cores."""
    paused = [p.name for p in cluster.processes() if p.kind in {"worker", "coordinator"}]
    for name in paused:
        cluster.pause(name)
    mine = Cluster(tmp_path_factory.mktemp("spark") / "standalone", tied=True)
    spark = [
        "spark.ui.enabled=true", f"spark.ui.port={ui.rpartition(':')[2]}",
        "spark.sql.streaming.metricsEnabled=true",
    ]  # fmt: skip
    try:
        outside = Outside(master="standalone", spark=" ".join(spark))
        mine.up(workers=1, coordinators=1, outside=outside)
        yield RunningCluster(mine)
    finally:
        mine.down(purge=True)
        for name in paused:
            cluster.resume(name)


def executors(running: RunningCluster) -> list[psutil.Process]:
    """The JVMs that Spark's standalone worker has started."""
    return running.below("spark-worker", "CoarseGrainedExecutorBackend")


def progress(generation: int) -> list[dict[str, Any]]:
    """Spark's own reports of the query's micro-batches that had rows, in order."""
    name = f"fragment-{JOB}-{generation}"
    found = {
        reported["progress"]["batchId"]: reported["progress"]
        for _, reported in events(Path(os.environ[EVENT_LOG]))
        if reported["Event"] == PROGRESS and reported["progress"]["name"] == name
    }
    return [found[n] for n in sorted(found) if rows(found[n])]


def rows(reported: dict[str, Any]) -> int:
    (source,) = reported["sources"]
    return int(source["numInputRows"])


@pytest.mark.drawn(group="longest")
@pytest.mark.timeout(600)
def test_a_killed_executor_loses_and_doubles_nothing_and_spark_shows_what_ran(
    standalone: RunningCluster, tmp_path: Path, ui: str
) -> None:
    running = standalone
    running.topic("lines")
    folder = example(tmp_path / "job", "wordcount", {"name: wordcount": f"name: {JOB}"})
    running.do("jobs", "apply", str(folder))
    running.keep_tokens(JOB)
    running.produce("lines", lines(2000, 1))
    running.wait_caught_up(JOB, 180)
    before = until(lambda: executors(running), 60, "executors")
    assert len(before) == 2
    shown_by_ui(ui, running.job(JOB)["generation"])
    before[0].kill()
    for seed in range(5):
        running.produce("lines", lines(1000, 10 + seed))
    done = running.wait_caught_up(JOB, 180)
    verdict = verify_wordcount(running.kafka, "lines", "word-counts")
    assert verdict.ok, verdict
    newest = max(tokens(running))
    until(
        lambda: any(span(p)[1] > newest for p in progress(done["generation"])),
        60, "Spark's report of the last token",
    )  # fmt: skip
    compare(running, done["generation"])


def span(reported: dict[str, Any]) -> tuple[int, int]:
    """The offsets in the token log before and after a micro-batch; the first one has no start."""
    (source,) = reported["sources"]
    start, end = (_document(source[name]) for name in ("startOffset", "endOffset"))
    last = int(end["offset"])
    return int(start["offset"]) if start else last - rows(reported), last


def _document(found: Any) -> Any:
    """Spark writes offsets as JSON or as a string with JSON, by version."""
    return json.loads(found) if isinstance(found, str) else found


def tokens(running: RunningCluster) -> dict[int, Token]:
    """The token log, by offset."""
    topic = names.tokens(JOB)
    found = read_topic(running.kafka, topic)
    records = {r.offset: codec.decode_token(topic, r.offset, r.value or b"") for r in found}
    return {offset: record for offset, record in records.items() if isinstance(record, Token)}


def compare(running: RunningCluster, generation: int) -> None:
    """Rows, offsets, epochs and durations of Spark's reports, with the job's topics."""
    reports = progress(generation)
    spans = [span(p) for p in reports]
    assert all(end == start for (_, end), (start, _) in pairwise(spans)), spans
    assert [rows(p) for p in reports] == [end - start for start, end in spans]
    log = tokens(running)
    done: dict[int, EpochDone] = {}
    for record in read_topic(running.kafka, names.progress(JOB)):
        one = codec.decode(record.value or b"")
        if isinstance(one, EpochDone) and one.generation == generation:
            done[one.epoch] = one
    ran: list[int] = []
    took_ms = spent_ms = 0
    for reported, (start, end) in zip(reports, spans, strict=True):
        epochs = [log[n].epoch for n in range(start, end) if n in log and log[n].epoch in done]
        ran += epochs
        # Each ran in the micro-batch that has its row, or in an earlier one, which read ahead.
        took_ms += sum(done[epoch].duration_ms for epoch in epochs)
        spent_ms += reported["durationMs"]["addBatch"]
        assert took_ms <= spent_ms + len(ran), (reported, epochs)
    # The job runs on: an idle token may have come since Spark's reports were read.
    expected = [epoch for epoch in sorted(done) if epoch <= max(ran)]
    assert ran == expected, "each epoch of the generation is in one micro-batch"
    assert len(ran) > 1


def shown_by_ui(ui: str, generation: int) -> None:
    """The query is on Spark's page of streaming queries and among its metrics."""
    name = f"fragment-{JOB}-{generation}"
    page = httpx.get(f"{ui}/StreamingQuery/", timeout=30, trust_env=False, follow_redirects=True)
    assert name in page.text
    gauges = httpx.get(f"{ui}/metrics/json/", timeout=30, trust_env=False).json()["gauges"]
    assert any(name in gauge and "inputRate-total" in gauge for gauge in gauges), sorted(gauges)
