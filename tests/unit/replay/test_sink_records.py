"""Which records of a sink topic an epoch wrote, also between others, or why they are not had."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.replay.differences import Rows
from perseid.replay.sink_records import NotThere, committed, picked
from perseid.testing.kafka import FakeColumnReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.topics.columns import Records
from perseid.topics.records import SinkWindow
from perseid.topics.transactions import PartitionBatch
from perseid.worker.sink.sink_outputs import checksum

Pair = tuple[bytes | None, bytes | None]
TOPIC = ("out", 0)


def window(records: Records, rows: Sequence[int], topic: str = "out") -> SinkWindow:
    """As the ledger has it of these rows."""
    keys, values = records.keys.take(pa.array(rows)), records.values.take(pa.array(rows))
    first, last = int(records.offsets[rows[0]]), int(records.offsets[rows[-1]])
    return SinkWindow(topic, records.partition, first, last, len(rows), checksum(keys, values))


def topic(writers: Sequence[str], stamps: Sequence[int] | None = None, first: int = 100) -> Records:
    """One record for each writer's name, in this order: key `<writer><n>`, value `<n>`."""
    return Records.of(
        0,
        [
            (first + i, stamps[i] if stamps else 0, b"%s%d" % (w.encode(), i), b"%d" % i)
            for i, w in enumerate(writers)
        ],
    )


def of(writers: Sequence[str], name: str) -> list[int]:
    return [i for i, writer in enumerate(writers) if writer == name]


def between(records: Records, one: SinkWindow) -> Records:
    return records.split(one.last + 1)[0].split(one.first)[1]


def pick(
    writers: str, name: str = "a", *, known: str = "", stamps: Sequence[int] | None = None,
    made: Rows | None = None,
) -> list[int] | str:  # fmt: skip
    """The rows that are picked for the writer `name`; windows of `known` writers are given."""
    records = topic(writers, stamps)
    mine = window(records, of(writers, name))
    others = [window(records, of(writers, other)) for other in known]
    found = picked(between(records, mine), mine, [*others, mine], made)
    if isinstance(found, NotThere):
        return found.why
    assert found.offsets is not None
    assert found.keys.to_pylist() == records.keys.take(pa.array(of(writers, name))).to_pylist()
    assert checksum(found.keys, found.values) == mine.checksum
    return (found.offsets - 100).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("writers", "known"),
    [
        ("aaa", ""), ("a", ""), ("bbaaacc", "bc"),
        ("aabbba", "b"),  # inside
        ("aabcba", "bc"),  # inside what is inside
        ("aabbccaddda", "bcd"),
        ("aabbaabb", "b"), ("bbaabbaa", "b"),  # each begins inside the other
        ("aabbaabbaabb", "b"),
        ("aabbba", ""), ("axaaaaa", ""), ("axxaaxa", ""),  # of a writer without a ledger
    ],
)  # fmt: skip
def test_records_are_separated_from_those_of_other_windows(writers: str, known: str) -> None:
    records = topic(writers)
    holes = np.cumsum([a != b for a, b in zip("-" + writers, writers, strict=False)])
    spread = Records(0, records.values, records.keys, records.offsets + holes, records.timestamps)
    mine = window(spread, of(writers, "a"))
    others = [window(spread, of(writers, name)) for name in known]
    found = picked(between(spread, mine), mine, [*others, mine])
    assert isinstance(found, Rows), found
    assert found.keys.to_pylist() == records.keys.take(pa.array(of(writers, "a"))).to_pylist()


def test_windows_alone_are_enough_without_holes_between_offsets() -> None:
    assert pick("aabbba", known="b") == [0, 1, 5]
    assert pick("aabbaabb", known="b") == [0, 1, 4, 5]
    assert pick("bbaabbaa", known="b") == [2, 3, 6, 7]
    assert pick("aabcbca", known="bc") == [0, 1, 6]
    assert pick("aabaabaa", known="b") == [0, 1, 3, 4, 6, 7]  # its own are inside another one
    nested = "aabcbaadefedaaghihga"  # too many runs for a search
    assert pick(nested, known="bcdefghi") == of(nested, "a")


def test_timestamps_show_where_batches_begin() -> None:
    assert pick("aaxxaa", stamps=[1, 1, 2, 2, 3, 3]) == [0, 1, 4, 5]
    assert pick("aaxxaaxxa", stamps=[1, 1, 2, 2, 3, 3, 4, 4, 5]) == [0, 1, 4, 5, 8]


def test_what_the_audit_has_made_shows_which_are_its_own() -> None:
    writers = "axxaxaxaaxaxa"
    records, mine = topic(writers), of(writers, "a")
    keys, values = records.keys.take(pa.array(mine)), records.values.take(pa.array(mine))
    assert pick(writers) == "mixed"
    assert pick(writers, made=Rows(keys, values)) == mine
    other = pa.array([b"other"] * len(mine), pa.binary())
    assert pick(writers, made=Rows(keys, other)) == mine  # by its keys
    one_wrong = pa.concat_arrays([keys[:3], other[:1], keys[4:]])
    assert pick(writers, made=Rows(one_wrong, values)) == mine


def test_fewer_records_than_counted_were_compacted() -> None:
    records = topic("aaaa")
    mine = window(records, [0, 1, 2, 3])
    assert _why(picked(records.without([2]), mine)) == "compacted"
    assert _why(picked(topic("aaaxx").without([3]), window(topic("aaaxx"), [0, 1, 3]))) == (
        "compacted"
    )


def test_as_many_records_with_another_checksum_were_changed() -> None:
    records = topic("aaaa")
    mine = window(records, [0, 1, 2, 3])
    found = picked(topic("aaab"), mine)
    assert _why(found) == "changed"
    assert isinstance(found, NotThere)
    assert "out[0], offsets 100 to 103: the topic has 4 records" in found.text


def test_a_window_of_another_topic_partition_explains_nothing() -> None:
    records = topic("aabbba")
    mine, other = window(records, [0, 1, 5]), window(records, [2, 3, 4], "elsewhere")
    assert _why(picked(records, mine, [other])) == "mixed"


def _why(found: Rows | NotThere) -> str:
    return found.why if isinstance(found, NotThere) else "found"


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 9))
def test_nothing_is_taken_for_what_it_is_not(seed: int, number: int, runs: int) -> None:
    """Whatever is found has the ledger's checksum; batches with their own time are always found."""
    rng = random.Random(seed)
    batches = [(rng.choice("abcd"[:number]), rng.randint(1, 40)) for _ in range(runs)]
    batches = [("a", 2), *batches, ("a", 1)]
    writers = "".join(name * size for name, size in batches)
    stamps = [i for i, (_, size) in enumerate(batches) for _ in range(size)]
    known = "".join(sorted(set(writers) - {"a"}))
    found = pick(writers, known=known, stamps=stamps)
    if len(set(known)) == 0 or runs <= 2:
        assert found == of(writers, "a")
    else:
        assert found == "mixed" or found == of(writers, "a")


class World:
    """A sink topic on the model of Kafka, written by transactions."""

    def __init__(self) -> None:
        self.kafka = ModelKafka()
        FakeTopics(self.kafka).create("out", 1)
        self.reader = FakeColumnReader(self.kafka)
        self._transactions = FakeTransactions(self.kafka)

    def write(self, *parts: tuple[str, list[Pair]], abort: str = "") -> dict[str, SinkWindow]:
        """Each writer's records in the order of `parts`, in one transaction of each writer."""
        names = dict.fromkeys(name for name, _ in parts)
        open_ = {name: self._transactions.acquire(name, 1000, 1.0) for name in names}
        for transaction in open_.values():
            transaction.begin()
        places: dict[str, list[int]] = {name: [] for name in names}
        mine: dict[str, list[Pair]] = {name: [] for name in names}
        for name, pairs in parts:
            keys, values = [k for k, _ in pairs], [v for _, v in pairs]
            open_[name].send(PartitionBatch("out", 0, keys, values))
            written = open_[name].flush(1.0)[TOPIC]
            places[name] += [written.first, written.last]
            mine[name] += pairs
        for name, transaction in open_.items():
            if name == abort:
                self.kafka.end(name, self.kafka.epoch(name), "aborted")
            else:
                transaction.commit(1.0)
        return {
            name: SinkWindow(
                "out", 0, places[name][0], places[name][-1], len(pairs),
                checksum(pa.array([k for k, _ in pairs], pa.binary()),
                         pa.array([v for _, v in pairs], pa.binary())),
            )
            for name, pairs in mine.items()
        }  # fmt: skip


def pairs(name: str, count: int) -> list[Pair]:
    return [(b"%s%d" % (name.encode(), i), b"%d" % i) for i in range(count)]


def test_epochs_that_interleave_are_read_from_the_topic() -> None:
    world = World()
    a, b, c = pairs("a", 6), pairs("b", 5), pairs("c", 2)
    world.write(("a", pairs("early", 2)))
    windows = world.write(
        ("a", a[:3]), ("b", b[:2]), ("c", c), ("a", a[3:]), ("b", b[2:]), abort="c"
    )
    for name, expected in (("a", a), ("b", b)):
        found = committed(world.reader, windows[name], windows.values())
        assert isinstance(found, Rows), found
        assert list(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)) == expected
        assert found.offsets is not None
        first, last = windows[name].first, windows[name].last
        assert (found.offsets[0], found.offsets[-1]) == (first, last)


def test_why_records_cannot_be_read() -> None:
    world = World()
    mine = world.write(("a", pairs("a", 4)))["a"]
    gone = SinkWindow("gone", 0, 0, 3, 4, mine.checksum)
    found = committed(world.reader, gone)
    assert found == NotThere("expired", "topic gone does not exist any more")
    log = world.kafka.log(*TOPIC)
    log.replace([replace(r, marker=True) if r.offset == 1 else r for r in log.records])
    assert _why(committed(world.reader, mine)) == "compacted"
    log.trim(2)
    assert committed(world.reader, mine) == NotThere(
        "expired", "out[0] begins at offset 2, and the records are from 0 on"
    )
    later = SinkWindow("out", 0, 50, 53, 4, mine.checksum)
    found = committed(world.reader, later)
    assert _why(found) == "changed"
