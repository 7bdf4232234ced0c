"""Rows without a key: each is a dead letter with its place, of who cannot take it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.engine.epoch import input_names
from perseid.errors import BadInputError, PermanentError
from perseid.jobs.model.layout import DEAD_LETTERS
from perseid.jobs.validation import parse
from perseid.state.primitives.arrow import ipc_table
from perseid.topics.columns import Records
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row, inputs
from perseid.worker.dataflow.source import SourcePlan, SplitCount, read_split
from perseid.worker.dead_letters import null_keys
from perseid.worker.dead_letters.places import Places, Run
from perseid.worker.dead_letters.refused import to_table
from perseid.worker.epoch import flow
from support.fragment_contexts import context_of

COLUMNS = {"user": "string", "n": "int64"}
JOB = """
name: job
parallelism: 2
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
operators:
  named: {input: orders, sql: "SELECT user, n FROM input"}
  spent: {input: named, key: user, use: "library:CountByKey", errors: {operator: SPENT}}
  direct: {input: orders, key: user, use: "library:CountByKey", errors: {operator: DIRECT}}
  ranked: {input: direct, key: user, use: "library:Sum", with: {column: n},
           errors: {operator: LAST}}
sinks:
  spent: {input: spent, topic: out, format: json, key: user}
  ranked: {input: ranked, topic: out-too, format: json, key: user}
  all: {input: orders, topic: out-all, format: json, order: free}
errors: {tolerance: TOLERANCE}
"""


OPS = """
from perseid.jobs import Operator, Table, pa

class Direct(Operator):
    metadata = ()
    kept = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch):
        if 4 in batch["n"].to_pylist():
            raise ValueError("four")
        return batch.group_by("user").aggregate([("n", "sum")])

    def process(self, batch, out):
        out.emit(self.kept.add(batch["user"], n=batch["n_sum"]))
"""


def context(folder: Path, job: str = JOB, **how: str) -> FragmentContext:
    given = {"SPENT": "stop", "DIRECT": "stop", "LAST": "stop", "TOLERANCE": "none", **how}
    for name, value in given.items():
        job = job.replace(name, value)
    folder = Path(tempfile.mkdtemp(dir=folder))  # what a folder holds is read once
    (folder / "job.yaml").write_text(job)
    (folder / "ops.py").write_text(OPS)
    return context_of(folder)


class Topic:
    """The records of partition 3 from offset 40 on, in two reads."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = [
            (40 + i, 1000 + i, b"k%d" % i, json.dumps(row).encode()) for i, row in enumerate(rows)
        ]

    def prepare(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Nothing is to be opened."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        yield Records.of(partition, self.rows[:2])
        yield Records.of(partition, self.rows[2:])

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")


TOKEN = Token(
    1, "u", 7, 3, "r", 1, ((SourceRange("orders", "orders-in", "id", 3, 40, 44),),), 1_000
)
ROWS: list[dict[str, Any]] = [{"user": "a", "n": 1}, {"n": 2}, {"user": None, "n": 3},
                              {"user": "b", "n": 4}]  # fmt: skip


def read(job: FragmentContext) -> tuple[pa.Table, SplitCount]:
    spec = parse.load(Path(job.folder))
    plan = SourcePlan(
        "orders", "json", COLUMNS, None, (), spec.errors.tolerance == "all",
        readers=null_keys.readers(spec, "orders"),
    )  # fmt: skip
    count = SplitCount()
    return pa.concat_tables(list(read_split(Topic(*ROWS), plan, TOKEN, 0, count))), count


@pytest.mark.parametrize("how", [{"TOLERANCE": "all"}, {"DIRECT": "bisect"}])
def test_a_record_of_a_source_has_its_own_bytes_and_place_in_its_letter(
    tmp_path: Path, how: dict[str, str]
) -> None:
    table, count = read(context(tmp_path, **how))
    assert table["n"].to_pylist() == [1, 2, 3, 4], "others may read such rows"
    reported = [(r.place, r.kind, r.key, json.loads(r.value or b"")["n"]) for r in count.refused]
    assert reported == [
        ("topic orders-in, partition 3, offset 41", "NullKey", b"k1", 2),
        ("topic orders-in, partition 3, offset 42", "NullKey", b"k2", 3),
    ]
    assert count.refused[0].reason == "key column user of operator direct is null"
    assert count.refused[0].operator is None, "redriven as it is"


def test_where_it_stops_the_job_the_record_and_both_remedies_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        read(context(tmp_path))
    text = str(caught.value)
    assert text.startswith(
        "topic orders-in, partition 3, offset 41: key column user of operator direct is null. "
    )
    remedies = "`errors: {tolerance: all}` of the job, or `errors: {operator: bisect}` of direct"
    assert remedies in text


def rows_of(job: FragmentContext, stream: str, places: Places | None = None) -> list[Row]:
    table = pa.table({"user": ["a", None, None, "b"], "n": [1, 2, 3, 4]})
    return list(flow.rows_of(job, TOKEN, stream, table, 5, sql=False, places=places))


def come_to(job: FragmentContext, rows: list[Row], operator: str, port: int = 0) -> pa.Table:
    gids = {task.gid for task in job.layout.of(operator)}
    found = [ipc_table(r.blob) for r in rows if r.target in gids and r.input == port and r.blob]
    return pa.concat_tables([t for t in found if t.num_rows] or [pa.table({})])


def test_only_who_cannot_take_the_row_goes_without(tmp_path: Path) -> None:
    job = context(tmp_path, TOLERANCE="all")
    rows = rows_of(job, "orders")
    assert sorted(come_to(job, rows, "direct")["user"].to_pylist()) == ["a", "b"]
    assert come_to(job, rows, "orders")["n"].to_pylist() == [1, 2, 3, 4]
    assert not come_to(job, rows, DEAD_LETTERS).num_rows, "the reader of the source made letters"


@pytest.mark.parametrize(
    ("how", "to", "port"),
    [({"TOLERANCE": "all"}, DEAD_LETTERS, 0), ({"SPENT": "bisect"}, "spent", 1),
     ({"SPENT": "bisect", "TOLERANCE": "all"}, DEAD_LETTERS, 0)],
)  # fmt: skip
def test_a_row_after_sql_is_a_letter_of_the_operator(
    tmp_path: Path, how: dict[str, str], to: str, port: int
) -> None:
    job = context(tmp_path, **how)
    rows = rows_of(job, "named")
    assert sorted(come_to(job, rows, "spent")["user"].to_pylist()) == ["a", "b"]
    letters = come_to(job, rows, to, port).to_pylist()
    assert [(r["kind"], r["operator"], r["input"], r["topic"]) for r in letters] == [
        ("NullKey", "spent", "input", "")
    ] * 2
    assert [json.loads(r["value"]) for r in letters] == [{"user": None, "n": n} for n in (2, 3)]


def test_after_a_keyed_operator_only_bisect_reaches(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        rows_of(context(tmp_path, TOLERANCE="all"), "direct")
    text = str(caught.value)
    assert text.startswith("operator ranked, epoch 7: key column user of operator ranked is null ")
    assert "in row 2 of 4 that direct emitted" in text
    assert "to the dead-letter topic: `errors: {operator: bisect}` of ranked;" in text
    job = context(tmp_path, TOLERANCE="all", LAST="bisect")
    rows = rows_of(job, "direct")
    assert come_to(job, rows, "ranked", 1)["operator"].to_pylist() == ["ranked"] * 2
    assert not come_to(job, rows, DEAD_LETTERS).num_rows


def test_a_job_stops_at_a_row_after_sql_without_quoting_it(tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        rows_of(context(tmp_path), "named")
    assert "in row 2 of 4 that named emitted: {user: null, n: int64}" in str(caught.value)


ONE = """
name: job
parallelism: 2
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
operators:
  direct: {input: orders, key: user, use: "ops:Direct", errors: {operator: DIRECT}}
sinks:
  direct: {input: direct, topic: out, format: json, key: user}
"""


def test_letters_of_a_job_without_a_writer_of_their_own_come_to_the_operator_that_bisects(
    tmp_path: Path,
) -> None:
    job = context(tmp_path, ONE, DIRECT="bisect")
    assert not job.layout.of(DEAD_LETTERS)
    _, count = read(job)
    letters = to_table(count.refused)
    rows = list(flow.letter_rows(job, letters, "orders", 5))
    first = job.layout.of("direct")[0]
    assert [(r.target, r.input) for r in rows] == [(first.gid, 1)]
    (barrier,) = flow.letter_rows(job, letters.slice(0, 0), "orders", 5)
    assert (barrier.target, barrier.input, barrier.origin) == (first.gid, 1, rows[0].origin)
    assert not len(barrier.blob)
    names = input_names(flow.spec_of(job.job_folder), first)
    assert inputs(rows, names)[names[1]]["offset"].to_pylist() == [41, 42]


def test_a_record_on_which_a_combiner_raises_has_its_place(tmp_path: Path) -> None:
    runs = tuple(
        Run("orders-in", p, records.offsets, records.keys)
        for p, records in enumerate(Topic(*ROWS).read("", 3, 0, 0))
    )
    job = context(tmp_path, ONE, DIRECT="bisect")
    rows = rows_of(job, "orders", Places(runs))
    assert come_to(job, rows, "direct").to_pylist() == [{"user": "a", "n_sum": 1}]
    (letter,) = come_to(job, rows, "direct", 1).to_pylist()
    assert (letter["topic"], letter["partition"], letter["offset"]) == ("orders-in", 1, 43)
    assert (letter["key"], letter["reason"]) == (b"k3", "four")
    with pytest.raises(PermanentError) as caught:
        rows_of(context(tmp_path, ONE), "orders", Places(runs))
    text = str(caught.value)
    assert "(of input input, topic orders-in, partition 1, offset 43): {user: string of 1" in text


@pytest.mark.parametrize("how", ["stop", "bisect"])
def test_a_split_without_rows_has_no_columns_for_a_combiners_operator(
    tmp_path: Path, how: str
) -> None:
    """It is unknown which a combiner would give it."""
    job = context(tmp_path, ONE, DIRECT=how)
    one = pa.table({"user": ["a"], "n": [1]})
    parts = [one, one.slice(0, 0), pa.table({"user": pa.nulls(1, pa.string()), "n": [1]})]
    rows = [r for i, t in enumerate(parts) for r in flow.rows_of(job, TOKEN, "orders", t, i)]
    for task in job.layout.of("direct"):
        names = input_names(flow.spec_of(job.job_folder), task)
        found = inputs([r for r in rows if r.target == task.gid], names)
        assert found["input"].column_names == ["user", "n_sum"]
