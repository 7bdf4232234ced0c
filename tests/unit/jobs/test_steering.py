"""`jobs start`, `stop` and `remove`, and waiting for their answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from perseid.errors import PermanentError, RefusedError, UsageError
from perseid.jobs.operations import steering, verbs
from perseid.jobs.repository import job_folders
from perseid.topics import names
from support.applied_jobs import World, refusal


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_stop_and_start(world: World) -> None:
    world.apply(world.write())
    first = world.entry()
    with pytest.raises(RefusedError, match="is running already"):
        steering.start(world.registry, world.clock, "job", "checkpoint")
    world.stop(checkpoint=True)
    stopped = world.entry()
    assert (stopped.desired, stopped.stop_checkpoint, stopped.counter) == ("stopped", True, 2)
    with pytest.raises(RefusedError, match="is stopped already"):
        steering.stop(world.registry, world.clock, "job", checkpoint=False)
    started, version = steering.start(world.registry, world.clock, "job", "checkpoint")
    steering.put(world.registry, started, version)
    assert (world.entry().uuid, world.entry().desired) == (first.uuid, "running")
    assert world.entry().start == {"from": "checkpoint"}


def test_scratch_and_a_time_make_a_new_job(world: World) -> None:
    world.apply(world.write())
    first = world.entry()
    with pytest.raises(RefusedError, match="`perseid jobs stop job` first"):
        steering.start(world.registry, world.clock, "job", "scratch")
    world.answer("failed")
    again, _ = steering.start(world.registry, world.clock, "job", "checkpoint")
    assert again.uuid == first.uuid
    scratch, _ = steering.start(world.registry, world.clock, "job", "scratch")
    assert scratch.uuid != first.uuid
    timed, _ = steering.start(world.registry, world.clock, "job", "2026-11-21T08:00:00")
    assert timed.start == {"from": "2026-11-21T08:00:00+00:00"}
    with pytest.raises(UsageError, match="expected checkpoint, scratch or a time"):
        steering.start(world.registry, world.clock, "job", "yesterday")


def test_an_unknown_job_gets_its_nearest_name(world: World) -> None:
    world.apply(world.write("wordcount"))
    with pytest.raises(UsageError, match="did you mean wordcount"):
        steering.stop(world.registry, world.clock, "wordcuont", checkpoint=False)


def test_a_job_that_is_being_removed_takes_no_other_request(world: World) -> None:
    world.apply(world.write())
    steering.put(world.registry, *steering.remove(world.registry, world.clock, "job"))
    with pytest.raises(RefusedError, match="is being removed"):
        steering.start(world.registry, world.clock, "job", "scratch")
    with pytest.raises(RefusedError, match="is being removed"):
        world.stop()
    assert "is being removed" in refusal(world, world.write())
    entry = world.entry()
    assert steering.answered(world.registry, entry) is None
    world.gone()
    assert steering.wait(world.registry, world.clock, entry, 1).status is None


def test_waiting_takes_only_the_answer_to_this_request(world: World) -> None:
    world.apply(world.write())
    entry = world.entry()
    assert steering.answered(world.registry, entry) is None
    world.answer("restoring")
    assert steering.answered(world.registry, entry) is None
    world.answer("running")
    answer = steering.wait(world.registry, world.clock, entry, 1)
    assert answer.status is not None
    assert answer.status.state == "running"
    world.stop()
    assert steering.answered(world.registry, world.entry()) is None
    world.answer("failed")
    assert steering.answered(world.registry, world.entry()) is not None


@pytest.mark.parametrize(
    ("count", "counter", "archive", "is_reported"),
    [(3, 0, "", True), (2, 0, "", False), (9, -1, "", False), (9, 0, "earlier", False)],
)
def test_waiting_ends_at_once_when_what_was_applied_fails_again_and_again(
    world: World, count: int, counter: int, archive: str, is_reported: bool
) -> None:
    world.apply(world.write())
    entry = world.entry()
    world.answer("restoring")
    world.plan(archive or entry.archive)
    world.fail(count, entry.counter + counter, "ValueError: 7\nin m.py")
    answer = steering.answered(world.registry, entry)
    assert (answer is not None) is is_reported
    if is_reported:
        found = verbs.answer(world.cluster, entry, 1)
        assert found["state"] == "failing"
        assert found["error"]["text"] == "fails again and again (3 times in 5 s): ValueError: 7"


def test_waiting_ends_with_what_to_look_at(world: World) -> None:
    world.apply(world.write())
    with pytest.raises(PermanentError, match=r"after 2 s the job is unknown.*no coordinator leads"):
        steering.wait(world.registry, world.clock, world.entry(), 2)


def test_what_purging_deletes(world: World) -> None:
    world.apply(world.write())
    with job_folders.validated(job_folders.find(world.write())) as (job,):
        own = job.spec
    with job_folders.validated(job_folders.find(world.write("job2", topic="out2"))) as (job,):
        other = job.spec
    buffer = names.buffer("job", "o", 1)
    there = ["in", "out", "perseid.job.dlq", "perseid.job.tokens", "perseid.job2.tokens", "x"]
    there += [buffer, names.buffer("job2", "o", 1)]
    assert steering.purged_topics("job", own, [], there) == [
        "out", buffer, "perseid.job.dlq", "perseid.job.tokens",
    ]  # fmt: skip
    reader = other.model_copy(
        update={"sources": {"a": other.sources["a"].model_copy(update={"topic": "out"})}}
    )
    assert "out" not in steering.purged_topics("job", own, [reader], there)
    assert steering.purged_topics("job", None, [], there) == [
        buffer, "perseid.job.dlq", "perseid.job.tokens",
    ]  # fmt: skip
