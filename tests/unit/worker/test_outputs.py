"""Operators with several outputs: retained, fed back, distributed and written, each for itself."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import orjson
import pyarrow as pa
import pytest

from perseid.engine.epoch import batches as batches_of
from perseid.engine.order import EpochOrder
from perseid.jobs.model import layout as layouts
from perseid.jobs.model.spec import MAIN, JobSpec
from perseid.jobs.operator import Emitter, Operator
from perseid.jobs.validation import parse
from perseid.state import Table
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.owners import adopt
from perseid.topics.records import Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dataflow.edges import inputs
from perseid.worker.dead_letters.poison import Sieve
from perseid.worker.epoch import feedback, flow, tasks
from perseid.worker.epoch.feedback import last_output
from perseid.worker.sink.transaction import CommitResult
from support.fragment_contexts import DEPLOYMENT, context_of

ODD = pa.schema([("key", pa.string()), ("n", pa.int64())])
JOB = """\
name: sides
parallelism: 2
sources:
  in: {topic: in, format: json, columns: {key: string, n: int64}}
operators:
  cut: {input: in, use: "m:Cut"}
  sums: {input: cut.odd, key: key, use: "m:Sums"}
  again: {input: sums.large, key: key, use: "m:Sums", parallelism: 1}
sinks:
  even: {input: cut, topic: even, format: json, order: free}
  odd: {input: cut.odd, topic: odd, format: json, order: free}
  sums: {input: sums, topic: sums, format: json, key: key}
  large: {input: sums.large, topic: large, format: json, key: key}
  again: {input: again, topic: again, format: json, key: key}
  more: {input: again.large, topic: more, format: json, key: key}
"""
CODE = """\
import pyarrow.compute as pc
from perseid.jobs import Operator, Table, pa

ROWS = pa.schema([("key", pa.string()), ("n", pa.int64())])

class Cut(Operator):
    metadata = ()
    outputs = {"odd": ROWS}

    def process(self, batch, out):
        odd = pc.equal(pc.bit_wise_and(batch["n"], 1), 1)
        out.emit(batch.filter(odd), to="odd")
        out.emit(batch.filter(pc.invert(odd)))

class Sums(Operator):
    output = ROWS
    outputs = {"large": ROWS}
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        found = self.total.add(batch["key"], n=batch["n"])
        out.emit(found)
        out.emit(found.filter(pc.greater(found["n"], 10)), to="large")
"""


class Sided(Operator):
    """Sums per key to the main output; what came in to "odd" where it is odd. n < 0 is poison."""

    outputs: ClassVar[Mapping[str, pa.Schema]] = {"odd": ODD}
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        rows = batch.to_pylist()
        out.emit(pa.Table.from_pylist([r for r in rows if r["n"] % 2], schema=ODD), to="odd")
        if any(row["n"] < 0 for row in rows):
            raise ValueError("below zero")
        out.emit(self.total.add(batch["key"], n=batch["n"]))


def content(result: Any) -> dict[str, list[dict[str, Any]]]:
    return {name: table.to_pylist() for name, table in result.outputs.items()}


def rows(*n: int) -> pa.Table:
    return pa.table({"key": [f"k{i % 2}" for i in range(len(n))], "n": list(n)})


@pytest.fixture
def sided(partition: Any) -> Any:
    partition.operator = Sided
    return partition


def test_every_output_is_retained_under_its_name(sided: Any) -> None:
    state = sided.begun()
    first = content(sided.feed(state, 1, rows(1, 2, 3)))
    assert first == {
        MAIN: [{"key": "k0", "n": 4}, {"key": "k1", "n": 2}],
        "odd": [{"key": "k0", "n": 1}, {"key": "k0", "n": 3}],
    }
    quiet = content(sided.feed(state, 2, rows(2)))
    assert quiet == {MAIN: [{"key": "k0", "n": 6}], "odd": []}
    for other in (state, sided.state()):
        again = sided.feed(other, 1, rows(1, 2, 3))
        assert (again.retained, content(again)) == (True, first)
        assert again.outputs["odd"].schema == ODD
        assert content(sided.feed(other, 2, rows(2))) == quiet


def test_poison_leaves_nothing_on_any_output(sided: Any) -> None:
    state = sided.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    result = sided.feed(state, 1, rows(1, -3, 5))
    assert result.letters.num_rows == 1
    assert content(result) == {
        MAIN: [{"key": "k0", "n": 6}],
        "odd": [{"key": "k0", "n": 1}, {"key": "k0", "n": 5}],
    }


def test_a_checkpoint_has_the_outputs_that_are_fed_back_and_no_others(sided: Any) -> None:
    state = sided.begun()
    state.feeds_back = ["odd"]
    sided.feed(state, 1, rows(1, 2))
    following = Token(1, "uuid", 2, 101, "r", 1, (), 2)
    heard = last_output(state.log, following, "odd")
    assert heard.to_pylist() == [{"key": "k0", "n": 1}]
    sided.snapshot(state, 1)
    assert [n for n in state.log.snapshot(1).sections if n.startswith("out")] == ["out.odd"]
    state.log.collect(1)
    assert last_output(state.log, following, "odd") == heard
    pointer = sided.checkpoint(1)
    sided.files = type(sided.files)()
    found, state = sided.restore(2, 1, (pointer,))
    assert found.source == "checkpoint:1"
    assert last_output(state.log, following, "odd") == heard
    assert last_output(state.log, following).num_columns == 0


@pytest.fixture
def job(tmp_path: Path) -> tuple[JobSpec, FragmentContext]:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(CODE)
    return parse.load(tmp_path), context_of(tmp_path)


def order(records: int = 0) -> EpochOrder:
    return EpochOrder(Token(1, "u", 7, 3, "r", 1, (), 1_000), 4, None)


def test_writers_of_all_outputs_of_an_operator_are_the_same(job: Any) -> None:
    spec, context = job
    found = [(t.operator, t.level, t.stateful, t.ledger) for t in context.layout.tasks]
    assert found == [
        ("cut", 1, False, 0), ("cut", 1, False, 1), ("sums", 1, True, 2), ("sums", 1, True, 3),
        ("again", 2, True, 4),
    ]  # fmt: skip
    assert layouts.written_streams(spec, "cut") == ("cut", "cut.odd")


def test_each_output_goes_to_its_own_readers(job: Any) -> None:
    _, context = job
    table = pa.table({"key": ["a", "b", "a", "c"], "n": [1, 2, 3, 4]})
    dealt = list(flow.rows_of(context, order().token, "in", table, 0))

    def got(gid: int, *names: str) -> dict[str, Any]:
        found = inputs([row for row in dealt if row.target == gid], names)
        return {name: part.to_pydict() for name, part in found.items()}

    assert got(0, MAIN, "odd") == {
        MAIN: {"key": ["b", "c"], "n": [2, 4]}, "odd": {"key": ["a", "a"], "n": [1, 3]},
    }  # fmt: skip
    assert got(1, MAIN, "odd") == {name: {"key": [], "n": []} for name in (MAIN, "odd")}
    sums = [got(gid, "input")["input"]["n"] for gid in (2, 3)]
    assert sorted(sums) == [[], [1, 3]]
    assert flow.graph_of(context).streams("sums") == ("sums", "sums.large")
    downstream = list(flow.rows_of(context, order().token, "sums.large", table, 2))
    assert {row.target for row in downstream} == {4}
    assert list(flow.rows_of(context, order().token, "sums", table, 2)) == []


@pytest.mark.parametrize(("gid", "topics"), [(0, ["even", "odd"]), (2, ["sums", "large"])])
def test_all_sinks_of_a_partition_are_in_one_transaction(
    job: Any, gid: int, topics: list[str]
) -> None:
    _, context = job
    task = context.layout.tasks[gid]
    second = "odd" if gid == 0 else "large"
    made = {MAIN: rows(1), second: rows(20, 30)}
    batches = list(batches_of(tasks.TaskExecutor(context), order(), task, made, None))
    assert [batch.topic for batch in batches] == topics
    sent = [[orjson.loads(v)["n"] for v in batch.values.to_pylist()] for batch in batches]
    assert sent == [[1], [20, 30]]
    quiet = {MAIN: rows(), second: rows(20)}
    (batch,) = batches_of(tasks.TaskExecutor(context), order(), task, quiet, None)
    assert batch.topic == topics[1]


@dataclass
class Fragment:
    """Epochs by the worker's own functions, without Spark; its sinks keep what they are sent."""

    context: FragmentContext
    epoch: int = 0
    sent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    transactions: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        tasks._processes.clear()
        root = self.context.deployment.state
        adopt(LocalFiles(), root, "u", self.context.layout.number, self.context.owner)
        for task in self.context.layout.stateful_tasks:
            log = tasks.log_of(self.context, task)
            log.create()
            log.write_snapshot(0, 1, 100, {})

    def commit(
        self, _epoch: int, _offset: int, _generation: int, batches: Any, *, checkpoint: bool
    ) -> CommitResult:
        self.transactions.append([batch.topic for batch in batches])
        for batch in batches:
            rows = map(orjson.loads, batch.values.to_pylist())
            self.sent.setdefault(batch.topic, []).extend(rows)
        return CommitResult(skipped=False)

    def run(self, *splits: pa.Table, attempts: int = 1) -> None:
        """One epoch; of several attempts the last one's sinks count."""
        self.sent, self.transactions = {}, []
        self.epoch += 1
        at = 100 + self.epoch
        read = tuple(() for _ in splits)
        now = EpochOrder(Token(1, "u", self.epoch, at - 1, "r", 1, read, 1000 * at), at, None)
        rows = list(feedback.rows(
            flow.graph_of(self.context), self.context.layout, now.token,
            lambda task: tasks.log_of(self.context, task),
            lambda stream: flow.columns_of(self.context, stream),
        ))  # fmt: skip
        source = next(iter(flow.spec_of(self.context.job_folder).sources))
        for split, table in enumerate(splits):
            rows += flow.rows_of(self.context, now.token, source, table, split)
        reported: list[int] = []
        for level in range(1, self.context.layout.levels + 1):
            sent, transactions = deepcopy((self.sent, self.transactions))
            for _ in range(attempts - 1):
                tasks.run_rows(self.context, now, rows, level)
            self.sent, self.transactions = sent, transactions
            rows, report = tasks.run_rows(self.context, now, rows, level)
            reported += report.partitions
        assert rows == []
        assert sorted(reported) == [task.gid for task in self.context.layout.tasks]


def started(folder: Path, document: str, monkeypatch: pytest.MonkeyPatch, state: Path) -> Fragment:
    (folder / "job.yaml").write_text(document)
    deployment = DEPLOYMENT.model_copy(update={"state": str(state)})
    fragment = Fragment(context_of(folder, deployment=deployment))
    monkeypatch.setattr(tasks.TaskExecutor, "new_sink", lambda *_: fragment)
    return fragment


@pytest.mark.parametrize("attempts", [1, 2])
def test_whole_epochs_give_each_sink_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "m.py").write_text(CODE)
    fragment = started(folder, JOB, monkeypatch, tmp_path / "state")
    chance = Random(3)
    sums: dict[str, int] = {}
    again: dict[str, int] = {}
    for _ in range(4):
        splits = [
            pa.table({"key": [f"k{chance.randrange(4)}" for _ in range(9)],
                      "n": [chance.randrange(6) for _ in range(9)]})
            for _ in range(2)
        ]  # fmt: skip
        fragment.run(*splits, attempts=attempts)
        given = [row for table in splits for row in table.to_pylist()]
        odd = [row for row in given if row["n"] % 2]
        for row in odd:
            sums[row["key"]] = sums.get(row["key"], 0) + row["n"]
        changed = {row["key"]: sums[row["key"]] for row in odd}
        large = {key: n for key, n in changed.items() if n > 10}
        for key, n in large.items():
            again[key] = again.get(key, 0) + n

        def emitted(topic: str) -> dict[str, int]:
            rows = fragment.sent.get(topic, [])
            assert len({row["key"] for row in rows}) == len(rows)
            return {row["key"]: row["n"] for row in rows}

        in_any_order = {t: sorted(map(str, fragment.sent.get(t, []))) for t in ("even", "odd")}
        assert in_any_order["odd"] == sorted(map(str, odd))
        assert in_any_order["even"] == sorted(str(row) for row in given if not row["n"] % 2)
        assert (emitted("sums"), emitted("large")) == (changed, large)
        assert emitted("again") == {key: again[key] for key in large}
        assert emitted("more") == {key: again[key] for key in large if again[key] > 10}
        assert len(fragment.transactions) == len(fragment.context.layout.tasks)


LEARNING = """\
name: learning
parallelism: 3
sources:
  rows: {topic: rows, format: json, columns: {user: string, x: float64, n: int64}}
operators:
  model:
    inputs: {rows: rows, average: {from: average.replies, feedback: {delay: 1}}}
    key: user
    use: "library:LogisticRegression"
    with: {features: x, label: n, models: 2, every: 4, predictions: true}
  average: {input: model.local, key: user, parallelism: 1, use: "library:ModelAverage",
            with: {features: x}}
sinks:
  models: {input: average, topic: models, format: json, order: free}
  predictions: {input: model.predictions, topic: predictions, format: json, key: user}
"""


def test_replies_reach_every_partition_by_the_feedback_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    fragment = started(folder, LEARNING, monkeypatch, tmp_path / "state")
    users = [f"u{i % 12}" for i in range(120)]
    x, n = [i % 7 - 3.0 for i in range(120)], [i % 2 for i in range(120)]
    rows_of = pa.table({"user": users, "x": x, "n": n})
    fragment.run(rows_of, rows_of.slice(0, 50))
    assert len(fragment.sent["predictions"]) == 170
    (average,) = fragment.sent["models"]
    assert average["models"] == 3

    def common() -> list[list[float]]:
        models = [t for t in fragment.context.layout.stateful_tasks if t.operator == "model"]
        partitions = tasks.process_of(fragment.context).partitions
        states: list[Any] = [partitions.state(task) for task in models]
        return [state.live["common"].values.tolist() for state in states]

    wanted = [average["bias"], average["x"]]
    assert wanted not in common()
    fragment.run(rows_of.slice(0, 0))
    assert common() == [wanted] * 3
    assert fragment.sent == {}
