from __future__ import annotations

import contextlib
from itertools import count

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator import switching
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.lifecycle import ALLOWED, InvalidTransition, Phase, check
from perseid.errors import FencedError
from perseid.jobs.model.spec import OperatorSpec, SourceSpec
from perseid.topics.records import PartFailed
from support.coordinator import Crashed, Leader, World, job_entry, job_spec
from support.coordinator_steps import JOB, last, new_revision, run, want

# -- stop, start, remove -------------------------------------------------------------------------


def test_a_stop_ends_with_a_final_token_and_takes_the_owner_away(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()  # an epoch is in flight
    want(world, leader, desired="stopped")
    assert world.statuses[JOB].state == "stopping"
    assert not last(world).final
    world.work(JOB)
    leader.listen()
    assert last(world).final
    assert not last(world).checkpoint
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].owner is None
    assert (world.statuses[JOB].state, world.statuses[JOB].counter) == ("stopped", 2)


def test_a_stop_with_a_checkpoint_waits_for_it(world: World, leader: Leader) -> None:
    run(world, leader)
    want(world, leader, desired="stopped", stop_checkpoint=True)
    assert last(world).final
    assert last(world).checkpoint
    assert world.plans[JOB].owner is not None
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].owner is None
    assert world.pointers[JOB].pointers[0].epoch == last(world).epoch


def test_a_stop_does_not_wait_for_a_worker(world: World, leader: Leader) -> None:
    run(world, leader)
    world.workers = []
    leader.look()
    want(world, leader, desired="stopped")
    assert world.statuses[JOB].state == "stopped"


def test_a_job_that_is_stopped_before_it_began_is_stopped(world: World) -> None:
    world.entries[JOB] = job_entry(desired="stopped")
    leader = Leader(world)
    leader.look()
    assert world.statuses[JOB].state == "stopped"
    assert JOB not in world.plans


def test_a_stopped_job_starts_where_it_was(world: World, leader: Leader) -> None:
    run(world, leader, 3)
    want(world, leader, desired="stopped")
    world.work(JOB)
    leader.listen()
    world.produce(0, 10)
    leader.poll()
    final = last(world)
    want(world, leader, desired="running")
    world.report(JOB, "running")
    leader.listen()
    assert (last(world).epoch, last(world).final) == (final.epoch + 1, False)
    assert [(r.start, r.end) for r in ranges_of(last(world))] == [(30, 40)]


def test_starting_from_scratch_opens_a_new_chain_above_the_old_one(
    world: World, leader: Leader
) -> None:
    run(world, leader, 3)
    generation = world.plans[JOB].generation
    world.entries[JOB] = job_entry(uuid="u2", counter=2)
    world.ledger.clear()
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    assert last(world).job_uuid == "u2"
    assert last(world).epoch == 4
    assert [(r.start, r.end) for r in ranges_of(last(world)) if r.partition == 0] == [(0, 30)]
    assert world.plans[JOB].generation == generation + 1
    assert world.plans[JOB].base_epoch == 3


def test_a_removed_job_is_forgotten_and_comes_back_above_itself(
    world: World, leader: Leader
) -> None:
    run(world, leader, 3)
    generation = world.plans[JOB].generation
    want(world, leader, desired="removed")
    assert JOB not in world.entries
    assert JOB not in world.plans
    leader.look()
    assert leader.state.jobs == {}
    world.ledger.clear()
    world.entries[JOB] = job_entry(uuid="u2")
    leader.look()
    assert last(world).job_uuid == "u2"
    assert last(world).epoch == 4
    assert world.plans[JOB].generation == generation + 1


# -- a new revision ------------------------------------------------------------------------------


def test_a_new_revision_begins_after_a_checkpoint_of_the_old_one(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    before = world.plans[JOB]
    new_revision(world, leader)
    switch = last(world)
    assert answered(world) == ("running", 1)  # by the old revision: `jobs apply` waits
    assert (switch.revision, switch.checkpoint, switch.final) == ("r1", True, True)
    assert all(r.start == r.end for r in ranges_of(switch))
    assert world.plans[JOB] == before
    world.produce(0, 10)
    leader.poll()
    assert last(world) == switch  # nothing more under the old revision
    world.work(JOB)
    leader.listen()
    plan = world.plans[JOB]
    assert (plan.revision, plan.archive, plan.owner) == ("r2", "archive-2", before.owner)
    assert (plan.generation, plan.layout) == (before.generation + 1, before.layout)
    assert plan.checkpoints[0].epoch == switch.epoch
    assert answered(world) == ("restoring", 2)
    world.report(JOB, "running")
    leader.listen()
    assert (last(world).revision, last(world).epoch) == ("r2", switch.epoch + 1)
    assert answered(world) == ("running", 2)


def answered(world: World) -> tuple[str, int]:
    """The job's state for users, and the counter of the entry that it answers."""
    return world.statuses[JOB].state, world.statuses[JOB].counter


def test_final_tokens_do_not_follow_one_another_at_once(world: World, leader: Leader) -> None:
    """A store that is away fails each part of each of them, and the token log is never trimmed."""
    run(world, leader)
    new_revision(world, leader)
    first = last(world)
    failed = PartFailed("u1", world.plans[JOB].generation, first.epoch, "counts", 0, "disk full")
    world.progress.setdefault(JOB, []).append(failed)
    world.work(JOB)
    leader.listen()
    assert leader.job().checkpointing.collecting is None
    leader.poll()
    assert last(world) == first
    leader.tick(switching.FINAL_AGAIN_S)
    assert (last(world).epoch, last(world).final) == (first.epoch + 1, True)


def test_a_switch_begins_with_a_checkpoint_that_was_taken_for_it(
    world: World, leader: Leader
) -> None:
    """There is none to go back to where an older one is damaged."""
    run(world, leader)
    want(world, leader, checkpoint_above=last(world).epoch)
    world.work(JOB)
    leader.listen()
    asked = last(world)
    assert (asked.checkpoint, asked.final) == (True, False)
    assert world.pointers[JOB].pointers[0].epoch == asked.epoch
    new_revision(world, leader)
    assert (last(world).epoch, last(world).final) == (asked.epoch + 1, True)
    world.work(JOB)
    leader.listen()
    plan = world.plans[JOB]
    assert (plan.revision, plan.checkpoints[0].epoch) == ("r2", asked.epoch + 1)


def test_the_layout_rises_with_operators_keys_or_parallelism(world: World, leader: Leader) -> None:
    run(world, leader, 2)
    operators = {
        "counts": OperatorSpec(inputs={"input": "lines"}, use="m:C", key=("value",), parallelism=3)
    }
    new_revision(world, leader, operators=operators)
    assert last(world).layout == 1
    world.work(JOB)
    leader.listen()
    leader.tick()
    assert world.plans[JOB].layout == 2
    assert leader.job().layout is not None
    run(world, leader)
    assert last(world).layout == 2


def test_another_parallelism_is_reported_until_its_owner_has_state(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    world.programs["archive-2"] = job_spec(parallelism=3)
    want(world, leader, revision="r2", archive="archive-2")
    assert world.statuses[JOB].state == "rescaling"
    assert not world.plans[JOB].rescaled
    run(world, leader)
    plan = world.plans[JOB]
    assert (plan.layout, plan.rescaled, plan.base_epoch) == (2, True, plan.checkpoints[0].epoch)
    assert world.statuses[JOB].state == "rescaling"
    assert "rescaled after epoch 3: counts 2 -> 3" in world.statuses[JOB].events
    world.workers = ["w2-1"]  # its owner dies before it has any
    leader.look()
    assert (world.plans[JOB].owner, world.plans[JOB].rescaled) == ("w2-1", True)
    successor = Leader(world)
    successor.look()
    assert world.statuses[JOB].state == "rescaling"
    world.report(JOB, "running")
    successor.listen()
    assert world.statuses[JOB].state == "running"
    world.programs["archive-3"] = job_spec()  # two partitions again
    want(world, successor, revision="r3", archive="archive-3")
    run(world, successor, 2)
    assert (world.plans[JOB].layout, world.plans[JOB].rescaled) == (3, True)


def test_a_new_revision_of_the_same_parallelism_does_not_rescale(
    world: World, leader: Leader
) -> None:
    run(world, leader)
    new_revision(world, leader)
    assert world.statuses[JOB].state == "running"
    run(world, leader)
    assert not world.plans[JOB].rescaled


def test_a_job_without_tokens_switches_at_once(world: World, leader: Leader) -> None:
    new_revision(world, leader)
    assert world.plans[JOB].revision == "r2"
    assert world.valid(JOB) == {}


def test_another_commit_with_the_same_files_only_changes_the_name(
    world: World, leader: Leader
) -> None:
    run(world, leader)
    generation = world.plans[JOB].generation
    want(world, leader, revision="r1-again")
    assert (world.plans[JOB].revision, world.plans[JOB].generation) == ("r1-again", generation)
    run(world, leader)
    assert last(world).revision == "r1-again"


def test_a_revision_that_cannot_be_loaded_leaves_the_old_one_running(
    world: World, leader: Leader
) -> None:
    run(world, leader)
    want(world, leader, revision="r2", archive="missing")
    assert world.statuses[JOB].state == "running"
    assert "cannot run" in world.statuses[JOB].events[-1]
    assert answered(world) == ("running", 2)  # `jobs apply` returns: there is nothing to wait for
    run(world, leader, 2)
    assert last(world).revision == "r1"
    new_revision(world, leader)
    world.work(JOB)
    leader.listen()
    assert world.plans[JOB].revision == "r2"


def test_a_switch_whose_owner_dies_is_finished_by_the_next_one(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    new_revision(world, leader)
    world.workers = ["w2-1"]
    leader.look()
    world.report(JOB, "running")
    world.work(JOB)
    leader.listen()
    assert (world.plans[JOB].revision, world.plans[JOB].owner) == ("r2", "w2-1")


def led_by_another(world: World) -> Leader:
    """For as long as a switch that has begun takes to its end."""
    leader = Leader(world)
    leader.look()
    for _ in range(4):
        leader.tick(1)
        world.report(JOB, "running")
        run(world, leader)
    return leader


@pytest.mark.parametrize("crash", range(12))
def test_a_switch_survives_a_crash_between_any_two_writes(world: World, crash: int) -> None:
    leader = Leader(world)
    leader.look()
    run(world, leader, 2)
    leader.writes_left = crash
    with contextlib.suppress(Crashed, FencedError):
        new_revision(world, leader)
        world.work(JOB)
        leader.listen()
        leader.tick(1)
        run(world, leader)
    led_by_another(world)
    assert world.plans[JOB].revision == "r2"
    tokens = list(world.valid(JOB).values())
    revisions = [t.revision for t in tokens]
    assert revisions == sorted(revisions)
    assert tokens[revisions.index("r2") - 1].checkpoint
    assert last(world).revision == "r2"


@pytest.mark.parametrize("crash", range(12))
def test_a_source_that_a_switch_adds_is_read_wherever_it_crashes(world: World, crash: int) -> None:
    world.ends |= {("more", 0): 0}
    leader = Leader(world)
    leader.look()
    run(world, leader, 2)
    both = {name: SourceSpec(topic=name, format="text") for name in ("lines", "more")}
    leader.writes_left = crash
    with contextlib.suppress(Crashed, FencedError):
        new_revision(world, leader, sources=both)
        world.work(JOB)
        leader.listen()
        leader.tick(1)
    leader = led_by_another(world)
    world.ends["more", 0] = 7
    leader.poll()
    world.work(JOB)
    leader.listen()
    named = [r for t in world.valid(JOB).values() for r in ranges_of(t) if r.source == "more"]
    assert [(r.start, r.end) for r in named if r.end > r.start] == [(0, 7)]
    assert {t.generation for t in world.valid(JOB).values() if t.revision == "r2"} == {
        world.plans[JOB].generation
    }


def test_where_a_source_begins_at_its_end_is_reported_at_once(world: World, leader: Leader) -> None:
    """Another leader would look again, and leave out what has come since."""
    run(world, leader, 2)
    world.ends["more", 0] = world.starts["more", 0] = 7
    lines = SourceSpec(topic="lines", format="text")
    new_revision(world, leader, sources={
        "lines": lines, "more": SourceSpec(topic="more", format="text", start="latest"),
    })  # fmt: skip
    world.work(JOB)
    leader.listen()
    world.report(JOB, "running")
    leader.listen()
    first = last(world)
    assert (first.revision, first.records) == ("r2", 0)
    assert first.generation == world.plans[JOB].generation
    assert [(r.start, r.end) for r in ranges_of(first) if r.source == "more"] == [(7, 7)]


# -- the life cycle ------------------------------------------------------------------------------


class WithoutTopic(Leader):
    """What the applied revision reads was deleted after its apply."""

    def _load_program(self, action: act.LoadProgram) -> ev.Event:
        text = "source topic more does not exist"
        return ev.ProgramFailed(action.job, action.archive, "TransientAnswer", text, False)


def test_a_revision_whose_topic_stays_away_is_dropped_and_the_old_one_continues(
    world: World,
) -> None:
    leader = WithoutTopic(world)
    leader.look()
    run(world, leader)
    world.produce(0, 10)
    new_revision(world, leader)
    text = "the applied revision cannot be read yet: source topic more does not exist"
    assert world.statuses[JOB].events[-1] == text
    tokens = len(world.valid(JOB))
    for passed in range(20):
        assert len(world.valid(JOB)) == tokens, passed
        if passed == 10:  # what is heard elsewhere takes nothing back
            leader.feed(ev.TopicsSeen({"lines": None}))
            leader.feed(ev.TopicsSeen({}))
        leader.tick(1.5)
    assert "cannot run, the old one continues" in world.statuses[JOB].events[-1]
    assert world.statuses[JOB].events.count(text) == 1
    assert last(world).records == 10


def test_a_store_that_is_away_while_a_revision_is_read_is_reported_once(
    world: World, leader: Leader
) -> None:
    leader.loads = False
    new_revision(world, leader)
    for _ in range(600):
        leader.tick(1.0)
    text = "the applied revision cannot be read yet: away"
    assert world.statuses[JOB].events.count(text) == 1
    leader.loads = True
    leader.tick(1.0)
    assert world.plans[JOB].revision == "r2"


def test_the_table_is_what_is_enforced() -> None:
    for start in Phase:
        for finish in Phase:
            if finish is start or finish in ALLOWED[start]:
                check("j", start, finish, ())
            else:
                with pytest.raises(InvalidTransition, match="earlier line"):
                    check("j", start, finish, ("earlier line",))


def test_a_leader_that_crashes_anywhere_leaves_a_job_that_comes_up(world: World) -> None:
    for writes in count():
        fresh = World(entries={JOB: job_entry()}, workers=["w1-1"], ends={("lines", 0): 5})
        leader = Leader(fresh, writes_left=writes)
        crashed = False
        try:
            leader.look()
        except Crashed:
            crashed = True
            leader = Leader(fresh)
            leader.look()
        assert fresh.plans[JOB].owner == "w1-1"
        assert [t.epoch for t in fresh.valid(JOB).values()] == [1]
        assert fresh.statuses[JOB].state == "restoring"
        if not crashed:
            assert any(isinstance(a, act.PutPlan) for a in leader.performed)
            assert writes > 3
            return
