"""Differences of revisions, and whether state can be kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from perseid.jobs import Operator, Table, Value
from perseid.jobs.model.spec import JobSpec, PlacementSpec
from perseid.jobs.operations import change
from perseid.jobs.operations.change import incompatibilities
from perseid.jobs.operations.change import upstream_fingerprint as fingerprint
from perseid.jobs.validation import parse

BASE = """\
name: job
parallelism: 2
sources:
  a: {topic: a, format: json, columns: {k: string, n: int64}}
operators:
  rows: {input: a, sql: "SELECT k, n FROM input"}
  o: {input: rows, key: k, use: "m:O"}
sinks:
  s: {input: o, topic: out, format: json, key: k}
"""


def spec(*replaced: tuple[str, str]) -> JobSpec:
    text = BASE
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return parse.loads(text)


class One(Operator):
    total = Table(key=pa.string(), n=pa.int64())


class Wider(Operator):
    total = Table(key=pa.string(), n=pa.int64(), m=pa.float64())
    last = Value(pa.int64())


class OtherKey(Operator):
    total = Table(key=pa.int64(), n=pa.int64())


def disagreements(new: JobSpec, kind: type[Operator] = One) -> list[str]:
    classes: dict[str, type[Operator]] = {n: kind for n in new.operators}
    return change.disagreements(spec(), dict.fromkeys(spec().operators, One), new, classes)


def test_equal_specs_have_no_difference() -> None:
    assert change.difference(spec(), spec()) == []
    assert not change.needs_new_layout(spec(), spec())
    assert disagreements(spec()) == []


def test_a_difference_is_reported_key_by_key() -> None:
    new = spec(("topic: out", "topic: other"), ("name: job", "name: job\nepoch: {target: 1s}"))
    assert change.difference(spec(), new) == [
        "~ sinks.s.topic: 'out' -> 'other'", "~ epoch.target_s: 0.5 -> 1.0",
    ]  # fmt: skip
    assert "+ name: 'job'" in change.difference(None, spec())
    assert "- name: 'job'" in change.difference(spec(), None)


def test_a_difference_of_files_is_a_unified_diff() -> None:
    lines = change.file_difference({"m.py": b"a\nb\n", "x": b"1\n"}, {"m.py": b"a\nc\n", "y": b"2"})
    assert [line for line in lines if line[0] in "+-"] == [
        "--- m.py", "+++ m.py", "-b", "+c", "--- x", "+++ /dev/null", "-1", "--- /dev/null",
        "+++ y", "+2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SELECT k, n FROM", "SELECT k, n + 1 AS n FROM"),
        ("topic: out", "topic: other"),
        ('"m:O"', '"m:Renamed"'),
        ("name: job", "name: job\nepoch: {target: 1s}"),
        ("sinks:\n", "sinks:\n  t: {input: rows, topic: t, format: json}\n"),
        ("  a: {", "  b: {topic: b, format: text}\n  a: {"),
    ],
)
def test_changes_that_keep_state(old: str, new: str) -> None:
    text = BASE.replace(old, new)
    if "topic: b" in new:
        text = text.replace("sinks:\n", "sinks:\n  b: {input: b, topic: bb, format: text}\n")
    assert disagreements(parse.loads(text)) == []


@pytest.mark.parametrize(
    ("replaced", "shown"),
    [
        ([("key: k, use", "key: n, use"), ("json, key: k", "json, key: n")], "key k -> n"),
        ([("topic: a,", "topic: b,")], "source a reads b instead of a"),
        (
            [("  o: {", "  p: {"), ("input: o", "input: p")],
            "operator o: is gone, and its state would be lost",
        ),
        (
            [("sinks:", '  p: {input: rows, key: k, use: "m:P"}\nsinks:')],
            "operator p: is new and keyed",
        ),
    ],
)
def test_changes_that_lose_state(replaced: list[tuple[str, str]], shown: str) -> None:
    found = disagreements(spec(*replaced))
    assert any(shown in reason for reason in found), found


class Mixed(Operator):
    total = Table(key={"k": pa.string(), "day": pa.int64()}, n=pa.int64())
    seen = Value(pa.int64())


class Elsewhere(Operator):
    total = Table(key={"user": pa.string()}, n=pa.int64())


class Merged(Mixed):
    def rescale(self, old: Any) -> None:
        self.seen.set(max(o.seen.get() for o in old))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [(One, None), (Merged, None), (Mixed, "seen of Mixed"), (Elsewhere, "total of Elsewhere")],
)
def test_another_parallelism_keeps_what_can_be_redistributed(
    kind: type[Operator], shown: str | None
) -> None:
    new = spec(("parallelism: 2", "parallelism: 3"))
    found = change.disagreements(spec(), {"o": kind}, new, {"o": kind})
    assert change.resized(spec(), new) == ["o 2 -> 3"]
    assert not change.resized(spec(), spec())
    if shown is None:
        assert found == []
    else:
        (reason,) = found
        assert f"parallelism 2 -> 3, but {shown} cannot be redistributed by the key k" in reason
        assert "keep `parallelism: 2`, or add a method rescale(self, old)" in reason


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (Wider, {"state total.columns.m: absent -> double", "state last"}),
        (OtherKey, {"state total.key.key: string -> int64"}),
        (Operator, {"state total.kind: table -> absent"}),
    ],
)
def test_other_primitives_do_not_agree(kind: type[Operator], shown: set[str]) -> None:
    found = "\n".join(disagreements(spec(), kind))
    assert all(part in found for part in shown), found


class Migrating(Wider):
    def migrate(self, old: dict[str, pa.Table]) -> dict[str, pa.Table]:
        return old


class OtherKeyMigrating(OtherKey, Migrating):
    total = Table(key=pa.int64(), n=pa.int64())


def test_what_differs_is_reported_with_what_to_write() -> None:
    assert "add a method migrate(self, old) to its class" in disagreements(spec(), Wider)[-1]
    assert disagreements(spec(), Migrating) == []


def test_keys_do_not_migrate() -> None:
    found = disagreements(spec(), OtherKeyMigrating)
    assert found == ["operator o: state total.key.key: string -> int64"]


@pytest.mark.parametrize(
    ("replaced", "layout"),
    [
        ([("SELECT k, n FROM", "SELECT k, n + 1 AS n FROM")], False),
        ([("topic: out", "topic: other")], False),
        ([("name: job", "name: job\nepoch: {target: 1s}")], False),
        ([("parallelism: 2", "parallelism: 3")], True),
        ([("sinks:\n", "sinks:\n  t: {input: rows, topic: t, format: json}\n")], True),
        ([("name: job", "name: job\nerrors: {tolerance: all}")], True),
        ([("key: k, use", "key: n, use"), ("json, key: k", "json, key: n")], True),
    ],
)
def test_when_a_layout_rises(replaced: list[tuple[str, str]], layout: bool) -> None:
    assert change.needs_new_layout(spec(), spec(*replaced)) is layout


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 3), (2, 1)])
def test_another_spread_is_another_layout(old: int, new: int) -> None:
    one, other = (
        spec().model_copy(update={"placement": PlacementSpec(spread=n)}) for n in (old, new)
    )
    assert change.needs_new_layout(one, other)
    assert not change.needs_new_layout(other, other)
    assert incompatibilities(one, other) == ["`placement.spread` is not the same"]


@pytest.mark.parametrize(
    ("replaced", "shown"),
    [
        ([("SELECT k, n FROM", "SELECT k, n + 1 AS n FROM")], None),
        ([("name: job", "name: job\nepoch: {target: 1s}")], None),
        ([("topic: out,", "topic: out, partitions: 7,")], None),
        ([("topic: out", "topic: other")], "sink s is not the same"),
        ([("sinks:\n", "sinks:\n  t: {input: rows, topic: t, format: json}\n")], "sink t is not"),
        ([("parallelism: 2", "parallelism: 3")], "operators, their inputs, keys or parallelism"),
        ([("name: job", "name: job\nerrors: {tolerance: all}")], "operators, their inputs, keys"),
    ],
)
def test_what_may_end_an_epoch_that_another_revision_began(
    replaced: list[tuple[str, str]], shown: str | None
) -> None:
    found = incompatibilities(spec(), spec(*replaced))
    assert (shown is None) == (not found)
    assert shown is None or any(line.startswith(shown) for line in found)


def test_another_bound_of_buffers_is_a_setting() -> None:
    one, other = (
        spec().model_copy(update={"placement": PlacementSpec(spread=2, buffer_bytes=n)})
        for n in (1 << 20, 1 << 30)
    )
    assert not change.needs_new_layout(one, other)
    assert incompatibilities(one, other) == []
    assert change.only_loosens(one, other)


BISECTED = ("key: k, use", "key: k, errors: {operator: bisect}, use")


@pytest.mark.parametrize(
    ("before", "after", "loosens"),
    [
        ([], [("key: k, use", "key: k, memory: 5MiB, use")], True),
        ([("key: k, use", "key: k, memory: 5MiB, use")], [], True),
        ([], [("name: job", "name: job\nepoch: {maxRecords: 10, timeout: 20s}")], True),
        ([], [("name: job", "name: job\nfaultTolerance: {checkpoint: {period: 5s}}")], True),
        ([], [("name: job", "name: job\nfaultTolerance: {replicas: {budget: all}}")], True),
        ([], [("name: job", 'name: job\naudit: {horizon: "7d"}')], True),
        ([], [BISECTED], True),
        ([BISECTED], [], False),
        ([], [("name: job", "name: job\nerrors: {tolerance: all}")], False),  # another writer
        ([], [("SELECT k, n FROM", "SELECT k, n + 1 AS n FROM")], False),
        ([], [("parallelism: 2", "parallelism: 3")], False),
        ([], [("key: k, use", "key: k, with: {a: 1}, use")], False),
        ([], [("topic: a,", "topic: more,")], False),
    ],
)
def test_limits_and_sizes_change_nothing_of_what_is_computed(
    before: list[tuple[str, str]], after: list[tuple[str, str]], loosens: bool
) -> None:
    assert change.only_loosens(spec(*before), spec(*after)) is loosens


def test_all_files_but_the_job_file_are_code() -> None:
    assert change.code(FILES) == change.code({**FILES, "job.yaml": b"other"})
    for other in ({**FILES, "m.py": b"other"}, {**FILES, "new.py": b""}):
        assert change.code(FILES) != change.code(other)


FILES = {"job.yaml": b"1", "m.py": b"2", "helpers/more.py": b"3"}
KEYLESS = ('sql: "SELECT k, n FROM input"', 'use: "rows:R"')


@pytest.mark.parametrize(
    ("replaced", "files", "same"),
    [
        ([], {"m.py": b"corrected", "new.py": b"", "helpers/more.py": b"other"}, True),
        ([("name: job", "name: job\nepoch: {target: 1s}")], {"job.yaml": b"other"}, True),
        ([("key: k, use", "key: k, memory: 5MiB, use"), ('"m:O"', '"new:O"')], {}, True),
        ([("SELECT k, n FROM", "SELECT lower(k) AS k, n FROM")], {}, False),
        ([("n: int64", "n: int64, z: string")], {}, False),
        ([("topic: a,", "topic: more,")], {}, False),
    ],
)
def test_rows_that_come_to_keyed_operators_are_reported_by_what_makes_them(
    replaced: list[tuple[str, str]], files: dict[str, bytes], same: bool
) -> None:
    after = fingerprint(spec(*replaced), {**FILES, **files})
    assert (after == fingerprint(spec(), FILES)) is same


@pytest.mark.parametrize(
    ("files", "same"),
    [
        ({"m.py": b"corrected", "job.yaml": b"other"}, True),  # only a keyed operator is in it
        ({"rows.py": b"other"}, False),
        ({"helpers/more.py": b"other"}, False),
        ({"new.py": b""}, False),
    ],
)
def test_operators_without_a_key_may_read_all_other_files(
    files: dict[str, bytes], same: bool
) -> None:
    job, before = spec(KEYLESS), {**FILES, "rows.py": b"4"}
    assert (fingerprint(job, {**before, **files}) == fingerprint(job, before)) is same


def test_a_keyed_operator_may_leave_the_file_of_one_without_a_key() -> None:
    before = spec(KEYLESS, ('"rows:R"', '"m:R"'))
    after = spec(KEYLESS, ('"rows:R"', '"m:R"'), ('"m:O"', '"own:O"'))
    assert fingerprint(before, FILES) == fingerprint(after, {**FILES, "own.py": b"corrected"})
    assert fingerprint(before, FILES) != fingerprint(before, {**FILES, "m.py": b"corrected"})


def test_a_file_of_a_keyed_operator_counts_where_another_may_import_it() -> None:
    job, files = spec(KEYLESS), {**FILES, "rows.py": b"from m import KEY_OF\n"}
    assert fingerprint(job, files) != fingerprint(job, {**files, "m.py": b"corrected"})


def test_operators_after_keyed_ones_do_not_count() -> None:
    """Rows come to a writer from where they are, whatever is in them."""
    downstream = ("sinks:\n", "  late: {input: o, use: 'late:L'}\nsinks:\n")
    files = {**FILES, "late.py": b"raises"}
    job = spec(downstream, ("{input: o, topic", "{input: late, topic"))
    assert fingerprint(job, files) == fingerprint(job, {**files, "late.py": b"corrected"})


def test_an_operator_counts_whose_dead_letters_one_task_commits_and_whose_rows_another() -> None:
    """After a correction it could refuse a row that one of them has taken, or the reverse."""
    files = {**FILES, "late.py": b"raises"}
    downstream = "sinks:\n", "  late: {input: o, use: 'late:L'}\nsinks:\n"
    bisects = "sinks:\n", "  late: {input: o, use: 'late:L', errors: {operator: bisect}}\nsinks:\n"
    read = "{input: o, topic", "{input: late, topic"
    corrected = {**files, "late.py": b"corrected"}
    for place, same in ((downstream, True), (bisects, False)):
        job = spec(place, read)
        assert (fingerprint(job, files) == fingerprint(job, corrected)) is same


def test_of_the_library_and_of_packages_only_what_is_in_front_counts() -> None:
    library = spec(('sql: "SELECT k, n FROM input"', "use: 'library:Grep'"))
    assert fingerprint(library, FILES) == fingerprint(library, {**FILES, "m.py": b"corrected"})
    package = spec(KEYLESS, ('"m:O"', '"pkg:O"'))
    files = {"rows.py": b"4", "pkg/__init__.py": b"5"}
    corrected = {**files, "pkg/__init__.py": b"6"}
    assert fingerprint(package, files) == fingerprint(package, corrected)


def test_a_sources_schema_file_counts() -> None:
    avro = ("format: json, columns: {k: string, n: int64}", "format: avro, schema: a.avsc")
    files = {**FILES, "a.avsc": b"5"}
    assert fingerprint(spec(avro), files) != fingerprint(spec(avro), {**files, "a.avsc": b"6"})


def test_state_schemas_are_json() -> None:
    import json

    schemas: dict[str, Any] = change.state_schemas(spec(), {"o": Wider})
    assert json.loads(json.dumps(schemas)) == schemas
    assert schemas["o"]["key"] == ["k"]
