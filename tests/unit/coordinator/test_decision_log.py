"""A leader's decisions are written as they were made, and the core decides so again."""

from __future__ import annotations

import json
import stat
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import events as ev
from perseid.coordinator.core import decide
from perseid.coordinator.decision_log import codec, lines
from perseid.coordinator.decision_log.lines import Decided
from perseid.coordinator.job.positions import Position
from perseid.coordinator.job.program import Program
from perseid.coordinator.model import ClusterState
from perseid.errors import LogTruncated, UsageError
from perseid.errors.texts import named
from perseid.jobs.model.spec import CheckpointSpec, FaultToleranceSpec, PlacementSpec
from perseid.records import Assignment, CheckpointPointer
from perseid.topics.records import (
    Begin,
    EpochDone,
    EventTimes,
    FragmentState,
    OperatorState,
    PartDone,
    Rewind,
)
from support import spread_job
from support.coordinator import TOPIC_ID, Crashed, Leader, World, job_entry, job_spec
from support.coordinator_steps import (
    JOB,
    fail,
    failed_in_flight,
    leading,
    new_revision,
    one_job,
    run,
    want,
)
from support.decisions import replayed, written

POINTER = CheckpointPointer(3, 1, 1, "r1", 4, "c-3", 1, 20, 1000, 3, (3,))
OTHERS: tuple[ev.Event, ...] = (  # kinds that no scenario below has
    ev.JobLoadFailed(JOB, job_entry(), "RetryableError", "away", False),
    ev.ProgressLost(JOB, "cut"),
    ev.ManifestFailed(JOB, "u1", 3, "full"),
    ev.LogsTrimmed(JOB, "away"),
    ev.TopicsSeen({"lines": ev.SourceTopic("lines", TOPIC_ID, False, {0: 0, 1: 0}), "gone": None}),
)


def checkpoints(world: World, leader: Leader) -> None:
    """Ten epochs and some checkpoints; the job is stopped and started."""
    for _ in range(10):
        world.time_s += 12.0
        run(world, leader)
        leader.tick(0.1)
    want(world, leader, desired="stopped", stop_checkpoint=True)
    world.work(JOB)
    leader.listen()
    want(world, leader, desired="running", stop_checkpoint=False)


def correction(world: World, leader: Leader) -> None:
    """A failed epoch is taken back, and computed by another revision."""
    failed_in_flight(world, leader)
    new_revision(world, leader)
    world.report(JOB, "running")
    leader.listen()
    world.work(JOB)
    leader.listen()
    leader.tick(1.0)


def worker_dies(world: World, leader: Leader) -> None:
    run(world, leader, 2)
    world.produce(0, 10)
    leader.poll()
    world.workers = []
    leader.look()
    leader.tick(5.0)
    world.workers = ["w2-1"]
    leader.look()
    world.report(JOB, "running")
    leader.listen()
    run(world, leader, 2)


def read_again(world: World, leader: Leader) -> None:
    """An append fails, and programs cannot be loaded."""
    run(world, leader, 2)
    leader.feed(ev.ActionFailed(JOB, "AppendToken", "away"))
    leader.tick(1.0)
    leader.loads = False
    new_revision(world, leader)
    leader.tick(2.0)
    for event in OTHERS:
        leader.feed(event)
    leader.tick(1.0)


def small_states(world: World, leader: Leader) -> None:
    """Checkpoints at moments of small state: the planner's policy is part of the job's state."""
    period = FaultToleranceSpec(checkpoint=CheckpointSpec(period_s=30.0, size_timed=True))
    new_revision(world, leader, fault_tolerance=period)
    for second in range(220):
        world.time_s += 1.0
        world.produce(0, 10)
        leader.poll()
        window = OperatorState("counts", 1000 * (second % 20), 1000)
        world.states = (window, OperatorState("table", 50_000 + 9 * second, 500))
        if second == 60:
            world.report(JOB, "running")
        world.work(JOB)
        leader.listen()


SCENARIOS = (checkpoints, correction, worker_dies, read_again, small_states)
Scenario = Callable[[World, Leader], None]


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.__name__)
def decided(request: pytest.FixtureRequest, world: World) -> list[Decided]:
    """All decisions of a leader's life, from its first look on."""
    leader = leading(world)
    request.param(world, leader)
    return leader.decided


def through_json(value: object) -> object:
    return codec.decoded(json.loads(codec.dumps(codec.encoded(value))))


def test_values_are_the_same_after_they_were_written_and_read(decided: list[Decided]) -> None:
    for one in decided:
        assert through_json(one.event) == one.event
        assert codec.digest(through_json(one.after)) == codec.digest(one.after)
        for action in one.actions:
            assert through_json(action) == action


def test_scenarios_have_every_kind_of_event() -> None:
    kinds = set[type]()
    for scenario in SCENARIOS:
        world = one_job()
        leader = leading(world)
        scenario(world, leader)
        kinds |= {type(one.event) for one in leader.decided}
    assert kinds == set(typing.get_args(ev.Event))


def test_the_core_decides_so_again(decided: list[Decided], tmp_path: Path) -> None:
    (path,) = written(tmp_path / "c1", decided)
    found = replayed(path)
    assert found.same, found.difference
    assert (found.ending, found.n) == ("closed", sum(found.events.values()))
    quiet = [lines.is_quiet(d.before, d.event, d.after, d.actions) for d in decided]
    assert found.n == quiet.count(False)
    assert codec.digest(found.state.jobs[JOB]) == codec.digest(decided[-1].after.jobs[JOB])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_of_several_files_can_be_replayed_alone(
    decided: list[Decided], tmp_path: Path
) -> None:
    paths = written(tmp_path / "c1", decided, bytes_max=1 << 18)
    replays = [replayed(path) for path in paths]
    assert all(found.same and found.ending == "closed" for found in replays)
    written_s = [found.now.monotonic_s for found in replays]
    assert written_s == sorted(written_s)
    assert sum(path.stat().st_size for path in paths) <= 1 << 18


def test_what_changes_nothing_is_only_counted(world: World, leader: Leader, tmp_path: Path) -> None:
    for _ in range(50):
        leader.tick(0.1)
    leader.poll()
    world.produce(0, 10)
    leader.poll()
    (path,) = written(tmp_path / "c1", leader.decided)
    found = replayed(path)
    assert found.same
    assert (found.quiet, found.events["Tick"]) == (51, 0)
    assert found.state.time == leader.state.time


@pytest.mark.parametrize("value", [b"a record", object(), 1 + 2j, Exception("a record")])
def test_other_values_are_not_written(value: object) -> None:
    with pytest.raises(TypeError, match="no value of the core"):
        codec.encoded(value)


@pytest.mark.parametrize("kind", ["Path", "Popen", "LeaderInfo", "decide", ""])
def test_other_classes_are_not_read(kind: str) -> None:
    with pytest.raises((ValueError, TypeError), match="no class of the core"):
        codec.decoded({"$": kind, "is": ["/"]})


def test_values_that_json_lacks() -> None:
    truncated = typing.cast(LogTruncated, through_json(LogTruncated("lines", 0, 7, 3)))
    assert truncated.args == ("lines", 0, 7, 3)
    ends = ev.EndsSeen({("lines", 0): 3})
    assert through_json(ends) == ends  # with a time before all times
    starts = {("lines", 0): Position("lines", TOPIC_ID, 1)}
    loaded = ev.ProgramLoaded(JOB, Program("r1", "a1", job_spec()), starts)
    assert through_json(loaded) == loaded
    assert through_json({"$": 1, "list": [1, {"a": (2,)}]}) == {"$": 1, "list": [1, {"a": (2,)}]}


def spread(leader: Leader) -> ClusterState:
    """The state of a job of two fragments with generations of their own."""
    job = leader.job()
    assert job.plan is not None
    plan = replace(job.plan, generation=5, assignments=(
        Assignment("0", (0,), "w1-1", 3, from_epoch=1, split=0),
        Assignment("1", (1,), None, 5, from_epoch=1, split=1),
    ))  # fmt: skip
    parts = {("counts", n): PartDone("u1", g, 4, 1, "counts", n, f"p{n}", 7, 1, 0.5)
             for n, g in ((0, 3), (1, 5))}  # fmt: skip
    checkpointing = job.checkpointing.collects(
        4, 9, 1.0, {(part.generation, *key): part for key, part in parts.items()}
    )
    spec = job_spec(placement=PlacementSpec(spread=2))
    ownership = replace(job.ownership, plan=plan, generation=5, done_by={"0": 4, "1": 2})
    return leader.state.with_job(replace(
        job, ownership=ownership, checkpointing=checkpointing, program=Program("r1", "a1", spec),
    ))  # fmt: skip


def test_a_job_of_several_fragments_is_the_same_after_it_was_written_and_read(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    state = spread(leader)
    job = state.jobs[JOB]
    (head,) = lines.parsed([lines.head_line(lines.Head("1", "c1", 1, 0, state))], "f")
    assert isinstance(head, lines.Head)
    assert head.state == state
    assert lines.digests(head.state) == lines.digests(state)
    other = replace(job.ownership, done_by={"0": 4, "1": 3})
    assert codec.digest(replace(job, ownership=other)) != codec.digest(job)


def test_what_several_fragments_report_and_get_is_the_same_too(
    world: World, leader: Leader
) -> None:
    run(world, leader, 2)
    job = spread(leader).jobs[JOB]
    collecting = job.checkpointing.collecting
    assert job.plan is not None
    assert collecting is not None
    manifest = act.WriteManifest(
        JOB, "u1", 4, 5, 1, "r1", 9, 1000, tuple(collecting.parts.values())
    )
    for action in (act.PutPlan(JOB, job.plan), manifest):
        assert through_json(action) == action
    assert {"do": "PutPlan", "generation": 5}.items() <= lines.in_short(
        act.PutPlan(JOB, job.plan)
    ).items()
    for record in (
        EpochDone("u1", 5, "w2-1", 4, 9, 10, 10, 5, fragment="1"),
        FragmentState("u1", 5, "w2-1", "running", 4, fragment="1"),
        EventTimes("u1", 5, 4, 9, 0, (), fragment="1"),
    ):
        assert through_json(ev.ProgressSeen(JOB, record)) == ev.ProgressSeen(JOB, record)


def test_the_core_decides_so_again_about_several_fragments(tmp_path: Path) -> None:
    """One worker of four dies: its fragment gets a generation of its own."""
    world = spread_job.spread_world(4)
    leader = spread_job.leading(world)
    world.time_s += 30.0
    spread_job.epochs(world, leader, 2)
    spread_job.lose(world, leader, "w4-1")
    leader.tick(5.0)
    world.restore()
    leader.listen()
    spread_job.epochs(world, leader, 2)
    assert len(set(world.generations_of.values())) == 2
    for one in leader.decided:
        assert through_json(one.event) == one.event
        for action in one.actions:
            assert through_json(action) == action
    (path,) = written(tmp_path / "c1", leader.decided)
    found = replayed(path)
    assert found.same, found.difference
    assert codec.digest(found.state.jobs[JOB]) == codec.digest(leader.job())


# -- what replay finds ---------------------------------------------------------------------------


@pytest.fixture
def path(world: World, leader: Leader, tmp_path: Path) -> Path:
    """The file of some epochs."""
    run(world, leader, 4)
    (path,) = written(tmp_path / "c1", leader.decided)
    return path


def changed(path: Path, number: int, change: Callable[[dict[str, typing.Any]], object]) -> Path:
    """Changes the line of this number, counted from 0."""
    content = [json.loads(line) for line in path.read_text().splitlines()]
    change(content[number])
    path.write_text("".join(json.dumps(line) + "\n" for line in content))
    return path


def line_of(path: Path, kind: str) -> int:
    content = [json.loads(line) for line in path.read_text().splitlines()]
    return next(i for i, line in enumerate(content) if line.get("event", {}).get("$") == kind)


def test_another_event_leads_to_other_actions(path: Path) -> None:
    number = next(
        i for i, line in enumerate(path.read_text().splitlines())
        if "EndsSeen" in line and "AppendToken" in line
    )  # fmt: skip
    found = replayed(changed(path, number, lambda line: line["event"].update(ends={})))
    assert found.difference is not None
    assert (found.difference.n, found.difference.event) == (number, "EndsSeen")
    assert [one["do"] for one in found.difference.recorded] == ["AppendToken"]
    assert found.difference.replayed == ()


def test_other_recorded_actions_are_a_difference(path: Path) -> None:
    number = line_of(path, "BeginAppended")
    found = replayed(changed(path, number, lambda line: line["actions"].pop()))
    assert found.difference is not None
    assert (found.difference.n, found.difference.job) == (number, JOB)
    assert len(found.difference.replayed) == len(found.difference.recorded) + 1


def test_another_state_is_found_at_the_end(path: Path) -> None:
    number = len(path.read_text().splitlines()) - 2  # the last event
    assert "EpochDone" in path.read_text().splitlines()[number]
    found = replayed(
        changed(path, number, lambda line: line["event"]["record"].update(state_bytes=7))
    )
    assert (found.same, found.difference, found.differing) == (False, None, (f"job {JOB}",))


def test_a_last_line_without_its_end_is_left_out(path: Path) -> None:
    whole = replayed(path).n
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(content[:-2]) + content[-2][:-20])
    found = replayed(path)
    assert (found.same, found.ending, found.n) == (True, "cut off", whole - 1)
    path.write_bytes(b"".join(content[:-2]))
    assert (replayed(path).same, replayed(path).ending) == (True, "open")


def test_a_replay_to_an_event(path: Path) -> None:
    number = line_of(path, "TokenAppended")
    found = replayed(path, until=number)
    assert (found.n, found.ending) == (number, "until")
    assert (found.state.jobs[JOB].chain.tip.epoch, found.state.jobs[JOB].done) == (1, 0)
    with pytest.raises(UsageError, match="--until 999: expected an event of the file"):
        replayed(path, until=999)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda line: line.update(format=2), "has format 2, and this version reads 1"),
        (lambda line: line.pop("state"), "line 1: expected the first line"),
        (lambda line: line.update(state=7), "line 1: expected the first line"),
        (lambda line: line["state"].update({"$": "Popen"}), "'Popen' is no class"),
    ],
)
def test_a_damaged_head_is_reported(
    path: Path, change: Callable[[dict[str, typing.Any]], object], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        replayed(changed(path, 0, change))


def test_a_damaged_line_is_reported_with_its_number(path: Path) -> None:
    content = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*content[:3], b'{"n": 3, \x00\n', *content[4:]]))
    with pytest.raises(UsageError, match=r"00000001-00001.jsonl, line 4: expected a decision"):
        replayed(path)
    path.write_bytes(b"".join([*content[:3], *content[4:]]))
    with pytest.raises(UsageError, match=r"line 4: .*event 4 is in the place of event 3"):
        replayed(path)
    path.write_bytes(b"")
    with pytest.raises(UsageError, match="is empty"):
        replayed(path)


def test_what_the_core_raised_is_recorded(world: World, leader: Leader, tmp_path: Path) -> None:
    """A defect ends the term; its event is the last of the file, and raises again."""
    state = leader.state.with_job(replace(leader.job(), program=None))
    event = ev.EndsSeen({("lines", 0): 5}, world.time_s)
    with pytest.raises(ValueError, match="no plan") as defect:
        decide(state, event, world.now)
    raised = Decided(state, event, world.now, state, raised=named(defect.value))
    (path,) = written(tmp_path / "c1", [raised])
    found = replayed(path)
    assert (found.same, found.n) == (True, 1)
    found = replayed(changed(path, 1, lambda line: line.pop("raised")))
    assert found.difference is not None
    assert found.difference.raised == ("", raised.raised)


def test_a_crashed_leader_and_the_next_one_have_files_of_their_own(
    world: World, tmp_path: Path
) -> None:
    first = Leader(world, writes_left=3)
    with pytest.raises(Crashed):
        first.look()
    second = Leader(world)
    second.look()
    folder = tmp_path / "c1"
    written(folder, first.decided, epoch=1)
    paths = written(folder, second.decided, epoch=2)
    assert [path.name for path in paths] == ["00000001-00001.jsonl", "00000002-00001.jsonl"]
    assert all(replayed(path).same for path in paths)


def test_begin_and_rewind_are_values_of_the_core() -> None:
    for event in (
        ev.BeginAppended(JOB, Begin(1, "u1", 0), 1),
        ev.RewindAppended(JOB, Rewind(1, "u1", 2, 4, "again"), 9),
        ev.ManifestWritten(JOB, "u1", POINTER),
    ):
        assert through_json(event) == event


def test_a_failure_is_replayed(world: World, leader: Leader, tmp_path: Path) -> None:
    run(world, leader)
    fail(world, leader)
    (path,) = written(tmp_path / "c1", leader.decided)
    assert replayed(path).same
