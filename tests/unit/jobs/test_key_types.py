"""Keys of types by which rows cannot find their partition, or each other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.environments.loading import forget
from perseid.jobs.model.column_types import ARROW_TYPES
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.repository.job_folders import example, examples
from perseid.jobs.validation import parse
from perseid.jobs.validation.key_types import usable
from perseid.worker.dataflow.partition import check_inputs, partitions

JOB = """\
name: job
sources:
  a: {topic: a, format: json, columns: {k: LEFT, n: int64}}
  b: {topic: b, format: json, columns: {k: RIGHT, n: int64}}
operators:
  c: {input: a, key: k, use: "m:Count"}
  o: {inputs: {left: LEFTS, right: b}, key: k, use: "m:Both"}
sinks:
  s: {input: o, topic: out, format: json, key: k}
"""
CODE = """\
from perseid.jobs import Operator, pa

class Count(Operator):
    output = pa.schema([("k", pa.OUTPUT()), ("n", pa.int64())])

    def process(self, batch, out): ...

class Both(Operator):
    def process(self, batch, out): ...
"""


def message(folder: Path, left: str, right: str, lefts: str = "a", output: str = "string") -> str:
    text = JOB.replace("LEFTS", lefts).replace("LEFT", left).replace("RIGHT", right)
    (folder / "job.yaml").write_text(text)
    (folder / "m.py").write_text(CODE.replace("OUTPUT", output))
    try:
        load_checked(parse.load(folder), folder)
    except JobFileErrors as error:
        return str(error)
    finally:
        forget(folder)
    return ""


SIDED = """

class Sided(Operator):
    outputs = {"late": pa.schema([("k", pa.int64())])}

    def process(self, batch, out): ...
"""


def test_the_columns_of_another_output_are_known_too(tmp_path: Path) -> None:
    """Its rows never met those of `b`, whose keys are strings."""
    split = '  d: {input: a, key: k, use: "m:Sided"}\n'
    text = JOB.replace("LEFTS", "d.late").replace("LEFT", "string").replace("RIGHT", "string")
    (tmp_path / "job.yaml").write_text(text.replace("operators:\n", f"operators:\n{split}"))
    (tmp_path / "m.py").write_text(CODE.replace("OUTPUT", "string") + SIDED)
    with pytest.raises(JobFileErrors, match="column 'k' is int64 in left, string in right"):
        load_checked(parse.load(tmp_path), tmp_path)
    forget(tmp_path)


@pytest.mark.parametrize("kind", ["float64", "bool", "timestamp"])
def test_keys_that_have_no_partition_are_refused(tmp_path: Path, kind: str) -> None:
    shown = ARROW_TYPES[kind]
    assert message(tmp_path, kind, kind).splitlines()[0] == (
        f"job.yaml:6: operators.c.key: column 'k' of a has type {shown}, expected string, binary "
        'or an integer type; cast it in an operator before, as `sql: "SELECT CAST(x AS STRING) AS '
        'x FROM input"`, or declare the column with another type'
    )


def test_inputs_with_keys_of_different_types_never_meet(tmp_path: Path) -> None:
    assert message(tmp_path, "string", "string") == ""
    found = message(tmp_path, "string", "int64")
    assert "job.yaml:7: operators.o.key: column 'k' is string in left, int64 in right" in found
    assert "would go to different partitions and never meet, expected one type; cast it" in found
    assert "int32 in left, int64 in right" in message(tmp_path, "int64", "int64", "c", "int32")


def test_what_only_a_run_shows_is_reported_by_the_worker() -> None:
    one, other = pa.table({"k": ["1"]}), pa.table({"k": pa.array([1], pa.int64())})
    with pytest.raises(BadInputError, match=r"operator o: key column 'k' is string in x, int64"):
        check_inputs("o", ("k",), {"x": one, "y": other})
    check_inputs("o", ("k",), {"x": one, "y": other.slice(1)})
    check_inputs("o", ("k",), {"x": one, "y": one})


@pytest.mark.parametrize(
    "kind",
    [*ARROW_TYPES.values(), pa.large_string(), pa.int8(), pa.uint64(), pa.float32(), pa.date32()],
)
def test_the_check_and_the_partition_function_agree(kind: pa.DataType) -> None:
    table = pa.table({"k": pa.array([None], kind)})
    try:
        partitions(table, ("k",), 2)
    except Exception as error:
        assert "key column 'k' has type" in str(error)
        assert not usable(kind)
    else:
        assert usable(kind)


def test_shipped_jobs_have_such_keys() -> None:
    for name in examples():
        load_checked(parse.load(example(name)), example(name))
