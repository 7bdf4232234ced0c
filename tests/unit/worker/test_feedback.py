"""Feedback edges: an epoch's output is the next one's input, out of the log or a checkpoint."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import RetryableError
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import MAIN, JobSpec, OperatorSpec, SinkSpec, SourceSpec
from perseid.state.durability.log import StateLog
from perseid.topics.records import Token
from perseid.worker.dataflow import graph
from perseid.worker.dataflow.edges import inputs
from perseid.worker.dataflow.partition import partitions
from perseid.worker.epoch.feedback import last_output, rows

COLUMNS = pa.schema([("key", pa.string()), ("n", pa.int64())])


def token(epoch: int, previous_offset: int | None = None) -> Token:
    """As `Partition.feed` makes them: epoch e has offset 100 + e."""
    at = 99 + epoch if previous_offset is None else previous_offset
    return Token(1, "uuid", epoch, at, "r", 1, (), epoch)


def emitted(partition: Any, log: StateLog, epoch: int) -> list[int]:
    found: list[int] = last_output(log, token(epoch))["n"].to_pylist()
    return found


def test_an_epoch_hears_the_one_before(partition: Any) -> None:
    state = partition.begun()
    assert last_output(state.log, token(1)).num_columns == 0
    for epoch in (1, 2, 3):
        partition.run(state, epoch)  # emits the totals that it changed
    assert [emitted(partition, state.log, e) for e in (2, 3, 4)] == [[1, 1], [3, 2], [6, 3]]


def test_a_collected_log_and_another_host_hear_the_same(partition: Any) -> None:
    state = partition.begun()
    state.feeds_back = [MAIN]
    for epoch in (1, 2):
        partition.run(state, epoch)
    partition.snapshot(state, 2)
    assert emitted(partition, state.log, 3) == [3, 2]
    state.log.collect(2)
    assert state.log.epochs() == []
    assert emitted(partition, state.log, 3) == [3, 2]
    pointer = partition.checkpoint(2)
    partition.files = type(partition.files)()
    found, state = partition.restore(2, 2, (pointer,))
    assert (found.source, emitted(partition, state.log, 3)) == ("checkpoint:2", [3, 2])


def test_a_log_that_lacks_the_epoch_or_has_another_of_it_is_refused(partition: Any) -> None:
    state = partition.begun()
    partition.run(state, 1)
    with pytest.raises(RetryableError, match="does not have epoch 2, whose output is input of 3"):
        last_output(state.log, token(3))
    with pytest.raises(RetryableError, match="of the token at offset 101, and epoch 2 follows"):
        last_output(state.log, token(2, previous_offset=150))


@pytest.mark.parametrize("kind", ["delta", "snapshot"])
def test_a_damaged_log_has_to_be_restored(partition: Any, kind: str) -> None:
    state = partition.begun()
    partition.run(state, 1)
    if kind == "snapshot":
        partition.snapshot(state, 1)
        partition.files.delete(state.log._path("delta", 1))
    partition.damage_log(kind, 1)
    with pytest.raises(RetryableError, match=r"has the CRC .*; it has to be restored"):
        last_output(state.log, Token(1, "uuid", 2, 101, "r", 1, (), 2))


def test_rows_are_distributed_by_the_consumers_key_as_its_other_inputs_are(partition: Any) -> None:
    count = OperatorSpec(inputs={"input": "first"}, use="m:B", key=("key",), parallelism=1)
    first = OperatorSpec(
        inputs={"back": "totals", "new": "in"}, use="m:A", key=("n",), parallelism=3,
        feedback=("back",),
    )  # fmt: skip
    spec = JobSpec(
        name="j", parallelism=1, sources={"in": SourceSpec(topic="in", format="text")},
        operators={"first": first, "totals": count},
        sinks={"s": SinkSpec(input="totals", topic="out", format="json", key="key")},
    )  # fmt: skip
    layout = build(spec, 1)
    edges = graph.build(spec, layout)
    assert [name for name, _ in edges.outlets["totals"].shuffles] == []
    state = partition.begun()
    for epoch in (1, 2):
        partition.run(state, epoch)

    def heard(epoch: int) -> list[list[int]]:
        dealt = list(rows(edges, layout, token(epoch), lambda _: state.log, lambda _: COLUMNS))
        assert {row.input for row in dealt} == {0}
        tables = [
            inputs([row for row in dealt if row.target == task.gid], ("back", "new"))["back"]
            for task in layout.of("first")
        ]
        assert all(table.schema == COLUMNS for table in tables)
        return [table["n"].to_pylist() for table in tables]

    assert heard(1) == [[], [], []]
    whole = pa.table({"n": pa.array([3, 2])})
    wanted: list[list[int]] = [[], [], []]
    for n, part in zip([3, 2], partitions(whole, ("n",), 3).tolist(), strict=True):
        wanted[part].append(n)
    assert heard(3) == wanted
