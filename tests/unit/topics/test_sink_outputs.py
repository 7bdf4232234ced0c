"""What an epoch's outputs are cut into, and what they amount to."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from perseid.errors import PermanentError
from perseid.topics.admin import TopicInfo
from perseid.topics.partitioner import partitions
from perseid.topics.transactions import Octets, SinkBatch, Written, octets
from perseid.worker.sink import sink_outputs
from perseid.worker.sink.sink_outputs import divide, windows

TOPICS = {n: TopicInfo(n, "id", 4, message_bytes_max=2000) for n in ("a", "b")}


def checksum(keys: Octets, values: Octets) -> int:
    return sink_outputs.checksum(octets(keys), octets(values))


def test_each_record_goes_once_to_its_partition_in_order() -> None:
    keys: list[bytes | None] = [b"k%d" % (i % 9) for i in range(100)]
    values = [b"%d" % i for i in range(100)]
    headers = [[("n", v)] for v in values]
    found = divide([SinkBatch("a", keys, values, headers)], TOPICS, 0)
    where = partitions(octets(keys), 4).tolist()
    for batch in found:
        rows = [i for i, p in enumerate(where) if p == batch.partition]
        assert batch.values.to_pylist() == [values[i] for i in rows]
        assert batch.keys.to_pylist() == [keys[i] for i in rows]
        assert list(batch.headers or ()) == [headers[i] for i in rows]
    assert sum(len(b.values) for b in found) == 100


def test_batches_of_one_topic_follow_each_other_and_empty_ones_vanish() -> None:
    found = divide(
        [
            SinkBatch("a", [b"k"], [b"1"]), SinkBatch("b", [], []),
            SinkBatch("a", [b"k"], [b"2"], [[("h", b"x")]]),
        ],
        TOPICS, 0,
    )  # fmt: skip
    assert [(b.topic, b.values.to_pylist()) for b in found] == [("a", [b"1", b"2"])]
    assert [list(h) for h in found[0].headers or ()] == [[], [("h", b"x")]]


def test_the_checksum_is_of_lengths_keys_and_values_in_their_order() -> None:
    keys: list[bytes | None] = [b"a", b"b", None]
    values = [b"1", b"23", b"4"]
    run = b"\1\0\0\0\2\0\0\0\1\0\0\0" + b"ab" + b"1234"
    assert checksum(keys, values) == 2**63 + crc32(run)
    assert checksum([], []) == 2**63


def test_a_dead_letter_without_a_value_is_one_record_and_counts_as_empty() -> None:
    headers = [[("h", b"x")], [("h", b"y")]]
    [found] = divide([SinkBatch("a", [b"k", b"k"], [None, b"1"], headers)], TOPICS, 0)
    assert found.values.to_pylist() == [None, b"1"]
    assert checksum(found.keys, found.values) == checksum([b"k", b"k"], [b"", b"1"])
    [found] = divide([SinkBatch("a", [None], [None])], TOPICS, 0)
    assert found.values.to_pylist() == [None]


def test_the_checksum_shows_what_was_written_otherwise() -> None:
    written = checksum([b"a", b"b"], [b"1", b"2"])
    assert checksum([b"b", b"a"], [b"2", b"1"]) != written
    assert checksum([b"a", b"b"], [b"12", b""]) != written
    assert checksum([b"a"], [b"b"]) != checksum([b"b"], [b"a"])


def test_a_window_for_each_topic_partition() -> None:
    batches = divide([SinkBatch("a", [b"k"] * 3, [b"1", b"2", b"3"])], TOPICS, 0)
    place = (batches[0].topic, batches[0].partition)
    (window,) = windows(batches, {place: Written(7, 9)})
    assert (window.first, window.last, window.count) == (7, 9, 3)
    assert window.checksum == checksum(batches[0].keys, batches[0].values)


def test_an_oversize_record_is_named() -> None:
    big = bytes(random.Random(1).randbytes(1990))
    with pytest.raises(PermanentError, match=r"topic a with key b'long key' needs \d+ bytes"):
        divide([SinkBatch("a", [b"k", b"long key"], [b"v", big])], TOPICS, 0)
    with pytest.raises(PermanentError, match="key none"):
        divide([SinkBatch("a", [None], [b"v"], [[("h", big)]])], TOPICS, 0)
