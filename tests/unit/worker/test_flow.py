"""Stateless operators in the task that reads, and what becomes of the rows on which they raise."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from perseid.errors import PermanentError
from perseid.jobs.model.layout import DEAD_LETTERS
from perseid.state.primitives.arrow import ipc_table
from perseid.topics.records import Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import Row
from perseid.worker.dead_letters import refused
from perseid.worker.epoch import flow
from support.fragment_contexts import context_of

JOB = """
name: picky
parallelism: 2
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
operators:
  checked: {input: orders, use: "picky:Checked"%s}
  spent: {input: checked, key: user, use: "picky:Spent"}
sinks:
  spent: {input: spent, topic: out, format: json, key: user}
"""
CODE = """
import pyarrow.compute as pc
from perseid.jobs import Operator, Table, pa

class Checked(Operator):
    def process(self, batch, out):
        out.emit(batch)
        if pc.any(pc.less(batch["n"], 0)).as_py():
            raise ValueError("negative")

class Spent(Operator):
    kept = Table(key=pa.string(), n=pa.int64())
    def process(self, batch, out):
        out.emit(self.kept.add(batch["user"], n=batch["n"]))
"""
TOKEN = Token(1, "u", 7, 3, "r", 1, (), 1_000)


def context(folder: Path, more: str) -> FragmentContext:
    (folder / "job.yaml").write_text(JOB % more)
    (folder / "picky.py").write_text(CODE)
    return context_of(folder)


def orders(*amounts: int) -> pa.Table:
    count = len(amounts)
    return pa.table({
        "user": pa.array([f"u{i}" for i in range(count)], pa.string()),
        "n": pa.array(amounts, pa.int64()),
        "partition": pa.array([1] * count, pa.int32()),
        "offset": pa.array(range(40, 40 + count), pa.int64()),
    })  # fmt: skip


def of(rows: list[Row], gids: set[int]) -> pa.Table:
    found = [ipc_table(row.blob) for row in rows if row.target in gids]
    return pa.concat_tables(found)


def test_poison_goes_to_the_dead_letters_and_the_rest_to_the_consumer(tmp_path: Path) -> None:
    job = context(tmp_path, ", errors: {operator: bisect}")
    (writer,) = job.layout.of(DEAD_LETTERS)
    rows = list(flow.rows_of(job, TOKEN, "orders", orders(1, -1, 2, -2), 5))
    spent = of(rows, {t.gid for t in job.layout.of("spent")})
    assert sorted(spent["n"].to_pylist()) == [1, 2]
    letters = of(rows, {writer.gid})
    reported = [(r["topic"], r["partition"], r["offset"], r["reason"]) for r in letters.to_pylist()]
    assert reported == [("orders-in", 1, 41, "negative"), ("orders-in", 1, 43, "negative")]
    assert letters["operator_partition"].to_pylist() == [5, 5]
    assert refused.of_operators(letters) == 2
    assert {row.target for row in rows} == {t.gid for t in job.layout.tasks}


@pytest.mark.parametrize("amounts", [(), (1, 2)])
def test_the_writer_of_dead_letters_hears_of_an_epoch_without(
    tmp_path: Path, amounts: tuple[int, ...]
) -> None:
    job = context(tmp_path, ", errors: {operator: bisect}")
    rows = list(flow.rows_of(job, TOKEN, "orders", orders(*amounts), 0))
    assert {row.target for row in rows} == {t.gid for t in job.layout.tasks}


def test_where_it_stops_the_job_the_row_is_reported(tmp_path: Path) -> None:
    job = context(tmp_path, "")
    with pytest.raises(PermanentError, match=r"row 2 of 3 \(of input input\): {user: string of 2"):
        list(flow.rows_of(job, TOKEN, "orders", orders(1, -1, 2), 0))


def test_a_process_that_meets_a_thousand_revisions_forgets_the_modules_of_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "FOLDERS_MAX", 4)
    monkeypatch.setattr(flow, "_met", {})  # other tests' jobs
    before = set(sys.modules)
    for number in range(12):
        folder = tmp_path / f"r{number}"
        folder.mkdir()
        (folder / "job.yaml").write_text(JOB % "")
        (folder / "picky.py").write_text(CODE)
        found = flow.operator_class(folder, "checked")
        assert flow.operator_class(folder, "spent").__module__ == found.__module__
    made = [name for name in set(sys.modules) - before if name.startswith("_perseid_job_")]
    assert len(made) <= 2 * 4  # a package and a module each
    assert flow.operator_class(folder, "checked") is found  # the newest is as it was


SHARED = """
name: shared
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
operators:
  all: {input: orders, use: "shared:Everything"}
  some: {input: orders, key: user, use: "shared:Some"}
sinks:
  raw: {input: orders, topic: raw, format: json, order: free}
  all: {input: all, topic: all, format: json}
  some: {input: some, topic: out, format: json, key: user}
"""
SEEN = """
from perseid.jobs import Operator, pa

class Everything(Operator):
    metadata = ("partition", "offset")
    def process(self, batch, out):
        out.emit(batch)

class Some(Operator):
    metadata = ("offset",)
    def process(self, batch, out):
        out.emit(batch)
"""


def test_who_names_no_metadata_gets_none_whatever_others_of_the_source_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SHARED)
    (tmp_path / "shared.py").write_text(SEEN)
    job = replace(context_of(tmp_path), job="shared")
    metadata = ("partition", "offset")
    rows = list(flow.rows_of(job, TOKEN, "orders", orders(1, 2), 0, metadata=metadata))

    def columns(name: str) -> list[str]:
        return list(of(rows, {t.gid for t in job.layout.of(name)}).column_names)

    assert columns("orders") == ["user", "n"]  # what its sink writes
    assert columns("all") == ["user", "n", "partition", "offset"]
    assert columns("some") == ["user", "n", "offset"]
