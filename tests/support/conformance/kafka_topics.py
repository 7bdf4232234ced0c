"""Scripts: topics, their settings and identity, offsets, retention."""

from __future__ import annotations

import time
from collections.abc import Iterator

from support.conformance import Scripts, outcome
from support.conformance.kafka_side import KafkaSide

SCRIPTS: Scripts[KafkaSide] = Scripts()
HOUR_MS = 3_600_000


@SCRIPTS.add(True, False, [("made", 3, 2000, False)], True)
def a_topic_is_made_once_and_explicitly(side: KafkaSide) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic()
    topics.delete([name])
    made = f"{name}-made"
    yield topics.create(made, 3, {"max.message.bytes": "2000"})
    yield topics.create(made, 5)
    found = topics.describe([made, "not-there"]).values()
    yield [(i.name.split("-")[1], i.partitions, i.message_bytes_max, i.compacted) for i in found]
    yield made in topics.list()


@SCRIPTS.add([1])
def the_brokers_are_known(side: KafkaSide) -> Iterator[object]:
    yield sorted(side.kafka.topics.brokers())


@SCRIPTS.add(True, False)
def a_compacted_topic_is_known_as_such(side: KafkaSide) -> Iterator[object]:
    for policy in ("compact", "delete"):
        name = side.kafka.topic(cleanup_policy=policy)
        yield side.kafka.topics.describe([name])[name].compacted


@SCRIPTS.add(
    "UsageError", "PermanentError", "PermanentError", "PermanentError", "PermanentError", []
)
def bad_topics_are_refused_and_not_made(side: KafkaSide) -> Iterator[object]:
    topics = side.kafka.topics
    yield outcome(topics.create, "a b", 1)
    yield outcome(topics.create, "none", 0)
    yield outcome(topics.create, "bad", 1, {"max.message.bytes": "many"})
    yield outcome(topics.create, "bad", 1, {"no.such.setting": "1"})
    yield outcome(topics.create, "bad", 1, {"cleanup.policy": "keep"})
    yield sorted({"a b", "none", "bad"} & set(topics.list()))


@SCRIPTS.add(
    "TransientAnswer", "TransientAnswer", "TransientAnswer", "RetryableError", "TransientAnswer",
    {}, None, None,
)  # fmt: skip
def a_topic_that_is_not_there(side: KafkaSide) -> Iterator[object]:
    topics, place = side.kafka.topics, ("nowhere", 0)
    yield outcome(topics.ends, [place])
    yield outcome(topics.starts, [place])
    yield outcome(topics.offsets_at, [place], 0)
    yield outcome(topics.delete_records, {place: 1})
    yield outcome(topics.grow, "nowhere", 2)
    yield topics.identities(["nowhere"])
    yield outcome(topics.delete, ["nowhere"])
    yield outcome(topics.delete_group, "unknown")


@SCRIPTS.add("RetryableError", "RetryableError")
def a_partition_that_is_not_there_is_one_without_a_leader(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    yield outcome(side.kafka.topics.ends, [(name, 9)])
    yield outcome(side.kafka.topics.delete_records, {(name, 9): 1})


@SCRIPTS.add({0: 1}, ["RetryableError"], {0: 1}, ["TransientAnswer"])
def ends_are_known_although_one_partition_has_no_leader(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic()
    side.kafka.writer.append(name, 0, b"v")
    for other in ((name, 9), ("nowhere", 0)):
        found, errors = side.kafka.topics.answered_ends([(name, 0), other])
        yield {partition: end for (_, partition), end in found.items()}
        yield [type(error).__name__ for error in errors]


@SCRIPTS.add({0: 0, 1: 4, 2: 0}, {0: 0, 1: 3, 2: 0}, {}, "PermanentError", (3, 4, 4), (4, 4, 4))
def offsets_and_trimming(side: KafkaSide) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic(3)
    for _ in range(4):
        side.kafka.writer.append(name, 1, b"v")
    places = [(name, p) for p in range(3)]
    yield {p: end for (_, p), end in topics.ends(places).items()}
    topics.delete_records({(name, 1): 3})
    yield {p: start for (_, p), start in topics.starts(places).items()}
    yield topics.ends([])
    yield outcome(topics.delete_records, {(name, 0): 9})
    topics.delete_records({(name, 1): 2})  # is already trimmed
    yield side.offsets(name, 1)
    topics.delete_records({(name, 1): 4})  # everything
    yield side.offsets(name, 1)


@SCRIPTS.add(0, 3, 1, 2)
def offsets_at_a_time(side: KafkaSide) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic()
    place = (name, 0)
    for _ in range(3):
        side.kafka.writer.append(name, 0, b"v")
    yield topics.offsets_at([place], 0)[place]
    yield topics.offsets_at([place], time.time_ns() // 1_000_000 + HOUR_MS)[place]
    topics.delete_records({place: 1})
    yield topics.offsets_at([place], 0)[place]
    topics.delete_records({place: 2})
    yield topics.offsets_at([place], 0)[place]


@SCRIPTS.add((0, 0), (1, 1), (2, 2))
def offsets_at_a_time_end_at_an_open_transaction(side: KafkaSide) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic()
    place = (name, 0)

    def asked() -> tuple[int, int]:
        return topics.offsets_at([place], 0)[place], topics.offsets_at([place], later)[place]

    later = time.time_ns() // 1_000_000 + HOUR_MS
    transaction = side.opened(f"at-{name}", name, b"a")
    yield asked()
    side.acquire(f"at-{name}").close()
    side.settle(f"at-{name}")
    topics.delete_records({place: 1})  # a marker is left
    yield asked()[0], asked()[1] - 1
    topics.delete_records({place: 2})
    yield asked()
    transaction.close()


@SCRIPTS.add({0: 0}, 3, {2: 0}, 0)
def partitions_are_added_and_never_taken(side: KafkaSide) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic()
    yield {p: end for (_, p), end in topics.ends([(name, 0)]).items()}
    topics.grow(name, 3)
    topics.grow(name, 2)
    yield topics.describe([name])[name].partitions
    yield {p: end for (_, p), end in topics.ends([(name, 2)]).items()}
    yield side.kafka.writer.append(name, 2, b"v")


@SCRIPTS.add(True, True, [b"new3", b"new4"], [3], "LogTruncated", "LogTruncated")
def a_recreated_topic_is_read_on_in_silence_unless_it_is_shorter(
    side: KafkaSide,
) -> Iterator[object]:
    topics, name = side.kafka.topics, side.kafka.topic()
    for i in range(4):
        side.kafka.writer.append(name, 0, b"old%d" % i)
    before = topics.identities([name])[name]
    side.recreate(name)
    for i in range(5):
        side.kafka.writer.append(name, 0, b"new%d" % i)
    yield topics.identities([name])[name] != before
    yield side.kafka.sources.identities([name, "nowhere"]) == topics.identities([name])
    yield side.read(name, 3)
    yield side.between(name, 3, 4)
    yield side.read(name, 7)
    yield side.between(name, 7, 8, wait_s=2.0)


@SCRIPTS.add(
    (0, 3, 3), (3, 3, 3), "ReplayDataLost: 2 is below 3", "ReplayDataLost: 0 is below 3", []
)
def retention_by_time_moves_the_start_to_the_end(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic(retention_ms="500")
    for _ in range(3):
        side.kafka.writer.append(name, 0, b"v")
    yield side.offsets(name)
    side.retention(name, 3)
    yield side.offsets(name)
    yield side.read(name, 2)
    yield side.ranged(name, 0, 3)
    yield side.read(name, 3, wait_s=0.2)


@SCRIPTS.add((2, 5, 5), [2, 3, 4], "ReplayDataLost: 1 is below 2")
def retention_by_size_moves_the_start_on(side: KafkaSide) -> Iterator[object]:
    name = side.kafka.topic(retention_bytes="1500000", segment_bytes="1048576")
    for _ in range(5):
        side.kafka.writer.append(name, 0, b"v" * 600_000)  # two do not fit into one segment
    side.retention(name, 2)
    yield side.offsets(name)
    yield side.between(name, 2, 5)
    yield side.between(name, 1, 5)
