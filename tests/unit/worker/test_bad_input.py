"""What an operator's state does not take stops the job with the place, the reason and a remedy."""

from __future__ import annotations

import math
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
