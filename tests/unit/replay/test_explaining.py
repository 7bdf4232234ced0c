"""From which input records an epoch made its outputs, against computations of their own."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import RefusedError
from perseid.jobs.model.spec import MAIN
from perseid.jobs.repository.job_folders import EXAMPLES
from perseid.replay.explaining import Lineage
from support.one_process import Past, offsets_of

PAGEVIEWS = EXAMPLES / "pageviews"
ANSWER_S = 10.0
PARTITIONS = 3
COUNTRIES = ("at", "ch", "de", "fr")

Place = tuple[str, int, int]


def fed(past: Past, chance: random.Random, epochs: int) -> list[list[tuple[Place, dict[str, Any]]]]:
    """Runs epochs of page views and users; their records with their places, by epoch.

    All records of a user are in one partition, so their order is that of their offsets.
    """
    ends: Counter[tuple[str, int]] = Counter()
    fed: list[list[tuple[Place, dict[str, Any]]]] = []
    for _ in range(epochs):
        rows: dict[str, dict[int, list[dict[str, Any]]]] = {"views": {}, "users": {}}
        placed: list[tuple[Place, dict[str, Any]]] = []
        for _ in range(chance.randrange(30, 60)):
            number = chance.randrange(12)
            topic = chance.choice(["views", "views", "users"])
            row: dict[str, Any] = {"user": f"u{number}"}
            if topic == "views":
                row |= {"page": f"p{chance.randrange(5)}", "ms": chance.randrange(100)}
            else:
                row |= {"country": chance.choice(COUNTRIES)}
            partition = number % PARTITIONS
            rows[topic].setdefault(partition, []).append(row)
            placed.append(((topic, partition, ends[topic, partition]), row))
            ends[topic, partition] += 1
        past.epoch(rows)
        fed.append(placed)
    return fed


def countries(fed: list[list[tuple[Place, dict[str, Any]]]]) -> dict[str, str]:
    """Of each user, at the end: his last one."""
    known: dict[str, str] = {}
    for placed in fed:
        for (topic, _, _), row in placed:
            if topic == "users":
                known[row["user"]] = row["country"]
    return known


def explained(past: Past, task: Any, row: int) -> Lineage:
    lineage = past.lineage()
    rows = len(lineage.trace.outputs[task.gid][MAIN])
    mask = np.zeros(rows, bool)
    mask[row] = True
    lineage.of_output(task, MAIN, mask)
    return lineage


@pytest.mark.parametrize("seed", range(5))
def test_page_views_are_explained_by_the_records_of_their_key(seed: int, tmp_path: Path) -> None:
    """Of each country the views of its users, and what was announced of these users."""
    past = Past(PAGEVIEWS, tmp_path)
    epochs = fed(past, random.Random(seed), 3)
    known, last = countries(epochs), epochs[-1]
    seen = 0
    for task, row, columns in past.written("countries"):
        users = {
            view["user"] for (topic, _, _), view in last
            if topic == "views" and known.get(view["user"], "unknown") == columns["country"]
        }  # fmt: skip
        lineage = explained(past, task, row)
        assert offsets_of(lineage) == {place for place, one in last if one["user"] in users}
        assert {step.how for step in lineage.steps} == {"proven"}
        seen += 1
    for task, row, columns in past.written("enriched"):
        wanted = {place for place, one in last if one["user"] == columns["user"]}
        assert offsets_of(explained(past, task, row)) == wanted
        seen += 1
    assert seen > 10


def test_the_state_of_the_key_before_and_after(tmp_path: Path) -> None:
    past = Past(PAGEVIEWS, tmp_path)
    view = {"user": "ann", "page": "p", "ms": 7}
    past.epoch({"users": {0: [{"user": "ann", "country": "at"}]}, "views": {0: [view]}})
    past.epoch({"views": {0: [view, view]}})
    ((task, _, _),) = past.written("countries")
    before, after = (past.reruns().state(task, after=when)["seen"] for when in (False, True))
    assert before.to_pylist() == [{"key": "at", "views": 1, "ms": 7}]
    assert after.to_pylist() == [{"key": "at", "views": 3, "ms": 21}]


def test_a_key_with_100_000_updates_is_explained_in_time(tmp_path: Path) -> None:
    past = Past(PAGEVIEWS, tmp_path, splits=1)
    views = [{"user": "ann", "page": f"p{n % 9}", "ms": n} for n in range(100_000)]
    others = [{"user": f"u{n}", "page": "p", "ms": n} for n in range(20_000)]
    past.epoch({"views": {0: views, 1: others}})
    (task,) = [t for t, _, c in past.written("countries") if c["country"] == "unknown"]
    began_s = time.monotonic()
    whole = explained(past, task, 0)
    key = past.lineage()
    by_user = {t.partition: t for t, _, c in past.written("enriched") if c["user"] == "ann"}
    (owner,) = by_user.values()
    key.of_key(owner, pa.table({"user": ["ann"]}))
    assert time.monotonic() - began_s < ANSWER_S
    assert len(offsets_of(whole)) == 120_000
    assert offsets_of(key) == {("views", 0, n) for n in range(100_000)}


JOB = """\
name: job
parallelism: 2
sources:
  rows: {topic: rows, format: json, columns: {text: string, n: int64}}
operators:
  words: {input: rows, use: "ops:Words"}
  sums: {input: words, key: word, use: "ops:Sums"}
  shares: {input: sums, key: word, use: "ops:Shares"}
  bare: {input: words, key: word, use: "ops:Bare"}
sinks:
  sums: {input: sums, topic: out, format: json, order: free}
  shares: {input: shares, topic: shares, format: json, order: free}
  bare: {input: bare, topic: bare, format: json, order: free}
  words: {input: words, topic: words, format: json}
"""
OPS = """\
import pyarrow.compute as pc
from perseid.jobs import Emitter, Operator, Table, pa


class Words(Operator):
    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    metadata = ()

    def process(self, batch, out):
        found = [(w, r["n"]) for r in batch.to_pylist() for w in (r["text"] or "").split()]
        out.emit(pa.table({"word": pa.array([w for w, _ in found], pa.string()),
                           "n": pa.array([n for _, n in found], pa.int64())}))


class Sums(Operator):
    output = pa.schema([("word", pa.string()), ("n", pa.int64())])
    total = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch):
        return batch.group_by("word").aggregate([("n", "sum")]).rename_columns(["word", "n"])

    def process(self, batch, out):
        out.emit(self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"]))


class Shares(Operator):
    '''Each word's share of all words of its partition: no word alone makes it.'''

    output = pa.schema([("word", pa.string()), ("share", pa.float64())])

    def process(self, batch, out):
        share = pc.divide(batch["n"].cast(pa.float64()), float(pc.sum(batch["n"]).as_py()))
        out.emit(pa.table({"word": batch["word"], "share": share}))


class Bare(Operator):
    '''Emits no key.'''

    output = pa.schema([("digest", pa.string())])

    def process(self, batch, out):
        out.emit(pa.table({"digest": pc.utf8_upper(batch["word"])}))
"""
TEXTS: list[dict[str, Any]] = [
    {"text": "a b", "n": 1}, {"text": "c", "n": 2}, {"text": "", "n": 3}, {"text": "b b", "n": 4},
    {"text": "d a", "n": 5}, {"text": None, "n": 6}, {"text": "e", "n": 7},
]  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB)
    (folder / "ops.py").write_text(OPS)
    return folder


def with_word(word: str) -> set[Place]:
    return {
        ("rows", at % 2, at // 2) for at, row in enumerate(TEXTS)
        if word in str(row["text"] or "").split()
    }  # fmt: skip


def run(past: Past) -> None:
    past.epoch({"rows": {0: TEXTS[::2], 1: TEXTS[1::2]}})


def test_rows_are_searched_through_operators_that_take_them_apart(
    job: Path, tmp_path: Path
) -> None:
    past = Past(job, tmp_path)
    run(past)
    hows = set()
    for task, row, columns in past.written("sums"):
        lineage = explained(past, task, row)
        assert offsets_of(lineage) == with_word(columns["word"])
        hows |= {step.how for step in lineage.steps}
    assert hows == {"proven", "searched"}


def test_outputs_without_a_key_are_searched_by_key(job: Path, tmp_path: Path) -> None:
    past = Past(job, tmp_path)
    run(past)
    for task, row, columns in past.written("bare"):
        lineage = explained(past, task, row)
        assert offsets_of(lineage) == with_word(columns["digest"].lower())
        assert lineage.steps[0].keys == pa.table({"word": [columns["digest"].lower()]})


def test_what_rows_of_several_keys_make_together_is_not_narrowed(job: Path, tmp_path: Path) -> None:
    past = Past(job, tmp_path)
    run(past)
    for task, row, _ in past.written("shares"):
        table = past.runner.executor.trace.outputs[task.gid][MAIN]
        lineage = explained(past, task, row)
        wanted = set().union(*(with_word(word) for word in table["word"].to_pylist()))
        assert offsets_of(lineage) >= wanted
        several = len(table) > 1
        assert lineage.steps[0].how == ("whole" if several else "proven")
        assert (lineage.steps[0].keys is None) == several


def test_a_record_of_a_stateless_operator(job: Path, tmp_path: Path) -> None:
    past = Past(job, tmp_path)
    run(past)
    sink = past.spec.sinks["words"]
    found: set[Place] = set()
    reruns = past.reruns()
    for task in past.layout.of("words"):
        lineage = past.lineage()
        value = b'{"word": "b", "n": 4}'
        lineage.of_written(
            task, MAIN, partial(reruns.written_as, task, sink, key=None, value=value)
        )
        found |= offsets_of(lineage)
    assert found == {("rows", 1, 1)}


def test_a_search_that_takes_too_long_names_all(job: Path, tmp_path: Path) -> None:
    past = Past(job, tmp_path, more=lambda: False)
    run(past)
    ((task, row),) = [(t, r) for t, r, c in past.written("sums") if c["word"] == "e"]
    lineage = explained(past, task, row)
    assert [step.how for step in lineage.steps] == ["whole"]
    assert offsets_of(lineage) > with_word("e")


def test_a_job_with_sql_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="operator words is SQL"):
        Past(EXAMPLES / "wordcount", tmp_path)


def test_the_debugger_stops_in_process_with_the_rows_of_the_key(job: Path, tmp_path: Path) -> None:
    import io
    import pdb

    past = Past(job, tmp_path)
    run(past)
    ((task, row),) = [(t, r) for t, r, c in past.written("sums") if c["word"] == "b"]
    lineage = explained(past, task, row)
    batch = pa.table({"word": ["b"], "n": [9]})
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("p batch.to_pylist()\ncontinue\n"), stdout=out)
    past.reruns().debug(task, {"input": batch}, debugger)
    assert "ops.py" in out.getvalue()
    assert "[{'word': 'b', 'n': 9}]" in out.getvalue()
    assert lineage.steps[0].keys == pa.table({"word": ["b"]})
