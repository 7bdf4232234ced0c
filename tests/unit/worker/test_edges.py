"""Rows between operators: dealing, order, barriers, chunks, and the way over Arrow."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.state.primitives.arrow import ipc_bytes, ipc_table
from perseid.worker.dataflow import edges
from perseid.worker.dataflow.edges import Route, Row, deal, from_batches, inputs, to_batches

ROUTE = Route(targets=(5, 6, 7), input=1, key=("k",))
TABLE = pa.table({"k": ["a", "b", "c", "d", "e"], "n": [1, 2, 3, 4, 5]})


def dealt(table: pa.Table, parts: list[int], route: Route = ROUTE) -> list[Row]:
    return list(deal(table, route, 3, np.array(parts, dtype=np.int64)))


def numbers(row: Row) -> list[int]:
    found: list[int] = ipc_table(row.blob)["n"].to_pylist()
    return found


def test_rows_go_to_their_part_in_their_order() -> None:
    rows = dealt(TABLE, [2, 0, 2, 0, 2])
    assert [(r.target, r.input, r.origin, r.chunk) for r in rows] == [
        (5, 1, 3, 0), (6, 1, 3, 0), (7, 1, 3, 0),
    ]  # fmt: skip
    assert [numbers(r) for r in rows] == [[2, 4], [], [1, 3, 5]]


def test_every_consumer_gets_a_barrier_with_the_schema() -> None:
    rows = dealt(TABLE.slice(0, 0), [])
    assert [r.target for r in rows] == [5, 6, 7]
    assert all(ipc_table(r.blob).schema == TABLE.schema for r in rows)


def test_nothing_emitted_travels_as_an_empty_blob() -> None:
    rows = dealt(pa.table({}), [])
    assert [(r.target, r.blob) for r in rows] == [(5, b""), (6, b""), (7, b"")]
    assert inputs([Row(5, 0, 0, 0, b"")], ("input",))["input"].num_columns == 0


def test_large_tables_are_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "CHUNK_BYTES", -(-2 * TABLE.nbytes // len(TABLE)))  # of two rows
    rows = dealt(TABLE, [1, 1, 1, 1, 1])
    assert [(r.target, r.chunk, numbers(r)) for r in rows if r.target == 6] == [
        (6, 0, [1, 2]), (6, 1, [3, 4]), (6, 2, [5]),
    ]  # fmt: skip
    assert [len(r.blob) > 0 for r in rows if r.target != 6] == [True, True]


def test_a_row_that_is_larger_than_a_chunk_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "CHUNK_BYTES", 1)
    rows = dealt(TABLE, [1, 1, 1, 1, 1])
    assert [numbers(r) for r in rows if r.target == 6] == [[1], [2], [3], [4], [5]]


@pytest.mark.parametrize("chunk_bytes", [1, 1_000, 10_000, 1 << 20])
def test_chunks_and_batches_of_any_size_bring_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    random_ = np.random.default_rng(chunk_bytes)
    lengths = random_.integers(0, 40, 500)
    table = pa.table({"k": ["x" * int(n) for n in lengths], "n": np.arange(500)})
    parts = random_.integers(0, 3, 500)
    monkeypatch.setattr(edges, "CHUNK_BYTES", chunk_bytes)
    batches = list(to_batches(deal(table, ROUTE, 0, parts), {5: 0, 6: 1, 7: 2}, 3))
    rows = from_batches(batches)
    for number, target in enumerate(ROUTE.targets):
        found = inputs([r for r in rows if r.target == target], ("other", "input"))["input"]
        assert found.equals(table.filter(pa.array(parts == number)))
    sizes = [[len(r.blob) for r in from_batches([batch])] for batch in batches]
    assert all(len(one) == 1 or sum(one) <= chunk_bytes for one in sizes)
    assert all(a[0] + sum(b) > chunk_bytes for b, a in pairwise(sizes)), "they are full"


def test_inputs_are_in_the_order_input_origin_chunk_whatever_comes_first() -> None:
    rows = [
        Row(9, port, origin, chunk, dealt_blob(100 * port + 10 * origin + chunk))
        for port in range(2)
        for origin in range(3)
        for chunk in range(2)
    ]
    expected = inputs(rows, ("left", "right"))
    assert expected["left"]["n"].to_pylist() == [0, 1, 10, 11, 20, 21]
    assert expected["right"]["n"].to_pylist() == [100, 101, 110, 111, 120, 121]
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert inputs(rows, ("left", "right")) == expected


def dealt_blob(number: int) -> pa.Buffer:
    (row,) = dealt(pa.table({"n": [number]}), [0], Route((9,), 0, ()))
    blob: pa.Buffer = row.blob
    return blob


def test_an_input_where_only_barriers_came_has_columns_and_no_rows() -> None:
    rows = dealt(TABLE.slice(0, 0), [], Route((9,), 0, ("k",)))
    found = inputs(rows, ("left", "right"))
    assert (found["left"].schema, found["left"].num_rows) == (TABLE.schema, 0)
    assert found["right"].num_columns == 0


def test_rows_survive_the_way_through_a_record_batch() -> None:
    rows = dealt(TABLE, [2, 0, 2, 0, 2])
    (batch,) = to_batches(rows, {5: 1, 6: 0, 7: 2}, 3)
    assert batch.schema == edges.SCHEMA
    assert batch.column(0).to_pylist() == [1, 0, 2]
    back = from_batches([batch.slice(0, 1), batch.slice(1)])
    assert [(r.target, r.input, r.origin, r.chunk) for r in back] == [
        (r.target, r.input, r.origin, r.chunk) for r in rows
    ]
    assert [numbers(r) for r in back] == [numbers(r) for r in rows]


def test_rows_that_are_not_for_the_next_stage_ride_with_some_task_of_it() -> None:
    rows = [Row(12, 0, 0, 0, b""), Row(-1, 0, 7, 0, b"{}"), Row(-2, 0, 1, 0, b"")]
    (batch,) = to_batches(rows, {5: 0}, 4)
    assert all(0 <= slot < 4 for slot in batch.column(0).to_pylist())
    (alone,) = to_batches(rows, {}, 0)
    assert alone.column(0).to_pylist() == [0, 0, 0]
    (empty,) = to_batches([], {}, 2)
    assert empty.num_rows == 0


def test_rows_of_other_columns_are_refused_with_both() -> None:
    """One producer computed the epoch before it was changed, another one since."""
    old, new = pa.table({"k": ["a"]}), pa.table({"k": ["a"], "n": [1]})
    rows = [Row(5, 0, origin, 0, ipc_bytes(table)) for origin, table in enumerate((old, new))]
    with pytest.raises(PermanentError, match=r"\(k string, n int64\), expected \(k string\)"):
        inputs(rows, ("input",))
    assert inputs([rows[1], rows[1]], ("input",))["input"].num_rows == 2
