"""`jobs apply --gate audit`: what is written, what is refused, and the answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.jobs.operations import report, steering, verbs
from perseid.jobs.operations.gated import Approval
from perseid.records import ApprovedCause, Gate, Plan
from perseid.registry import codec, paths
from support.applied_jobs import CODE, World, refusal

OTHER = CODE + "# faster\n"
EPOCHS = 20


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A job runs."""
    made = World(tmp_path)
    made.apply(made.write())
    made.plan(made.entry().archive)
    made.answer("running")
    return made


def refused(world: World, text: str) -> None:
    """What the coordinator would write about the entry's gate."""
    plan, entry = world.registry.plan("job"), world.entry()
    assert plan is not None
    plan = replace(plan, gate=Gate(entry.counter, None, text))
    world.put(paths.plan("job"), codec.encode(plan))
    world.answer("running")


def test_the_wanted_revision_is_written_with_its_gate(world: World) -> None:
    before = world.entry()
    assert world.apply(world.write(code=OTHER), EPOCHS).action == "change"
    entry = world.entry()
    assert (entry.gate, entry.counter, entry.desired) == (EPOCHS, before.counter + 1, "running")
    assert entry.archive != before.archive
    plan = world.registry.plan("job")
    shown = report.gate(entry, plan)
    assert shown is not None
    assert (shown["state"], shown["epochs"], shown["equal"]) == ("waiting", EPOCHS, None)


def test_the_same_revision_without_a_gate_is_a_change_until_it_runs(world: World) -> None:
    world.apply(world.write(code=OTHER), EPOCHS)
    assert world.apply(world.write(code=OTHER)).action == "change"
    assert world.entry().gate == 0
    assert world.apply(world.write(code=OTHER)).action == "unchanged"


CAUSES = (ApprovedCause("o", "value", ("n",)),)


def approval(world: World, archive: str, **changes: str) -> Approval:
    return replace(Approval("job", world.entry().uuid, archive, CAUSES), **changes)  # type: ignore[arg-type]


def archive_of(world: World, repo: str) -> str:
    with world.prepared(repo, EPOCHS) as (wanted,):
        return wanted.entry.archive


def test_approved_differences_are_written_with_the_gate_they_are_for(world: World) -> None:
    repo = world.write(code=OTHER)
    given = approval(world, archive_of(world, repo))
    world.apply(repo, EPOCHS, given)
    assert world.entry().approved == CAUSES
    world.apply(world.write(code=OTHER + "#"), EPOCHS)
    assert world.entry().approved == (), "of the revision before"


def test_a_report_of_anything_else_approves_nothing(world: World) -> None:
    repo = world.write(code=OTHER)
    own = archive_of(world, repo)
    for given, text in (
        (approval(world, "0" * 64), "the approved report is of another revision (archive 00000000"),
        (approval(world, ""), "(archive ?, "),
        (approval(world, own, job_uuid="u0"), "is of an earlier job of that name"),
        (approval(world, own, job="jib"), "is of job jib, which is not applied here"),
    ):
        assert text in refusal(world, repo, EPOCHS, given)


def test_a_refused_revision_is_compared_again(world: World) -> None:
    world.apply(world.write(code=OTHER), EPOCHS)
    refused(world, "operator o, partition 0, epoch 3: other")
    before = world.entry()
    assert world.apply(world.write(code=OTHER), 5).action == "change"
    assert (world.entry().gate, world.entry().counter) == (5, before.counter + 1)
    assert report.refused(world.entry(), world.registry.plan("job")) is None, "of the entry before"


def test_the_running_revision_needs_no_gate(world: World) -> None:
    assert world.apply(world.write(), EPOCHS).action == "unchanged"
    world.apply(world.write(code=OTHER), EPOCHS)
    assert world.apply(world.write(), EPOCHS).action == "change", "it ends the gate"
    assert world.entry().gate == 0
    world.apply(world.write(code=OTHER), EPOCHS)
    world.plan(world.entry().archive)
    assert world.apply(world.write(code=OTHER), EPOCHS).action == "unchanged", "it has switched"


def test_state_of_a_refused_revision_never_was(world: World) -> None:
    migrating = CODE.replace("n=pa.int64()", "n=pa.float64()") + "    def migrate(self, old): ...\n"
    world.apply(world.write(code=migrating), EPOCHS)
    assert "double -> int64" in refusal(world, world.write(code=OTHER)), "it may run by then"
    refused(world, "other")
    world.apply(world.write(code=OTHER), EPOCHS)


def test_a_new_job_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert "has no running revision" in refusal(world, world.write(), EPOCHS)


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_a_job_that_does_not_run_is_refused(world: World, state: str) -> None:
    if state == "stopped":
        world.stop()
    world.answer(state)
    text = refusal(world, world.write(code=OTHER), EPOCHS)
    assert f"job: is {state}, so nothing can be compared; apply it without `--gate`" in text


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("topic: out", "topic: elsewhere", "  topic elsewhere is added\n  topic out is dropped"),
        ("parallelism: 2", "parallelism: 3", "operators, their inputs, keys or parallelism"),
        ("a: {topic: in", "b: {topic: in", "it has other sources"),
        ("errors: {tolerance: all}", "", "topic perseid.job.dlq is dropped"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(
    world: World, old: str, new: str, text: str
) -> None:
    world.topics.create("elsewhere", 2)
    file = Path(world.write(code=OTHER)) / "job.yaml"
    changed = file.read_text().replace(old, new)
    file.write_text(changed.replace("input: a", "input: b") if "b: {" in new else changed)
    found = refusal(world, str(file.parent), EPOCHS)
    assert "cannot be compared with the running revision; apply it without `--gate`" in found
    assert text in found


def test_the_answer_is_the_refusal_with_what_to_do(world: World) -> None:
    world.apply(world.write(code=OTHER), EPOCHS)
    refused(world, "operator o, partition 0, epoch 3: other")
    found = verbs.answer(world.cluster, world.entry(), 1.0)
    assert found["state"] == "refused"
    assert found["error"]["text"] == "operator o, partition 0, epoch 3: other"
    assert "apply` it again with `--gate audit`" in found["error"]["next"]
    shown, _ = verbs.show(world.cluster, "job", world.folder / "cache")
    assert shown["gate"]["state"] == "refused"
    assert any("refused: operator o" in line for line in report.as_text(shown))


def test_the_answer_waits_while_epochs_are_compared(world: World) -> None:
    before = world.entry()
    world.apply(world.write(code=OTHER), EPOCHS)
    assert steering.answered(world.registry, world.entry()) is None
    assert steering.answered(world.registry, before) is not None


def test_a_plan_with_a_gate_is_read_as_it_was_written(world: World) -> None:
    plan = world.registry.plan("job")
    assert plan is not None
    causes = (ApprovedCause("o", "value", ("n",)), ApprovedCause("o", "missing"))
    entry = replace(world.entry(), archive="archive-2", approved=causes)
    gated = plan.gated_by(entry, "w2-1", 7, 3)
    assert gated.gate is not None
    assert gated.gate.equal == 3
    assert codec.decode(codec.encode(gated), Plan, "a plan") == gated
