"""Scripts: what a single broker loses in a power failure. Each script restarts the real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from perseid.errors import RetryableError
from perseid.testing.wait import until
from perseid.topics.log import Entry, LogReader
from support.conformance import Scripts, outcome
from support.conformance.kafka_side import KafkaSide

SCRIPTS: Scripts[KafkaSide] = Scripts()


@SCRIPTS.add(
    (0, 2, 2), "LogTruncated", "RetryableError", 2, [b"0", b"1", b"other"],
    (0, 2, 2), [b"0", b"1"], "RetryableError", "committed", [b"x"],
)  # fmt: skip
def an_unflushed_tail_is_lost_and_its_offsets_are_given_again(side: KafkaSide) -> Iterator[object]:
    lost, flushed, half = side.kafka.topic(), side.kafka.topic(), side.kafka.topic()
    writer = side.kafka.writer
    for i in range(2):
        writer.append(lost, 0, b"%d" % i)
        writer.append(flushed, 0, b"%d" % i)
    broken, whole = side.opened(f"b-{half}", half, b"a"), side.opened(f"w-{half}", half, b"x")
    side.send(broken, half, b"b")
    side.flush()
    for i in range(2):
        writer.append(lost, 0, b"lost%d" % i)
    side.power_failure({(lost, 0): 2, (half, 0): 2})
    yield side.offsets(lost)
    yield side.read(lost, 3)  # by a reader that has read that far
    yield outcome(writer.append, lost, 0, b"refused")  # it would follow a record that is lost
    yield writer.append(lost, 0, b"other")
    yield side.read(lost, 0)
    yield side.offsets(flushed)
    yield side.read(flushed, 0)
    yield side.send(broken, half, b"c")
    broken.close()
    yield side.commit(whole)
    side.settle(f"w-{half}")
    side.acquire(f"b-{half}").close()
    side.settle(f"b-{half}")
    yield side.read(half, 0)


@SCRIPTS.add(
    (0, 0, 1), (0, 0, 1), "UndecidedTransaction", (0, 0, 3), "committed", (0, 3, 3), [b"a", b"b"],
    (0, 3, 3), [], "committed", (0, 1, 1),
)  # fmt: skip
def a_lost_marker_leaves_the_decision_to_the_next_transaction(side: KafkaSide) -> Iterator[object]:
    one, two, three = side.kafka.topic(), side.kafka.topic(), side.kafka.topic()
    for name in (one, two):
        side.write(f"m-{name}", name, b"a")  # acknowledged, but not flushed
    silent = side.opened(f"m-{three}", three, b"a")
    side.flush()
    side.send(silent, three, b"gone")
    side.power_failure({(one, 0): 1, (two, 0): 1, (three, 0): 1})
    yield side.offsets(one)
    side.acquire(f"m-{one}").close()  # does not help
    yield side.offsets(one)
    yield side.between(one, 0, 1, wait_s=4.0)
    other = side.opened(f"o-{two}", two, b"other")
    side.commit(other)
    side.settle(f"o-{two}")
    yield side.offsets(two)  # nor does a transaction of another id
    again = side.opened(f"m-{one}", one, b"b")
    yield side.commit(again)
    side.settle(f"m-{one}")
    yield side.offsets(one)
    yield side.read(one, 0)
    side.opened(f"m-{two}", two, b"b").close()
    side.acquire(f"m-{two}").close()
    side.settle(f"m-{two}")
    yield side.offsets(two)[0], side.offsets(two)[1] - 2, side.offsets(two)[2] - 2
    yield [v for v in side.read(two, 0) if v == b"a"]  # type: ignore[attr-defined]
    yield side.commit(silent)  # sends nothing more, so it does not learn of the loss
    side.settle(f"m-{three}")
    yield side.offsets(three)[0], side.offsets(three)[1] - 1, side.offsets(three)[2] - 1


@SCRIPTS.add([b"0", b"1", b"2", b"3"], "LogTruncated", [b"0", b"1", b"new", b"new", b"new"])
def a_reader_past_a_cut_knows_it_although_the_log_has_grown(
    side: KafkaSide,
) -> Iterator[object]:
    """Detects it by the leader epochs; a reader without a position reads what there is."""
    name = side.kafka.topic()
    for i in range(4):
        side.kafka.writer.append(name, 0, b"%d" % i)
    reader = side.kafka.reader()
    found: list[bytes] = []
    while len(found) < 4:
        read = reader.read_from(name, 0, len(found), max_records=9, timeout_s=5.0)
        found += [entry.value for entry in read]
    yield found
    side.flush()
    side.power_failure({(name, 0): 2})
    for _ in range(3):
        until(lambda: _appends(side, name), 30.0, "a new producer is taken")
    yield outcome(lambda: _read_on(reader, name))
    reader.close()
    yield side.read(name, 0)


def _appends(side: KafkaSide, name: str) -> bool:
    return isinstance(outcome(side.kafka.writer.append, name, 0, b"new"), int)


def _read_on(reader: LogReader, name: str) -> list[Entry]:
    """Reads until the position has a record, or the reader raises an error."""
    found: list[Entry] = []
    tries = 0
    while not found and tries < 100:
        tries += 1
        with suppress(RetryableError):  # the broker has just been away
            found = reader.read_from(name, 0, 4, max_records=9, timeout_s=0.3)
    return found
