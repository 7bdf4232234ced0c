"""What a range reader keeps between ranges, and what it lets go, on cursors of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from perseid.errors import PermanentError, RetryableError
from perseid.topics.columns import Records
from perseid.topics.cursor import Cursor
from perseid.topics.ranges import ColumnReader


class Log:
    """A cursor on a log without end whose records are their offsets."""

    def __init__(self, start: int, ahead: int) -> None:
        self.topic, self.partition, self.position = "t", 0, start
        self._ahead, self.closed = ahead, False

    def fetch(self, count: int, _timeout_s: float) -> Records:
        offsets = range(self.position, self.position + count + self._ahead)
        self.position = offsets.stop
        return Records.of(0, [(i, 0, None, b"%d" % i) for i in offsets])

    def close(self) -> None:
        self.closed = True


class Reader(ColumnReader):
    def __init__(self, ahead: int = 0) -> None:
        super().__init__("nowhere:1")
        self._ahead = ahead
        self.opened: list[Any] = []

    def _open(self, topic: str, partition: int, start: int, brief: bool) -> Any:
        self.opened.append(Log(start, self._ahead))
        return self.opened[-1]

    def offsets(self, start: int, end: int) -> list[int]:
        return [r.offset() for batch in self.read("t", 0, start, end) for r in batch]


def test_what_came_beyond_a_range_is_the_begin_of_the_next() -> None:
    reader = Reader(ahead=3)
    assert reader.offsets(0, 4) == [0, 1, 2, 3]
    assert reader.offsets(4, 6) == [4, 5]
    assert reader.offsets(6, 12) == [6, 7, 8, 9, 10, 11]
    assert len(reader.opened) == 1


def test_of_a_range_that_was_read_to_its_end_nothing_is_kept() -> None:
    reader = Reader()
    assert reader.offsets(0, 4) == [0, 1, 2, 3]
    (place,) = reader._places.values()
    assert place.ahead is None


def test_two_reads_of_a_partition_at_once_leave_one_cursor() -> None:
    reader = Reader()
    first, second = reader.read("t", 0, 0, 2), reader.read("t", 0, 0, 2)
    for _ in range(2):
        next(first, None)
        next(second, None)
    assert [cursor.closed for cursor in reader.opened] == [True, False]
    reader.close()
    assert all(cursor.closed for cursor in reader.opened)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, PermanentError),
        (KafkaError.GROUP_SUBSCRIBED_TO_TOPIC, RetryableError),
    ],
)
def test_an_error_that_is_of_no_offset_is_an_error_of_our_tree(
    code: int, kind: type[Exception]
) -> None:
    event = SimpleNamespace(error=lambda: KafkaError(code), offset=lambda: None)
    cursor = object.__new__(Cursor)
    cursor.topic, cursor.partition, cursor.position = "t", 0, 0
    cursor._consumer = SimpleNamespace(consume=lambda *_: [event])  # type: ignore[assignment]
    with pytest.raises(kind, match=r"reading t\[0\]"):
        cursor.fetch(1, 0.0)
