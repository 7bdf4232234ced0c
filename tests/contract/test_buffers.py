"""Buffer topics: sets that two producers send, and a reader that counts each once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from perseid.errors import PermanentError, RetryableError, TransientAnswer
from perseid.topics import codec, control, names
from perseid.topics.buffer_topics import BufferTopic, check, check_starts, trim
from perseid.topics.buffers import DATA_BYTES_MAX, Blobs, SetReader, SetWriter
from perseid.topics.clients import BATCH_BYTES_MAX
from perseid.topics.records import BufferRecord
from perseid.topics.sets import Sets
from support.kafka_handle import Kafka

BASE = 4
PLACES = {(0, 0), (0, 1), (1, 0)}
_jobs = itertools.count(1)


def made(kafka: Kafka, partitions: int = 1) -> BufferTopic:
    spec = control.buffer_topic(f"buffered{next(_jobs)}", "totals", 1, partitions)
    kafka.topics.create(spec.name, partitions, spec.config)
    info = kafka.topics.describe([spec.name])[spec.name]
    return BufferTopic(spec.name, info.topic_id, info.partitions)


def head(token: int, input_: int = 0, origin: int = 0, crc: int = 7) -> BufferRecord:
    return BufferRecord(
        job_uuid="u", revision="r", layout=1, epoch=token - BASE, token_offset=token, input=input_,
        origin=origin, generation=1, attempt=0, chunk=0, chunks=1, rows_crc=crc, data=b"",
    )  # fmt: skip


def numbers(start: int) -> Iterator[int]:
    return itertools.count(start)


def writer(kafka: Kafka, start: int = 1) -> SetWriter:
    counted = numbers(start)
    return SetWriter(kafka.buffer_writer(), lambda: next(counted))


def reader(kafka: Kafka, topic: BufferTopic, partition: int = 0, **limits: int) -> SetReader:
    """A reader of a chain with the tokens at 5 to 9."""
    sets = Sets("u", 1, BASE, **limits)
    sets.judge(frozenset(range(5, 10)), 10)
    place = topic.name, partition
    start = check_starts(kafka.topics, {place: None})[place]
    return SetReader("totals", place, sets, kafka.reader(), start)


def plain(found: dict[tuple[int, int], Blobs]) -> dict[tuple[int, int], list[bytes]]:
    return {place: [bytes(blob) for blob in one.blobs] for place, one in found.items()}


def test_sets_come_as_they_were_sent_empty_ones_and_large_ones_too(kafka: Kafka) -> None:
    topic = made(kafka, 2)
    large = Random(1).randbytes(2 * DATA_BYTES_MAX + 5)
    sent = {(0, 0): [b"one", b"", b"three"], (0, 1): [b""], (1, 0): [large, b"end"]}
    ours, sizes = writer(kafka), [0, 0]
    for partition in range(2):
        for (input_, origin), blobs in sent.items():
            mine = [b"%d" % partition, *blobs]
            size = ours.send((topic.name, partition), head(5, input_, origin, crc=origin), mine)
            sizes[partition] += size
    ours.flush(20)
    for partition in range(2):
        found = reader(kafka, topic, partition).wait(5, PLACES, 20)
        expected = {place: [b"%d" % partition, *blobs] for place, blobs in sent.items()}
        assert plain(found) == expected
        assert {place: one.rows_crc for place, one in found.items()} == {
            (0, 0): 0, (0, 1): 1, (1, 0): 0
        }  # fmt: skip
        values = kafka.values(topic.name, partition)
        assert max(map(len, values)) < BATCH_BYTES_MAX, "no record is too large for a request"
        assert sizes[partition] == sum(map(len, values))


def test_two_producers_send_at_once_and_each_set_counts_once(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    one, two = writer(kafka), writer(kafka, 1000)
    blobs = [b"x" * DATA_BYTES_MAX, b"y" * 10]
    for token in (5, 6, 7):
        for input_, origin in sorted(PLACES):
            for sender in (one, two):
                sender.send(place, head(token, input_, origin), blobs)
        one.flush(20)
        two.flush(20)
    ours = reader(kafka, topic)
    for token in (5, 6, 7):
        assert plain(ours.wait(token, PLACES, 20)) == dict.fromkeys(PLACES, blobs)
        ours.sets.done(token)
    while ours.read(0.5):
        pass
    assert ours.sets.dropped == {"of another attempt": 3 * 3 * 2}
    assert ours.divergences() == []
    assert ours.sets.kept_bytes == 0


def test_a_producer_that_died_halfway_is_replaced(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    died = kafka.buffer_writer()
    half = replace(head(5), chunks=2, attempt=1, data=b"half")
    died.send(place, codec.encode(half))
    died.flush(20)
    with pytest.raises(RetryableError) as caught:
        reader(kafka, topic).wait(5, {(0, 0)}, 0.3)
    assert str(caught.value) == (
        "operator totals, partition 0: 1 sets of the token at offset 5 did not come in 0.3 s "
        f"through {topic.name}: (input 0, origin 0); the fragments that send them are late or down"
    )
    again = writer(kafka, 2)
    again.send(place, head(5), [b"whole"])
    again.flush(20)
    assert plain(reader(kafka, topic).wait(5, {(0, 0)}, 20)) == {(0, 0): [b"whole"]}


def test_the_sets_of_a_token_that_was_taken_back_are_not_read(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    ours = writer(kafka)
    for token in (5, 6, 8):
        ours.send(place, replace(head(token), epoch=min(token - BASE, 2)), [b"%d" % token])
    ours.flush(20)
    found = reader(kafka, topic)
    found.sets.judge(frozenset({5, 8}), 9)
    assert plain(found.wait(8, {(0, 0)}, 20)) == {(0, 0): [b"8"]}
    assert found.sets.dropped == {"of a token that was taken back": 1}
    with pytest.raises(RetryableError, match="did not come"):
        found.wait(6, {(0, 0)}, 0.2)


def test_rows_beyond_the_limit_are_read_again(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    ours = writer(kafka)
    blobs = [b"z" * DATA_BYTES_MAX, b"z"]
    for token in (7, 6, 5):
        for input_, origin in sorted(PLACES):
            ours.send(place, head(token, input_, origin), blobs)
        ours.flush(20)
    found = reader(kafka, topic, bytes_max=DATA_BYTES_MAX)
    for token in (5, 6, 7):
        assert plain(found.wait(token, PLACES, 20)) == dict.fromkeys(PLACES, blobs)
        assert found.sets.kept_bytes <= DATA_BYTES_MAX
        found.sets.done(token)


def test_other_rows_for_the_same_token_are_divergence(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    for number, crc in ((1, 0xA), (2, 0xB)):
        ours = writer(kafka, number)
        ours.send(place, head(5, crc=crc), [b"%d" % crc])
        ours.flush(20)
    found = reader(kafka, topic)
    assert plain(found.wait(5, {(0, 0)}, 20)) == {(0, 0): [b"10"]}
    while found.read(0.5):
        pass
    (text,) = found.divergences()
    assert text == (
        "operator totals, partition 0, epoch 1, input 0, origin 0: generation 1 sent rows with CRC "
        "0000000a, and generation 1 others with 0000000b for the same token (at offset 5) of "
        "revision r"
    )


def test_a_buffer_is_trimmed_before_what_is_needed_and_read_on(kafka: Kafka) -> None:
    topic = made(kafka, 2)
    ours = writer(kafka)
    for partition in range(2):
        for token in range(5, 9):
            ours.send((topic.name, partition), head(token), [b"%d" % token])
    ours.flush(20)
    found = reader(kafka, topic)
    found.wait(8, {(0, 0)}, 20)
    cut = found.sets.needed_from(6)
    assert cut == 2
    assert trim(kafka.topics, topic, {0: cut, 1: 0}) == {(topic.name, 0): 2}
    assert trim(kafka.topics, topic, {0: cut, 1: 0}) == {}, "a second time there is nothing to do"
    assert kafka.topics.starts([(topic.name, 0), (topic.name, 1)]) == {
        (topic.name, 0): 2, (topic.name, 1): 0
    }  # fmt: skip
    after = reader(kafka, topic)
    assert plain(after.wait(7, {(0, 0)}, 20)) == {(0, 0): [b"7"]}
    assert check_starts(kafka.topics, {(topic.name, 0): 2}) == {(topic.name, 0): 2}
    with pytest.raises(PermanentError, match="ends at offset 4, and was read up to 9"):
        trim(kafka.topics, topic, {0: 9})


def test_records_that_were_deleted_by_hand_are_an_error(kafka: Kafka) -> None:
    topic = made(kafka)
    place = topic.name, 0
    ours = writer(kafka)
    for token in (5, 6, 7):
        ours.send(place, head(token), [b"x"])
    ours.flush(20)
    found = reader(kafka, topic)
    kafka.topics.delete_records({place: 2})
    text = r"begins at offset 2: its records were deleted by hand, and the reader needs offset 0"
    with pytest.raises(PermanentError, match=text):
        while True:
            found.read(0.5)
    with pytest.raises(PermanentError, match="begins at offset 2, and its reader needs offset 1"):
        check_starts(kafka.topics, {place: 1})


def test_a_topic_that_is_not_the_one_that_was_made_is_an_error(kafka: Kafka) -> None:
    topic = made(kafka, 2)
    check(kafka.topics, [topic])
    with pytest.raises(PermanentError, match="has 2 partitions, expected 3, one for each"):
        check(kafka.topics, [replace(topic, partitions=3)])
    with pytest.raises(PermanentError, match="it was deleted and created again"):
        check(kafka.topics, [replace(topic, topic_id="another")])
    gone = names.buffer("nothing", "totals", 1)
    with pytest.raises(TransientAnswer, match="does not exist: it was deleted, and with it rows"):
        check(kafka.topics, [BufferTopic(gone, "id", 1)])
    with pytest.raises(PermanentError, match="has 2 partitions"):
        trim(kafka.topics, replace(topic, partitions=1), {0: 0})


def test_a_record_of_another_kind_is_named_with_its_place(kafka: Kafka) -> None:
    topic = made(kafka)
    kafka.writer.append(topic.name, 0, b"no record")
    with pytest.raises(PermanentError, match=rf"{topic.name}\[0\] at offset 0: control record"):
        while True:
            reader(kafka, topic).read(0.5)


def test_a_missing_topic_is_an_error_of_the_flush(kafka: Kafka) -> None:
    ours = writer(kafka)
    ours.send((names.buffer("nothing", "totals", 2), 0), head(5), [b"x"])
    with pytest.raises(TransientAnswer):
        ours.flush(20)
    topic = made(kafka)
    ours.send((topic.name, 0), head(5), [b"x"])
    ours.flush(20)
    assert plain(reader(kafka, topic).wait(5, {(0, 0)}, 20)) == {(0, 0): [b"x"]}
