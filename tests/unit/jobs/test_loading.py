"""Operators: what they are given, how their modules are loaded, and the library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError, RefusedError
from perseid.jobs import Operator, Table
from perseid.jobs.environments import loading
from perseid.jobs.environments.loading import load
from perseid.jobs.model.spec import MAIN, OperatorSpec
from perseid.jobs.operator import Emitter, Identity, combines, seeded

CLASS = """
from perseid.jobs import Operator

class O(Operator):
    version = {version}
    def process(self, batch, out):
        out.emit(batch)
"""


def spec(use: str, **more: Any) -> OperatorSpec:
    return OperatorSpec(inputs={"input": "x"}, use=use, parallelism=1, **more)


def version(found: type[Operator]) -> Any:
    return vars(found)["version"]


def test_two_revisions_live_side_by_side(tmp_path: Path) -> None:
    before = set(sys.path)
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "m.py").write_text(
            "import helper\n" + CLASS.format(version="helper.VERSION")
        )
        (tmp_path / str(number) / "helper.py").write_text(f"VERSION = {number}\n")
    first = load(spec("m:O"), tmp_path / "1")
    second = load(spec("m:O"), tmp_path / "2")
    assert (version(first), version(second)) == (1, 2)
    assert load(spec("m:O"), tmp_path / "1") is first
    assert "helper" not in sys.modules
    assert set(sys.path) == before
    assert not list(tmp_path.rglob("__pycache__"))


def test_every_kind_of_import_of_a_neighbour(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "inner" / "deep.py").write_text("A = 1\n")
    (tmp_path / "helper.py").write_text("B = 2\n")
    (tmp_path / "m.py").write_text(
        "import inner.deep\nfrom inner import deep\nfrom inner.deep import A\n"
        "from .helper import B\nimport json, os.path\n"
        "def late():\n    import helper\n    return helper.B\n"
        + CLASS.format(version="(inner.deep.A, deep.A, A, B, late(), json.loads('6'))")
    )
    assert version(load(spec("m:O"), tmp_path)) == (1, 1, 1, 2, 2, 6)
    assert version(load(spec("m:O"), tmp_path)) == (1, 1, 1, 2, 2, 6)


def test_a_package_next_to_job_yaml(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "ops.py").write_text(CLASS.format(version=7))
    assert version(load(spec("pkg.ops:O"), tmp_path)) == 7


def test_a_changed_folder_is_read_again_once_forgotten(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(CLASS.format(version=1))
    first = load(spec("m:O"), tmp_path)
    (tmp_path / "m.py").write_text(CLASS.format(version=2))
    loading.forget(tmp_path)
    assert (version(first), version(load(spec("m:O"), tmp_path))) == (1, 2)


def test_errors_name_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import os\n\nx = 1 / 0\n")
    with pytest.raises(BadInputError, match=r"m\.py:3: cannot be imported: ZeroDivisionError"):
        load(spec("m:O"), tmp_path)
    (tmp_path / "s.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(BadInputError, match=r"s\.py:2: cannot be imported: SyntaxError"):
        load(spec("s:O"), tmp_path)
    (tmp_path / "e.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(BadInputError, match=r"e\.py:2: cannot be imported: SystemExit"):
        load(spec("e:O"), tmp_path)
    with pytest.raises(BadInputError, match=r"no module gone next to job\.yaml.*e, m, s"):
        load(spec("gone:O"), tmp_path)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("class Counts: pass\n", "has no class O; it has Counts"),
        ("class Oo: pass\n", "write `m:Oo`"),
        ("class O: pass\n", "expected a class that extends"),
        ("O = 5\n", "found int"),
        ("from perseid.jobs import Operator\nclass O(Operator): pass\n", "has no method process"),
        (CLASS.format(version=1) + "    metadata = ('ofset',)\n", "write `metadata = ()`"),
    ],
)
def test_a_class_must_be_an_operator(tmp_path: Path, source: str, text: str) -> None:
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(BadInputError) as caught:
        load(spec("m:O"), tmp_path)
    assert text in str(caught.value)


@pytest.mark.security("5.7")
def test_a_linked_module_is_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "outside.py").write_text(CLASS.format(version=1))
    (tmp_path / "job" / "m.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(BadInputError, match="no module m next to"):
        load(spec("m:O"), tmp_path / "job")


@pytest.mark.security("5.7")
def test_a_deployment_without_own_code_takes_the_library_only(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="runs no code of jobs"):
        load(spec("m:O"), tmp_path, allow_code=False)
    assert combines(load(spec("library:CountByKey", key=("k",)), tmp_path, allow_code=False))


class Echo(Operator):
    seen = Table(key=pa.string(), n=pa.int64())

    def process(self, batch: pa.Table, out: Emitter) -> None:
        out.emit(batch)


def test_an_operator_knows_where_and_when_it_is() -> None:
    echo = Echo()
    echo.open(Identity("job", "echo", 2, 4), {"limit": 5})
    assert (echo.partition, echo.parallelism, echo.parameters) == (2, 4, {"limit": 5})
    echo.enter(7, 1_000)
    assert (echo.epoch, echo.now) == (7, 1_000)
    assert not combines(Echo)


def test_randomness_depends_on_job_operator_partition_and_epoch_only() -> None:
    who = Identity("job", "echo", 2, 4)
    echo = Echo()
    echo.open(who, {})
    echo.enter(7, 1_000)
    first = [echo.random.random() for _ in range(3)]
    echo.enter(7, 9_999)
    assert [echo.random.random() for _ in range(3)] == first
    others = {
        seeded(i, e).random()
        for i, e in [
            (who, 8), (Identity("bob", "echo", 2, 4), 7), (Identity("job", "ohce", 2, 4), 7),
            (Identity("job", "echo", 3, 4), 7), (who, 7),
        ]
    }  # fmt: skip
    assert len(others) == 5


def test_an_emitter_joins_what_it_gets() -> None:
    out = Emitter("o")
    assert out.tables() == {MAIN: pa.table({})}
    out.emit(pa.table({"a": [1]}))
    out.emit(pa.record_batch({"a": [2]}))
    assert out.tables()[MAIN].to_pydict() == {"a": [1, 2]}
    assert out.tables() == {MAIN: pa.table({})}


def test_an_emitter_keeps_outputs_apart() -> None:
    late = pa.schema([("n", pa.int64())])
    out = Emitter("o", outputs={"late": late, "bad": pa.schema([("why", pa.string())])})
    out.emit(pa.table({"a": ["x"]}))
    out.emit(pa.table({"n": pa.array([3], pa.int32())}), to="late")
    out.emit(pa.table({"a": ["y"]}))
    found = out.tables()
    assert {name: table.to_pydict() for name, table in found.items()} == {
        MAIN: {"a": ["x", "y"]}, "late": {"n": [3]}, "bad": {"why": []}
    }  # fmt: skip
    assert found["late"].schema == late
    with pytest.raises(BadInputError, match=r"emitted to late columns \(m int64\)"):
        out.emit(pa.table({"m": [1]}), to="late")
    with pytest.raises(BadInputError) as caught:
        out.emit(pa.table({"n": [1]}), to="lat")
    assert str(caught.value) == (
        "operator o emitted to 'lat', which is none of its outputs (bad, late, output); write "
        "`to=\"late\"`, or declare it in the class: `outputs = {'lat': pa.schema([...])}`"
    )


def test_an_emitter_refuses_what_does_not_fit() -> None:
    out = Emitter("o", pa.schema([("a", pa.int64()), ("b", pa.string())]))
    out.emit(pa.table({"b": ["x"], "a": pa.array([1], pa.int32())}))
    assert out.tables()[MAIN].schema.names == ["a", "b"]
    with pytest.raises(BadInputError, match=r"emitted columns \(a string\).*it declares \(a int64"):
        out.emit(pa.table({"a": ["x"]}))
    loose: Any = [{"a": 1}]
    with pytest.raises(BadInputError, match="emitted a list"):
        out.emit(loose)
    free = Emitter("o")
    free.emit(pa.table({"a": [1]}))
    with pytest.raises(BadInputError, match="it first emitted"):
        free.emit(pa.table({"b": [1]}))


@pytest.mark.parametrize(
    ("use", "parameters", "text"),
    [
        ("Sum", {}, "with.column is None"),
        ("RunningSum", {"type": "float64"}, "unknown parameter 'type'"),
        ("Sum", {"colum": "x"}, "write `column`"),
        ("Sum", {"column": "x", "type": "string"}, "expected one of int64, float64"),
        ("CountByKey", {"types": {"z": "int64"}}, "expected key columns (k)"),
        ("CountByKey", {"types": {"k": "int"}}, "with.types.k is 'int'"),
    ],
)
def test_library_parameters(
    tmp_path: Path, use: str, parameters: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        load(spec(f"library:{use}", key=("k",), with_=parameters), tmp_path)
    assert text in str(caught.value)
