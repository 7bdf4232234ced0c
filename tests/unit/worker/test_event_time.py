"""Event times of a source: late rows by policy, wrong ones, and what is reported of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import BadInputError
from perseid.jobs.model.spec import EventTimeSpec
from perseid.topics import columns
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow import source
from perseid.worker.dataflow.source import SourcePlan, SplitCount, read_split
from perseid.worker.dead_letters.null_keys import KeyedBy
from perseid.worker.formats.event_time import END_MS, FIRST_MS

Late = Literal["drop", "dlq", "update"]
TIMES = st.integers(FIRST_MS, END_MS - 1)


Row = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value


def row(offset: int, content: dict[str, Any], time_ms: int = 0) -> Row:
    return offset, time_ms, None, json.dumps(content).encode()


class Records:
    """Partitions of one topic, handed out in batches of two."""

    def __init__(self, *partitions: list[Row]) -> None:
        self.partitions = partitions

    def prepare(self, starts: Mapping[tuple[str, int], int]) -> None:
        """Nothing is to be opened."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[columns.Records]:
        found = self.partitions[partition][start:end]
        for at in range(0, len(found), 2):
            yield columns.Records.of(partition, found[at : at + 2])

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")


def rows(times: list[int | None]) -> list[Row]:
    return [row(i, {"ms": ms, "i": i}) for i, ms in enumerate(times)]


def read(
    records: Records, watermark: int | None, late: Late = "drop", *, column: str = "ms",
    kind: str = "int64", tolerate: bool = False,
) -> tuple[list[dict[str, Any]], SplitCount]:  # fmt: skip
    ranges = tuple(
        SourceRange("s", "t", "id", p, 0, len(found)) for p, found in enumerate(records.partitions)
    )
    token = Token(1, "u", 7, 0, "r", 1, (ranges,), 1, watermark)
    columns = {"ms": kind, "i": "int64"}
    timed = EventTimeSpec(column=column, late=late)
    plan = SourcePlan("s", "json", columns, None, (), tolerate, timed)
    count = SplitCount()
    return [r for t in read_split(records, plan, token, 0, count) for r in t.to_pylist()], count


@given(st.lists(TIMES, max_size=9), TIMES | st.none(), st.sampled_from(["drop", "dlq", "update"]))
def test_rows_below_the_watermark_are_late(
    times: list[int], watermark: int | None, late: Late
) -> None:
    found, count = read(Records(rows([*times])), watermark, late)
    too_late = [i for i, ms in enumerate(times) if watermark is not None and ms < watermark]
    kept = [i for i in range(len(times)) if i not in too_late or late == "update"]
    assert [(r["i"], r["ms"]) for r in found] == [(i, times[i]) for i in kept]
    assert count.late == len(too_late)
    assert [r.offset for r in count.refused] == (too_late if late == "dlq" else [])
    assert count.event_times == ({0: max(times)} if times else {})
    assert count.count == len(times)


def test_a_late_dead_letter_has_the_reason() -> None:
    _, count = read(Records(rows([5, 20])), 10, "dlq")
    (letter,) = count.refused
    assert (letter.kind, letter.value) == ("LateRecord", b'{"ms": 5, "i": 0}')
    assert letter.reason == "late: its event time is 5, and the watermark is 10"


def test_each_partition_reports_its_own() -> None:
    _, count = read(Records(rows([3, 1]), rows([]), rows([9, 12, 11])), None)
    assert count.event_times == {0: 3, 2: 12}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "its event time in column ms is null, expected milliseconds since 1970"),
        (1_763_000_000_000_000, "is a number of 16 digits, expected milliseconds"),  # microseconds
        (FIRST_MS - 1, "of 14 digits"),
        (-(2**63) + 1, "of 19 digits"),
    ],
)
def test_a_row_without_a_time_stops_the_job_or_is_a_dead_letter(ms: int | None, text: str) -> None:
    records = Records(rows([1, 2, ms, 4]))
    with pytest.raises(BadInputError, match="partition 0, offset 2: its event time"):
        read(records, 2)
    found, count = read(records, 2, tolerate=True)
    assert [r["i"] for r in found] == [1, 3]
    assert (count.late, count.event_times) == (1, {0: 4})
    (letter,) = count.refused
    assert (letter.kind, letter.offset) == ("BadInputError", 2)
    assert text in letter.reason


def test_a_timestamp_column_and_the_record_time() -> None:
    texts = ["1969-12-31T23:59:59.9995Z", "1970-01-01T00:00:00.0105Z"]
    records = Records([row(i, {"ms": t, "i": i}, 50 - i)
                       for i, t in enumerate(texts)])  # fmt: skip
    found, count = read(records, 0, kind="timestamp")
    assert ([r["i"] for r in found], count.event_times) == ([1], {0: 10})
    found, count = read(records, 50, column="timestamp", kind="string")
    assert ([r["i"] for r in found], count.event_times) == ([0], {0: 50})


def plan_and_token(records: Records) -> tuple[SourcePlan, Token]:
    """A source with a keyed reader that stops the job; the token's watermark is 2."""
    ranges = tuple(
        SourceRange("s", "t", "id", p, 0, len(found)) for p, found in enumerate(records.partitions)
    )
    plan = SourcePlan(
        "s", "json", {"ms": "int64", "i": "int64"}, None, (), False, EventTimeSpec(column="ms"),
        readers=(KeyedBy("o", ("i",), tolerates=False),),
    )  # fmt: skip
    return plan, Token(1, "u", 7, 0, "r", 1, (ranges,), 1, 2)


def test_a_late_row_without_a_key_is_late_alone() -> None:
    late = Records([row(0, {"ms": 3, "i": 1}), row(1, {"ms": 1})])
    plan, token = plan_and_token(late)
    count = SplitCount()
    found = [r for t in read_split(late, plan, token, 0, count) for r in t.to_pylist()]
    assert ([r["ms"] for r in found], count.late, count.refused) == ([3], 1, [])
    assert count.places.of(0).offset == 0


def test_times_of_an_epoch_that_is_done_are_read_whatever_this_revision_refuses() -> None:
    records = Records([row(0, {"ms": 3, "i": 1}), (1, 0, None, b"["), row(2, {"ms": 5}),
                       row(3, {"i": 2})])  # fmt: skip
    plan, token = plan_and_token(records)
    with pytest.raises(BadInputError, match="offset 1: not valid JSON"):
        list(read_split(records, plan, token, 0, SplitCount()))
    (counts,) = source.read_again(records, [plan], token).values()
    assert (counts.event_times, counts.late) == ({0: 5}, 0)
