"""A job's classes against its job.yaml: what validation reports about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.errors import BadInputError
from perseid.jobs.environments.loading import load
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.model.spec import JobSpec, OperatorSpec
from perseid.jobs.operations.classes import load_checked, unions
from perseid.jobs.validation import parse

JOB = """\
name: job
sources: {{in: {{topic: in, format: json, columns: {{k: string, ms: int64}}{source}}}}}
operators: {{o: {{input: in, use: "m:O"{operator}}}}}
sinks: {{s: {{input: o, topic: out, format: json, order: free}}}}
"""
CODE = """\
from perseid.jobs import Operator

class O(Operator):
    def process(self, batch, out):
        out.emit(batch)

    def on_epoch_end(self, out):
        pass
"""


def shown(tmp_path: Path, code: str, operator: str = ", key: k", source: str = "") -> list[str]:
    """What is wrong with the class; nothing when it fits."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))  # a folder's modules are loaded once
    folder.mkdir()
    (folder / "job.yaml").write_text(JOB.format(source=source, operator=operator))
    (folder / "m.py").write_text(code)
    try:
        load_checked(parse.load(folder), folder)
    except JobFileErrors as error:
        return [problem.text for problem in error.problems]
    return []


TIMERS = """\
from perseid.jobs import Operator, Timers, pa

class O(Operator):
    waiting = Timers(key=pa.string())

    def process(self, batch, out):
        out.emit(batch)

    def on_timer(self, due, out):
        pass
"""
TIMED = ", eventTime: {column: ms}"


def test_timers_need_a_method_and_a_clock(tmp_path: Path) -> None:
    assert shown(tmp_path, TIMERS, source=TIMED) == []
    assert shown(tmp_path, TIMERS.replace("string()", 'string(), time="token"')) == []
    (text,) = shown(tmp_path, TIMERS)
    assert "O.waiting waits for event time, and no source has one" in text
    (text,) = shown(tmp_path, TIMERS.replace("on_timer", "on_time"), source=TIMED)
    assert "O has Timers (waiting) and no method on_timer(self, due, out); add it" in text
    (text,) = shown(tmp_path, TIMERS.replace("    waiting", "    # waiting"), source=TIMED)
    assert "O has a method on_timer and no Timers; write `timers = Timers" in text
    (text,) = shown(tmp_path, TIMERS, operator="", source=TIMED)
    assert "keeps state (waiting), which needs a key" in text


def test_on_epoch_end_needs_a_key(tmp_path: Path) -> None:
    assert shown(tmp_path, CODE) == []
    (text,) = shown(tmp_path, CODE, operator="")
    assert "operators.o: O has a method on_epoch_end, which needs a key" in text
    assert "write `key: COLUMN`" in text


SIDED = """\
name: job
sources:
  in: {topic: in, format: json, columns: {k: string}}
operators:
  o: {input: in, use: "m:O", key: k}
  p:
    inputs: {all: o, late: READ}
    use: "m:P"
    key: k
sinks:
  s: {input: SENT, topic: out, format: json, key: k}
"""
SIDES = """\
from perseid.jobs import Operator, pa

class O(Operator):
    output = pa.schema([("k", pa.string())])
    outputs = {"late": pa.schema([("k", pa.string()), ("why", pa.string())])}

    def process(self, batch, out):
        out.emit(batch)

class P(Operator):
    output = O.output

    def process(self, batch, out):
        out.emit(batch["all"])
"""


def reported_of(
    tmp_path: Path, read: str = "o.late", sent: str = "p", code: str = SIDES
) -> list[str]:
    """What validation reports, with lines."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    (folder / "job.yaml").write_text(SIDED.replace("READ", read).replace("SENT", sent))
    (folder / "m.py").write_text(code)
    try:
        load_checked(parse.load(folder), folder)
    except JobFileErrors as error:
        return str(error).splitlines()
    return []


def test_outputs_that_are_read_must_be_declared_and_the_other_way_round(tmp_path: Path) -> None:
    assert reported_of(tmp_path) == []
    assert reported_of(tmp_path, sent="o.late") == []
    assert reported_of(tmp_path, read="o.lat") == [
        "job.yaml:5: operators.o: nothing reads the output 'late' of O; write `input: o.late` in "
        "an operator or sink, or remove it from the class",
        "job.yaml:7: operators.p.inputs.late: found 'o.lat', which O does not declare, expected o "
        "or one of its outputs (o.late); write `o.late`",
    ]
    assert reported_of(tmp_path, sent="o.output") == [
        "job.yaml:11: sinks.s.input: found 'o.output', which O does not declare, expected o or one "
        "of its outputs (o.late); write `o`"
    ]
    (line,) = reported_of(tmp_path, sent="p.x")
    assert line.startswith("job.yaml:11: sinks.s.input: found 'p.x', which P does not declare")
    assert reported_of(tmp_path, read="{from: o.late, feedback: {delay: 1}}") == []
    (line,) = reported_of(tmp_path, read="{from: o.lat, feedback: {delay: 1}}", sent="o.late")
    assert "job.yaml:7: operators.p.inputs.late: found 'o.lat'" in line


def test_keys_are_columns_of_the_output_that_is_read(tmp_path: Path) -> None:
    (line,) = reported_of(tmp_path, code=SIDES.replace('("k", pa.string()), ("why"', '("kk"'))
    assert line == (
        "job.yaml:9: operators.p.key: found 'k', expected a column that o.late declares (kk); "
        "write `kk`"
    )


def test_outputs_of_sources_sql_and_unknown_operators_are_refused(tmp_path: Path) -> None:
    def refused(old: str, new: str) -> str:
        with pytest.raises(JobFileErrors) as caught:
            parse.loads(SIDED.replace("READ", "o.late").replace("SENT", "p").replace(old, new))
        return str(caught.value)

    assert refused("o.late", "in.late") == (
        "job.yaml:7: operators.p.inputs.late: found 'in.late', but in is a source, which has one "
        "output; write `in`"
    )
    sql = refused('use: "m:O", key: k', 'sql: "SELECT k FROM input"')
    assert "found 'o.late', but o is a SQL operator, which has one output; write `o`" in sql
    assert refused("o.late", "oo.late") == (
        "job.yaml:7: operators.p.inputs.late: found 'oo.late', expected the name of a source or "
        "operator; write `o.late`"
    )
    assert "expected the name of an operator" in refused(
        "o.late", "{from: in.late, feedback: {delay: 1}}"
    )


def test_what_a_class_declares_as_outputs(tmp_path: Path) -> None:
    def declared(outputs: str) -> str:
        before = SIDES.index("    outputs = ")
        code = f"{SIDES[:before]}    outputs = {outputs}\n{SIDES[SIDES.index('    def') :]}"
        return reported_of(tmp_path, code=code)[0]

    assert declared('{"output": pa.schema([])}') == (
        "job.yaml:5: operators.o.use: m:O: outputs has the name 'output', which is the main "
        "output's; declare that as `output = pa.schema([...])`, or rename this one"
    )
    assert "outputs has the name 'late.r', expected a-z, 0-9 and '_'" in declared('{"late.r": 1}')
    assert "outputs['late'] is {'k': 'string'}, expected its columns" in declared(
        '{"late": {"k": "string"}}'
    )
    assert "outputs is ['late'], expected schemas by name" in declared('["late"]')


def test_a_union_is_declared_as_one(tmp_path: Path) -> None:
    """An operator with several inputs joins them by default, and so do the library's operators."""
    (tmp_path / "m.py").write_text("""\
from perseid.jobs import Operator

class Both(Operator):
    def process(self, batch, out):
        out.emit(batch["left"])

class Either(Both):
    needs_all_inputs = False

class Neither(Both):
    needs_all_inputs = "no"
""")
    inputs = {"left": "a", "right": "b"}
    joined = OperatorSpec(
        inputs=inputs, key=("k",), parallelism=1, use="library:RippleJoin",
        with_={"sample": 0.1},
    )  # fmt: skip
    own = {
        name.lower(): OperatorSpec(inputs=inputs, key=("k",), parallelism=1, use=f"m:{name}")
        for name in ("Both", "Either")
    }
    job = JobSpec(name="j", parallelism=1, sources={}, operators={**own, "r": joined}, sinks={})
    assert unions(job, tmp_path) == {"either"}
    wrong = own["both"].model_copy(update={"use": "m:Neither"})
    with pytest.raises(BadInputError, match=r"m:Neither: needs_all_inputs is 'no', expected True"):
        load(wrong, tmp_path)
