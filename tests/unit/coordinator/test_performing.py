"""What a leader does: appends, writes, manifests, loads in threads; with which outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from threading import Event

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator.loading import Loader
from perseid.coordinator.loading_pool import THREADS
from perseid.coordinator.performing import Performer, StepDown, point_of
from perseid.errors import RetryableError
from perseid.records import JobStatus, LeaderInfo, Plan
from perseid.registry import Registry, lead
from perseid.state.durability import checkpoint
from perseid.testing.kafka import FakeLogWriter
from perseid.topics.records import Begin, Claim, PartDone
from support.coordinator_setting import JOB, Setting, running, token


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
    outcome = Acting(setting).performer.perform(act.PutPlan(JOB, plan.handed_to(plan.owner, 4)))
    assert isinstance(outcome, ev.ActionFailed)


def test_a_write_after_the_fence_ends_the_leader(setting: Setting) -> None:
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
    assert (failed.kind, failed.permanent) == ("TransientAnswer", False)  # the core ends it

    setting.source(cleanup="compact")
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    failed = acting.events.get(timeout=20)
    assert isinstance(failed, ev.JobLoadFailed)
    assert (failed.kind, failed.permanent) == ("PermanentError", True)

    setting.topics.delete(["lines"])
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


def broken() -> Loader:
    raise ZeroDivisionError("half a pair \ud800")


def test_a_job_on_which_loading_raises_something_unexpected_is_that_jobs_affair(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Each next leader would meet it, too, and no job would be led any more."""
    acting = Acting(setting, broken)
    acting.performer.perform(act.LoadJob(JOB, setting.entry))
    failed = acting.events.get(timeout=20)
    assert isinstance(failed, ev.JobLoadFailed)
    assert (failed.kind, failed.permanent) == ("UnexpectedError", False)
    text = f"loading job {JOB} raised ZeroDivisionError: half a pair \\ud800\n"
    assert failed.text.startswith(text)
    acting.performer.perform(act.LoadProgram(JOB, "r1", "archive", frozenset()))
    program = acting.events.get(timeout=20)
    assert isinstance(program, ev.ProgramFailed)
    assert (program.kind, program.permanent) == ("UnexpectedError", True)
    assert acting.ends.empty()
    assert caplog.text.count("ZeroDivisionError") >= 2


def test_a_defect_ends_the_leader_instead_of_hanging_the_job(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(checkpoint, "write_manifest", defect)
    acting = Acting(setting)
    acting.performer.perform(manifest(5))
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


def test_jobs_that_load_without_an_end_hold_up_no_manifest_and_no_other_job(
    setting: Setting,
) -> None:
    """As those wait whose transactions are undecided, whose broker is away, whose store hangs."""
    back, begun = Event(), SimpleQueue[int]()

    def loader() -> Loader:
        begun.put(1)
        if begun.qsize() > 2 * THREADS:
            return setting.loader()
        assert back.wait(60)
        raise RetryableError("the broker is away")

    setting.source()
    acting = Acting(setting, loader)
    for i in range(2 * THREADS):
        away = replace(setting.entry, name=f"away-{i}")
        acting.performer.perform(act.LoadJob(away.name, away))
    acting.performer.perform(manifest(5))
    try:
        assert isinstance(acting.events.get(timeout=20), ev.ManifestWritten)
        acting.performer.perform(act.LoadJob(JOB, setting.entry))
        assert isinstance(acting.events.get(timeout=20), ev.JobLoaded)
    finally:
        back.set()


def test_old_checkpoints_are_deleted_and_newer_ones_kept(setting: Setting) -> None:
    acting = Acting(setting)
    pointers = {}
    for epoch in (3, 5, 8):
        acting.performer.perform(manifest(epoch))
        written = acting.events.get(timeout=20)
        assert isinstance(written, ev.ManifestWritten)
        pointers[epoch] = written.pointer
    acting.performer.perform(act.DeleteCheckpoints(JOB, "u1", (pointers[8], pointers[5])))
    acting.performer._tidying.shutdown(wait=True)
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
    plan = Plan.fused(JOB, "u", 1, None, "r", "a", 1, 0, 0)
    assert point_of(act.PutPlan(JOB, plan)) == "put-plan"
    assert point_of(manifest(1)) == "write-manifest"
