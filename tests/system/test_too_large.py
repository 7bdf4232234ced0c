"""200 source partitions of few records, with records that are too large to be dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid.testing.running import RunningCluster
from perseid.testing.wait import until
from perseid.topics import clients

PARTITIONS = 200
ROUNDS = 6
BIG_BYTES = 2_000_000  # no JSON; and more than a topic takes by default
EPOCH_MS = 6000  # of a busy machine; before, such an epoch took ten times as long as one of 60
JOB = """
name: large
parallelism: 2
sources:
  orders: {topic: large-orders, format: json, columns: {id: int64}}
sinks:
  ids: {input: orders, topic: large-ids, format: json}
errors: {tolerance: all, deadletterqueue: {topic: large-dlq}}
"""


@pytest.fixture
def job(running: RunningCluster, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "job.yaml").write_text(JOB)
    running.do(
        "topics", "create", "large-orders", "--partitions", str(PARTITIONS),
        "--config", "max.message.bytes=5000000",
    )  # fmt: skip
    running.do("jobs", "apply", str(tmp_path))
    yield "large"
    running.do("jobs", "remove", "large")


def send(running: RunningCluster, records: list[tuple[int, bytes]]) -> None:
    producer = clients.transactional(running.kafka, "large-orders-test")  # for its message size
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition, value in records:
        producer.produce("large-orders", value, partition=partition)
    producer.commit_transaction(30)


def found(running: RunningCluster) -> list[int]:
    """The numbers in the sink, in order."""
    return sorted(row["id"] for row in running.rows("large-ids"))


@pytest.mark.drawn(group="field")
def test_large_letters_are_pointers_and_many_partitions_no_burden(
    running: RunningCluster, job: str
) -> None:
    sent = 0
    took_ms = []
    for _ in range(ROUNDS):
        values = [b'{"id": %d}' % (sent + at) for at in range(2 * PARTITIONS)]
        send(running, [(at % PARTITIONS, value) for at, value in enumerate(values)])
        sent += len(values)
        took_ms.append(running.wait_caught_up(job)["epoch_ms"])
    assert min(took_ms[1:]) < EPOCH_MS
    send(running, [(7, b"x" * BIG_BYTES), (7, b'{"id": %d}' % sent)])
    # a commit returns before its records can be read, so the job may count as caught up already
    until(lambda: found(running)[-1] == sent, 60.0, "the record after the large one")
    assert found(running) == list(range(sent + 1))
    (letter,) = running.do("dlq", "show", job)["letters"]
    assert letter["whole_bytes"] == BIG_BYTES
    assert letter["value"] == "x" * 1024
    assert (letter["origin"]["topic"], letter["origin"]["partition"]) == ("large-orders", 7)
    done = running.do("dlq", "redrive", job)
    assert done["redriven"] == 1
    running.wait_caught_up(job)
    again = running.do("dlq", "show", job)["letters"]
    assert [one["whole_bytes"] for one in again] == [BIG_BYTES] * 2, json.dumps(again)[:2000]
