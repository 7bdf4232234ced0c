"""What an operator's state does not take stops the job with the place, the reason and a remedy."""

from __future__ import annotations

import math
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from perseid.errors import BadInputError, PermanentError
from perseid.testing.operators import Harness

JOB = """\
name: job
sources: {a: {topic: a, format: json, columns: {k: string, x: float64}}}
operators: {o: {input: a, key: k, use: "m:O"}}
sinks: {s: {input: o, topic: out, format: json, key: k}}
"""
CODE = """\
from perseid.jobs import Matrix, Operator, Table, Value, Vector, pa

class O(Operator):
    output = pa.schema([("k", pa.string())])
    weights = Vector(pa.float64(), 3)
    cells = Matrix(pa.float64(), rows=2, columns=3)
    kept = Table(key=pa.int64(), n=pa.int64())
    newest = Value(pa.int64(), default=0)

    def process(self, batch, out):
        STEP
"""
VECTOR = 'self.weights.add_at([0] * batch.num_rows, batch["x"])'
MATRIX = 'self.cells.add_at([1] * batch.num_rows, 2, batch["x"])'
KEYS = 'self.kept.add(batch["KEY"], n=1)'


def told(folder: Path, step: str, rows: dict[str, list[Any]]) -> str:
    (folder / "job.yaml").write_text(JOB)
    (folder / "m.py").write_text(CODE.replace("STEP", step))
    harness = Harness(folder, "o")
    with pytest.raises(BadInputError) as caught:
        harness.epoch(rows)
    return str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("step", "place"),
    [(VECTOR, "vector: the value at [0]"), (MATRIX, "matrix: the value at [1, 2]")],
    ids=["vector", "matrix"],
)
def test_nan_and_infinity_in_vectors(tmp_path: Path, step: str, place: str, bad: float) -> None:
    said = told(tmp_path, step, {"k": ["a", "secret", "c"], "x": [1.0, bad, 2.0]})
    assert said.startswith(f"operator o (O), partition 0, epoch 1: {place} would be {bad}")
    assert "keep such numbers out, or" in said
    assert "row 2 of 3 (of input input): {k: string of 6 characters, x: " in said
    assert "secret" not in said


@pytest.mark.parametrize("key", ["k", "x"])
def test_keys_of_the_wrong_type(tmp_path: Path, key: str) -> None:
    said = told(tmp_path, KEYS.replace("KEY", key), {"k": ["one"], "x": [0.5]})
    assert said.startswith("operator o (O), partition 0, epoch 1: key column 'key': expected int64")
    assert "cast the values before, or declare the type that they have" in said


HIDDEN = 4711_4711_4711
FOUND_OUT = [
    'pa.array(batch["k"]).cast(pa.int64())',
    '{}[batch["k"].to_pylist()[1]]',
    'self.kept.add(batch["k"], n=1)',
    'self.kept.add({"key": [1]}, n=batch["k"].slice(1, 1))',
    'self.kept.upsert({"key": [1]}, n=batch["x"].slice(1, 1))',
    'self.kept.add({"key": [1] * 9}, n=pa.array([int(batch["x"][1].as_py()) * 10**7] * 9))',
    'self.weights.set_at(batch["x"].cast(pa.int64()), 1)',
    'self.cells.set_at(0, batch["k"], 1)',
    'self.newest.set(batch["k"][1])',
]


@pytest.mark.parametrize("step", FOUND_OUT)
@pytest.mark.security("5.15")
def test_no_message_says_what_is_in_a_record(tmp_path: Path, step: str) -> None:
    rows = {"k": ["a", f"v{HIDDEN}"], "x": [1.0, HIDDEN + 0.5 if "upsert" in step else HIDDEN]}
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(CODE.replace("STEP", f"if batch.num_rows > 1: {step}"))
    with pytest.raises(PermanentError) as caught:
        Harness(tmp_path, "o").epoch(rows)
    said = "".join(traceback.format_exception(caught.value))  # with all that it came from
    assert "4711" not in said
    assert "row 2 of 2 (of input input): {k: string of 13 characters, x: double}" in said


HOOKS = """\
from perseid.jobs import Operator, Table, Timers, pa

class O(Operator):
    output = pa.schema([("k", pa.string())])
    kept = Table(key=pa.string(), n=pa.int64())
    patience = Timers(key=pa.string(), time="token")

    def process(self, batch, out):
        self.patience.set(batch["k"], 0)

    def HOOK
        raise ValueError("nothing for ann@example.org")
"""


@pytest.mark.security("5.15")
@pytest.mark.parametrize("hook", ["on_timer(self, due, out):", "on_epoch_end(self, out):"])
def test_what_code_that_has_no_row_says_may_be_of_the_state_and_is_left_out(
    tmp_path: Path, hook: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(HOOKS.replace("HOOK", hook))
    harness = Harness(tmp_path, "o")
    with pytest.raises(PermanentError) as told:
        for _ in range(2):
            harness.epoch({"k": ["a"], "x": [1.0]})
    said = str(told.value)
    name = hook.partition("(")[0]
    assert f"{name} raised ValueError (what it says is left out" in said
    assert 'raise ValueError("nothing' in said, "the line of code is the user's own"
    assert "ValueError: nothing" not in "".join(traceback.format_exception(told.value))


COMBINING = """\
from perseid.jobs import Operator, Table, pa

class O(Operator):
    output = pa.schema([("k", pa.string())])
    kept = Table(key=pa.string(), n=pa.int64())

    def combine(self, batch):
        STEP

    def process(self, batch, out):
        self.kept.add(batch["k"], n=1)
"""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("batch.group_by('k')", "combine returned a NoneType, expected a pyarrow Table"),
        ("return {str(k): len(k) for k in batch['k'].to_pylist()} if 'secret' in "
         "batch['k'].to_pylist() else batch", "combine returned a dict, expected a pyarrow Table"),
    ],
)  # fmt: skip
def test_a_combiner_that_returns_something_else_than_rows(
    tmp_path: Path, step: str, said: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(COMBINING.replace("STEP", step))
    with pytest.raises(BadInputError) as told:
        Harness(tmp_path, "o").epoch({"k": ["a", "secret"], "x": [1.0, 2.0]})
    assert str(told.value).startswith("operator o (O), partition 0, epoch 1: ")
    assert said in str(told.value)
    assert "secret" not in str(told.value)


@pytest.mark.security("5.15")
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("return batch.filter(pa.array([{'a': True}[k] for k in batch['k'].to_pylist()]))",
         "combine raised KeyError: '<k>'"),
        ("raise ValueError(batch['k'].to_pylist()[0])", "combine raised ValueError: <k>"),
    ],
    ids=["on a row", "always"],
)  # fmt: skip
def test_a_combiner_that_raises_stops_the_job_whatever_the_policy(
    tmp_path: Path, step: str, said: str
) -> None:
    bisecting = JOB.replace('use: "m:O"', 'use: "m:O", errors: {operator: bisect}')
    (tmp_path / "job.yaml").write_text(bisecting)
    (tmp_path / "m.py").write_text(COMBINING.replace("STEP", step))
    harness = Harness(tmp_path, "o")
    with pytest.raises(PermanentError) as told:
        harness.epoch({"k": ["a", "secret"], "x": [1.0, 2.0]})
    assert said in str(told.value)
    assert "secret" not in str(told.value)
    row, size = (2, 6) if "KeyError" in said else (1, 1)
    assert f"row {row} of 2 (of input input): {{k: string of {size} char" in str(told.value)
    assert "Rows are combined before they are bisected, so filter" in str(told.value)
    assert harness.letters == []


@pytest.mark.parametrize(
    "method", ["def __init__(self):", "def open(self, identity, parameters):"]
)
def test_a_class_that_cannot_be_opened_stops_the_job(tmp_path: Path, method: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    raising = f"    {method}\n        raise KeyError('limit')\n\n    def process"
    code = CODE.replace("    def process", raising)
    (tmp_path / "m.py").write_text(code.replace("STEP", "pass"))
    with pytest.raises(PermanentError) as told:
        Harness(tmp_path, "o")
    said = str(told.value)
    assert said.startswith("operator o (O), partition 0: it cannot be opened: KeyError: 'limit'\n")
    assert re.search(r'm\.py", line \d+, in (open|__init__)\n    raise KeyError', said)
    assert "Correct the class or `with:`" in said
