"""An operator partition runs only with exactly the sets that were sent to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from perseid.engine.order import EpochOrder
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.model.layout import DEAD_LETTERS
from perseid.topics.records import Token
from perseid.worker.dataflow.barriers import Expected, counted, expected
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import CHUNK_BYTES, Row, from_batches, to_batches
from perseid.worker.dataflow.graph import INDEX_BITS
from perseid.worker.dataflow.source import SplitCount
from perseid.worker.epoch import flow, tasks
from perseid.worker.spark import frames, stages
from support.fragment_contexts import context_of

JOB = """
name: job
parallelism: 2
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
  visits: {topic: visits-in, format: json, columns: {user: string, n: int64}}
operators:
  checked: {input: orders, use: "ops:Same"LOOSE}
  direct: {input: orders, key: user, use: "ops:Same"KEYED}
  joined: {inputs: {a: checked, b: visits, c: direct}, key: user, use: "ops:Same"KEYED}
  after: {input: joined, use: "ops:Same"LOOSE}
  last: {inputs: {a: after, b: direct}, key: user, use: "ops:Same", parallelism: 3KEYED}
sinks:
  last: {input: last, topic: out, format: json, key: user}
  raw: {input: visits, topic: raw, format: json, order: free}
  after: {input: after, topic: out-after, format: json, order: free}
errors: {tolerance: TOLERANCE}
"""
OPS = """
from perseid.jobs import Operator, pa

class Same(Operator):
    def process(self, batch, out):
        out.emit(batch)
"""
BISECTS = ", errors: {operator: bisect}"
JOBS = {
    "stops": ("", "", "none"), "tolerates": ("", "", "all"), "loose": (BISECTS, "", "none"),
    "keyed": ("", BISECTS, "none"), "all of it": (BISECTS, BISECTS, "all"),
}  # fmt: skip
SPLITS = 3
TOKEN = Token(1, "u", 7, 3, "r", 1, tuple(() for _ in range(SPLITS)), 1_000)
ROWS = pa.table({"user": [f"u{n}" for n in range(40)], "n": range(40)})


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> FragmentContext:
    loose, keyed, tolerance = JOBS[request.param]
    text = JOB.replace("LOOSE", loose).replace("KEYED", keyed).replace("TOLERANCE", tolerance)
    return context(tmp_path, text)


def context(folder: Path, text: str) -> FragmentContext:
    (folder / "job.yaml").write_text(text)
    (folder / "ops.py").write_text(OPS)
    return context_of(folder)


def sent(job: FragmentContext, table: pa.Table = ROWS) -> Iterator[Row]:
    """What all tasks of an epoch send, as the stages of Spark do it."""
    spec, graph = flow.spec_of(job.job_folder), flow.graph_of(job)
    for split in range(SPLITS):
        for source in spec.sources:
            yield from flow.rows_of(job, TOKEN, source, table, split)
            yield from flow.letter_rows(job, None, source, split)
    for task in job.layout.stateful_tasks:
        for stream in graph.streams(task.operator):
            yield from flow.rows_of(job, TOKEN, stream, table, task.gid)


def by_consumer(job: FragmentContext, table: pa.Table = ROWS) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {task.gid: [] for task in job.layout.tasks}
    for row in sent(job, table):
        found[row.target].append(row)
    return found


def of(job: FragmentContext, gid: int) -> Expected:
    return expected(flow.graph_of(job), TOKEN, gid)


@pytest.mark.parametrize("table", [ROWS, ROWS.slice(0, 0)])
def test_what_is_sent_is_what_is_expected(job: FragmentContext, table: pa.Table) -> None:
    for gid, rows in by_consumer(job, table).items():
        random.Random(gid).shuffle(rows)
        assert counted(rows, of(job, gid), "x") == rows
        assert len({(row.input, row.origin) for row in rows}) == len(of(job, gid).sets)


def test_dead_letters_of_several_nodes_share_no_origin(tmp_path: Path) -> None:
    loose, keyed, tolerance = JOBS["all of it"]
    text = JOB.replace("LOOSE", loose).replace("KEYED", keyed).replace("TOLERANCE", tolerance)
    job = context(tmp_path, text)
    (writer,) = job.layout.of(DEAD_LETTERS)
    graph = flow.graph_of(job)
    names = {sender.name for sender in graph.senders_to[writer.gid]}
    assert names == {
        "orders", "visits", "checked", "after", "orders to direct", "visits to joined",
        "checked to joined",
    }  # fmt: skip
    numbers = {sender.number for sender in graph.letters.values()}
    assert len(numbers) == len(graph.letters)
    assert {n for n, _ in of(job, writer.gid).sets} == {0}, "one input"
    (own,) = {s.route.targets for s in graph.letters.values() if s.name == "direct to joined"}
    assert own == (job.layout.of("joined")[0].gid,)


def test_whatever_a_shuffle_does_to_the_rows_the_partition_does_not_run(
    job: FragmentContext,
) -> None:
    chance = random.Random(5)
    for gid, rows in by_consumer(job).items():
        wanted = of(job, gid)
        for at, row in enumerate(rows):
            broken = [
                rows[:at] + rows[at + 1 :], [*rows, row],
                [*rows[:at], replace(row, chunks=2), *rows[at + 1 :]],
                [*rows, replace(row, origin=row.origin + (1 << INDEX_BITS) * 40)],
                [*rows, replace(row, input=row.input + 5)],
                [*rows[:at], replace(row, chunk=1), *rows[at + 1 :]],
                [*rows[:at], replace(row, origin=chance.choice(rows).origin + 77), *rows[at + 1 :]],
            ]  # fmt: skip
            for found in broken:
                with pytest.raises(RetryableError, match=r"partition 3 did not get its input"):
                    counted(found, wanted, "partition 3")


def chunk(number: int, of: int, origin: int = 4, input_: int = 0) -> Row:
    return Row(9, input_, origin, number, b"", of)


WANTED = Expected({(0, 4): "left", (0, 5): "left", (1, 4): "right"}, {})
OTHERS = (chunk(0, 1, 5), chunk(0, 1, 4, 1))


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ((chunk(0, 3), chunk(2, 3)), "the set of input 0 from left, task 4, is not whole "
         "(1 x chunk 1 of 3, 1 x chunk 3 of 3)"),
        ((chunk(0, 2), chunk(1, 2), chunk(1, 2)), "is not whole (1 x chunk 1 of 2, 2 x chunk 2"),
        ((chunk(0, 1), chunk(0, 1)), "the set of input 0 from left, task 4, came 2 times"),
        ((chunk(0, 1), chunk(0, 2), chunk(1, 2)), "came 2 times"),  # of two attempts
        ((chunk(0, 2), chunk(1, 3)), "is not whole (1 x chunk 1 of 2, 1 x chunk 2 of 3)"),
        ((), "the set of input 0 from left, task 4, is missing"),
        ((chunk(0, 1), chunk(0, 1, 6)), "the set of input 0 from sender 0, task 6, was not exp"),
    ],
)  # fmt: skip
def test_the_error_names_the_consumer_the_input_and_the_origin(
    rows: tuple[Row, ...], text: str
) -> None:
    with pytest.raises(RetryableError) as caught:
        counted([*OTHERS, *rows], WANTED, "operator sums, partition 1, epoch 7,")
    assert text in str(caught.value)
    assert str(caught.value).startswith("operator sums, partition 1, epoch 7, did not get its")


def test_an_error_about_many_sets_is_short() -> None:
    wanted = Expected({(0, split): "left" for split in range(500)}, {})
    with pytest.raises(RetryableError) as caught:
        counted([], wanted, "x")
    assert "; and 495 more. The epoch" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_of_a_frame_any_number_of_whole_sets_counts() -> None:
    framed = Expected({(1, 4): "right"}, {(0, 0): "words"})
    right = chunk(0, 1, 4, 1)
    for rows in (
        [chunk(0, 1)], [chunk(0, 1), chunk(0, 1)], [chunk(0, 1), chunk(0, 2), chunk(1, 2)],
        [chunk(0, 2), chunk(1, 2), chunk(0, 1, 17)],
    ):  # fmt: skip
        assert counted([right, *rows], framed, "x") == [right, *rows]
    assert counted([right], framed, "x") == [right], "a query that never has rows"
    with pytest.raises(RetryableError, match="is not whole"):
        counted([right, chunk(0, 1), chunk(1, 2)], framed, "x")


def test_the_count_crosses_the_shuffle(job: FragmentContext) -> None:
    large = pa.table({"user": ["x" * 1000] * 4000, "n": range(4000)})
    for gid, rows in by_consumer(job, large).items():
        back = [r for r in from_batches(to_batches(rows, {}, 3)) if r.target == gid]
        assert [(r.chunk, r.chunks) for r in back] == [(r.chunk, r.chunks) for r in rows]
        assert counted(back, of(job, gid), "x") == back
    assert 4000 * 1000 > 3 * CHUNK_BYTES


TWO_QUERIES = """
name: job
parallelism: 2
sources: {orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}}
operators:
  one: {input: orders, use: "ops:Same"}
  first: {input: one, sql: "SELECT user, n FROM input"}
  two: {input: first, use: "ops:Same"}
  second: {input: two, sql: "SELECT user, n FROM input"}
  last: {input: second, key: user, use: "ops:Same"}
sinks: {last: {input: last, topic: out, format: json, key: user}}
"""


def test_rows_that_no_query_reads_are_an_error_and_not_lost(tmp_path: Path) -> None:
    """Spark's frames answer all queries of a level at once: `second` sees nothing of `two`."""
    job = context(tmp_path, TWO_QUERIES)
    rows = list(flow.rows_of(job, TOKEN, "first", ROWS, 0, sql=False))
    assert {row.target for row in rows} == {flow.graph_of(job).sql_targets["second"]}
    with pytest.raises(PermanentError, match="operator second: its query reads what a Python"):
        tasks.run_rows(job, EpochOrder(TOKEN, 7, None), rows, 1)


APART = """
name: job
parallelism: 2
placement: {spread: 3}
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
  visits: {topic: visits-in, format: json, columns: {user: string, n: int64}}
operators:
  first: {input: orders, key: user, use: "ops:Same"}
  other: {input: visits, key: user, use: "ops:Same"}
sinks:
  first: {input: first, topic: out, format: json, key: user}
  other: {input: other, topic: out-other, format: json, key: user}
errors: {tolerance: all}
"""


def test_one_process_sends_what_the_fragments_of_a_spread_job_send(tmp_path: Path) -> None:
    """An audit of it reads all splits of a token, of each source those that have a part of it."""
    job = context(tmp_path, APART)
    plans = [frames.source_plan(job, name) for name in ("orders", "visits")]
    assert {plan.splits for plan in plans} == {(0, 1), (2,)}
    token = replace(TOKEN, splits=((), (), (), ()))
    order = EpochOrder(token, 1, None)
    rows = [
        row
        for split in range(len(token.splits)) for plan in plans if plan.is_in(split)
        for row in stages.source_rows(job, order, plan, split, ROWS, SplitCount())
    ]  # fmt: skip
    for task in job.layout.tasks:
        if task.operator != DEAD_LETTERS:
            own = [row for row in rows if row.target == task.gid]
            assert counted(own, expected(flow.graph_of(job), token, task.gid), task.label) == own
