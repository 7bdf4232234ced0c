"""Loading and acting on fakes of ZooKeeper, Kafka and the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from perseid.clocks import ManualClock
from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator.loading import Clients, HigherClaim, Loader
from perseid.coordinator.model import ranges_of
from perseid.coordinator.performing import Performer, StepDown, point_of
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.repository import example
from perseid.jobs.trees import folder_tree, store_archive
from perseid.records import (
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    JobStatus,
    LeaderInfo,
    Plan,
)
from perseid.registry import FencedRegistry, Registry, lead
from perseid.state import checkpoint
from perseid.testing.kafka import FakeLogReader, FakeLogWriter, FakeTopics, FakeTransactions
from perseid.testing.kafka_model import ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.testing.store import MemoryStore
from perseid.topics import codec, names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import (
    Begin,
    Claim,
    EpochDone,
    LedgerRecord,
    PartDone,
    Rewind,
    SourceRange,
    Token,
)

JOB = "wordcount"
FAILED = JobStatus("u1", "failed", 1, 1, 1, {"kind": "PermanentError", "text": "line 7"})


class Setting:
    """A deployment in memory with the example job, applied and never run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = ModelKafka(ManualClock())
        self.zookeeper = FakeZooKeeper()
        self.registry = Registry(self.zookeeper.session())
        self.store = MemoryStore()
        self.topics = FakeTopics(self.kafka)
        self.entry = self.apply()
        fence = lead(self.registry, lambda epoch: LeaderInfo("c1", epoch, 1, ""))
        assert fence is not None
        self.fenced = FencedRegistry(self.registry, fence)

    def apply(self, **texts: str) -> JobEntry:
        """An entry whose archive is the example with texts of job.yaml replaced."""
        tree = self.folder / f"tree-{len(self.store.list())}"
        shutil.copytree(example(JOB), tree, ignore=shutil.ignore_patterns("__pycache__"))
        text = (tree / "job.yaml").read_text()
        for old, new in texts.items():
            assert old in text
            text = text.replace(old, new)
        (tree / "job.yaml").write_text(text)
        sha = store_archive(self.store, folder_tree(tree, JOB))
        return JobEntry(JOB, "u1", "r1", sha, "running", 1, 0)

    def loader(self, epoch: int = 1) -> Loader:
        reader = FakeLogReader(self.kafka)
        ledger = LedgerReader(reader, self.topics)
        clients = Clients(
            self.registry, self.topics, reader, FakeLogWriter(self.kafka), ledger,
            FakeTransactions(self.kafka), self.store, self.folder / "cache",
        )  # fmt: skip
        return Loader(clients, epoch, "c1")

    def source(self, partitions: int = 2, records: int = 0, cleanup: str = "delete") -> None:
        self.topics.create("lines", partitions, {"cleanup.policy": cleanup})
        for partition in range(partitions):
            for _ in range(records):
                self.kafka.append(("lines", partition), None, b"a b")

    def append(self, *records: Begin | Claim | Rewind | Token) -> None:
        writer = FakeLogWriter(self.kafka)
        self.topics.create(names.tokens(JOB), 1)
        for record in records:
            writer.append(names.tokens(JOB), 0, codec.encode(record))

    def plan(self, **changes: object) -> Plan:
        plan = Plan(JOB, "u1", 3, "w1-1", "r0", self.entry.archive, 1, 0, 1)
        plan = replace(plan, **changes)  # type: ignore[arg-type]
        self.fenced.registry.put_job_entry(self.entry, None)
        self.fenced.put_plan(plan)
        return plan


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def token(epoch: int, previous: int, start: int, end: int, **changes: object) -> Token:
    split = (SourceRange("lines", "lines", "id", 0, start, end),)
    made = Token(1, "u1", epoch, previous, "r0", 1, (split,), epoch)
    return replace(made, **changes)  # type: ignore[arg-type]


def offsets(loaded: ev.JobLoaded) -> dict[int, int]:
    return {partition: at.offset for (_, partition), at in loaded.starts.items()}


# -- a job that has never run --------------------------------------------------------------------


def test_control_topics_are_made_and_a_claim_is_the_first_record(setting: Setting) -> None:
    setting.source(records=5)
    loaded = setting.loader(epoch=7).load(setting.entry)
    assert {names.tokens(JOB), names.progress(JOB), names.ledger(JOB)} <= set(setting.topics.list())
    (entry,) = FakeLogReader(setting.kafka).read_range(names.tokens(JOB), 0, 0, 1, timeout_s=1)
    assert codec.decode(entry.value) == Claim(7, "c1")
    assert not loaded.begun
    assert loaded.plan is None
    assert offsets(loaded) == {0: 0, 1: 0}
    assert setting.topics.describe([names.ledger(JOB)])[names.ledger(JOB)].partitions == 4


def test_sources_begin_where_the_job_says(setting: Setting) -> None:
    setting.source(records=5)
    latest = setting.apply(**{"start: earliest": "start: latest"})
    assert offsets(setting.loader().load(latest)) == {0: 5, 1: 5}
    given = setting.apply(**{"start: earliest": "start: {0: 3}"})
    assert offsets(setting.loader().load(given)) == {0: 3, 1: 0}


def test_sources_begin_at_a_time_that_the_user_gives(setting: Setting) -> None:
    setting.source(records=5)
    clock = setting.kafka.clock
    clock.sleep(3600)
    setting.kafka.append(("lines", 0), None, b"late")
    entry = replace(setting.entry, start={"from": "1970-01-01T01:00:00+00:00"})
    assert offsets(setting.loader().load(entry)) == {0: 5, 1: 5}


def test_a_start_that_is_not_there_is_refused(setting: Setting) -> None:
    setting.source(records=5)
    wrong = setting.apply(**{"start: earliest": "start: {0: 6}"})
    with pytest.raises(PermanentError, match=r"start of lines\[0\] is 6"):
        setting.loader().load(wrong)


def test_a_missing_source_topic_is_named(setting: Setting) -> None:
    with pytest.raises(PermanentError, match="perseid topics create lines"):
        setting.loader().load(setting.entry)


def test_a_compacted_source_topic_is_refused(setting: Setting) -> None:
    setting.source(cleanup="compact")
    with pytest.raises(PermanentError, match="compacted"):
        setting.loader().load(setting.entry)


def test_epochs_of_an_earlier_job_are_not_used_again(setting: Setting) -> None:
    setting.source()
    setting.append(Begin(1, "u0", 4), token(5, 0, 0, 1, job_uuid="u0"))
    assert setting.loader().load(setting.entry).highest_epoch == 5
    record = LedgerRecord("u0", 1, "counts", 0, 1, 9, 3)
    setting.kafka.append((names.ledger(JOB), 1), None, codec.encode(record))
    assert setting.loader().load(setting.entry).highest_epoch == 9


# -- a job that runs -----------------------------------------------------------------------------


def running(setting: Setting) -> None:
    """Three tokens, the second one a checkpoint; a rewind took another third one back."""
    setting.source(records=50)
    setting.append(
        Claim(1, "c0"), Begin(1, "u1", 0), token(1, 1, 0, 10), token(2, 2, 10, 20, checkpoint=True),
        token(3, 3, 20, 30), Rewind(1, "u1", 2, 3, "bad input"), token(3, 3, 20, 25),
    )  # fmt: skip
    setting.plan()


def test_tokens_that_count_are_read_from_the_begin(setting: Setting) -> None:
    running(setting)
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert loaded.begun
    assert (loaded.base.epoch, loaded.base.offset) == (0, 1)
    assert [(i.offset, i.token.epoch) for i in loaded.tokens] == [(2, 1), (3, 2), (6, 3)]
    assert ranges_of(loaded.tokens[-1].token)[0].end == 25
    assert (loaded.program.revision, loaded.generation) == ("r0", 3)
    assert loaded.starts == {}


def adds_latest(setting: Setting) -> str:
    """The archive of a revision that also reads `more`, two partitions, from its end on."""
    setting.topics.create("more", 2)
    setting.kafka.append(("more", 1), None, b"early")
    added = "sources:\n  more: {topic: more, format: text, start: latest}\n"
    sink = "sinks:\n  more: {input: more, topic: more-out, format: text}\n"
    return setting.apply(**{"sources:\n": added, "sinks:\n": sink}).archive


def test_a_source_that_no_token_names_begins_by_its_start(setting: Setting) -> None:
    """A switch has added it, and the leader that knew where it begins died before the token."""
    running(setting)
    archive = adds_latest(setting)
    switched = Plan(JOB, "u1", 4, "w1-1", "r2", archive, 1, 3, 6)
    setting.fenced.put_plan(switched)
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert [i.token.epoch for i in loaded.tokens] == [3]
    assert {key: at.offset for key, at in loaded.starts.items()} == {("more", 0): 0, ("more", 1): 1}
    setting.append(token(4, 6, 25, 25, coordinator_epoch=2, splits=((
        SourceRange("lines", "lines", "id", 0, 25, 25), SourceRange("more", "more", "i", 0, 0, 0),
    ),)))  # fmt: skip
    assert setting.loader(epoch=3).load(setting.entry).starts == {}


def test_a_source_that_only_a_taken_back_token_names_begins_where_it_had_begun(
    setting: Setting,
) -> None:
    """It says `start: latest`, and its records of that token are to be read again."""
    running(setting)
    archive = adds_latest(setting)
    setting.fenced.put_plan(Plan(JOB, "u1", 4, "w1-1", "r2", archive, 1, 3, 6))
    setting.append(
        token(4, 6, 25, 25, time_ms=77, splits=((
            SourceRange("lines", "lines", "id", 0, 25, 25),
            SourceRange("more", "more", "i", 0, 0, 0), SourceRange("more", "more", "i", 1, 1, 1),
        ),)),
        token(5, 7, 25, 25, time_ms=99, splits=((SourceRange("more", "more", "i", 1, 1, 9),),)),
        Rewind(1, "u1", 3, 6, "the code was wrong"),
    )  # fmt: skip
    for _ in range(8):
        setting.kafka.append(("more", 1), None, b"late")
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert [i.token.epoch for i in loaded.tokens] == [3]
    assert {key: at.offset for key, at in loaded.starts.items()} == {("more", 0): 0, ("more", 1): 1}
    assert loaded.time_ms == 99


def test_tokens_are_read_from_the_newest_checkpoint_on(setting: Setting) -> None:
    running(setting)
    pointer = CheckpointPointer(2, 3, 1, "r0", 3, "m", 1, 1, 1)
    setting.fenced.put_pointers(JOB, CheckpointPointers("u1", (pointer,)))
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert [(i.offset, i.token.epoch) for i in loaded.tokens] == [(3, 2), (6, 3)]
    setting.fenced.put_pointers(JOB, CheckpointPointers("other", (pointer,)))
    assert len(setting.loader(epoch=2).load(setting.entry).tokens) == 3


def test_progress_and_ledger_are_read(setting: Setting) -> None:
    running(setting)
    setting.loader(epoch=2).load(setting.entry)
    done = EpochDone("u1", 3, "w1-1", 1, 2, 10, 10, 5)
    setting.kafka.append((names.progress(JOB), 0), None, codec.encode(done))
    for partition, uuid in ((0, "u1"), (1, "u0")):
        record = LedgerRecord(uuid, 1, "counts", partition, 1, 2, 3)
        setting.kafka.append((names.ledger(JOB), partition), None, codec.encode(record))
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert loaded.progress == (done,)
    assert loaded.progress_offset == 1
    assert loaded.ledger == {0: 2}


def ledgers(setting: Setting) -> list[LedgerRecord | None]:
    reader = LedgerReader(FakeLogReader(setting.kafka), setting.topics)
    return [reader.last(names.ledger(JOB), p, timeout_s=1) for p in range(4)]


def test_a_failed_job_that_was_changed_is_loaded_with_its_ledgers_claimed(setting: Setting) -> None:
    running(setting)
    setting.loader(epoch=2).load(setting.entry)
    record = LedgerRecord("u1", 1, "counts", 1, 3, 2, 3)
    setting.kafka.append((names.ledger(JOB), 1), None, codec.encode(record))
    setting.fenced.put_status(JOB, FAILED)
    changed = replace(setting.apply(**{"parallelism: 4": "parallelism: 6"}), counter=2)
    loaded = setting.loader(epoch=3).load(changed)
    assert loaded.ledger == {0: 0, 1: 2, 2: 0, 3: 0}
    assert (loaded.generation, loaded.program.archive) == (3, setting.entry.archive)
    found = ledgers(setting)
    assert [r and (r.generation, r.epoch, r.token_offset) for r in found] == [
        (4, 0, 1), (4, 2, 3), (4, 0, 1), (4, 0, 1)
    ]  # fmt: skip
    setting.loader(epoch=4).load(changed)
    assert ledgers(setting) == found
    as_target = act.LoadProgram(JOB, "r0", setting.entry.archive, frozenset())
    assert loaded.program.front
    assert setting.loader(epoch=5).program(as_target).program == loaded.program


@pytest.mark.parametrize("state, counter, changed", [
    ("running", 2, True), ("failed", 1, True), ("failed", 2, False),
])  # fmt: skip
def test_ledgers_are_claimed_for_nothing_else(
    setting: Setting, state: str, counter: int, changed: bool
) -> None:
    running(setting)
    error = FAILED.error if state == "failed" else None
    setting.fenced.put_status(JOB, replace(FAILED, state=state, error=error))
    entry = setting.apply(**{"parallelism: 4": "parallelism: 6"}) if changed else setting.entry
    loaded = setting.loader(epoch=2).load(replace(entry, counter=counter))
    assert loaded.ledger == {}
    assert ledgers(setting) == [None] * 4


def test_a_claim_without_an_answer_is_made_again(setting: Setting) -> None:
    running(setting)
    setting.fenced.put_status(JOB, FAILED)
    changed = replace(setting.apply(**{"parallelism: 4": "parallelism: 6"}), counter=2)
    setting.kafka.fail("commit", "unanswered")
    with pytest.raises(RetryableError):
        setting.loader(epoch=2).load(changed)
    assert setting.loader(epoch=3).load(changed).ledger == dict.fromkeys(range(4), 0)


def test_a_higher_claim_is_never_written_under(setting: Setting) -> None:
    running(setting)
    setting.append(Claim(9, "c9"))
    with pytest.raises(HigherClaim) as caught:
        setting.loader(epoch=2).load(setting.entry)
    assert caught.value.epoch == 9


def test_a_switch_loads_the_new_program_and_grows_the_ledger(setting: Setting) -> None:
    running(setting)
    setting.loader(epoch=2).load(setting.entry)
    larger = setting.apply(**{"parallelism: 4": "parallelism: 6"})
    action = act.LoadProgram(JOB, "r2", larger.archive, frozenset({("lines", "lines")}))
    event = setting.loader(epoch=2).program(action)
    assert event.program.spec.parallelism == 6
    assert event.starts == {}
    assert setting.topics.describe([names.ledger(JOB)])[names.ledger(JOB)].partitions == 6
    event = setting.loader(epoch=2).program(replace(action, known=frozenset()))
    assert set(event.starts) == {("lines", 0), ("lines", 1)}


def test_a_known_source_need_not_have_its_first_records_any_more(setting: Setting) -> None:
    """`start: {0: 3}`, and retention is past 3: the job goes on from its position all the same."""
    running(setting)
    setting.topics.delete_records({("lines", 0): 40})
    given = setting.apply(**{"start: earliest": "start: {0: 3}"})
    known = frozenset({("lines", "lines")})
    action = act.LoadProgram(JOB, "r2", given.archive, known)
    assert setting.loader(epoch=2).program(action).starts == {}
    with pytest.raises(PermanentError, match=r"start of lines\[0\] is 3"):
        setting.loader(epoch=2).program(replace(action, known=frozenset()))


# -- acting --------------------------------------------------------------------------------------


class Acting:
    """A performer with its outcomes in a queue."""

    def __init__(self, setting: Setting, loader: Callable[[], Loader] | None = None) -> None:
        self.events: SimpleQueue[ev.Event] = SimpleQueue()
        self.ends: SimpleQueue[StepDown] = SimpleQueue()
        self.performer = Performer(
            setting.fenced, FakeLogWriter(setting.kafka), setting.store,
            loader or setting.loader, self.events.put, self.ends.put,
        )  # fmt: skip


def test_appends_give_their_offset(setting: Setting) -> None:
    setting.append(Claim(1, "c1"))
    begin = Begin(1, "u1", 0)
    performer = Acting(setting).performer
    assert performer.perform(act.AppendBegin(JOB, begin)) == ev.BeginAppended(JOB, begin, 1)
    first = token(1, 1, 0, 5)
    assert performer.perform(act.AppendToken(JOB, first)) == ev.TokenAppended(JOB, first, 2)


@pytest.mark.parametrize("fault", ["lost", "unanswered"])
def test_an_append_without_an_answer_ends_the_leader(setting: Setting, fault: str) -> None:
    setting.append(Claim(1, "c1"))
    setting.kafka.fail("append", fault)  # type: ignore[arg-type]
    with pytest.raises(StepDown, match="unknown outcome"):
        Acting(setting).performer.perform(act.AppendToken(JOB, token(1, 0, 0, 5)))


def test_an_append_that_was_refused_is_a_failed_action(setting: Setting) -> None:
    outcome = Acting(setting).performer.perform(act.AppendToken(JOB, token(1, 0, 0, 5)))
    assert isinstance(outcome, ev.ActionFailed)
    assert "does not exist" in outcome.text


def test_a_write_without_an_answer_is_a_failed_action(setting: Setting) -> None:
    plan = setting.plan()
    setting.registry.coordination.unknown_next = "done"  # type: ignore[attr-defined]
    outcome = Acting(setting).performer.perform(act.PutPlan(JOB, replace(plan, generation=4)))
    assert isinstance(outcome, ev.ActionFailed)


def test_a_write_behind_the_fence_ends_the_leader(setting: Setting) -> None:
    setting.plan()
    setting.registry.coordination.expire()  # type: ignore[attr-defined]
    setting.registry.coordination.resume()  # type: ignore[attr-defined]
    other = Registry(setting.zookeeper.session())
    assert lead(other, lambda epoch: LeaderInfo("c2", epoch, 2, "")) is not None
    with pytest.raises(StepDown, match="another coordinator leads"):
        Acting(setting).performer.perform(act.PutStatus(JOB, JobStatus("u1", "running", 1, 1, 1)))


def test_a_loaded_job_comes_as_an_event(setting: Setting) -> None:
    setting.source()
    acting = Acting(setting)
    assert acting.performer.perform(act.LoadJob(JOB, setting.entry)) is None
    assert isinstance(acting.events.get(timeout=20), ev.JobLoaded)


def test_a_job_that_cannot_be_loaded_comes_as_an_event(setting: Setting) -> None:
    acting = Acting(setting)
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    failed = acting.events.get(timeout=20)
    assert isinstance(failed, ev.JobLoadFailed)
    assert (failed.kind, failed.permanent) == ("PermanentError", True)

    setting.source()
    setting.kafka.fail("append", "lost")
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    failed = acting.events.get(timeout=20)
    assert isinstance(failed, ev.JobLoadFailed)
    assert not failed.permanent


def test_a_higher_claim_asks_for_a_higher_epoch(setting: Setting) -> None:
    running(setting)
    setting.append(Claim(9, "c9"))
    acting = Acting(setting)
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    assert acting.ends.get(timeout=20).above == 9


def test_a_defect_ends_the_leader_instead_of_hanging_the_job(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Loader:
        raise ZeroDivisionError

    acting = Acting(setting, broken)
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    assert "defect" in acting.ends.get(timeout=20).reason
    assert "ZeroDivisionError" in caplog.text


def manifest(epoch: int) -> act.WriteManifest:
    part = PartDone("u1", 3, epoch, 1, "counts", 0, f"c-{epoch}/p", 7, 1, 0.1)
    return act.WriteManifest(JOB, "u1", epoch, 3, 1, "r1", 17, 1000, (part,))


def test_a_manifest_is_durable_before_its_pointer_is_known(setting: Setting) -> None:
    acting = Acting(setting)
    acting.performer.perform(manifest(5))
    written = acting.events.get(timeout=20)
    assert isinstance(written, ev.ManifestWritten)
    pointer = written.pointer
    assert (pointer.epoch, pointer.token_offset, pointer.bytes) == (5, 17, 7)
    found = checkpoint.read_manifest(setting.store, pointer.manifest, pointer.crc)
    assert [(p.operator, p.partition) for p in found.parts] == [("counts", 0)]


def test_old_checkpoints_are_deleted_and_newer_ones_kept(setting: Setting) -> None:
    acting = Acting(setting)
    pointers = {}
    for epoch in (3, 5, 8):
        acting.performer.perform(manifest(epoch))
        written = acting.events.get(timeout=20)
        assert isinstance(written, ev.ManifestWritten)
        pointers[epoch] = written.pointer
    acting.performer.perform(act.DeleteCheckpoints(JOB, "u1", (pointers[8], pointers[5])))
    acting.performer._slow.shutdown(wait=True)
    left = checkpoint.checkpoints(setting.store, JOB, "u1")
    assert [epoch for epoch, _ in left] == [5, 8]


def test_a_store_that_is_away_gives_the_manifest_up(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise RetryableError("no route to the store")

    monkeypatch.setattr(setting.store, "write", away)
    acting = Acting(setting)
    acting.performer.perform(manifest(5))
    failed = acting.events.get(timeout=20)
    assert isinstance(failed, ev.ManifestFailed)
    assert "no route" in failed.text


def test_crash_points_are_named_after_the_actions() -> None:
    assert point_of(act.PutPlan(JOB, Plan(JOB, "u", 1, None, "r", "a", 1, 0, 0))) == "put-plan"
    assert point_of(manifest(1)) == "write-manifest"
