"""What an operator's state does not take stops the job with the place, the reason and a remedy."""

from __future__ import annotations

import json
import math
import re
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import (
    BadInputError,
    PermanentError,
    PerseidError,
    RetryableError,
    UnexpectedError,
)
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


def error_of(folder: Path, step: str, rows: dict[str, list[Any]]) -> str:
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
    shown = error_of(tmp_path, step, {"k": ["a", "secret", "c"], "x": [1.0, bad, 2.0]})
    assert shown.startswith(f"operator o (O), partition 0, epoch 1: {place} would be {bad}")
    assert "keep such numbers out, or" in shown
    assert "row 2 of 3 (of input input): {k: string of 6 characters, x: " in shown
    assert "secret" not in shown


@pytest.mark.parametrize("key", ["k", "x"])
def test_keys_of_the_wrong_type(tmp_path: Path, key: str) -> None:
    shown = error_of(tmp_path, KEYS.replace("KEY", key), {"k": ["one"], "x": [0.5]})
    assert shown.startswith(
        "operator o (O), partition 0, epoch 1: key column 'key': expected int64"
    )
    assert "cast the values before, or declare the type that they have" in shown


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
def test_no_message_quotes_what_is_in_a_record(tmp_path: Path, step: str) -> None:
    rows = {"k": ["a", f"v{HIDDEN}"], "x": [1.0, HIDDEN + 0.5 if "upsert" in step else HIDDEN]}
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(CODE.replace("STEP", f"if batch.num_rows > 1: {step}"))
    with pytest.raises(PermanentError) as caught:
        Harness(tmp_path, "o").epoch(rows)
    shown = "".join(traceback.format_exception(caught.value))  # with all that it came from
    assert "4711" not in shown
    assert "row 2 of 2 (of input input): {k: string of 13 characters, x: double}" in shown


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
def test_what_code_without_a_row_raises_may_quote_the_state_and_is_left_out(
    tmp_path: Path, hook: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(HOOKS.replace("HOOK", hook))
    harness = Harness(tmp_path, "o")
    with pytest.raises(PermanentError) as caught:
        for _ in range(2):
            harness.epoch({"k": ["a"], "x": [1.0]})
    shown = str(caught.value)
    name = hook.partition("(")[0]
    assert f"{name} raised ValueError (its text is left out" in shown
    assert 'raise ValueError("nothing' in shown, "the line of code is the user's own"
    assert "ValueError: nothing" not in "".join(traceback.format_exception(caught.value))


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
    ("step", "shown"),
    [
        ("batch.group_by('k')", "combine returned a NoneType, expected a pyarrow Table"),
        ("return {str(k): len(k) for k in batch['k'].to_pylist()} if 'secret' in "
         "batch['k'].to_pylist() else batch", "combine returned a dict, expected a pyarrow Table"),
    ],
)  # fmt: skip
def test_a_combiner_that_returns_something_else_than_rows(
    tmp_path: Path, step: str, shown: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(COMBINING.replace("STEP", step))
    with pytest.raises(BadInputError) as caught:
        Harness(tmp_path, "o").epoch({"k": ["a", "secret"], "x": [1.0, 2.0]})
    assert str(caught.value).startswith("operator o (O), partition 0, epoch 1: ")
    assert shown in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.security("5.15")
@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("return batch.filter(pa.array([{'a': True}[k] for k in batch['k'].to_pylist()]))",
         "combine raised KeyError: '<k>'"),
        ("raise ValueError(batch['k'].to_pylist()[0])", "combine raised ValueError: <k>"),
    ],
    ids=["on a row", "always"],
)  # fmt: skip
def test_a_combiner_that_raises_stops_the_job_and_names_the_row(
    tmp_path: Path, step: str, shown: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "m.py").write_text(COMBINING.replace("STEP", step))
    harness = Harness(tmp_path, "o")
    with pytest.raises(PermanentError) as caught:
        harness.epoch({"k": ["a", "secret"], "x": [1.0, 2.0]})
    assert shown in str(caught.value)
    assert "secret" not in str(caught.value)
    row, size = (2, 6) if "KeyError" in shown else (1, 1)
    assert f"row {row} of 2 (of input input): {{k: string of {size} char" in str(caught.value)
    assert "`errors: {operator: bisect}` sends such records" in str(caught.value)
    assert harness.letters == []


def test_rows_on_which_a_combiner_raises_are_dead_letters_before_they_are_combined(
    tmp_path: Path,
) -> None:
    step = """if not set(batch["k"].to_pylist()) <= {"a", "b"}:
            raise ValueError("a strange key")
        return batch.select(["k"]).slice(0, 1)"""
    bisecting = JOB.replace('use: "m:O"', 'use: "m:O", errors: {operator: bisect}')
    (tmp_path / "job.yaml").write_text(bisecting)
    (tmp_path / "m.py").write_text(COMBINING.replace("STEP", step))
    harness = Harness(tmp_path, "o")
    harness.epoch({"k": ["c", "a", "d", "b"], "x": [1.0, 2.0, 3.0, 4.0]}, splits=2)
    assert harness.rows("kept") == [{"key": "a", "n": 1}, {"key": "b", "n": 1}]
    letters = [(r["kind"], r["reason"], json.loads(r["value"])["k"]) for r in harness.letters]
    assert letters == [("ValueError", "a strange key", k) for k in "cd"]
    harness.epoch({"k": ["c"], "x": [1.0]}, splits=2)
    assert [json.loads(letter["value"])["k"] for letter in harness.letters] == ["c"]
    assert len(harness.rows("kept")) == 2


LIBRARY = {
    "Window": "with: {kind: tumbling, size: 10s, time: ms, aggregate: {n: count}}",
    "CountByKey": "",
    "Sum": "with: {column: x}",
    "TopK": "with: {of: item, k: 2}",
    "Distinct": "with: {column: item}",
    "HeavyHitters": "with: {share: 0.1}",
    "RunningSum": "with: {column: x}",
}
KEYED = """\
name: job
sources:
  a: {topic: a, format: json, columns: {k: string, x: int64, ms: int64, item: string},
      eventTime: {column: ms}}
operators: {o: {input: a, key: k, use: "library:NAME", MORE ERRORS}}
sinks: {s: {input: o, topic: out, format: json, key: k}}
POLICY
"""


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("policy", ["bisect", "tolerance", "stop"])
def test_a_row_without_a_key_is_a_dead_letter_of_every_library_operator_and_the_rest_counts(
    tmp_path: Path, name: str, policy: str
) -> None:
    errors = "errors: {operator: bisect}" if policy == "bisect" else ""
    more = f"{LIBRARY[name]}," if LIBRARY[name] else ""
    text = KEYED.replace("NAME", name).replace("MORE", more).replace("ERRORS", errors)
    tolerance = "errors: {tolerance: all}" if policy == "tolerance" else ""
    (tmp_path / "job.yaml").write_text(text.replace("POLICY", tolerance))
    rows: dict[str, list[Any]] = {
        "k": ["a", None, "b", "a"], "x": [1, 2, 3, 4], "ms": [0, 1, 2, 3], "item": list("ppqp")
    }  # fmt: skip
    kept = {column: [values[i] for i in (0, 2, 3)] for column, values in rows.items()}
    harness = Harness(tmp_path, "o")
    if policy == "stop":
        with pytest.raises(BadInputError, match=r"key column k of operator o is null in row 2 of"):
            harness.epoch(rows)
        return
    found = harness.epoch(rows)
    letters = [(r["kind"], r["reason"], json.loads(r["value"])["x"]) for r in harness.letters]
    assert letters == [("NullKey", "key column k of operator o is null", 2)]
    other = Harness(tmp_path, "o")
    assert other.epoch(kept) == found
    assert other.letters == []
    for state in harness.state_names:
        assert harness.rows(state) == other.rows(state)


JOINING = """\
name: job
sources:
  l: {topic: l, format: json, columns: {k: string, i: int64, ms: int64}, eventTime: {column: ms}}
  r: {topic: r, format: json, columns: {k: string, i: int64, ms: int64}, eventTime: {column: ms}}
operators:
  o: {inputs: {left: l, right: r}, key: [k, i], use: "library:NAME", errors: {operator: bisect},
      with: {time: ms, types: {i: int64}, left: {ms: int64}, right: {ms: int64}, within: 1m}}
sinks: {s: {input: o, topic: out, format: json, order: free}}
"""


@pytest.mark.parametrize("name", ["Join", "AsOf"])
def test_a_row_of_either_input_without_a_part_of_the_key_is_a_letter(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "job.yaml").write_text(JOINING.replace("NAME", name))
    left = pa.table({"k": ["a", None, "a"], "i": [1, 1, 2], "ms": [5, 6, 7]})
    right = pa.table({"k": ["a", "b"], "i": pa.array([1, None], pa.int64()), "ms": [4, 5]})
    harness, without = (Harness(tmp_path, "o", parallelism=2) for _ in range(2))
    found = harness.epoch({"left": left, "right": right})
    other = without.epoch({"left": left.take([0, 2]), "right": right.slice(0, 1)})
    reported = [(r["input"], r["reason"]) for r in harness.letters]
    assert reported == [("left", "key column k of operator o is null"),
                    ("right", "key column i of operator o is null")]  # fmt: skip
    harness.watermark = without.watermark = 100
    found += harness.epoch({"left": left.slice(0, 0), "right": right.slice(0, 0)})
    other += without.epoch({"left": left.slice(0, 0), "right": right.slice(0, 0)})
    assert found == other
    assert len(found) == (1 if name == "Join" else 2)


@pytest.mark.parametrize("method", ["def __init__(self):", "def open(self, identity, parameters):"])
def test_a_class_that_cannot_be_opened_stops_the_job(tmp_path: Path, method: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    raising = f"    {method}\n        raise KeyError('limit')\n\n    def process"
    code = CODE.replace("    def process", raising)
    (tmp_path / "m.py").write_text(code.replace("STEP", "pass"))
    with pytest.raises(PermanentError) as caught:
        Harness(tmp_path, "o")
    shown = str(caught.value)
    assert shown.startswith("operator o (O), partition 0: it cannot be opened: KeyError: 'limit'\n")
    assert re.search(r'm\.py", line \d+, in (open|__init__)\n    raise KeyError', shown)
    assert "Correct the class or `with:`" in shown


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("raise ConnectionRefusedError('no rates today')", RetryableError),
        ("raise TimeoutError", RetryableError),
        ("raise MemoryError", UnexpectedError),
        ("raise SystemExit(3)", PermanentError),
        ("raise KeyboardInterrupt", PermanentError),
        ("raise RecursionError", PermanentError),
        ("raise ExceptionGroup('many', [ValueError(1)])", PermanentError),
        ("from perseid.errors import PermanentError; raise PermanentError('no')", PermanentError),
    ],
)
def test_what_an_operator_raises_has_a_type_and_a_place(
    tmp_path: Path, step: str, kind: type[Exception]
) -> None:
    """A service that is away makes no record a bad one, nor does a host without memory."""
    job = JOB.replace('use: "m:O"', 'use: "m:O", errors: {operator: bisect}')
    job += "errors: {deadletterqueue: {topic: dlq}}\n"
    bisects = kind is not PermanentError
    (tmp_path / "job.yaml").write_text(job if bisects else JOB)
    (tmp_path / "m.py").write_text(CODE.replace("STEP", step))
    harness = Harness(tmp_path, "o")
    with pytest.raises(PerseidError) as caught:
        harness.epoch({"k": ["ann", "bob"], "x": [1.0, 2.0]})
    assert type(caught.value) is kind
    assert str(caught.value).startswith("operator o (O), partition 0, epoch 1: ")
    assert harness.letters == []


def test_an_operator_whose_service_is_away_when_it_is_opened_is_opened_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    raising = "    def __init__(self):\n        raise ConnectionRefusedError('no model')\n\n"
    (tmp_path / "m.py").write_text(CODE.replace("    def process", f"{raising}    def process"))
    with pytest.raises(RetryableError, match="What it asks is away"):
        Harness(tmp_path, "o")
