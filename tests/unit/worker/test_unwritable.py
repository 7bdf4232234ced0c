"""Rows that a sink's Avro schema does not take: of an operator that bisects they are letters."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.topics.records import Token
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.dead_letters.poison import Sieve
from perseid.worker.epoch import flow
from perseid.worker.formats import encode
from support.fragment_contexts import context_of

TOKEN = Token(1, "u", 7, 3, "r", 1, (), 1_000)
JOB = """
name: job
sources:
  orders: {topic: orders-in, format: json, columns: {user: string, n: int64}}
operators:
  checked: {input: orders, use: "ops:Checked", errors: {operator: POLICY}}
sinks:
  checked: {input: checked, topic: out, format: FORMAT}
"""
OPS = """
from perseid.jobs import Operator

class Checked(Operator):
    def process(self, batch, out):
        out.emit(batch.select(["n"]))
"""
SCHEMA: dict[str, Any] = {
    "type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}],
}  # fmt: skip


def context(folder: Path, policy: str, format_: str = "avro, schema: r.avsc") -> FragmentContext:
    folder = Path(tempfile.mkdtemp(dir=folder))  # what a folder holds is read once
    (folder / "job.yaml").write_text(JOB.replace("POLICY", policy).replace("FORMAT", format_))
    (folder / "ops.py").write_text(OPS)
    (folder / "r.avsc").write_text(json.dumps(SCHEMA))
    return context_of(folder)


ROWS = pa.table({"user": ["a", "b", "c", "d"], "n": [1, 2**31, None, 4]})


def test_of_an_operator_without_a_key(tmp_path: Path) -> None:
    job = context(tmp_path, "bisect")
    made, letters = flow.run_stateless(job, TOKEN, "checked", ROWS, 0)
    assert made["output"]["n"].to_pylist() == [1, 4]
    assert letters is not None
    assert [json.loads(v) for v in letters["value"].to_pylist()] == ROWS.slice(1, 2).to_pylist()
    assert all("does not fit the sink's Avro schema" in r for r in letters["reason"].to_pylist())


def test_who_stops_or_writes_no_avro_is_not_looked_at(tmp_path: Path) -> None:
    for job in (context(tmp_path, "stop"), context(tmp_path, "bisect", "json")):
        assert flow.accepts(job, "checked") is None
        made, _ = flow.run_stateless(job, TOKEN, "checked", ROWS, 0)
        assert made["output"].num_rows == 4
    text = (
        r"does not fit the sink's Avro schema \(column n is out of the range of int\): {n: int64}"
    )
    with pytest.raises(BadInputError, match=text):
        encode.values(ROWS.select(["n"]), "avro", SCHEMA)


def test_of_a_keyed_operator_whose_state_continues_without_the_row(
    tmp_path: Path, partition: Any
) -> None:
    """The sum that a row makes too large is not in the state either."""
    state = partition.begun()
    state.sieve = Sieve("totals", 0, ("key",))
    state.accepts = flow.accepts(context(tmp_path, "bisect"), "checked")
    rows = pa.table({"key": ["a", "a", "a"], "n": [1, 2**31, 5]})
    made = partition.feed(state, 1, rows)
    assert made.output.to_pylist() == [{"key": "a", "n": 6}]
    assert partition.totals(state) == {"a": 6}
    assert [json.loads(v)["n"] for v in made.letters["value"].to_pylist()] == [2**31]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
def test_a_number_of_more_than_32_bits_is_no_avro_int(kind: pa.DataType) -> None:
    schema = {**SCHEMA, "fields": [{"name": "n", "type": ["null", "int"]}]}
    for values in ([1, None], [None], []):
        assert len(encode.values(pa.table({"n": pa.array(values, kind)}), "avro", schema)) == len(
            values
        )
    numbers = {"uint32": [2**32 - 1], "int64": [2**31, -(2**31) - 1], "uint64": [2**64 - 1]}
    for wrong in numbers.get(str(kind), []):
        with pytest.raises(BadInputError, match="column n is out of the range of int"):
            encode.values(pa.table({"n": pa.array([0, wrong], kind)}), "avro", schema)
