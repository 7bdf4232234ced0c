"""The partition function: equal to pmod(xxhash64(key), P) of Spark 4.3, whose answers are below."""

from __future__ import annotations

import pyarrow as pa
import pytest

from perseid.errors import BadInputError, PermanentError
from perseid.worker.dataflow.partition import partitions

# SELECT xxhash64(...) on Spark 4.3.0.
SPARK: list[tuple[dict[str, pa.Array], int]] = [
    ({"a": pa.array(["a"])}, -8582455328737087284),
    ({"a": pa.array([""])}, -7444071767201028348),
    ({"a": pa.array(["é"])}, 2065146811275570100),
    (
        {"a": pa.array(["the quick brown fox jumps over the lazy dog"])},
        -2856755173023931444,
    ),
    ({"a": pa.array([b"a"], pa.binary())}, -8582455328737087284),
    ({"a": pa.array(["a"], pa.large_string())}, -8582455328737087284),
    ({"a": pa.array([1], pa.int64())}, -7001672635703045582),
    ({"a": pa.array([-1], pa.int64())}, 3858142552250413010),
    ({"a": pa.array([2**63 - 1], pa.int64())}, -3246596055638297850),
    ({"a": pa.array([1], pa.int32())}, -6698625589789238999),
    ({"a": pa.array([-7], pa.int32())}, 4987848727247274714),
    ({"a": pa.array([1], pa.int16())}, -6698625589789238999),
    ({"a": pa.array([-3], pa.int8())}, 1399955818750051488),
    ({"a": pa.array(["a"]), "b": pa.array([1], pa.int64())}, -1010403264180844141),
    ({"a": pa.array([1], pa.int64()), "b": pa.array(["a"])}, -8527884376001292090),
    ({"a": pa.array([None], pa.string())}, 42),
    ({"a": pa.array([None], pa.string()), "b": pa.array(["a"])}, -8582455328737087284),
    ({"a": pa.array(["a"]), "b": pa.array([None], pa.int64())}, -8582455328737087284),
    ({"a": pa.array([None], pa.int32()), "b": pa.array([1], pa.int32())}, -6698625589789238999),
]
NEARLY_ALL_BITS = 2**62  # so many partitions distinguish hashes as well as the hash itself


@pytest.mark.parametrize(("columns", "hashed"), SPARK)
def test_hashes_are_those_of_spark(columns: dict[str, pa.Array], hashed: int) -> None:
    found = partitions(pa.table(columns), tuple(columns), NEARLY_ALL_BITS)
    assert found.tolist() == [hashed % NEARLY_ALL_BITS]


@pytest.mark.parametrize("count", [2, 3, 7, 64])
def test_the_remainder_is_that_of_the_signed_value_and_never_negative(count: int) -> None:
    for columns, hashed in SPARK:
        (found,) = partitions(pa.table(columns), tuple(columns), count).tolist()
        assert found == hashed % count
        assert 0 <= found < count


def test_rows_in_chunks_with_repeats_and_nulls_get_what_they_get_alone() -> None:
    words = ["a", None, "b", "a", "", None, "b"]
    column = pa.chunked_array([words[:3], words[3:4], words[4:]], pa.string())
    together = partitions(pa.table({"w": column}), ("w",), 1000).tolist()
    alone = [
        partitions(pa.table({"w": pa.array([w], pa.string())}), ("w",), 1000).tolist()[0]
        for w in words
    ]
    assert together == alone
    assert len(set(alone)) == 4


def test_a_slice_of_a_table_hashes_its_own_rows() -> None:
    table = pa.table({"k": pa.array(range(100), pa.int64()), "w": [str(i) for i in range(100)]})
    for key in (("k",), ("w",), ("w", "k"), ("k", "w")):
        whole = partitions(table, key, 64).tolist()
        assert partitions(table.slice(40, 20), key, 64).tolist() == whole[40:60]


def test_keys_of_two_columns_depend_on_their_order() -> None:
    table = pa.table({"a": ["x", "y"], "b": ["y", "x"]})
    first = partitions(table, ("a", "b"), NEARLY_ALL_BITS).tolist()
    assert partitions(table, ("b", "a"), NEARLY_ALL_BITS).tolist() == first[::-1] != first


def test_one_partition_and_no_rows_need_no_hash() -> None:
    assert partitions(pa.table({"k": [1.5]}), ("k",), 1).tolist() == [0]
    assert partitions(pa.table({"k": pa.array([], pa.string())}), ("k",), 4).tolist() == []
    assert partitions(pa.table({}), ("k",), 4).tolist() == []


def test_a_key_that_does_not_compare_exactly_is_refused() -> None:
    with pytest.raises(PermanentError, match="key column 'k' has type double: expected string"):
        partitions(pa.table({"k": [1.5]}), ("k",), 2)


def test_words_spread_over_partitions() -> None:
    table = pa.table({"k": [f"word{i}" for i in range(4000)]})
    found = partitions(table, ("k",), 4).tolist()
    assert all(800 < found.count(p) < 1200 for p in range(4))


def test_rows_without_the_key_of_the_next_operator_are_refused() -> None:
    """An operator without `output` may emit anything; another attempt would do the same."""
    rows = pa.table({"word": ["a"], "n": [1]})
    with pytest.raises(BadInputError, match=r"no column user, .* they have word, n\. Emit it"):
        partitions(rows, ("word", "user"), 4)
