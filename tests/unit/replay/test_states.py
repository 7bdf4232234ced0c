"""The state of a run at checkpoints, with real primitives, state logs, parts and manifests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from perseid.engine.order import EpochOrder
from perseid.errors import PermanentError, RefusedError, RetryableError
from perseid.jobs.operator import Emitter
from perseid.records import CheckpointPointer
from perseid.replay import tolerances
from perseid.replay.bases import refuse_damaged
from perseid.replay.causes import Causes
from perseid.replay.ranges import Range
from perseid.replay.states import States, same_bytes, within
from perseid.state.durability.blob import Identity
from perseid.state.durability.checkpoint import Manifest, Part, write_manifest
from perseid.state.durability.files import LocalFiles
from perseid.state.durability.log import StateLog
from perseid.state.durability.owners import adopt, log_directory
from perseid.state.durability.store import LocalStore
from perseid.state.primitives.primitive import bind
from perseid.topics.records import Token
from perseid.worker.checkpoint.parts import make
from perseid.worker.dataflow.context import FragmentContext
from perseid.worker.epoch import flow
from perseid.worker.epoch.partition_state import PartitionState
from perseid.worker.recovery.migration import Migration
from support.fragment_contexts import DEPLOYMENT, context_of

JOB = """\
name: job
parallelism: 2
sources:
  rows: {topic: rows, format: json, columns: {user: string, n: float64}}
operators:
  sums: {input: rows, key: user, use: "sums:Sums"}
sinks:
  out: {input: sums, topic: out, format: json, key: user}
"""
CODE = """\
from perseid.jobs import Operator, Pool, Table, Value, pa


class Sums(Operator):
    output = pa.schema([("user", pa.string())])
    total = Table(key=pa.string(), n=pa.float64())
    recent = Pool({"at": pa.int64(), "user": pa.string()}, time="at")
    rows = Value(pa.int64(), default=0)

    def process(self, batch, out):
        self.rows.set(self.rows.get() + batch.num_rows)
        self.total.add(batch["user"], n=batch["n"])
        self.recent.append({"at": [self.now] * batch.num_rows, "user": batch["user"]})
        self.recent.expire(self.now - 2)
"""
Rows = dict[str, float]
OFFSET = 100  # of the token of epoch 0


@dataclass
class Life:
    """The state of one life of the job: the job's own, or an audit's."""

    context: FragmentContext
    store: LocalStore
    states: list[PartitionState] = field(default_factory=list)
    pointers: list[CheckpointPointer] = field(default_factory=list)

    def __post_init__(self) -> None:
        one, files = self.context, LocalFiles()
        adopt(files, one.deployment.state, one.job_uuid, 1, one.owner, one.replica)
        for task in one.layout.stateful_tasks:
            identity = Identity("u", 1, task.operator, task.partition)
            directory = log_directory(one.owned, task.operator, task.partition)
            log = StateLog(files, directory, identity)
            log.create()
            operator = flow.instance(one, task.operator, task.partition)
            log.write_snapshot(0, 1, OFFSET, Migration(operator).run({}, 0))
            self.states.append(PartitionState(operator, bind(operator), log))

    def run(self, epoch: int, rows: list[Rows], snapshot: bool = False) -> None:
        """`rows` by partition."""
        for state, given in zip(self.states, rows, strict=True):
            token = Token(1, "u", epoch, OFFSET + epoch - 1, "r", 1, (), epoch)
            batch = pa.table({"user": pa.array(list(given), pa.string()),
                              "n": pa.array(list(given.values()), pa.float64())})  # fmt: skip
            state.run(token, OFFSET + epoch, 1, {"input": batch}, Emitter("sums", None, {}))
            if snapshot:
                copied = state.copy_at_once
                state.at_once = lambda *_: True
                copy = copied(epoch)
                assert copy is not None
                order = state.part_order("job", 1, epoch, OFFSET + epoch, None)
                copy.write(LocalFiles(), order)

    def checkpoint(self, epoch: int) -> None:
        base = None
        if self.pointers:
            base = self.pointers[-1].manifest, self.pointers[-1].crc
        parts, needs = [], {epoch}
        for state in self.states:
            order = state.part_order("job", 1, epoch, OFFSET + epoch, base)
            done = make(order, LocalFiles(), self.store)
            parts.append(
                Part(done.operator, done.partition, done.path, done.bytes, done.crc, done.chain)
            )
            needs |= {file.epoch for file in done.chain}
        manifest = Manifest("job", "u", epoch, 1, 1, "r", OFFSET + epoch, 0, tuple(parts))
        path, crc = write_manifest(self.store, manifest)
        self.pointers.append(
            CheckpointPointer(epoch, 1, 1, "r", OFFSET + epoch, path, crc, 0, 0,
                              min(needs), tuple(sorted(needs)))
        )  # fmt: skip

    def damage(self, epoch: int, partition: int) -> str:
        """Flips a bit of a part; its path."""
        (path,) = [p for p in self.store.list() if f"/c-{epoch}-" in p and f"-{partition}." in p]
        data = bytearray(self.store.read(path))
        data[len(data) // 2] ^= 1
        self.store.write(path, [bytes(data)])
        return path


class World:
    """A job with eight epochs, and checkpoints of epochs 2, 4 and 6."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.chance = folder, random.Random(1)
        self.jobs = 0
        self.store = LocalStore(folder / "store")
        self.rows = [self.made() for _ in range(8)]
        self.job = self.life(CODE)
        for epoch, rows in enumerate(self.rows, 1):
            self.job.run(epoch, rows)
            if epoch in (2, 4, 6):
                self.job.checkpoint(epoch)

    def made(self) -> list[Rows]:
        return [{f"u{self.chance.randrange(9)}-{p}": float(i) for i in range(5)} for p in range(2)]

    def life(self, code: str) -> Life:
        self.jobs += 1
        job = self.folder / f"job-{self.jobs}"
        job.mkdir()
        (job / "job.yaml").write_text(JOB)
        (job / "sums.py").write_text(code)
        settings = DEPLOYMENT.model_copy(update={"state": str(self.folder / f"s-{self.jobs}")})
        return Life(context_of(job, deployment=settings), self.store)

    @property
    def span(self) -> Range:
        tokens = {
            OFFSET + e: Token(1, "u", e, OFFSET + e - 1, "r", 1, (), e) for e in range(1, 9)
        }  # fmt: skip
        return Range("u", "r", 1, 1, 8, 0, OFFSET, None, 0, 0, tokens)

    def audit(
        self, audited: Life | None = None, rows: list[list[Rows]] | None = None,
        allowed: list[str] | None = None, *, snapshot: bool = False,
    ) -> tuple[States, Life]:  # fmt: skip
        """The states of a run of `rows`; `snapshot`: its log has whole states."""
        life = audited or self.life(CODE)
        states = States(
            within(self.span, self.job.pointers), self.store, self.folder / f"kept-{self.jobs}",
            Causes(), tolerances.of_options(allowed or []),
        )  # fmt: skip
        for epoch, given in enumerate(rows or self.rows, 1):
            life.run(epoch, given, snapshot)
            states.ran(self.order(epoch), life.context)
        return states, life

    def order(self, epoch: int) -> EpochOrder:
        token = Token(1, "u", epoch, OFFSET + epoch - 1, "r", 1, (), epoch)
        return EpochOrder(token, OFFSET + epoch, None, muted=True)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("snapshot", [False, True])
def test_equal_states_are_equal_whatever_holds_them(world: World, snapshot: bool) -> None:
    """Deltas or a whole state here, a whole state or a chain of net deltas in the checkpoint."""
    states, _ = world.audit(snapshot=snapshot)
    assert [one.epoch for one in states.compared] == [2, 4, 6]
    assert [one.partitions for one in states.compared] == [2, 2, 2]
    assert all(one.differing == 0 and one.why == "" for one in states.compared)
    assert all(one.entries > 10 for one in states.compared)
    assert states.unlike == []


def test_the_order_of_entries_does_not_matter(world: World) -> None:
    turned = [[dict(reversed(one.items())) for one in rows] for rows in world.rows]
    states, life = world.audit(rows=turned)
    first = life.states[0].live["total"].snapshot()
    job = world.job.states[0].live["total"].snapshot()
    assert first["key"].to_pylist() != job["key"].to_pylist()
    assert states.unlike == []


def test_what_differs_is_found_by_operator_partition_state_and_key(world: World) -> None:
    other = [[dict(one) for one in rows] for rows in world.rows]
    other[2][1]["eve"] = 2.0
    key = next(iter(other[2][1]))
    other[2][1][key] += 1
    states, _ = world.audit(rows=other)
    assert [(one.epoch, one.differing > 0) for one in states.compared] == [
        (2, False), (4, True), (6, True),
    ]  # fmt: skip
    assert {(u.operator, u.partition) for u in states.unlike} == {("sums", 1)}
    assert states.causes is not None
    causes = {(c.state, c.kind, c.fields): c for c in states.causes.found()}
    value = causes["total", "value", ("n",)]
    assert (value.first_epoch, value.epochs, value.records, value.keys) == (4, 2, 2, 1)
    assert value.samples[0].committed is not None
    assert value.samples[0].committed.key == key.encode()
    added = causes["total", "added", ()]
    assert [s.made and s.made.key for s in added.samples] == [b"eve", b"eve"]
    entries = sum(s.live["total"].rows for s in world.job.states)
    assert 0 < added.keys_share <= 1 / entries + 0.1
    assert causes["rows", "value", ("value",)].keys == 0
    assert ("recent", "added", ()) in causes
    assert str(states.unlike[1]) == (
        "operator sums, partition 1, state rows at the checkpoint of epoch 4: 1 entry"
    )


def test_a_tolerance_holds_for_states_too(world: World) -> None:
    other = [[dict(one) for one in rows] for rows in world.rows]
    key = next(k for k, n in other[0][0].items() if n)
    other[0][0][key] *= 1 + 1e-14
    exact, _ = world.audit(rows=other)
    assert {u.state for u in exact.unlike} == {"total"}
    allowed, _ = world.audit(rows=other, allowed=["n=relative:1e-9"])
    assert allowed.unlike == []


def test_a_second_run_shows_what_is_not_deterministic(world: World) -> None:
    """The same other state twice is steady; a third one is not."""
    other = [[dict(one) for one in rows] for rows in world.rows]
    other[0][0]["eve"] = 1.0
    first, _ = world.audit(rows=other)
    again = world.life(CODE)
    other[0][0] = dict(reversed(other[0][0].items()))
    for epoch, rows in enumerate(other, 1):
        again.run(epoch, rows)
        assert first.unsteady(world.order(epoch), again.context) == []
    third = world.life(CODE)
    other[0][0]["eve"] = 3.0
    found = []
    for epoch, rows in enumerate(other, 1):
        third.run(epoch, rows)
        found += first.unsteady(world.order(epoch), third.context)
    assert found[0] == (
        "operator sums, partition 0, state total at the checkpoint of epoch 2, differs between the "
        "two runs"
    )


def test_what_a_revision_declares_otherwise_is_not_compared(world: World) -> None:
    code = (
        CODE.replace("n=pa.float64())\n    recent", "n=pa.int64())\n    recent")
        .replace('n=batch["n"]', 'n=batch["n"].cast("int64")')
        .replace("    rows = Value", "    fresh = Value(pa.int64(), default=1)\n    rows = Value")
    )
    states, _ = world.audit(world.life(code))
    assert states.unlike == []
    why = states.compared[0].why
    assert "partition 0, total: the audited revision declares other columns" in why
    assert "partition 1, fresh: the checkpoint has no such state" in why


def test_a_damaged_checkpoint_in_the_range_is_named(world: World) -> None:
    path = world.job.damage(4, 1)
    other = [[dict(one) for one in rows] for rows in world.rows]
    other[3][0]["eve"] = 2.0
    states, _ = world.audit(rows=other)
    two, four, _ = states.compared
    assert two.why == "" and two.partitions == 2
    assert (four.partitions, four.differing > 0) == (1, True)
    assert four.why.startswith("operator sums, partition 1: ") and path in four.why
    (pointer,) = [p for p in world.job.pointers if p.epoch == 6]
    world.store.delete(pointer.manifest)
    states, _ = world.audit()
    assert (states.compared[-1].epoch, states.compared[-1].partitions) == (6, 0)
    assert pointer.manifest in states.compared[-1].why


def test_only_checkpoints_of_compared_tokens_count(world: World) -> None:
    span = replace(world.span, first_epoch=3)
    four, six = world.job.pointers[1:]
    stale = replace(six, token_offset=six.token_offset + 1)
    assert list(within(span, [stale, *world.job.pointers[:2]])) == [4]
    assert within(span, [six, four]) == {4: four, 6: six}


def test_a_damaged_base_is_refused_with_the_file_and_what_to_ask_for(world: World) -> None:
    *_, four, six = world.job.pointers
    path = world.job.damage(4, 0)
    span = replace(world.span, first_epoch=6, base_epoch=4, checkpoint=four)
    kept = [replace(six, needs=(6,)), four]
    failed = PermanentError("no checkpoint can be read")
    with pytest.raises(RefusedError) as refused:
        refuse_damaged(failed, "job", span, kept, world.store)
    text = str(refused.value)
    assert "base, the checkpoint of epoch 4: " in text and path in text and "CRC" in text
    assert "--epochs 4:8" in text and "--epochs 7:8" in text
    refuse_damaged(RetryableError("the broker is down"), "job", span, kept, world.store)
    sound = replace(span, base_epoch=2, checkpoint=world.job.pointers[0])
    refuse_damaged(failed, "job", sound, kept, world.store)
    refuse_damaged(failed, "job", world.span, kept, world.store)


def test_bytes_are_compared_across_chunks() -> None:
    parts = [memoryview(b"ab"), memoryview(b""), memoryview(b"cde")]
    assert same_bytes(parts, b"abcde") and same_bytes(b"abcde", parts)
    assert same_bytes(parts, [memoryview(b"abc"), memoryview(b"de")])
    assert not same_bytes(parts, b"abcdf") and not same_bytes(parts, b"abcd")
    assert same_bytes([], b"")
