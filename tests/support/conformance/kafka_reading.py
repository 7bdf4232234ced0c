"""Scripts: appending to logs and reading them, to the last byte and beyond either end."""

from __future__ import annotations

from collections.abc import Iterator

from perseid.testing.wait import until
from perseid.topics.log import Entry
from perseid.topics.transactions import PartitionBatch
from support.conformance import Scripts, outcome
from support.conformance.kafka_side import PATIENCE_S, KafkaSide

SCRIPTS: Scripts[KafkaSide] = Scripts()


@SCRIPTS.add([0, 1, 2, 3, 4], [1], [2, 3, 4], [], [5], [0])
def reading_resumes_where_it_ended(side: KafkaSide) -> Iterator[object]:
    name, reader, writer = side.kafka.topic(), side.kafka.reader(), side.kafka.writer

    def read(offset: int, most: int, wait_s: float = PATIENCE_S) -> list[int]:
        found = reader.read_from(name, 0, offset, max_records=most, timeout_s=wait_s)
        return [e.offset for e in found]

    yield [writer.append(name, 0, b"%d" % i) for i in range(5)]
    yield read(1, 1)
    rest: list[int] = []
    while len(rest) < 3:
        rest += read(2 + len(rest), 9)
    yield rest
    yield read(5, 9, 0.2)
    writer.append(name, 0, b"5")
    yield read(5, 9)
    yield read(0, 1)
    reader.close()
    writer.close()  # it can be used again


@SCRIPTS.add([(2, b"2"), (3, b"3"), (4, b"4")], [(5, b"5")], [], "UndecidedTransaction")
def a_range_has_all_its_records_or_fails(side: KafkaSide) -> Iterator[object]:
    name, reader = side.kafka.topic(2), side.kafka.reader()
    for i in range(6):
        side.kafka.writer.append(name, 1, b"%d" % i)

    def read(start: int, end: int) -> list[Entry]:
        return reader.read_range(name, 1, start, end, timeout_s=1.0)

    yield [(e.offset, e.value) for e in read(2, 5)]
    yield [(e.offset, e.value) for e in read(5, 6)]
    yield read(3, 3)
    yield outcome(read, 4, 7)
    reader.close()


@SCRIPTS.add("LogAppendTime", "CreateTime", True)
def the_broker_stamps_records_where_the_topic_is_set_so(side: KafkaSide) -> Iterator[object]:
    topics, name, usual = side.kafka.topics, side.kafka.topic(), side.kafka.topic()
    topics.delete([name])
    settings = {"message.timestamp.type": "LogAppendTime"}
    until(lambda: topics.create(name, 1, settings), PATIENCE_S, "the topic can be recreated")
    yield topics.describe([name])[name].stamped
    yield topics.describe([usual])[usual].stamped
    reader = side.kafka.reader()
    for i in range(3):
        side.kafka.writer.append(name, 0, b"%d" % i)
    stamps = [e.stamp_ms for e in reader.read_range(name, 0, 0, 3, timeout_s=PATIENCE_S)]
    yield 0 < stamps[0] and stamps == sorted(stamps)
    reader.close()


@SCRIPTS.add([0, 1, 2, 3], [], [4, 5, 6], [7], [2, 3, 4], [5, 6], [7], "RetryableError")
def source_ranges_one_after_another_and_back(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    for i in range(7):
        side.kafka.writer.append(name, 0, b"%d" % i)
    side.kafka.sources.prepare({(name, 0): 0})  # does not change what is read
    yield side.ranged(name, 0, 4)
    yield side.ranged(name, 4, 4)
    yield side.ranged(name, 4, 7)
    side.kafka.writer.append(name, 0, b"7")
    yield side.ranged(name, 7, 8)
    yield side.ranged(name, 2, 5)  # as one of several tasks that read a partition in turn
    yield side.ranged(name, 5, 7)
    yield side.ranged(name, 7, 8)
    yield side.ranged(name, 8, 9)
    side.kafka.sources.close()  # it can be used again


@SCRIPTS.add(
    "ReplayDataLost: 1 is below 3", "ReplayDataLost: 0 is below 3", "ReplayDataLost: 2 is below 3",
    [], [3],
)  # fmt: skip
def what_was_trimmed_is_an_error_and_no_gap(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    for _ in range(4):
        side.kafka.writer.append(name, 0, b"v")
    side.kafka.topics.delete_records({(name, 0): 3})
    yield side.between(name, 1, 4)
    yield side.read(name, 0)
    yield side.ranged(name, 2, 4)
    yield side.ranged(name, 2, 2)
    yield side.ranged(name, 3, 4)


@SCRIPTS.add("LogTruncated", "LogTruncated", [])
def an_offset_past_the_end_is_an_error(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    yield side.read(name, 7)
    yield side.ranged(name, 7, 8)
    yield side.read(name, 0, wait_s=0.2)


@SCRIPTS.add("TransientAnswer", "TransientAnswer", "TransientAnswer", "TransientAnswer")
def reading_and_appending_where_nothing_is(side: KafkaSide) -> Iterator[object]:
    yield outcome(side.kafka.writer.append, "nowhere", 0, b"v")
    yield side.read("nowhere", 0, wait_s=1.2)
    yield side.ranged("nowhere", 0, 1)
    name = side.kafka.topic()
    yield outcome(side.kafka.writer.append, name, 7, b"v")


@SCRIPTS.add(0, "PermanentError", "PermanentError", 1, [0, 1])
def an_append_may_be_so_large_and_no_byte_more(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic(max_message_bytes="3000")
    # Batch header; body length; attributes and deltas; no key; the value's length; no headers.
    fits = 3000 - 61 - 2 - 3 - 1 - 2 - 1
    append = side.kafka.writer.append
    yield append(name, 0, b"x" * fits)
    yield outcome(append, name, 0, b"x" * (fits + 1))
    yield outcome(append, name, 0, b"x" * 2_000_000)  # more than the client accepts for any topic
    yield append(name, 0, b"x")
    yield side.between(name, 0, 2)


@SCRIPTS.add([(0, b"k", b"v", [("h", b"1")], True), (1, None, b"", [("h", b"2")], True)])
def what_a_record_carries(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    transaction = side.acquire(f"h-{name}")
    transaction.begin()
    headers = [[("h", b"1")], [("h", b"2")]]
    transaction.send(PartitionBatch(name, 0, [b"k", None], [b"v", b""], headers))
    transaction.flush(PATIENCE_S)
    transaction.commit(PATIENCE_S)
    side.settle(f"h-{name}")
    found = [m for batch in side.kafka.ranges.read(name, 0, 0, 3) for m in batch]
    side.kafka.ranges.close()
    yield [(m.offset(), m.key(), m.value(), m.headers(), m.timestamp()[1] > 0) for m in found]
