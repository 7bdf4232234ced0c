"""Differences by cause: counts, keys, epochs and samples, against a plain count of all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.replay import causes
from perseid.replay.causes import Causes
from perseid.replay.differences import Differences, Place
from perseid.replay.findings import SAMPLES_MAX, Difference, Kind, Record

PLACE = Place("sums", 0, 5, "out", 1)


def difference(
    kind: Kind, key: bytes | None, fields: tuple[str, ...] = (), place: Place = PLACE
) -> Difference:
    record = Record(key, b"v")
    committed, made = (None, record) if kind == "added" else (record, None)
    return Difference(
        kind, place.operator, place.partition, place.epoch, place.topic, place.topic_partition, 0,
        committed, made, fields,
    )  # fmt: skip


def keys(*some: bytes | None) -> pa.BinaryArray:
    return pa.array(some, pa.binary())


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["sums", "totals"]), st.integers(1, 6),
        st.lists(
            st.tuples(
                st.sampled_from(["value", "missing", "added"]), st.none() | st.binary(max_size=1),
                st.sampled_from([(), ("a",), ("a", "b")]),
            ), max_size=20,
        ),
        st.lists(st.none() | st.binary(max_size=1), max_size=20),
    ), max_size=12,
)  # fmt: skip


@settings(max_examples=40)
@given(CALLS)
def test_causes_are_those_of_a_plain_count(
    calls: list[
        tuple[str, int, list[tuple[Kind, bytes | None, tuple[str, ...]]], list[bytes | None]]
    ],
) -> None:
    found = Causes()
    plain: defaultdict[tuple[str, Kind, tuple[str, ...]], list[tuple[int, bytes | None]]]
    plain = defaultdict(list)
    compared: defaultdict[str, set[bytes]] = defaultdict(set)
    for operator, epoch, some, rest in calls:
        place = replace(PLACE, operator=operator, epoch=epoch)
        listed = tuple(difference(k, key, f, place) for k, key, f in some)
        found.add(Differences(place, listed, {"missing": keys(*rest)} if rest else {}))
        for kind, key, fields in [*some, *(("missing", key, ()) for key in rest)]:
            plain[operator, kind, fields].append((epoch, key))
            compared[operator] |= {key} - {None}  # type: ignore[arg-type]
        found.compared(operator, keys(*(key for _, key, _ in some), *rest, b"equal"))
        compared[operator].add(b"equal")
    result = {(c.operator, c.kind, c.fields): c for c in found.found()}
    assert result.keys() == plain.keys()
    assert found.records == sum(map(len, plain.values()))
    for cause, records in plain.items():
        different = {key for _, key in records if key is not None}
        epochs = {epoch for epoch, _ in records}
        one = result[cause]
        assert (one.first_epoch, one.epochs, one.records) == (
            min(epochs), len(epochs), len(records)
        )  # fmt: skip
        assert one.keys == len(different)
        assert one.keys_share == pytest.approx(len(different) / len(compared[cause[0]]))
        assert len(one.samples) <= SAMPLES_MAX
    order = [(c.first_epoch, -c.records) for c in found.found()]
    assert order == sorted(order)


def test_samples_are_the_first_ones() -> None:
    found = Causes()
    some = [difference("value", b"%d" % i, ("a",)) for i in range(25)]
    found.add(Differences(PLACE, tuple(some[:7])))
    found.add(Differences(PLACE, tuple(some[7:])))
    [cause] = found.found()
    assert (list(cause.samples), cause.records) == (some[:SAMPLES_MAX], 25)


def test_memory_is_bounded_however_many_sets_of_columns_differ() -> None:
    found = Causes()
    number = causes.CAUSES_MAX + 50
    for i in range(number):
        found.add(Differences(PLACE, (difference("value", b"k", (f"c{i}",)),)))
    result = {cause.fields: cause.records for cause in found.found()}
    assert len(result) == causes.CAUSES_MAX + 1
    assert result[()] == 50
    assert sum(result.values()) == number


def test_without_compared_keys_there_is_no_share() -> None:
    found = Causes()
    found.add(Differences(PLACE, (difference("missing", None),)))
    [cause] = found.found()
    assert (cause.keys, cause.keys_share, cause.records) == (0, 0.0, 1)


def test_a_difference_of_which_only_the_checksum_is_known_counts() -> None:
    found = Causes()
    only = Difference("value", "sums", 0, 5, "out", 1, 0)
    found.add(Differences(PLACE, (only,)))
    [cause] = found.found()
    assert (cause.records, cause.keys, cause.samples) == (1, 0, (only,))
