"""Backups: what is in them, what a restore makes of them, and which jobs it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from perseid.engine.feed import base_of
from perseid.errors import DamagedFile, RefusedError, RetryableError
from perseid.jobs.model.trees import archive_path
from perseid.jobs.operations import backup
from perseid.jobs.operations.backup import Backup
from perseid.jobs.operations.restore import GENERATIONS, Restored, restore
from perseid.records import (
    PAIR,
    WHOLE,
    BackupMark,
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    Plan,
)
from perseid.records.version import Build
from perseid.registry import Registry, codec, paths
from perseid.registry.port import Create, Delete, Set
from perseid.state.durability import checkpoint
from perseid.state.durability.checkpoint import Manifest, Part
from perseid.state.durability.pieces import piece_path
from perseid.state.durability.store import LocalStore
from perseid.testing.kafka import FakeTopics
from perseid.testing.registry import FakeZooKeeper
from perseid.topics import codec as records
from perseid.topics import names
from perseid.topics.admin import TopicAdmin
from perseid.topics.records import Begin, FragmentState, LedgerRecord, Rewind, Token, TokenRecord
from perseid.topics.transactions import PartitionBatch
from support import kafka_handle
from support.kafka_handle import Kafka

JOB, UUID, SHA = "shop", "uuid-1", "a" * 64
BUILD = Build("0.1.0", 1)


@dataclass
class Site:
    """A deployment: `registry` and `store` may be lost, `kafka` stays."""

    folder: Path
    kafka: Kafka = field(default_factory=kafka_handle.fake)
    registry: Registry = field(default_factory=lambda: Registry(FakeZooKeeper().session()))
    epoch: int = 0
    offset: int = -1

    def __post_init__(self) -> None:
        self.store = LocalStore(self.folder / "store")
        self.store.write(archive_path(SHA), [b"an archive"])
        self.kafka.topics.create(names.tokens(JOB), 1)
        self.kafka.topics.create(names.ledger(JOB), 1)

    @property
    def topics(self) -> FakeTopics | TopicAdmin:
        return self.kafka.topics

    def apply(self) -> JobEntry:
        entry = JobEntry(JOB, UUID, "r1", SHA, "running", 1, 5, {"from": "scratch"})
        self.registry.put_job_entry(entry, None)
        return entry

    def put(self, path: str, entry: object) -> None:
        data = entry if isinstance(entry, bytes) else codec.encode(entry)
        there = self.registry.coordination.get(path)
        self.registry.coordination.write(Create(path, data) if there is None else Set(path, data))

    def place(self, generation: int) -> None:
        self.put(paths.plan(JOB), Plan.fused(JOB, UUID, generation, "w1-a", "r1", SHA, 1, 0, 0))
        self.put(paths.generation(JOB), str(generation).encode())

    def append(self, record: TokenRecord) -> int:
        return self.kafka.writer.append(names.tokens(JOB), 0, records.encode(record))

    def begin(self, uuid: str = UUID) -> None:
        self.offset = self.append(Begin(1, uuid, self.epoch))

    def issue(self, epochs: int, revision: str = "r1", layout: int = 1) -> None:
        for _ in range(epochs):
            self.epoch += 1
            token = Token(1, UUID, self.epoch, self.offset, revision, layout, (), self.epoch)
            self.offset = self.append(token)

    def complete(self, generation: int) -> str:
        """A checkpoint of the newest epoch; the path of its part's only piece."""
        folder = checkpoint.checkpoint_folder(JOB, UUID, self.epoch, generation, self.offset)
        path = checkpoint.part_path(folder, "counts", 0, checkpoint.PART)
        self.store.write(piece_path(path, 0), [b"state of %d" % self.epoch])
        part = Part("counts", 0, path, 10, 7)
        manifest = Manifest(
            JOB, UUID, self.epoch, generation, 1, "r1", self.offset, self.epoch, (part,)
        )
        where, crc = checkpoint.write_manifest(self.store, manifest)
        pointer = CheckpointPointer(
            self.epoch, generation, 1, "r1", self.offset, where, crc, 10, self.epoch
        )
        self.put(paths.checkpoint(JOB), CheckpointPointers(UUID, (pointer,)))
        return piece_path(path, 0)

    def commit(self, generation: int) -> None:
        """The newest epoch is in the ledger."""
        record = LedgerRecord(UUID, 1, "counts", 0, generation, self.epoch, self.offset)
        transaction = self.kafka.transactions.acquire("id", 1_000_000, 20)
        transaction.begin()
        transaction.send(PartitionBatch(names.ledger(JOB), 0, [None], [records.encode(record)]))
        transaction.flush(20)
        transaction.commit(20)

    def back_up(self, *, copied: bool = True) -> Path:
        folder = self.folder / "backup"
        backup.take(self, folder, BUILD, "local", 1_000, copied=copied)
        return folder

    def lose(self, *, store: bool = True) -> None:
        """ZooKeeper is empty, and so is the store."""
        self.registry = Registry(FakeZooKeeper().session())
        if store:
            shutil.rmtree(self.folder / "store")
            self.store = LocalStore(self.folder / "store")

    def restore(self, folder: Path, build: Build = BUILD, **how: object) -> list[Restored]:
        reader = self.kafka.reader()
        return restore(self, reader, folder, build, **how)  # type: ignore[arg-type]

    def nodes(self) -> dict[str, bytes]:
        coordination = self.registry.coordination
        found = {n: coordination.get(f"{paths.job(JOB)}/{n}")
                 for n in coordination.children(paths.job(JOB))}  # fmt: skip
        return {n: node.data for n, node in found.items() if node is not None}

    def files(self) -> dict[str, bytes]:
        return {path: bytes(self.store.read(path)) for path in self.store.list()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A job of generation 4 that has run three epochs, with a checkpoint of the second."""
    made = Site(tmp_path)
    made.apply()
    made.place(4)
    made.begin()
    made.issue(2)
    made.complete(4)
    made.issue(1)
    made.commit(4)
    return made


def test_a_job_comes_back_as_it_was_but_for_its_owner(site: Site) -> None:
    files = site.files()
    folder = site.back_up()
    nodes = site.nodes()
    site.lose()
    assert site.restore(folder) == [Restored(JOB, "running", 4 + GENERATIONS, 2, 1)]
    assert site.files() == files
    after = site.nodes()
    plan = codec.decode(after.pop("plan"), Plan, "plan")
    before = codec.decode(nodes.pop("plan"), Plan, "plan")
    disowned = before.handed_to(None, 4 + GENERATIONS)
    assert plan == replace(disowned, reason="restored from a backup")
    assert after.pop("generation") == str(4 + GENERATIONS).encode() != nodes.pop("generation")
    assert after == nodes


def test_a_job_with_a_replica_comes_back_without_it_and_with_the_primarys_copy(site: Site) -> None:
    plan = site.registry.plan(JOB)
    assert plan is not None
    promoted = plan.with_replica(WHOLE, "w2-a", 5).promoted([WHOLE], 6)
    site.put(paths.plan(JOB), promoted.with_replica(WHOLE, "w3-a", 7))
    folder = site.back_up()
    site.lose()
    site.restore(folder)
    restored = site.registry.plan(JOB)
    assert restored is not None
    assert (restored.replicas, restored.only.owner, restored.only.log) == ((), None, PAIR)


def test_buffers_are_not_in_a_backup_and_need_not_be_there(site: Site) -> None:
    """The leader makes them again before fragments run, and what they held is sent again."""
    buffer = names.buffer(JOB, "counts", 1)
    site.topics.create(buffer, 2)
    folder = site.back_up()
    assert buffer not in (folder / backup.CONTENTS).read_text()
    site.topics.delete([buffer])
    site.lose()
    assert [found.name for found in site.restore(folder)] == [JOB]


def two_checkpoints(site: Site) -> CheckpointPointers:
    """Of the job's last epoch as well, besides the one that it has."""
    older = site.registry.pointers(JOB)
    site.complete(4)
    newest = site.registry.pointers(JOB)
    assert older is not None and newest is not None
    both = CheckpointPointers(UUID, (*newest.pointers, *older.pointers))
    site.put(paths.checkpoint(JOB), both)
    return both


def test_the_token_log_is_kept_from_where_an_owner_of_a_restored_job_reads_it(site: Site) -> None:
    """It falls back to older checkpoints, so it begins with the oldest."""
    both = two_checkpoints(site)
    folder = site.back_up()
    (mark,) = site.registry.backups(JOB)
    site.kafka.topics.delete_records({(names.tokens(JOB), 0): mark.token_offset})
    site.lose()
    site.restore(folder)
    plan = site.registry.plan(JOB)
    assert plan is not None
    base = base_of(replace(plan, checkpoints=both.pointers))
    assert (mark.epoch, mark.token_offset) == (base.epoch, base.offset)
    place = names.tokens(JOB), 0
    assert site.kafka.reader().read_range(*place, base.offset, base.offset + 1, timeout_s=1)


def test_what_is_kept_for_audits_is_not_restored(site: Site) -> None:
    """A backup has neither the files of older checkpoints nor earlier archives."""
    both = two_checkpoints(site)
    newest, older = both.pointers
    gone = replace(older, epoch=1, manifest="gone")
    kept = CheckpointPointers(UUID, (newest, older), (gone,), {"r0": "a" * 64})
    site.put(paths.checkpoint(JOB), kept)
    folder = site.back_up()
    site.lose()
    site.restore(folder)
    assert site.registry.pointers(JOB) == both


def test_a_checkpoint_that_is_dropped_while_it_is_marked_is_not_relied_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may have been trimmed up to the next one before the mark was there."""
    both = two_checkpoints(site)
    put = site.registry.put_backups

    def trimmed_before(name: str, marks: tuple[BackupMark, ...]) -> None:
        site.put(paths.checkpoint(JOB), CheckpointPointers(UUID, both.pointers[:1]))
        put(name, marks)

    monkeypatch.setattr(site.registry, "put_backups", trimmed_before)
    site.back_up()
    assert [m.epoch for m in site.registry.backups(JOB)] == [both.pointers[0].epoch]


def test_a_backup_is_not_older_than_its_checkpoint_by_any_clock(site: Site) -> None:
    """The coordinator would trim what it needs: it holds backups of the last week."""
    newest = site.registry.pointers(JOB)
    assert newest is not None
    late = replace(newest.pointers[0], time_ms=1_790_000_000_000)
    site.put(paths.checkpoint(JOB), replace(newest, pointers=(late,)))
    for now_ms, taken_ms in ((1_787_000_000_000, late.time_ms), (1_790_000_000_500,) * 2):
        backup.mark(site.registry, JOB, now_ms)
        assert site.registry.backups(JOB)[0].taken_ms == taken_ms


def test_what_came_since_is_run_again_under_a_generation_above_all(site: Site) -> None:
    folder = site.back_up()
    site.append(Rewind(1, UUID, 2, site.offset - 1, "mended"))
    site.epoch, site.offset = 2, site.offset - 1
    site.issue(6)
    site.commit(700)
    site.lose()
    assert site.restore(folder) == [Restored(JOB, "running", 700 + GENERATIONS, 2, 6)]


def test_owners_that_only_reported_how_they_failed_count_too(site: Site) -> None:
    """A job that fails in front of its first epoch for a night has thousands of generations."""
    folder = site.back_up()
    failed = FragmentState(UUID, 5_000, "w1-1", "failed", 2, "RetryableError", "away")
    site.kafka.topics.create(names.progress(JOB), 1)
    site.kafka.writer.append(names.progress(JOB), 0, records.encode(failed))
    site.lose()
    (found,) = site.restore(folder)
    assert found.generation == 5_000 + GENERATIONS


def test_what_the_store_still_has_is_left_and_what_is_damaged_is_replaced(site: Site) -> None:
    folder, files = site.back_up(), site.files()
    site.lose(store=False)
    part = next(path for path in files if "counts-0" in path)
    site.store.write(part, [b"damaged"])
    site.restore(folder)
    assert site.files() == files


def test_a_backup_without_copies_needs_the_store(site: Site) -> None:
    folder = site.back_up(copied=False)
    assert [p.name for p in folder.rglob("*") if p.is_file()] == [backup.CONTENTS]
    site.lose(store=False)
    site.restore(folder)
    assert site.nodes()
    site.lose()
    with pytest.raises(RefusedError, match="without copies"):
        site.restore(folder)
    assert not site.nodes()


def test_a_dry_run_writes_nothing(site: Site) -> None:
    folder = site.back_up()
    site.lose()
    assert site.restore(folder, dry_run=True)[0].replayed == 1
    assert (site.nodes(), site.files()) == ({}, {})


def switched(site: Site) -> None:
    site.issue(1, revision="r2")


def rescaled(site: Site) -> None:
    site.issue(1, layout=2)


def from_scratch(site: Site) -> None:
    site.begin("uuid-2")


def another_kafka(site: Site) -> None:
    site.kafka.topics.delete([names.ledger(JOB)])
    site.kafka.topics.create(names.ledger(JOB), 1)


def no_token_log(site: Site) -> None:
    site.kafka.topics.delete([names.tokens(JOB)])


def applied_again(site: Site) -> None:
    site.apply()


REFUSED: list[tuple[Callable[[Site], None], str]] = [
    (switched, "has run revision r2, the backup has r1"),
    (rescaled, "was changed after the backup"),
    (from_scratch, "was started from scratch, or applied again"),
    (another_kafka, "another one than at the backup"),
    (no_token_log, "is not in this Kafka"),
    (applied_again, "a restore never replaces a job"),
]


@pytest.mark.parametrize(("change", "text"), REFUSED, ids=lambda v: getattr(v, "__name__", ""))
def test_a_job_that_is_another_one_by_now_is_refused(
    site: Site, change: Callable[[Site], None], text: str
) -> None:
    folder = site.back_up()
    site.lose()
    change(site)
    nodes = site.nodes()
    with pytest.raises(RefusedError, match=f"^{JOB}: .*{text}"):
        site.restore(folder)
    assert (site.nodes(), site.files()) == (nodes, {})


def test_a_job_that_had_not_begun_is_restored_unless_it_has_since(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.apply()
    folder = site.back_up()
    site.lose()
    assert site.restore(folder) == [Restored(JOB, "running", GENERATIONS, 0, 0)]
    site.lose()
    site.begin()
    with pytest.raises(RefusedError, match="was first run after the backup"):
        site.restore(folder)


def test_a_removed_jobs_generation_is_kept(site: Site) -> None:
    for node in ("spec", "plan", "checkpoint"):
        site.registry.coordination.write(Delete(f"{paths.job(JOB)}/{node}"))
    site.commit(9)
    folder = site.back_up()
    site.lose()
    assert site.restore(folder) == []
    assert site.registry.generation(JOB) == 9 + GENERATIONS
    assert site.registry.job_entry(JOB) is None


def test_other_lasting_nodes_come_back_where_they_are_missing(site: Site) -> None:
    for path, data in (("/tenants", b""), ("/tenants/a", b'{"quota": 3}'), ("/rights", b"new")):
        site.put(path, data)
    folder = site.back_up()
    site.lose()
    site.put("/rights", b"newer")
    site.restore(folder)
    found = {p: site.registry.coordination.get(p) for p in ("/tenants/a", "/rights", "/leader")}
    assert [node.data if node else None for node in found.values()] == [
        b'{"quota": 3}', b"newer", None,
    ]  # fmt: skip


def test_one_job_of_several(site: Site) -> None:
    folder = site.back_up()
    site.lose()
    with pytest.raises(RefusedError, match="has no job 'nope'; it has: shop"):
        site.restore(folder, only=["nope"])
    assert [r.name for r in site.restore(folder, only=[JOB])] == [JOB]


def test_a_damaged_or_foreign_backup_is_not_restored(site: Site, tmp_path: Path) -> None:
    folder = site.back_up()
    site.lose()
    with pytest.raises(RefusedError, match="reads protocol 3 only: restore it with perseid 0"):
        site.restore(folder, Build("3.0", 3, ()))
    with pytest.raises(RefusedError, match="holds no backup"):
        site.restore(tmp_path)
    part = next(path for path in (folder / backup.STORE).rglob("*") if "counts-0" in path.name)
    part.write_bytes(b"another state")
    with pytest.raises(DamagedFile, match="not as it was written"):
        site.restore(folder)
    part.unlink()
    with pytest.raises(DamagedFile, match="missing from the backup"):
        site.restore(folder)
    document = json.loads((folder / backup.CONTENTS).read_text())
    del document["jobs"][0]["nodes"]
    (folder / backup.CONTENTS).write_text(json.dumps(document))
    with pytest.raises(DamagedFile, match="not as a backup was written"):
        site.restore(folder)
    assert site.nodes() == {}


class Busy(LocalStore):
    """A newer checkpoint takes the place of the one that is being read, `times` times."""

    def __init__(self, site: Site, times: int) -> None:
        super().__init__(site.folder / "store")
        self._site, self._left = site, times

    def read(self, path: str) -> memoryview:
        if self._left and "counts-0" in path:
            self._left -= 1
            self._site.issue(1)
            self._site.complete(4)
            self.delete(path)
        return super().read(path)


def test_a_checkpoint_that_comes_meanwhile_is_taken_instead(site: Site) -> None:
    site.store = Busy(site, 3)
    folder = site.back_up()
    pointers = backup.read(folder).jobs[0].pointers()
    assert pointers is not None and [p.epoch for p in pointers.pointers] == [6]
    site.store = Busy(site, 10**6)
    shutil.rmtree(folder)
    with pytest.raises(RetryableError, match="changed 10 times"):
        site.back_up()
    assert not folder.exists() and not list(folder.parent.glob(".*"))


def test_a_part_that_is_gone_is_no_backup(site: Site) -> None:
    part = next(path for path in site.files() if "counts-0" in path)
    site.store.delete(part)
    with pytest.raises(DamagedFile, match="is missing from the checkpoint store"):
        site.back_up()


def test_a_folder_that_is_there_is_not_touched(site: Site) -> None:
    folder = site.back_up()
    kept: Backup = backup.read(folder)
    with pytest.raises(RefusedError, match="there already"):
        site.back_up()
    assert backup.read(folder) == kept
