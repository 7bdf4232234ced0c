"""When a wanted revision is compared, where, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import gating, view
from perseid.coordinator.lifecycle import Phase
from perseid.errors import Diverged
from perseid.records import APART, GATE, WHOLE, ApprovedCause, Assignment, Gate
from perseid.topics.records import EpochsEqual, FragmentState
from support.coordinator import Leader, World, job_spec
from support.coordinator_steps import leading, one_job, run, want
from support.replicated_job import PROTECTED
from support.spread_job import leading as spread_leading
from support.spread_job import spread_world

JOB = "wordcount"
EPOCHS = 3


def gated(*workers: str, **spec: object) -> tuple[World, Leader]:
    """The job runs, and its next revision is applied with a gate."""
    world = one_job()
    world.workers = list(workers or ("w1-1", "w2-1"))
    world.programs["archive-1"] = job_spec(**spec)  # type: ignore[arg-type]
    leader = leading(world)
    run(world, leader, 2)
    apply(world, leader)
    return world, leader


def apply(world: World, leader: Leader, archive: str = "archive-2", gate: int = EPOCHS) -> None:
    world.programs[archive] = job_spec()
    want(world, leader, revision=archive.replace("archive-", "r"), archive=archive, gate=gate)
    run(world, leader, 3)


def gate(world: World) -> Gate:
    found = world.plans[JOB].gate
    assert found is not None
    return found


def runs(world: World) -> Assignment:
    found = gate(world).run
    assert found is not None
    return found


def reports(world: World, leader: Leader, state: str, **changes: object) -> None:
    own = runs(world)
    record = FragmentState("u1", own.generation, own.owner or "", state, 1, fragment=own.name)
    record = replace(record, **changes)  # type: ignore[arg-type]
    world.progress.setdefault(JOB, []).append(record)
    leader.listen()


def equal(world: World, leader: Leader, epochs: int) -> None:
    record = EpochsEqual("u1", runs(world).generation, epochs)
    world.progress.setdefault(JOB, []).append(record)
    leader.listen()


def shown(leader: Leader) -> dict[str, object]:
    found = gating.shown(leader.job())
    assert found is not None
    return found


def listed(world: World, leader: Leader) -> tuple[str, str]:
    """Owner and state of who runs the gate, as users see them."""
    (found,) = [one for one in view.job_status(leader.job(), world.now)["fragments"]
                if one["role"] == GATE]  # fmt: skip
    return found["owner"], found["state"]


def test_the_revision_runs_muted_on_a_worker_without_a_copy_from_a_checkpoint_on() -> None:
    world, leader = gated()
    own, plan = runs(world), world.plans[JOB]
    assert (own.role, own.owner, own.log, own.archive) == (GATE, "w2-1", APART, "archive-2")
    assert own.muted
    assert (plan.archive, plan.revision, plan.only.generation) == ("archive-1", "r1", 1)
    (seen,) = plan.for_worker("w2-1")
    newest = plan.checkpoints[0]
    assert (seen.archive, seen.revision) == ("archive-2", "r1"), "it follows tokens of r1"
    assert (seen.base_epoch, seen.base_offset) == (newest.epoch, newest.token_offset)
    assert seen.usable_checkpoints == (newest,)
    assert leader.job().phase is Phase.RUNNING
    assert "gate: revision r2 runs muted on w2-1" in leader.job().health.events
    assert listed(world, leader) == ("w2-1", "restoring")
    reports(world, leader, "running")
    assert listed(world, leader) == ("w2-1", "running")


def test_enough_equal_epochs_lead_to_an_ordinary_switch() -> None:
    world, leader = gated()
    reports(world, leader, "running")
    equal(world, leader, EPOCHS - 1)
    run(world, leader, 5)
    assert world.plans[JOB].archive == "archive-1"
    assert world.statuses[JOB].counter < world.entries[JOB].counter, "not answered yet"
    assert shown(leader) == {
        "revision": "r2", "state": "comparing", "epochs": EPOCHS, "equal": EPOCHS - 1,
        "worker": "w2-1", "reason": None,
    }  # fmt: skip
    equal(world, leader, EPOCHS)
    run(world, leader, 3)
    plan = world.plans[JOB]
    assert (plan.archive, plan.revision, plan.gate) == ("archive-2", "r2", None)
    assert f"gate: {EPOCHS} of {EPOCHS} epochs equal, the job switches" in (
        leader.job().health.events
    )
    world.report(JOB, "running")
    leader.listen()
    assert world.statuses[JOB].counter == world.entries[JOB].counter
    assert gating.shown(leader.job()) is None


def test_a_difference_refuses_the_revision_and_changes_nothing_else() -> None:
    world, leader = gated()
    reports(world, leader, "running")
    before = world.plans[JOB]
    text = "operator counts, partition 1, epoch 7: made other outputs"
    reports(world, leader, "failed", error_kind=Diverged.__name__, error=text, permanent=True)
    after = world.plans[JOB]
    assert (after.archive, after.only) == (before.archive, before.only)
    assert gate(world) == Gate(world.entries[JOB].counter, None, text)
    assert (shown(leader)["state"], shown(leader)["reason"]) == ("refused", text)
    assert f"gate refused: {text}" in leader.job().health.events
    assert world.statuses[JOB].counter == world.entries[JOB].counter, "that is the answer"
    run(world, leader, 5)
    leader.tick(120)
    assert world.plans[JOB] == after


def test_after_a_difference_enough_equal_epochs_do_not_count() -> None:
    world, leader = gated()
    reports(world, leader, "running")
    before = runs(world)
    reports(world, leader, "failed", error_kind=Diverged.__name__, error="other", permanent=True)
    world.progress[JOB].append(EpochsEqual("u1", before.generation, EPOCHS))
    leader.listen()
    run(world, leader, 5)
    assert world.plans[JOB].archive == "archive-1"


def test_a_new_leader_continues_with_what_was_compared() -> None:
    world, leader = gated()
    reports(world, leader, "running")
    equal(world, leader, EPOCHS - 1)
    plan = world.plans[JOB]
    again = Leader(world)
    again.look()
    run(world, again, 2)
    assert world.plans[JOB] == plan
    assert again.job().gate_equal == EPOCHS - 1
    equal(world, again, EPOCHS)
    run(world, again, 3)
    assert world.plans[JOB].archive == "archive-2"


def test_a_new_leader_keeps_a_refusal() -> None:
    world, leader = gated()
    reports(world, leader, "failed", error_kind=Diverged.__name__, error="other", permanent=True)
    again = Leader(world)
    again.look()
    run(world, again, 3)
    assert gate(world).refused == "other"
    assert shown(again)["state"] == "refused"


def test_without_a_free_worker_it_waits_with_the_reason_and_takes_the_next_one() -> None:
    world, leader = gated("w1-1")
    assert world.plans[JOB].gate is None
    assert (shown(leader)["state"], shown(leader)["reason"]) == ("waiting", gating.NO_WORKER)
    world.workers.append("w2-1")
    leader.look()
    assert runs(world).owner == "w2-1"


def test_it_takes_no_worker_of_a_replica() -> None:
    world, leader = gated("w1-1", "w2-1", fault_tolerance=PROTECTED)
    assert [a.owner for a in world.plans[JOB].replicas] == ["w2-1"]
    assert shown(leader)["reason"] == gating.NO_WORKER
    world.workers.append("w3-1")
    leader.look()
    assert runs(world).owner == "w3-1"


def test_a_primary_that_comes_to_its_worker_ends_it_until_there_is_another() -> None:
    world, leader = gated()
    reports(world, leader, "running")
    equal(world, leader, EPOCHS - 1)
    world.workers = ["w2-1"]
    leader.look()
    leader.tick(60)
    assert (world.plans[JOB].owner, gate(world).run) == ("w2-1", None)
    world.report(JOB, "running")
    leader.listen()
    world.workers.append("w3-1")
    leader.look()
    assert runs(world).owner == "w3-1"
    assert leader.job().gate_equal == EPOCHS - 1
    equal(world, leader, 1)
    run(world, leader, 3)
    assert world.plans[JOB].archive == "archive-2"


def test_it_is_placed_again_when_its_worker_is_gone_or_leaves() -> None:
    world, leader = gated("w1-1", "w2-1", "w3-1")
    first = runs(world)
    world.workers.remove(first.owner or "")
    leader.look()
    second = runs(world)
    assert second.owner not in {first.owner, "w1-1"}
    assert second.generation > first.generation
    assert world.plans[JOB].only.generation == 1, "the job does not notice"


def test_what_was_equal_counts_on_the_next_worker_and_under_the_next_leader() -> None:
    world, leader = gated("w1-1", "w2-1", "w3-1")
    reports(world, leader, "running")
    equal(world, leader, EPOCHS - 1)
    first = runs(world).owner
    reports(world, leader, "stopped")
    assert runs(world).owner != first
    assert gate(world).equal == EPOCHS - 1
    again = Leader(world)
    again.look()
    run(world, again, 2)
    assert shown(again)["equal"] == EPOCHS - 1
    reports(world, again, "running")
    equal(world, again, 1)
    run(world, again, 3)
    assert world.plans[JOB].archive == "archive-2"


def test_a_new_leader_hears_the_gate_of_a_job_that_waits_for_a_worker() -> None:
    world, _ = gated("w1-1", "w2-1", "w3-1")
    own = runs(world)
    failed = FragmentState("u1", own.generation, own.owner or "", "failed", 1, "RetryableError",
                           "away", fragment=own.name)  # fmt: skip
    world.progress.setdefault(JOB, []).append(failed)
    world.workers.remove("w1-1")
    again = Leader(world)
    again.look()
    again.tick(60)
    assert world.plans[JOB].owner not in {"w1-1", own.owner}
    world.report(JOB, "running")
    again.listen()
    again.tick(120)
    assert runs(world).generation > own.generation


@pytest.mark.parametrize("ends", ["dies", "fails"])
def test_after_a_death_or_a_failure_it_is_compared_from_0_on(ends: str) -> None:
    world, leader = gated("w1-1", "w2-1", "w3-1")
    reports(world, leader, "running")
    equal(world, leader, EPOCHS - 1)
    if ends == "dies":
        world.workers.remove(runs(world).owner or "")
        leader.look()
    else:
        reports(world, leader, "failed", error_kind="ProcessDied", error="killed")
        leader.tick(120)
    assert (gate(world).equal, shown(leader)["equal"]) == (0, 0)
    reports(world, leader, "running")
    equal(world, leader, 1)
    run(world, leader, 3)
    assert world.plans[JOB].archive == "archive-1"


def test_a_death_after_enough_epochs_changes_nothing() -> None:
    world, leader = gated("w1-1", "w2-1", "w3-1")
    reports(world, leader, "running")
    world.progress[JOB].append(EpochsEqual("u1", runs(world).generation, EPOCHS))
    world.workers.remove(runs(world).owner or "")
    leader.listen()
    leader.look()
    assert leader.job().gate_equal == EPOCHS
    run(world, leader, 3)
    assert world.plans[JOB].archive == "archive-2"


def test_approved_differences_are_in_its_assignment() -> None:
    world, leader = gated()
    causes = (ApprovedCause("counts", "value", ("n",)),)
    want(world, leader, archive="archive-3", revision="r3", gate=EPOCHS, approved=causes)
    world.programs["archive-3"] = job_spec()
    run(world, leader, 3)
    assert runs(world).approved == causes
    (seen,) = world.plans[JOB].for_worker("w2-1")
    assert seen.only.approved == causes
    assert world.plans[JOB].only.approved == ()


def test_a_job_of_several_fragments_is_compared_as_one() -> None:
    world = spread_world(4)
    leader = spread_leading(world)
    world.programs["archive-2"] = world.programs["archive-1"]
    entry = replace(
        world.entries[JOB], archive="archive-2", revision="r2", gate=EPOCHS,
        counter=world.entries[JOB].counter + 1,
    )  # fmt: skip
    world.entries[JOB] = entry
    leader.look()
    for _ in range(5):
        world.produce(0, 5, "a")
        leader.poll()
        world.run()
        leader.listen()
        leader.tick(1)
    assert shown(leader)["reason"] == gating.NO_WORKER, "each has a fragment of the job"
    world.workers.append("w9-1")
    leader.look()
    own = runs(world)
    assert (own.owner, own.fragment, own.gids, own.split) == ("w9-1", WHOLE, None, None)
    reports(world, leader, "running")
    assert shown(leader)["state"] == "comparing"
    equal(world, leader, EPOCHS)
    assert leader.job().wants_switch


@pytest.mark.parametrize("kind", ["RetryableError", "FencedError", "ReplayDataLost"])
def test_failures_that_are_not_of_its_code_are_tried_again(kind: str) -> None:
    world, leader = gated()
    for _ in range(2 * gating.FAILURES_MAX):
        permanent = kind == "ReplayDataLost"
        reports(world, leader, "failed", error_kind=kind, error="away", permanent=permanent)
        leader.tick(120)
    assert not gate(world).refused
    reports(world, leader, "running")
    equal(world, leader, EPOCHS)
    run(world, leader, 3)
    assert world.plans[JOB].archive == "archive-2"


@pytest.mark.parametrize("kind", ["UnexpectedError", "ProcessDied"])
def test_errors_that_may_be_of_its_code_refuse_the_revision_at_last(kind: str) -> None:
    world, leader = gated()
    for number in range(gating.FAILURES_MAX):
        assert not gate(world).refused, number
        reports(world, leader, "failed", error_kind=kind, error="boom")
        leader.tick(120)
    assert "the revision fails where the running one does not: boom" in gate(world).refused
    assert world.plans[JOB].archive == "archive-1"


def test_code_that_cannot_run_is_refused_at_once() -> None:
    world, leader = gated()
    reports(world, leader, "failed", error_kind="PermanentError", error="migrate", permanent=True)
    assert "migrate" in gate(world).refused


@pytest.mark.parametrize("refused", [False, True])
def test_an_apply_without_a_gate_switches_at_once(refused: bool) -> None:
    world, leader = gated()
    if refused:
        reports(world, leader, "failed", error_kind=Diverged.__name__, error="x", permanent=True)
    apply(world, leader, gate=0)
    plan = world.plans[JOB]
    assert (plan.archive, plan.gate) == ("archive-2", None)


def test_another_revision_with_a_gate_replaces_it() -> None:
    world, leader = gated()
    first = runs(world)
    reports(world, leader, "failed", error_kind=Diverged.__name__, error="x", permanent=True)
    apply(world, leader, "archive-3")
    second = runs(world)
    assert (second.archive, gate(world).refused) == ("archive-3", "")
    assert second.generation > first.generation
    world.progress[JOB].append(EpochsEqual("u1", first.generation, EPOCHS))
    leader.listen()
    run(world, leader, 3)
    assert world.plans[JOB].archive == "archive-1", "what was compared of another one is over"


def test_the_running_revision_applied_again_ends_it() -> None:
    world, leader = gated()
    apply(world, leader, "archive-1", gate=0)
    assert (world.plans[JOB].archive, world.plans[JOB].gate) == ("archive-1", None)
    assert gating.shown(leader.job()) is None


def test_a_stop_ends_it_and_a_start_compares_again() -> None:
    world, leader = gated()
    want(world, leader, desired="stopped")
    run(world, leader, 3)
    assert (world.plans[JOB].owner, world.plans[JOB].gate) == (None, None)
    want(world, leader, desired="running")
    world.report(JOB, "running")
    leader.listen()
    run(world, leader, 2)
    assert world.plans[JOB].archive == "archive-1"
    assert runs(world).archive == "archive-2"
