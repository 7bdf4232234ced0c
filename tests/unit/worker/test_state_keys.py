"""Keys as people type them: typed, kept apart, and sent to the partition that a job would use."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from perseid.errors import UsageError
from perseid.worker.dataflow.partition import partitions
from perseid.worker.dataflow.state_keys import parse, partition_of, rows_with

PAIR = {"user": pa.string(), "day": pa.date32()}


def plain(text: str, types: dict[str, pa.DataType]) -> dict[str, object]:
    return {name: value.as_py() for name, value in parse(text, types).items()}


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("ann", pa.string(), "ann"),
        ("a=b,c", pa.string(), "a=b,c"),
        ("key=ann", pa.string(), "ann"),
        ('{"key": "{x}"}', pa.string(), "{x}"),
        ("-7", pa.int64(), -7),
        ('{"key": 7}', pa.int32(), 7),
        ("true", pa.bool_(), True),
        ("ann", pa.binary(), b"ann"),
        ("2026-11-22", pa.date32(), datetime.date(2026, 11, 22)),
    ],
)
def test_a_key_of_one_column(text: str, kind: pa.DataType, value: object) -> None:
    assert plain(text, {"key": kind}) == {"key": value}
    assert parse(text, {"key": kind})["key"].type == kind


@pytest.mark.parametrize(
    "text", ["user=ann,day=2026-11-22", '{"day": "2026-11-22", "user": "ann"}']
)
def test_a_composite_key(text: str) -> None:
    assert plain(text, PAIR) == {"user": "ann", "day": datetime.date(2026, 11, 22)}
    assert plain("user=ann", PAIR) == {"user": "ann"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ann", r"no key column 'ann'; the key has user \(string\), day \(date32\[day\]\); write"),
        ("name=ann", "no key column 'name'"),
        ("user=ann,day=soon", "key column 'day' is of type date32"),
        ('{"user": ', "not valid JSON"),
        ('{"user": 5}', "key column 'user' is of type string, found 5"),
    ],
)
def test_what_is_wrong_is_reported(text: str, shown: str) -> None:
    with pytest.raises(UsageError, match=shown):
        parse(text, PAIR)


def test_the_partition_is_the_jobs() -> None:
    words = [f"w{i}" for i in range(50)]
    wanted = partitions(pa.table({"word": words}), ("word",), 7).tolist()
    found = [partition_of(parse(word, {"key": pa.string()}), ("word",), 7) for word in words]
    assert found == wanted
    pair = parse("user=ann,day=2026-11-22", PAIR)
    assert partition_of(pair, ("user",), 7) == partition_of(parse("ann", {"k": pa.string()}),
                                                            ("user",), 7)  # fmt: skip
    assert partition_of(pair, ("user", "page"), 7) is None
    assert partition_of(pair, ("day",), 7) is None


def test_rows_that_agree() -> None:
    rows = pa.table({"user": ["ann", "bob", "ann"], "day": pa.array([1, 1, 2], pa.date32())})
    assert rows_with(parse("user=ann", PAIR), rows).num_rows == 2
    assert rows_with(parse("user=ann,day=1970-01-03", PAIR), rows).num_rows == 1
    assert rows_with(parse("user=eve", PAIR), rows).num_rows == 0
