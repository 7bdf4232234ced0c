"""What a range reader keeps between ranges, and what it lets go, on cursors of the test's own."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from perseid.errors import RetryableError, TransientAnswer
from perseid.topics import clients, shared
from perseid.topics.columns import Records
from perseid.topics.cursor import ColumnCursor, Cursor
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


def test_what_was_fetched_ahead_of_a_topic_is_not_of_the_one_that_was_made_after_it() -> None:
    """A new job's range may begin just where the old one's ended."""
    reader, ids = Reader(ahead=3), {"t": "first", "other": "o"}
    reader._admin = SimpleNamespace(identities=lambda _: dict(ids))  # type: ignore[assignment]
    assert reader.offsets(0, 4) == [0, 1, 2, 3]
    assert reader.identities(["t", "other"]) == ids
    del ids["t"]
    assert reader.identities(["t", "other"]) == ids
    ids["t"] = "second"
    reader.offsets(4, 5)
    with pytest.raises(RetryableError, match="topic t was created again"):
        reader.identities(["t", "other"])
    reader.offsets(4, 5)
    assert len(reader.opened) == 2
    assert reader.identities(["t", "other"]) == ids


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, TransientAnswer),
        (KafkaError.GROUP_SUBSCRIBED_TO_TOPIC, RetryableError),
    ],
)
def test_an_error_that_is_of_no_offset_is_an_error_of_our_tree(
    code: int, kind: type[Exception]
) -> None:
    event = SimpleNamespace(error=lambda: KafkaError(code), offset=lambda: None)
    cursor = object.__new__(Cursor)
    cursor.topic, cursor.partition, cursor.position = "t", 0, 0
    cursor._ask_at_s = None
    cursor._consumer = SimpleNamespace(consume=lambda *_: [event])  # type: ignore[assignment]
    with pytest.raises(kind, match=r"reading t\[0\]"):
        cursor.fetch(1, 0.0)


class Shared:
    """Shared consumers on such logs."""

    def __init__(self) -> None:
        self.opened: list[dict[tuple[str, int], int]] = []

    def has(self, _topic: str, _partition: int) -> bool:
        return False

    def open(self, places: dict[tuple[str, int], int]) -> dict[tuple[str, int], Any]:
        self.opened.append(places)
        return {place: SharedLog(place[1], start) for place, start in places.items()}

    def close(self) -> None:
        """Nothing is open."""


class SharedLog:
    def __init__(self, partition: int, start: int) -> None:
        self.partition, self.position = partition, start

    def fetch(self, count: int, _timeout_s: float) -> tuple[Records, list[Any]]:
        offsets = range(self.position, self.position + count)
        self.position = offsets.stop
        return Records.of(self.partition, [(i, 0, None, b"%d" % i) for i in offsets]), []

    def close(self) -> None:
        """Others continue."""


def test_many_partitions_are_opened_together_and_then_read_on() -> None:
    reader, consumers = ColumnReader("nowhere:1"), Shared()
    reader._shared = consumers  # type: ignore[assignment]
    for epoch in range(5):
        quiet = epoch  # another one each time
        starts = {("t", p): 5 * epoch for p in range(200) if p != quiet}
        starts |= {("t", p): 5 * (epoch - 1) for p in range(epoch) if p != quiet}
        reader.prepare(starts)
        for (topic, partition), start in starts.items():
            (found,) = reader.read(topic, partition, start, start + 5)
            assert found.offsets.tolist() == list(range(start, start + 5))
    assert len(consumers.opened[0]) == 199
    assert sum(map(len, consumers.opened[1:])) == 1


def test_a_shared_consumer_has_twice_the_partitions_of_the_one_before_in_the_same_memory() -> None:
    for number in range(7):
        kib = shared.settings(number)["queued.max.messages.kbytes"]
        assert shared.parts_max(number) * kib == shared.AHEAD_KIB
    assert sum(map(shared.parts_max, range(7))) > 10_000


class Many:
    """A shared consumer without a client; `mute`: nothing comes of it, `full`: it takes no more."""

    def __init__(self, *_settings: Any, mute: bool = False, full: bool = False) -> None:
        self.parts: dict[tuple[str, int], int] = {}
        self.failed, self.closed, self._mute, self._full = False, False, mute, full

    def add(self, places: dict[tuple[str, int], int]) -> None:
        if self._full:
            raise RetryableError("cannot read")
        self.parts |= places

    def fetch(
        self, _topic: str, partition: int, count: int, _s: float
    ) -> tuple[Records, list[Any]]:
        return Records.of(
            partition, [(i, 0, None, b"") for i in range(0 if self._mute else count)]
        ), []

    def remove(self, places: list[tuple[str, int]]) -> None:
        for place in places:
            del self.parts[place]

    def close(self) -> None:
        self.closed = True


def many(monkeypatch: pytest.MonkeyPatch, *consumers: Many) -> shared.SharedConsumers:
    waiting = iter(consumers)
    monkeypatch.setattr(shared, "SharedConsumer", lambda _settings: next(waiting))
    return shared.SharedConsumers("nowhere:1", "read_committed")


def test_what_one_consumer_took_is_let_go_where_the_next_one_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Many()
    consumers = many(monkeypatch, first, Many(full=True))
    with pytest.raises(RetryableError):
        consumers.open({("t", p): 0 for p in range(shared.PARTS_FIRST + 1)})
    assert not first.parts
    assert not consumers.has("t", 0)


def test_a_partition_that_was_waited_for_in_vain_is_asked_of_another_consumer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, other = Many(mute=True), Many()
    consumers = many(monkeypatch, stuck, other)
    place = ("t", 3)
    part = consumers.open({place: 0})[place]
    part.fetch(10, 0.0)
    part.close()
    assert stuck.closed
    part = consumers.open({place: 0})[place]
    assert len(part.fetch(10, 0.0)[0]) == 10
    part.close()
    assert not other.closed  # others continue, and the next one finds it


def test_a_cursor_that_began_slowly_keeps_no_client_for_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = SimpleNamespace(error=None, partitions={0: None})
    asked: list[str] = []
    client = SimpleNamespace(
        list_topics=lambda *_, **_more: SimpleNamespace(topics={"t": topic}),
        close=lambda: asked.append("closed"),
    )
    monkeypatch.setattr(clients, "reader", lambda _bootstrap: client)
    now_s = iter((0.0, 5.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(now_s))
    mute = shared.Part(Many(mute=True), "t", 0)  # type: ignore[arg-type]
    cursor = ColumnCursor("nowhere:1", "t", 0, 0, mute)
    for _ in range(3):
        cursor.fetch(1, 0.0)
    assert asked == ["closed"]
