"""The harness: time, parallelism, crashes, snapshots, and checks that find what they are for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perseid.errors import PermanentError, RefusedError, UsageError
from perseid.jobs.environments import loading
from perseid.jobs.repository import job_folders
from perseid.testing.files import Crashed
from perseid.testing.operator_checks import (
    check,
    check_deterministic,
    check_order_free,
    check_recovery,
)
from perseid.testing.operators import Harness, sections_as_rows

PAGE = Path(__file__).parents[3] / "platform/perseid/testing/TESTING_JOBS.md"
JOB = """
name: tried
sources:
  words: {{topic: words, format: json, columns: {{word: string, n: int64}}}}
operators:
  tried: {{input: words, key: word, use: "tried:Tried"{more}}}
sinks:
  out: {{input: tried, topic: out, format: json, key: word}}
"""
HEAD = """
import datetime, os, random, time
import numpy as np
from perseid.jobs import Emitter, Operator, Table, Value, pa

class Tried(Operator):
    total = Table(key=pa.string(), n=pa.int64())
    last = Value(pa.int64(), default=0)
    seen = 0

    def process(self, batch, out):
"""
SUM = """
out.emit(self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"]))
"""
MIGRATE = """
    def migrate(self, old):
        total = old["total"]
        return {"total": total.append_column("times", pa.array([1] * len(total), pa.int64()))}
"""
STATELESS = """
from perseid.jobs import Operator

class Tried(Operator):
    def process(self, batch, out):
        out.emit(batch)
        if batch["n"].null_count:
            raise ValueError("no amount")
"""
EPOCHS = [
    {"word": ["a", "b", "c", "a"], "n": [1, 2, 3, 4]},
    None,
    {"word": ["d", "a"], "n": [5, 6]},
]


@pytest.fixture
def tried(tmp_path: Path) -> Any:
    """A job folder whose operator's `process` has the given body."""

    def make(body: str, more: str = "") -> Path:
        lines = "".join(f"        {line}\n" for line in dedent(body).strip().splitlines())
        (tmp_path / "tried.py").write_text(HEAD + lines)
        (tmp_path / "job.yaml").write_text(JOB.format(more=more))
        return tmp_path

    return make


def test_the_pages_example_runs() -> None:
    example, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    starter = job_folders.example("starter")
    scope: dict[str, Any] = {"__file__": str(starter / "test_starter.py")}
    exec(compile(example, str(PAGE), "exec"), scope)
    tests = [name for name in scope if name.startswith("test_")]
    assert len(tests) == 4
    for name in tests:
        scope[name]()


def test_partitions_have_the_keys_that_a_job_would_give_them(tried: Any) -> None:
    folder = tried(SUM)
    words = [f"w{i}" for i in range(40)]
    one, four = Harness(folder, "tried"), Harness(folder, "tried", parallelism=4)
    rows = {"word": words * 2, "n": [1] * 80}
    single, dealt = one.epoch(rows), four.epoch(rows, splits=3)
    assert sorted(r["word"] for r in dealt) == sorted(words)
    assert [r["word"] for r in dealt] != [r["word"] for r in single]
    parts = [sections_as_rows(p)["total"] for p in four.snapshot().parts]
    assert all(parts)
    assert Counter(r["key"] for p in parts for r in p) == Counter(words)


def test_time_is_moved_by_hand(tried: Any) -> None:
    harness = Harness(tried("self.last.set(self.now)"), "tried")
    harness.epoch(EPOCHS[0])
    harness.advance("1h")
    harness.epoch(EPOCHS[0])
    assert harness.rows("last") == [{"value": 500 + 3_600_000 + 500}]
    harness.now = 1_700_000_000_000
    harness.epoch(EPOCHS[0])
    assert harness.rows("last") == [{"value": 1_700_000_000_500}]


def test_a_crash_goes_back_to_any_epoch(tried: Any) -> None:
    harness = Harness(tried(SUM), "tried", parallelism=2)
    for n in (1, 10, 100):
        harness.epoch({"word": ["a", "b"], "n": [n, 2 * n]})
    harness.crash(1)
    assert (harness.number, harness.now) == (1, 500)
    assert {r["key"]: r["n"] for r in harness.rows("total")} == {"a": 1, "b": 2}
    again = harness.epoch({"word": ["a"], "n": [7]})
    assert again == [{"word": "a", "n": 8}]
    harness.crash()
    assert {r["key"]: r["n"] for r in harness.rows("total")} == {"a": 8, "b": 2}
    with pytest.raises(UsageError, match=r"epoch 9 is not in 0\.\.2"):
        harness.crash(9)


def test_a_crash_takes_back_time_and_watermark_that_were_moved_on(tried: Any) -> None:
    harness = Harness(tried(SUM), "tried")
    rows = {"word": ["a"], "n": [1]}
    harness.epoch(rows)
    harness.advance("1h")
    harness.watermark = 90_000
    harness.epoch(rows)
    assert harness.now == 3_601_000
    harness.advance("1h")
    harness.crash()
    assert (harness.now, harness.watermark) == (7_201_000, 90_000), "no epoch is taken back"
    harness.crash(1)
    assert harness.now == 500
    assert harness.watermark is None
    harness.epoch(rows)
    assert harness.now == 1000
    harness.advance("5m")
    other = Harness(harness.folder, "tried")
    other.restore(harness.snapshot())
    other.epoch(rows)
    other.crash(2)
    assert (other.number, other.now) == (2, 301_000)


def declare(folder: Path, output: str) -> None:
    columns = 'pa.schema([("word", pa.string()), ("n", pa.int64())])'
    code = (folder / "tried.py").read_text()
    declared = f'seen = 0\n    outputs = {{"{output}": {columns}}}'
    (folder / "tried.py").write_text(code.replace("seen = 0", declared))


def test_other_outputs_are_reported_with_the_main_one(tried: Any) -> None:
    body = """
        out.emit(batch.filter(pa.array([n > 3 for n in batch["n"].to_pylist()])), to="large")
        out.emit(self.total.add(batch["word"], n=batch["n"]))
        """
    folder = tried(body)
    declare(folder, "large")
    harness = Harness(folder, "tried", parallelism=2)
    main = harness.epoch(EPOCHS[0])
    assert sorted(r["key"] for r in main) == ["a", "b", "c"]
    assert harness.outputs == {"output": main, "large": [{"word": "a", "n": 4}]}
    assert harness.epoch() == harness.outputs["large"] == []
    check_recovery(folder, "tried", EPOCHS)
    check_deterministic(folder, "tried", EPOCHS)


def test_a_side_output_that_depends_on_order_is_found(tried: Any) -> None:
    folder = tried('out.emit(batch.slice(0, 1), to="first")')
    declare(folder, "first")
    with pytest.raises(AssertionError, match=r"shuffle 0 of seed 0: emitted .* to first, e"):
        check_order_free(folder, "tried", EPOCHS)


def test_a_crash_within_an_epoch_is_seen_by_the_test(tried: Any) -> None:
    harness = Harness(tried(SUM), "tried")
    harness.files.crash_at(0)
    with pytest.raises(Crashed):
        harness.epoch(EPOCHS[0])
    harness.crash()
    assert harness.epoch(EPOCHS[0])[0] == {"word": "a", "n": 5}


def test_a_snapshot_is_all_that_another_host_needs(tried: Any) -> None:
    harness = Harness(tried(SUM), "tried", parallelism=2)
    harness.epoch(EPOCHS[0])
    saved, rows = harness.snapshot(), harness.rows("total")
    harness.epoch(EPOCHS[2])
    other = Harness(harness.folder, "tried", parallelism=2)
    other.restore(saved)
    assert (other.number, other.rows("total")) == (1, rows)
    emitted = sorted(other.epoch(EPOCHS[2]), key=lambda row: row["word"])
    assert emitted == [{"word": "a", "n": 11}, {"word": "d", "n": 5}]
    assert other.rows("total") == harness.rows("total")
    with pytest.raises(PermanentError, match="last of Tried cannot be redistributed by word"):
        Harness(harness.folder, "tried").restore(saved)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("time.time()", r"time\.time \(tried\.py:\d+\)"),
        ("datetime.datetime.now()", r"datetime\.now"),
        ("datetime.date.today()", r"date\.today"),
        ("os.urandom(4)", r"os\.urandom"),
        ("np.random.default_rng()", r"os\.urandom"),
        ("random.random()", "global random generator"),
        ("np.random.rand()", "global random generator"),
    ],
)
def test_clocks_and_chance_are_refused(tried: Any, body: str, what: str) -> None:
    with pytest.raises(RefusedError, match=what):
        Harness(tried(body), "tried").epoch(EPOCHS[0])


def test_the_tokens_time_and_chance_and_logging_are_fine(tried: Any) -> None:
    body = """
    import logging
    logging.getLogger("x").warning("a line has a time stamp")
    self.last.set(self.random.randrange(1000) + self.now + random.Random(5).randrange(9))
    """
    check(tried(body), "tried", EPOCHS)


def test_good_operators_pass_all_checks(tried: Any) -> None:
    check(tried(SUM, ", order: free"), "tried", EPOCHS)
    check(job_folders.example("wordcount"), "counts", [{"word": ["b", "a", "b"]}, {"word": ["b"]}])
    users, views = {"user": ["ann"], "country": ["SE"]}, {"user": ["ann"], "page": ["/"], "ms": [1]}
    check(job_folders.example("pageviews"), "enriched", [{"users": users, "views": views}] * 2)


def test_state_outside_of_the_primitives_is_found(tried: Any) -> None:
    body = "self.seen += batch.num_rows\nself.last.set(self.seen)"
    with pytest.raises(AssertionError, match="epoch 3, after crashes: state last"):
        check_recovery(tried(body), "tried", EPOCHS)


def test_the_order_of_a_set_is_found(tried: Any) -> None:
    body = """
    words = list(set(batch["word"].to_pylist()))
    out.emit(pa.table({"word": words, "n": list(range(len(words)))}))
    """
    rows = {"word": [f"w{i}" for i in range(50)], "n": [1] * 50}
    with pytest.raises(AssertionError, match="epoch 1, in another process: emitted"):
        check_deterministic(tried(body), "tried", [rows])


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("raise ValueError('only elsewhere')", "ValueError: only elsewhere"),
        ("os._exit(1)", "it died"),
    ],
)
def test_a_failure_in_another_process_is_reported(tried: Any, body: str, shown: str) -> None:
    folder = tried(f'if "PYTHONHASHSEED" in os.environ: {body}')
    with pytest.raises(AssertionError, match=f"(?s)tried fails in another process:.*{shown}"):
        check_deterministic(folder, "tried", EPOCHS[:1])
    check_deterministic(tried("pass"), "tried", EPOCHS[:1])


@pytest.mark.parametrize(
    "body",
    [
        'self.last.set(batch["n"][0].as_py())',  # the first row wins
        'self.last.set(len(batch["n"].chunks))',
        'out.emit(pa.table({"word": batch["word"], "n": range(batch.num_rows)}))',
    ],
)
def test_a_result_that_depends_on_order_is_found(tried: Any, body: str) -> None:
    rows = {"word": [f"w{i}" for i in range(20)], "n": list(range(20))}
    with pytest.raises(AssertionError, match=r"shuffle \d of seed 0"):
        check_order_free(tried(body), "tried", [rows] * 3)


def test_a_new_revision_takes_over_the_state_of_the_old_one(tried: Any) -> None:
    old = Harness(tried(SUM), "tried", parallelism=2)
    old.epoch(EPOCHS[0])
    tried(SUM.replace('batch["n"])', 'batch["n"], times=1).drop("times")'))
    code = (old.folder / "tried.py").read_text()
    assert "n=pa.int64())" in code
    (old.folder / "tried.py").write_text(
        code.replace("n=pa.int64())", "n=pa.int64(), times=pa.int64())") + MIGRATE
    )
    loading.forget(old.folder)
    new = Harness(old.folder, "tried", parallelism=2)
    new.restore(old.snapshot())
    assert {row["key"]: (row["n"], row["times"]) for row in new.rows("total")} == {
        "a": (5, 1), "b": (2, 1), "c": (3, 1),
    }  # fmt: skip
    assert new.epoch({"word": ["a"], "n": [5]}) == [{"word": "a", "n": 10}]
    new.crash()
    assert {"key": "a", "n": 10, "times": 2} in new.rows("total")


def test_what_is_not_there_is_named(tried: Any) -> None:
    harness = Harness(tried(SUM), "tried")
    with pytest.raises(UsageError, match=r"no state 'x'; it has \['total', 'last'\]"):
        harness.rows("x")


def test_dead_letters_of_an_operator_that_bisects(tried: Any) -> None:
    body = """
    if None in batch["n"].to_pylist():
        raise ValueError("no amount")
    out.emit(self.total.add(batch["word"], n=batch["n"]).rename_columns(["word", "n"]))
    """
    folder = tried(body, ", errors: {operator: bisect}")
    rows = {"word": ["a", "b", "a"], "n": [1, None, 2]}
    harness = Harness(folder, "tried", parallelism=2)
    assert harness.epoch(rows) == [{"word": "a", "n": 3}]
    (letter,) = harness.letters
    assert (letter["key"], letter["reason"]) == (b"b", "no amount")
    assert harness.epoch({"word": ["b"], "n": [1]}) == [{"word": "b", "n": 1}]
    assert harness.letters == []
    check(folder, "tried", [rows, rows])


def test_dead_letters_of_an_operator_without_a_key(tried: Any) -> None:
    folder = tried("", ", errors: {operator: bisect}")
    text = (folder / "job.yaml").read_text()
    (folder / "job.yaml").write_text(text.replace("input: words, key: word", "input: words"))
    (folder / "tried.py").write_text(STATELESS)
    harness = Harness(folder, "tried")
    rows = {"word": ["a", "b", "c"], "n": [1, None, 2], "partition": [0] * 3, "offset": [7, 8, 9]}
    assert [row["word"] for row in harness.epoch(rows)] == ["a", "c"]
    (letter,) = harness.letters
    assert (letter["topic"], letter["offset"], letter["reason"]) == ("words", 8, "no amount")
