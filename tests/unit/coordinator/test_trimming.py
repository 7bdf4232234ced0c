"""Token log and ledger: what is not needed is deleted after a checkpoint, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from queue import SimpleQueue

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import log_trimming, trimming
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.lifecycle import Phase
from perseid.coordinator.log_trimming import trim
from perseid.coordinator.model import JobState
from perseid.coordinator.performing import Performer, StepDown
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.operations import checkpointing
from perseid.records import BackupMark, CheckpointPointer, CheckpointPointers, Plan
from perseid.testing.kafka import FakeLogReader, FakeLogWriter, FakeTopics
from perseid.topics import codec, names
from perseid.topics.admin import Partition
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import LedgerRecord
from support.coordinator import Leader, World
from support.coordinator_setting import JOB, Setting, running, token

TOKENS, LEDGER = (names.tokens(JOB), 0), names.ledger(JOB)
PERIOD_S = 30.0


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_trimming, "WORTH_OFFSETS", 1)


def epoch(world: World, leader: Leader, seconds: float = 0.0) -> None:
    world.time_s += seconds
    world.produce(0, 10)
    leader.poll()
    world.work(JOB, epochs=9)
    leader.listen()


def under(job: JobState, plan: Plan, phase: Phase) -> JobState:
    return replace(job, ownership=job.ownership.renamed(plan), phase=phase)


def trims(leader: Leader) -> list[act.TrimLogs]:
    return [a for a in leader.performed if isinstance(a, act.TrimLogs)]


def pointer(epoch: int, offset: int) -> CheckpointPointer:
    return CheckpointPointer(epoch, 1, 1, "r1", offset, f"c-{epoch}", 1, 10, epoch, epoch)


# -- what is asked for, and when -------------------------------------------------------------------


def test_a_checkpoint_asks_for_a_trim_up_to_the_oldest_that_is_kept(
    world: World, leader: Leader
) -> None:
    for _ in range(4):
        epoch(world, leader, PERIOD_S)
    kept = world.pointers[JOB].pointers
    assert len(kept) == 2
    oldest = kept[-1]
    assert trims(leader)[-1].kept == Tip(oldest.epoch, oldest.token_offset)
    kinds = [type(a) for a in leader.performed]
    assert kinds.index(act.PutPointers) < kinds.index(act.TrimLogs)  # it counts before


def test_checkpoints_in_quick_succession_trim_once(world: World, leader: Leader) -> None:
    epoch(world, leader, PERIOD_S)
    for above in (1, 2, 3):
        world.entries[JOB] = replace(world.entries[JOB], checkpoint_above=above)
        leader.look()
        epoch(world, leader, 1.0)
    assert len([a for a in leader.performed if isinstance(a, act.PutPointers)]) == 3
    assert len(trims(leader)) == 1
    epoch(world, leader, PERIOD_S)
    epoch(world, leader)  # the checkpoint's token came when the one before was done
    assert len(trims(leader)) == 2


def test_a_clock_that_is_set_forward_ends_no_backup(world: World, leader: Leader) -> None:
    epoch(world, leader, PERIOD_S)
    world.wall_ahead_s = 2 * trimming.BACKUPS_MS / 1000
    for _ in range(4):
        epoch(world, leader, PERIOD_S)
    since_ms = trims(leader)[-1].backups_since_ms
    assert since_ms + trimming.BACKUPS_MS <= world.time_s * 1000 * 1.02
    leader = Leader(world)  # of another process, which started with such a clock
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    for _ in range(4):
        epoch(world, leader, PERIOD_S)
    since_ms = trims(leader)[-1].backups_since_ms
    assert since_ms + trimming.BACKUPS_MS <= world.time_s * 1000 * 1.02


def test_what_an_owner_is_restoring_from_is_kept(world: World, leader: Leader) -> None:
    for _ in range(4):
        epoch(world, leader, PERIOD_S)
    job = leader.job()
    assert job.plan is not None
    old = (pointer(2, 3), pointer(1, 2))
    plan = replace(job.plan, checkpoints=old)
    assert trimming.kept_from(under(job, plan, Phase.RESTORING)) == Tip(1, 2)
    plan = replace(plan, base_epoch=2, base_offset=3)  # nothing before is for its revision
    assert trimming.kept_from(under(job, plan, Phase.RESTORING)) == Tip(2, 3)
    plan = replace(plan, checkpoints=())
    assert trimming.kept_from(under(job, plan, Phase.WAITING)) == Tip(2, 3)
    assert trimming.kept_from(under(job, plan, job.phase)) == trims(leader)[-1].kept


def test_nothing_goes_before_there_is_a_checkpoint(world: World, leader: Leader) -> None:
    epoch(world, leader)
    assert trimming.kept_from(leader.job()) is None


def test_a_trim_that_fails_again_and_again_is_reported_once(world: World, leader: Leader) -> None:
    for _ in range(5):
        leader.feed(ev.LogsTrimmed(JOB, "the broker is away"))
    reported = [line for line in leader.job().health.events if "the broker is away" in line]
    assert reported == [
        "token log and ledger grow: 3 times in a row what is older than the oldest checkpoint "
        "could not be deleted: the broker is away"
    ]
    leader.feed(ev.LogsTrimmed(JOB))
    assert leader.job().checkpointing.untrimmed == 0


# -- the rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "kept_epoch", "cut"),
    [
        ([], 5, None),
        ([(2, 4), (4, 5), (6, 6), (8, 7)], 5, 6),
        ([(2, 6), (4, 7)], 5, 2),
        ([(2, 4), (4, 5)], 5, 4),  # all are old: the last one stays
        ([(2, 5), (4, 5), (6, 6)], 5, 6),  # a claim repeats its epoch
        ([(9, 3)], 5, 9),
    ],
)
def test_of_a_ledger_the_newer_epochs_and_the_last_record_stay(
    records: list[tuple[int, int]], kept_epoch: int, cut: int | None
) -> None:
    assert trimming.ledger_cut(records, kept_epoch) == cut


def test_backups_of_the_last_week_hold_the_log_back() -> None:
    action = act.TrimLogs(JOB, "u1", Tip(9, 90), backups_since_ms=1000)
    newer, older = BackupMark("u1", 7, 70, 2000), BackupMark("u1", 5, 50, 1500)
    assert trimming.floor(action, [newer, older]) == Tip(5, 50)
    assert trimming.floor(action, [newer, replace(older, taken_ms=999)]) == Tip(7, 70)
    assert trimming.floor(action, [replace(newer, job_uuid="u0")]) == Tip(9, 90)
    assert trimming.floor(action, [replace(newer, token_offset=95)]) == Tip(9, 90)


# -- on topics -------------------------------------------------------------------------------------


def committed(setting: Setting, partition: int, *epochs: int) -> None:
    for number in epochs:
        record = LedgerRecord("u1", 1, "counts", partition, 3, number, number)
        setting.kafka.append((LEDGER, partition), None, codec.encode(record))


def with_ledger(setting: Setting) -> None:
    """Epochs 1 to 3, of which partition 3 has only the first: it is of an earlier layout."""
    running(setting)
    setting.topics.create(LEDGER, 4)
    setting.topics.grow(LEDGER, 4)  # as many as the example's operators need
    for partition in range(3):
        committed(setting, partition, 1, 2, 3)
    committed(setting, 3, 1)


def starts(setting: Setting) -> list[int]:
    places = [TOKENS, *((LEDGER, partition) for partition in range(4))]
    return list(setting.topics.starts(places).values())


def test_both_logs_begin_with_what_is_needed(setting: Setting) -> None:
    with_ledger(setting)
    action = act.TrimLogs(JOB, "u1", Tip(2, 3), 0)
    trim(setting.loader().clients, action)
    assert starts(setting) == [3, 2, 2, 2, 0]
    assert trim(setting.loader().clients, action) == {}  # once more: there is nothing
    ledger = LedgerReader(FakeLogReader(setting.kafka), setting.topics)
    last = [ledger.last(LEDGER, p, timeout_s=1) for p in range(4)]
    assert [record.epoch for record in last if record is not None] == [3, 3, 3, 1]


def test_a_short_ledger_partition_is_not_worth_a_look(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_trimming, "WORTH_OFFSETS", 3)
    with_ledger(setting)
    committed(setting, 3, 2)  # has two, the others three
    trim(setting.loader().clients, act.TrimLogs(JOB, "u1", Tip(2, 3), 0))
    assert starts(setting) == [3, 2, 2, 2, 0]


def test_the_token_log_is_trimmed_when_the_ledgers_are(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_trimming, "LOOK_OFFSETS", 1)
    monkeypatch.setattr(log_trimming, "LOOKS_MAX", 2)
    with_ledger(setting)
    action, clients = act.TrimLogs(JOB, "u1", Tip(3, 4), 0, once=True), setting.loader().clients
    trim(clients, action)
    assert starts(setting) == [0, 1, 1, 1, 0]
    trim(clients, action)
    assert starts(setting) == [4, 2, 2, 2, 0]
    monkeypatch.setattr(log_trimming, "_ledger_cuts", None)
    assert trim(clients, action) == {}, "no ledger is read again"


def test_nothing_goes_while_a_horizon_has_no_beginning(setting: Setting) -> None:
    with_ledger(setting)
    assert trim(setting.loader().clients, act.TrimLogs(JOB, "u1", None, 0)) == {}
    assert starts(setting) == [0, 0, 0, 0, 0]


def test_a_leader_and_a_user_read_a_log_that_begins_elsewhere(setting: Setting) -> None:
    with_ledger(setting)
    setting.fenced.put_pointers(JOB, CheckpointPointers("u1", (pointer(2, 3),)))
    before = setting.loader(epoch=5).load(setting.entry)
    trim(setting.loader().clients, act.TrimLogs(JOB, "u1", Tip(2, 3), 0))
    after = setting.loader(epoch=5).load(setting.entry)
    assert (after.tokens, after.base, after.ledger) == (before.tokens, before.base, before.ledger)
    reader = FakeLogReader(setting.kafka)
    assert checkpointing.last_epoch(setting.topics, reader, JOB) == 3


def test_a_backup_that_was_taken_before_is_not_cut_off(setting: Setting) -> None:
    with_ledger(setting)
    setting.registry.put_backups(JOB, (BackupMark("u1", 1, 2, 5_000),))
    clients = setting.loader().clients
    trim(clients, act.TrimLogs(JOB, "u1", Tip(2, 3), backups_since_ms=4_000))
    assert starts(setting) == [2, 1, 1, 1, 0]
    trim(clients, act.TrimLogs(JOB, "u1", Tip(2, 3), backups_since_ms=6_000))
    assert starts(setting) == [3, 2, 2, 2, 0]


def test_a_mark_whose_record_is_gone_does_not_stop_trims_for_a_week(setting: Setting) -> None:
    with_ledger(setting)
    setting.topics.delete_records({TOKENS: 3})
    setting.registry.put_backups(JOB, (BackupMark("u1", 1, 2, 5_000),))
    trim(setting.loader().clients, act.TrimLogs(JOB, "u1", Tip(3, 4), backups_since_ms=4_000))
    assert starts(setting) == [4, 2, 2, 2, 0]


def test_a_trim_that_comes_after_the_removal_of_its_job_takes_nothing_from_its_backups(
    setting: Setting,
) -> None:
    with_ledger(setting)
    setting.registry.put_backups(JOB, (BackupMark("u1", 1, 2, 5_000),))
    setting.fenced.remove_job(JOB, setting.entry.uuid)
    assert trim(setting.loader().clients, act.TrimLogs(JOB, "u1", Tip(2, 3), 4_000)) == {}
    assert starts(setting) == [0, 0, 0, 0, 0]


def test_nothing_goes_of_a_topic_that_was_recreated(setting: Setting) -> None:
    with_ledger(setting)
    with pytest.raises(PermanentError, match="expected that of epoch 1 of job u1"):
        trim(setting.loader().clients, act.TrimLogs(JOB, "u1", Tip(1, 3), 0))
    assert starts(setting) == [0, 0, 0, 0, 0]


class TrimmedMeanwhile(FakeTopics):
    """Answers where a log began a moment ago."""

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        before = super().starts(partitions)
        self.delete_records({place: 2 for place in before if place[0] == LEDGER})
        return before


def test_a_ledger_that_is_trimmed_while_it_is_read_is_read_to_its_end(setting: Setting) -> None:
    with_ledger(setting)
    ledger = LedgerReader(FakeLogReader(setting.kafka), TrimmedMeanwhile(setting.kafka))
    record = ledger.last(LEDGER, 0, timeout_s=1)
    assert record is not None
    assert record.epoch == 3


class Paused(FakeTopics):
    """Pauses once it has asked for a log's end, while others continue and trim."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.kafka)
        self._setting = setting

    def ends(
        self, partitions: Iterable[Partition], *, committed: bool = True
    ) -> dict[Partition, int]:
        before = super().ends(partitions, committed=committed)
        committed_since(self._setting)
        return before


def committed_since(setting: Setting) -> None:
    committed(setting, 0, *range(4, 60))
    setting.topics.delete_records({(LEDGER, 0): setting.topics.ends([(LEDGER, 0)])[LEDGER, 0] - 1})


@pytest.mark.parametrize("later", [False, True], ids=["before", "after"])
def test_a_ledger_that_was_trimmed_after_a_readers_end_is_not_taken_for_empty(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    """What it had committed would be committed once more. `later`: than the look at its start."""
    with_ledger(setting)
    ledger = LedgerReader(FakeLogReader(setting.kafka), Paused(setting))
    if later:
        monkeypatch.setattr(Paused, "starts", lambda _, places: dict.fromkeys(places, 0))
    with pytest.raises(RetryableError, match=r"ended at 3 when"):
        ledger.last(LEDGER, 0, timeout_s=1)


def test_the_leader_trims_while_it_does_everything_else(setting: Setting) -> None:
    with_ledger(setting)
    events: SimpleQueue[ev.Event] = SimpleQueue()
    ends: SimpleQueue[StepDown] = SimpleQueue()
    performer = Performer(
        setting.fenced, FakeLogWriter(setting.kafka), setting.store, setting.loader,
        events.put, ends.put,
    )  # fmt: skip
    assert performer.perform(act.TrimLogs(JOB, "u1", Tip(2, 3), 0)) is None
    assert events.get(timeout=20) == ev.LogsTrimmed(JOB)
    assert starts(setting)[0] == 3
    performer.perform(act.TrimLogs(JOB, "u1", Tip(7, 5), 0))
    failed = events.get(timeout=20)
    assert isinstance(failed, ev.LogsTrimmed)
    assert "expected that of epoch 7" in failed.error
    performer.close()


# -- claims ----------------------------------------------------------------------------------------


def test_a_job_that_is_read_again_and_again_is_claimed_once(setting: Setting) -> None:
    running(setting)
    before = setting.topics.ends([TOKENS])[TOKENS]
    loader = setting.loader(epoch=5)
    for _ in range(5):
        loader.load(setting.entry)
    assert setting.topics.ends([TOKENS])[TOKENS] == before + 1
    setting.loader(epoch=6).load(setting.entry)  # the next leader's
    assert setting.topics.ends([TOKENS])[TOKENS] == before + 2
    setting.append(token(4, 6, 25, 30, coordinator_epoch=6))
    setting.loader(epoch=6).load(setting.entry)
    assert setting.topics.ends([TOKENS])[TOKENS] == before + 3
