"""What a leader loads: jobs, and the programs that they switch to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import foreign, ledger_checks
from perseid.coordinator.job.chain import Issued
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.loading import HigherClaim, Loader
from perseid.coordinator.token_time import Time
from perseid.errors import DamagedFile, PermanentError, RetryableError, TransientAnswer
from perseid.jobs.model import assignments
from perseid.jobs.model.layout import Layout, Task
from perseid.jobs.model.spread import Share, Spread
from perseid.records import Assignment, CheckpointPointer, CheckpointPointers, JobStatus, Plan
from perseid.registry import paths
from perseid.registry.port import Set
from perseid.testing.kafka import FakeLogReader
from perseid.topics import codec, names
from perseid.topics.ledger import LedgerReader
from perseid.topics.records import Begin, Claim, EpochDone, LedgerRecord, Rewind, SourceRange
from support.coordinator_setting import JOB, Setting, running, token

FAILED = JobStatus("u1", "failed", 1, 1, 1, {"kind": "PermanentError", "text": "line 7"})


def offsets(loaded: ev.JobLoaded) -> dict[int, int]:
    return {partition: at.offset for (_, partition), at in loaded.starts.items()}


def watch(setting: Setting, loader: Loader) -> None:
    """It is seen that no leader issues tokens of the earlier job UUID any more."""
    with pytest.raises(RetryableError, match="may be in use"):
        loader.load(setting.entry)
    setting.kafka.clock.sleep(foreign.ALIVE_S)


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


def test_a_control_topic_that_loses_records_is_refused_and_not_used(setting: Setting) -> None:
    """It was there before the job: made by hand, or by a broker that makes topics by itself."""
    setting.source()
    setting.topics.create(names.tokens(JOB), 1, {"retention.ms": "604800000"})
    text = r"perseid.wordcount.tokens has retention.ms=604800000, expected -1.*`kafka-configs"
    with pytest.raises(PermanentError, match=text):
        setting.loader().load(setting.entry)
    assert setting.kafka.log(names.tokens(JOB), 0).end == 0


def test_sources_begin_where_the_job_is_set_to(setting: Setting) -> None:
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


def test_a_load_leaves_no_reader_in_the_jobs_logs(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would be a client with threads of its own: thousands after a change of leader."""
    loader, closed = setting.loader(), list[int]()
    monkeypatch.setattr(loader.clients.reader, "close", lambda: closed.append(1))
    with pytest.raises(TransientAnswer):
        loader.load(setting.entry)
    setting.source()
    loader.load(setting.entry)
    assert len(closed) == 2


def test_a_missing_source_topic_is_named(setting: Setting) -> None:
    with pytest.raises(TransientAnswer, match="perseid topics create lines"):
        setting.loader().load(setting.entry)


def test_a_compacted_source_topic_is_refused(setting: Setting) -> None:
    setting.source(cleanup="compact")
    with pytest.raises(PermanentError, match="compacted"):
        setting.loader().load(setting.entry)


def test_epochs_of_an_earlier_job_are_not_used_again(setting: Setting) -> None:
    setting.source()
    setting.append(Begin(1, "u0", 4), token(5, 0, 0, 1, job_uuid="u0"))
    loader = setting.loader()
    watch(setting, loader)
    assert loader.load(setting.entry).highest_epoch == 5
    record = LedgerRecord("u0", 1, "counts", 0, 1, 9, 3)
    setting.kafka.append((names.ledger(JOB), 1), None, codec.encode(record))
    assert loader.load(setting.entry).highest_epoch == 9


@pytest.mark.parametrize("log", [names.tokens(JOB), names.progress(JOB)])
def test_a_log_that_is_trimmed_while_its_end_is_read_fails_no_job(
    setting: Setting, log: str
) -> None:
    """The job UUID before had a checkpoint, and its trim comes when the next one begins."""
    setting.source()
    done = EpochDone("u0", 1, "w1-1", 5, 1, 0, 0, 0)
    setting.append(Begin(1, "u0", 4), token(5, 0, 0, 1, job_uuid="u0"))
    setting.kafka.append((names.progress(JOB), 0), None, codec.encode(done))
    setting.kafka.append((names.progress(JOB), 0), None, codec.encode(done))
    loader = setting.loader()
    watch(setting, loader)
    read, left = loader.clients.reader.read_range, [(log, 0)]

    def trimmed(topic: str, partition: int, start: int, end: int, *, timeout_s: float) -> object:
        if (topic, partition) in left:
            setting.topics.delete_records({left.pop(): 1})
        return read(topic, partition, start, end, timeout_s=timeout_s)

    loader.clients.reader.read_range = trimmed  # type: ignore[method-assign,assignment]
    assert loader.load(setting.entry).highest_epoch == 5
    assert not left


@pytest.mark.parametrize("where", ["ledger", "token"])
def test_generations_begin_above_all_that_kafka_knows(setting: Setting, where: str) -> None:
    """ZooKeeper has lost what it knew of the name: the old job's records would fence the new one.

    Every sink would report that a newer owner has taken over, once for each generation between.
    """
    setting.source()
    record = LedgerRecord("u0", 1, "counts", 3, 37 if where == "ledger" else 2, 9, 3)
    old = token(5, 0, 0, 1, job_uuid="u0", generation=37 if where == "token" else 2)
    setting.append(Begin(1, "u0", 4), old)
    loader = setting.loader()
    watch(setting, loader)
    loader.load(setting.entry)
    setting.kafka.append((names.ledger(JOB), 3), None, codec.encode(record))
    assert setting.registry.generation(JOB) == 0
    assert loader.load(setting.entry).generation == 37


def test_what_is_no_progress_is_named_with_its_place(setting: Setting) -> None:
    running(setting)
    setting.kafka.append((names.progress(JOB), 0), None, b"not ours")
    with pytest.raises(PermanentError, match=r"perseid.wordcount.progress\[0\] at offset 0: "):
        setting.loader().load(setting.entry)


def test_a_damaged_generation_is_the_jobs_own_error(setting: Setting) -> None:
    running(setting)
    setting.registry.coordination.write(Set(paths.generation(JOB), b"three"))
    with pytest.raises(DamagedFile, match="generation is b'three'"):
        setting.loader().load(setting.entry)


@pytest.mark.parametrize(
    ("gids", "text"),
    [
        (((0, 1, 3),), "does not fit its layout 1, .*: counts-2 is in none"),
        (((0, 1, 2), (2, 3)), "does not fit its layout 1, .*: counts-2 is in f0 and f1"),
        (((0, 1), (2, 3)), "has the fragments f0 .* and this version cuts the job into whole "),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(
    setting: Setting, gids: tuple[tuple[int, ...], ...], text: str
) -> None:
    running(setting)
    plan = setting.registry.plan(JOB)
    assert plan is not None
    made = tuple(Assignment(f"f{n}", owned, "w1-1", 3, split=n) for n, owned in enumerate(gids))
    setting.fenced.put_plan(replace(plan, assignments=made))
    with pytest.raises(PermanentError, match=f"plan 3 of job wordcount {text}"):
        setting.loader().load(setting.entry)


# -- a job that runs -----------------------------------------------------------------------------


def test_a_ledger_is_compared_with_the_reports_of_its_own_fragment() -> None:
    """Fragments run ahead of others: 0 has done epoch 9, and 1 epoch 6."""
    tasks = tuple(Task(at, "counts", at, 1, stateful=True, ledger=at) for at in range(3))
    plan = assignments.cut(
        Plan.fused(JOB, "u1", 1, None, "r1", "a1", 1, 0, 0),
        Spread((Share((0, 2), {}, 0), Share((1,), {}, 1))),
    )
    tokens = [Issued(10 * e, token(e, 10 * e - 10, 0, 0)) for e in range(1, 11)]
    done = [
        EpochDone("u1", 1, "w1-1", epoch, 10 * epoch, 1, 1, 1, fragment=fragment)
        for fragment, highest in (("0", 9), ("1", 6)) for epoch in range(1, highest + 1)
    ]  # fmt: skip
    layout = Layout(1, tasks)
    ledger_checks.reported(plan, layout, tokens, done, {0: 9, 1: 6, 2: 10})
    for ledger, text in (
        ({0: 9, 1: 5, 2: 9}, r"ledger\[1\] ends with epoch 5, and epoch 6"),
        ({0: 9, 1: 6}, r"ledger\[2\] ends with epoch 0, and epoch 9"),
    ):
        with pytest.raises(PermanentError, match=text):
            ledger_checks.reported(plan, layout, tokens, done, ledger)


def test_a_ledger_that_lost_what_was_reported_as_done_is_an_error(setting: Setting) -> None:
    """The control topic was made again: an empty ledger would have its epochs committed twice."""
    running(setting)
    setting.loader(epoch=2).load(setting.entry)
    done = EpochDone("u1", 3, "w1-1", 2, 3, 10, 10, 5)
    setting.kafka.append((names.progress(JOB), 0), None, codec.encode(done))
    for partition in range(3):
        record = LedgerRecord("u1", 1, "counts", partition, 3, 2, 3)
        setting.kafka.append((names.ledger(JOB), partition), None, codec.encode(record))
    with pytest.raises(PermanentError, match=r"ledger\[3\] ends with epoch 0, and epoch 2"):
        setting.loader(epoch=3).load(setting.entry)


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
    switched = Plan.fused(JOB, "u1", 4, "w1-1", "r2", archive, 1, 3, 6)
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
    """It has `start: latest`, and its records of that token are to be read again."""
    running(setting)
    archive = adds_latest(setting)
    setting.fenced.put_plan(Plan.fused(JOB, "u1", 4, "w1-1", "r2", archive, 1, 3, 6))
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


def test_the_stamps_of_the_log_come_with_the_tokens_and_with_the_claim(setting: Setting) -> None:
    """They give how much time has passed since the last token, of any leader."""
    running(setting)
    setting.kafka.clock.sleep(3_600)
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert {loaded.log_time.ms - issued.stamp_ms for issued in loaded.tokens} == {3_600_000}
    assert loaded.log_time.at_s == setting.kafka.clock.monotonic_s()


def test_a_claim_whose_answer_was_lost_gives_the_time_too(setting: Setting) -> None:
    running(setting)
    setting.append(Claim(2, "c1"))
    stamp_ms = setting.kafka.clock.wall_ms()
    setting.kafka.clock.sleep(5)
    loaded = setting.loader(epoch=2).load(setting.entry)
    assert loaded.log_time == Time(stamp_ms, setting.kafka.clock.monotonic_s())


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
    done = EpochDone("u1", 3, "w1-1", 1, 9, 10, 10, 5)  # of a token that was taken back
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
    assert (loaded.generation, loaded.program.archive) == (4, setting.entry.archive)
    found = ledgers(setting)
    assert [r and (r.generation, r.epoch, r.token_offset) for r in found] == [
        (4, 0, 1), (4, 2, 3), (4, 0, 1), (4, 0, 1)
    ]  # fmt: skip
    setting.loader(epoch=4).load(changed)
    assert ledgers(setting) == found
    as_target = act.LoadProgram(JOB, "r0", setting.entry.archive, frozenset())
    assert loaded.program.upstream_fingerprint
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
    """`start: {0: 3}`, and retention is past 3: the job resumes from its position all the same."""
    running(setting)
    setting.topics.delete_records({("lines", 0): 40})
    given = setting.apply(**{"start: earliest": "start: {0: 3}"})
    known = frozenset({("lines", "lines")})
    action = act.LoadProgram(JOB, "r2", given.archive, known)
    assert setting.loader(epoch=2).program(action).starts == {}
    with pytest.raises(PermanentError, match=r"start of lines\[0\] is 3"):
        setting.loader(epoch=2).program(replace(action, known=frozenset()))
