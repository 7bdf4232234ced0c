"""Which buffer topics a spread job has."""

from __future__ import annotations

from perseid.jobs.model.buffers import buffer_specs, buffer_topics
from perseid.jobs.model.layout import DEAD_LETTERS, build
from perseid.jobs.model.spec import ErrorsSpec, JobSpec, PlacementSpec, SinkSpec
from perseid.topics import names
from perseid.worker.dataflow import graph
from support.coordinator import job_spec


def spec(spread: int = 2) -> JobSpec:
    """Rows go to a keyed operator, to the writers of its source, and to that of dead letters."""
    fused = job_spec(parallelism=3, placement=PlacementSpec(spread=spread))
    raw = SinkSpec(input="lines", topic="raw", format="json")
    return fused.model_copy(update={
        "sinks": {**fused.sinks, "raw": raw},
        "errors": ErrorsSpec(tolerance="all", deadletter_topic="dlq"),
    })  # fmt: skip


def test_one_for_each_operator_with_a_partition_for_each_of_its_own() -> None:
    assert buffer_topics(spec(), build(spec(), 4)) == {
        names.buffer("wordcount", "counts", 4): 3,
        names.buffer("wordcount", "lines", 4): 3,
        names.buffer("wordcount", DEAD_LETTERS, 4): 1,
    }


def test_every_partition_to_which_rows_are_sent_has_a_place_there() -> None:
    layout = build(spec(), 1)
    topics = buffer_topics(spec(), layout)
    for gid in graph.build(spec(), layout).senders_to:
        task = layout.task(gid)
        assert task.partition < topics[names.buffer("wordcount", task.operator, 1)]


def test_a_job_of_one_fragment_has_none() -> None:
    assert buffer_topics(spec(spread=1), build(spec(spread=1), 1)) == {}


def test_records_stay_until_they_are_deleted() -> None:
    assert {t.config["retention.ms"] for t in buffer_specs(spec(), build(spec(), 1))} == {"-1"}
