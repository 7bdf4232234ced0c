"""Sink topics with what others did to them, in plain lists: every fault is found, nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from perseid.engine.comparison import Unequal
from perseid.errors import ReplayDataLost
from perseid.replay import sink_faults
from perseid.replay.differences import Rows
from perseid.replay.findings import Compared
from perseid.replay.progress import dumped, loaded
from perseid.replay.sink_faults import SinkFaults
from perseid.testing.kafka import FakeLogReader, FakeTopics, FakeTransactions, ModelKafka
from perseid.topics.admin import Partition, TopicInfo
from perseid.topics.columns import Records
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import LedgerRecord, SinkWindow
from perseid.topics.transactions import SinkBatch
from perseid.worker.sink.kept_outputs import KeptOutputs
from perseid.worker.sink.sink_outputs import checksum
from perseid.worker.sink.transaction import SinkIdentity, SinkSession

JOB, FIRST, LAST = "job", 5, 24
WRITERS = (("sums", 0), ("sums", 1), ("sums", 2))
PLACES: tuple[Partition, ...] = (("out", 0), ("out", 1))
Row = tuple[int, bytes | None, bytes | None]
Headers = list[tuple[str, bytes]]


@dataclass
class Message:
    at: int
    found: Headers | None

    def offset(self) -> int:
        return self.at

    def headers(self) -> Headers | None:
        return self.found


@dataclass
class World:
    """Topic partitions as rows, and the ledger of the job that wrote them, in its order."""

    folder: Path
    rows: dict[Partition, list[Row]] = field(default_factory=lambda: defaultdict(list))
    headers: dict[tuple[Partition, int], Headers] = field(default_factory=dict)
    next: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    start: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    ledger: list[LedgerRecord] = field(default_factory=list)
    policy: str = "delete"
    reads: int = 0

    def __post_init__(self) -> None:
        kafka = ModelKafka()
        topics = FakeTopics(kafka)
        topics.create("out", 2, {})
        self.sessions = {
            who: SinkSession(
                SinkIdentity(JOB, "u", 1, *who, 0, 0), FakeTransactions(kafka),
                LedgerReader(FakeLogReader(kafka), topics), topics,
            )
            for who in WRITERS
        }  # fmt: skip

    def append(self, place: Partition, key: bytes | None, value: bytes | None) -> int:
        at = self.next[place]
        self.rows[place].append((at, key, value))
        self.next[place] = at + 1
        return at

    def commit(self, epochs: Mapping[tuple[str, int], int], chance: Random) -> None:
        """Commits an epoch of each writer at the same time, and keeps it as an audit makes it."""
        batches = {
            who: [(b"k%d" % chance.randrange(9), b"%d" % chance.randrange(999))
                  for _ in range(chance.randrange(6))]
            for who in epochs
        }  # fmt: skip
        left = {
            (who, batch.topic, batch.partition): list(batch.records())
            for who, rows in batches.items()
            for batch in self.sessions[who].divided(
                epochs[who], [SinkBatch("out", *zip(*rows, strict=True))] if rows else []
            )
        }
        written: dict[tuple[tuple[str, int], str, int], list[Row]] = defaultdict(list)
        while left:
            mine = chance.choice(sorted(left))
            key, value, _ = left[mine].pop(0)
            written[mine].append((self.append(mine[1:], key, value), key, value))
            if not left[mine]:
                del left[mine]
        for who, epoch in epochs.items():
            windows = tuple(
                window(topic, number, rows)
                for (writer, topic, number), rows in written.items()
                if writer == who
            )
            self.ledger.append(LedgerRecord("u", 1, *who, 1, epoch, epoch, windows))
            for one in windows:
                self.next[one.topic, one.partition] += 1  # a marker
            kept = KeptOutputs(self.sessions[who], self.folder)
            rows = batches[who]
            kept.compare(epoch, [SinkBatch("out", *zip(*rows, strict=True))] if rows else [])

    # Reader, topics and messages ----------------------------------------------------------------

    def prepare(self, starts: Mapping[Partition, int]) -> None:
        assert set(starts) <= set(PLACES)

    def close(self) -> None:
        pass

    def _between(self, place: Partition, start: int, end: int) -> list[Row]:
        assert start < end <= self.next[place]
        if start < self.start[place]:
            raise ReplayDataLost(*place, start, self.start[place])
        return [row for row in self.rows[place] if start <= row[0] < end]

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        self.reads += 1
        found = self._between((topic, partition), start, end)
        for at in range(0, len(found), 3):
            some = [(o, 0, key, value) for o, key, value in found[at : at + 3]]
            yield Records.of(partition, some)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "id", 2, self.policy) for name in topics if self.rows}

    def starts(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return {place: self.start[place] for place in places}

    def ends(self, places: Iterable[Partition], *, committed: bool = True) -> dict[Partition, int]:
        return {place: self.next[place] for place in places}

    def messages(self) -> Messages:
        return Messages(self)

    # The audit ----------------------------------------------------------------------------------

    def audit(
        self, mixed: Sequence[str] = (), unequal: Mapping[int, list[Unequal]] | None = None,
        first: int = FIRST, last: int = LAST,
    ) -> SinkFaults:  # fmt: skip
        """Takes the ledger as an audit reads it: each partition in order, far enough."""
        found = SinkFaults(first, self.folder, self, self)
        left = {who: [r for r in self.ledger if (r.operator, r.partition) == who]
                for who in WRITERS}  # fmt: skip
        for epoch in range(first, last + 1):
            for records in left.values():
                while records and records[0].epoch <= epoch:
                    found.committed(records.pop(0))
            found.ran(epoch, (unequal or {}).get(epoch, []))
        for records in left.values():
            for record in records:
                found.committed(record)
        found.finish(JOB, mixed, self.messages())
        found.kept()
        return found

    def killed_audit(self, chance: Random) -> SinkFaults:
        """Like `audit`, of a process that is killed, and resumes with what it kept."""
        ports: dict[str, object] = {"world": self, "folder": self.folder}
        found = SinkFaults(FIRST, self.folder, self, self)
        left = {who: [r for r in self.ledger if (r.operator, r.partition) == who]
                for who in WRITERS}  # fmt: skip
        epoch, kept = FIRST, (FIRST, dumped((found, left), ports))
        while epoch <= LAST:
            for records in left.values():
                while records and records[0].epoch <= epoch:
                    found.committed(records.pop(0))
            found.ran(epoch, [])
            epoch += 1
            if chance.random() < 0.4:
                kept = epoch, dumped((found, left), ports)
                found.kept()
            elif chance.random() < 0.3:
                epoch, (found, left) = kept[0], loaded(kept[1], ports)
        for records in left.values():
            for record in records:
                found.committed(record)
        found.finish(JOB, (), self.messages())
        return found


@dataclass
class Messages:
    world: World

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
        place = topic, partition
        for at, _, _ in self.world._between(place, start, end):
            yield [Message(at, self.world.headers.get((place, at)))]


def window(topic: str, partition: int, rows: Sequence[Row]) -> SinkWindow:
    batch = SinkBatch(topic, [row[1] for row in rows], [row[2] for row in rows])
    total = checksum(batch.keys, batch.values)
    return SinkWindow(topic, partition, rows[0][0], rows[-1][0], len(rows), total)


def history(folder: Path, seed: int, *, spread: bool = False) -> World:
    """Epochs 1 to 30. `spread`: the writers are of fragments, each at an epoch of its own."""
    world, chance = World(folder), Random(seed)
    at = dict.fromkeys(WRITERS, 0)
    while min(at.values()) < 30:
        some = [who for who in WRITERS if at[who] < 30 and (not spread or chance.random() < 0.6)]
        for who in some:
            at[who] += 1
        world.commit({who: at[who] for who in some}, chance)
    return world


def plant(world: World, place: Partition, chance: Random) -> int:
    """A record of another writer at a hole or between two records, inside the audited epochs."""
    inside = [w for r in world.ledger if FIRST <= r.epoch <= LAST for w in r.outputs
              if (w.topic, w.partition) == place]  # fmt: skip
    low, high = min(w.first for w in inside), max(w.last for w in inside)
    taken = {row[0] for row in world.rows[place]}
    at = chance.choice([o for o in range(low, high) if o not in taken])
    rows = [*world.rows[place], (at, b"k1", b"foreign")]
    world.rows[place] = sorted(rows, key=lambda row: row[0])
    return at


@pytest.mark.drawn(12)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [False, True])
def test_an_untouched_topic_has_no_fault(tmp_path: Path, seed: int, spread: bool) -> None:
    world = history(tmp_path, seed, spread=spread)
    found = world.audit()
    assert (found.changed, found.why) == ([], {})
    windows = sum(len(r.outputs) for r in world.ledger if FIRST <= r.epoch <= LAST)
    assert windows * (0.3 if spread else 1) <= found.compared["out"] <= windows
    left = {int(path.name) for path in tmp_path.iterdir()}
    assert spread or not left & set(range(FIRST, LAST + 1))


@pytest.mark.parametrize("seed", range(20))
def test_a_foreign_record_is_found_at_its_offset(tmp_path: Path, seed: int) -> None:
    world = history(tmp_path, seed)
    at = plant(world, ("out", 1), Random(seed))
    found = world.audit()
    assert found.changed == [f"out[1]: 1 record that no ledger has, at offset {at}"]
    assert found.why == {}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [False, True])
def test_what_waits_is_found_by_an_audit_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, spread: bool
) -> None:
    """No outputs are deleted before it is kept that they were compared."""
    monkeypatch.setattr(sink_faults, "EPOCHS_MAX", 3)
    found = []
    for killed in (False, True):
        world = history(tmp_path / str(killed), seed, spread=spread)
        plant(world, ("out", 1), Random(seed))
        found.append(world.killed_audit(Random(seed)) if killed else world.audit())
    one, two = found
    assert one.changed == two.changed
    assert one.foreign == two.foreign
    assert (one.compared, one.why) == (two.compared, two.why)


def test_a_foreign_record_inside_a_window_is_found(tmp_path: Path) -> None:
    world, chance = World(tmp_path), Random(1)
    for epoch in range(FIRST, LAST + 1):
        world.commit({WRITERS[0]: epoch}, chance)
    inner = next(w for r in world.ledger for w in r.outputs if w.count > 2)
    place, at = (inner.topic, inner.partition), inner.first + 1
    moved = [(o + (o >= at), k, v) for o, k, v in world.rows[place]]
    world.rows[place] = sorted([*moved, (at, b"k", b"x")], key=lambda row: row[0])
    world.next[place] += 1
    world.ledger = [
        LedgerRecord("u", 1, r.operator, r.partition, 1, r.epoch, r.epoch, tuple(
            SinkWindow(w.topic, w.partition, w.first + (w.first >= at), w.last + (w.last >= at),
                       w.count, w.checksum) if (w.topic, w.partition) == place else w
            for w in r.outputs
        ))
        for r in world.ledger
    ]  # fmt: skip
    (changed,) = world.audit().changed
    assert changed == f"{place[0]}[{place[1]}]: 1 record that no ledger has, at offset {at}"


def test_records_of_another_job_are_named_and_no_fault(tmp_path: Path) -> None:
    world = history(tmp_path, 3)
    at = plant(world, ("out", 0), Random(3))
    world.headers[("out", 0), at] = [("perseid.job", b"other"), ("perseid.epoch", b"7")]
    found = world.audit()
    assert found.changed == []
    assert found.why == {"out": "it has records of others between those of job: 1 of job other"}


def test_a_record_with_the_own_name_that_no_ledger_has_is_a_fault(tmp_path: Path) -> None:
    world = history(tmp_path, 3)
    at = plant(world, ("out", 0), Random(3))
    world.headers[("out", 0), at] = [("perseid.job", JOB.encode())]
    assert world.audit().changed == [f"out[0]: 1 record that no ledger has, at offset {at}"]


def test_in_a_mixed_topic_others_may_write(tmp_path: Path) -> None:
    world = history(tmp_path, 3)
    plant(world, ("out", 0), Random(3))
    plant(world, ("out", 1), Random(4))
    found = world.audit(mixed=["out"])
    assert found.changed == []
    assert found.why["out"].endswith("2 of other writers")


@pytest.mark.parametrize("seed", range(10))
def test_lacking_records_are_a_fault_but_in_a_compacted_topic(tmp_path: Path, seed: int) -> None:
    world, chance = history(tmp_path / "a", seed), Random(seed)
    windows = [w for r in world.ledger if FIRST <= r.epoch <= LAST for w in r.outputs]
    lost = chance.choice(windows)
    place = lost.topic, lost.partition
    world.rows[place] = [row for row in world.rows[place] if row[0] != lost.first]
    (changed,) = world.audit().changed
    assert changed.startswith(f"out[{lost.partition}], offsets ")
    assert changed.endswith("lacks 1 of the ledger's records")

    compacted = history(tmp_path / "b", seed)
    compacted.policy, compacted.rows = "compact", world.rows
    found = compacted.audit()
    assert found.changed == []
    assert found.why == {"out": "out is compacted, and lacks records that the ledger has"}


def test_a_replaced_value_is_lacking_and_foreign(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    lost = next(w for r in world.ledger if r.epoch == FIRST + 1 for w in r.outputs)
    place = lost.topic, lost.partition
    world.rows[place] = [
        (at, key, b"edited" if at == lost.last else value) for at, key, value in world.rows[place]
    ]
    lacking, foreign = world.audit().changed
    assert "lacks 1 of the ledger's records" in lacking
    assert foreign.endswith(f"1 record that no ledger has, at offset {lost.last}")


def test_deleted_records_are_named_and_no_fault(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    cut = next(w for r in world.ledger if r.epoch == 15 for w in r.outputs)
    place = cut.topic, cut.partition
    world.start[place] = cut.first
    world.rows[place] = [row for row in world.rows[place] if row[0] >= cut.first]
    found = world.audit()
    assert found.changed == []
    assert found.why["out"].startswith(f"out[{cut.partition}] begins at offset {cut.first}")
    (shown,) = found.named([Compared("out", "ledger", 9, 9, "before")])
    assert 0 < shown.in_topic < sum(len(r.outputs) for r in world.ledger)
    assert shown.why.startswith("before; out[")


def test_a_topic_that_was_created_again_is_a_fault(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    end = next(w.first for r in world.ledger if r.epoch == 15 for w in r.outputs if w.partition)
    world.rows["out", 1], world.next["out", 1] = [(0, b"k", b"new")], end
    changed = world.audit().changed
    assert any(f"out[1] ends at offset {end}, and the ledger has" in text for text in changed)
    assert any(" of the ledger's records" in text for text in changed)


def test_a_topic_that_does_not_exist_is_named(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    world.rows.clear()
    found = world.audit()
    assert (found.changed, found.why) == ([], {"out": "topic out does not exist any more"})


def test_an_open_transaction_hides_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = history(tmp_path, 2)

    def ends(places: Iterable[Partition], *, committed: bool = True) -> dict[Partition, int]:
        return {place: 4 if committed else world.next[place] for place in places}

    monkeypatch.setattr(world, "ends", ends)
    found = world.audit()
    assert found.changed == []
    assert "an open transaction hides" in found.why["out"]


def test_what_was_made_otherwise_is_left_to_others(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    unequal: dict[int, list[Unequal]] = {}
    for record in world.ledger:
        unequal.setdefault(record.epoch, []).extend(
            Unequal(record.operator, record.partition, record.epoch, record.epoch, w.topic,
                    w.partition, None, w)
            for w in record.outputs
        )  # fmt: skip
    found = world.audit(unequal=unequal)
    assert (found.changed, found.compared["out"]) == ([], 0)


def test_epochs_wait_for_many_and_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = history(tmp_path, 2)
    monkeypatch.setattr(sink_faults, "EPOCHS_MAX", 4)
    at = plant(world, ("out", 0), Random(9))
    found = world.audit()
    assert found.changed == [f"out[0]: 1 record that no ledger has, at offset {at}"]
    assert world.reads <= sum(len(r.outputs) for r in world.ledger)


def test_a_text_names_few_offsets_of_many(tmp_path: Path) -> None:
    world = history(tmp_path, 2)
    first = next(w for r in world.ledger if r.epoch == LAST for w in r.outputs)
    place = first.topic, first.partition
    added: list[Row] = [(at, b"k", b"x") for at in range(9000, 9300)]
    last = max(w.last for r in world.ledger if r.epoch == LAST for w in r.outputs
               if (w.topic, w.partition) == place)  # fmt: skip
    world.rows[place] = [row for row in world.rows[place] if row[0] <= last] + added
    world.next[place] = 9500
    rows: list[Row] = [(9400, b"k", b"end")]
    world.rows[place] += rows
    world.ledger = [r for r in world.ledger if r.epoch <= LAST]
    for who in WRITERS:
        mine = (window(*place, rows),) if who == WRITERS[0] else ()
        world.ledger.append(LedgerRecord("u", 1, *who, 1, LAST + 1, LAST + 1, mine))
    KeptOutputs(world.sessions[WRITERS[0]], tmp_path).compare(
        LAST + 1, [SinkBatch("out", [b"k"], [b"end"])]
    )
    unequal = {LAST + 1: [Unequal(*WRITERS[0], LAST + 1, LAST + 1, *place, None, None)]}
    found = world.audit(last=LAST + 1, unequal=unequal)
    (changed,) = found.changed
    assert changed == (
        f"out[{place[1]}]: 100 and 200 or more records that no ledger has, at offsets 9000, 9001, "
        "9002, 9003, 9004, ..."
    )


def test_a_fingerprint_is_of_the_records_and_not_of_their_order() -> None:
    def print_of(*records: tuple[bytes | None, bytes | None]) -> tuple[int, ...]:
        keys, values = zip(*records, strict=True)
        return sink_faults.fingerprint(
            Rows(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
        )

    a, b, c = (b"a", b"1"), (b"b", b"2"), (None, b"3")
    same = print_of(a, b, c)
    assert print_of(c, a, b) == same
    others = [
        (a, b), (a, b, c, c), (a, a, c), (a, (b"b", b"1"), c), ((b"a", b"2"), (b"b", b"1"), c),
        (a, b, (b"", b"3")), ((b"1", b"a"), b, c), ((b"a1", b""), b, c),
    ]  # fmt: skip
    assert same not in [print_of(*records) for records in others]
