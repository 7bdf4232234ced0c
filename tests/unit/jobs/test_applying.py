"""`jobs apply` against a fake ZooKeeper and a model Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perseid.errors import FencedError, PermanentError, RefusedError
from perseid.jobs.model import trees
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations import applying
from perseid.jobs.repository import job_folders
from perseid.records.repository import RepoRecord
from perseid.registry.repository import RepoNodes
from support.applied_jobs import CODE, World, refusal


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_new_job_is_written_whole(world: World) -> None:
    wanted = world.apply(world.write())
    assert wanted.action == "create"
    assert wanted.topics == (("out", 2), ("perseid.job.dlq", 1))
    assert world.topics.list() == ["in", "out", "perseid.job.dlq"]
    entry = world.entry()
    assert (entry.desired, entry.counter, entry.start) == ("running", 1, {"from": "scratch"})
    assert world.store.list("archives") == [f"archives/{entry.archive}.tar"]


def test_a_look_that_was_overtaken_writes_no_entry(world: World) -> None:
    nodes = RepoNodes(world.registry)
    mine = nodes.put(RepoRecord("https://git.example/x.git", "main", 60, "applied", 0), None)
    with world.prepared(world.write()) as (wanted,):
        nodes.put(RepoRecord("https://git.example/x.git", "main", 60, "applied", 1), mine)
        with pytest.raises(FencedError):
            applying.perform(world.cluster, wanted, [nodes.guard(mine)])
        assert world.registry.jobs() == {}
        applying.perform(world.cluster, wanted, [nodes.guard(mine + 1)])
    assert world.registry.jobs().keys() == {"job"}


def test_one_job_of_several_is_judged_with_the_others_without_their_code(world: World) -> None:
    world.write("one", topic="same")
    world.write("two", topic="same", code="raise SystemExit")
    world.write("three", topic="other")
    with job_folders.validated(job_folders.find(str(world.folder / "repo"))) as jobs:
        specs = [job.spec for job in jobs]
        by_name = {job.spec.name: job for job in jobs}
        with pytest.raises(RefusedError, match="topic same is written by job two too"):
            applying.prepare_one(world.cluster, by_name["one"], specs)
        assert applying.prepare_one(world.cluster, by_name["three"], specs).action == "create"


def test_preparing_writes_nothing(world: World) -> None:
    with world.prepared(world.write()) as (wanted,):
        assert wanted.action == "create"
    assert world.registry.jobs() == {}
    assert world.topics.list() == ["in"]
    assert world.store.list() == []


def test_applying_again_changes_nothing(world: World) -> None:
    world.apply(world.write())
    first = world.entry()
    assert world.apply(world.write()).action == "unchanged"
    assert world.entry() == first


def test_a_change_keeps_the_uuid_and_raises_the_counter(world: World) -> None:
    world.apply(world.write())
    first = world.entry()
    wanted = world.apply(world.write(code=CODE + "# other\n"))
    second = world.entry()
    assert (wanted.action, wanted.difference) == ("change", ())
    assert "+# other" in wanted.files
    assert (second.uuid, second.counter) == (first.uuid, 2)
    assert second.archive != first.archive
    assert second.start == {"from": "checkpoint"}


def test_a_change_of_a_stopped_job_leaves_it_stopped(world: World) -> None:
    world.apply(world.write())
    world.stop(checkpoint=True)
    world.apply(world.write(topic="other"))
    assert world.entry().desired == "stopped"


def test_state_that_does_not_agree_is_refused(world: World) -> None:
    world.apply(world.write())
    other = CODE.replace("n=pa.int64()", "n=pa.float64()")
    text = refusal(world, world.write(code=other))
    assert "job: the state of the running revision cannot be kept" in text
    assert "operator o: state total.columns.n: int64 -> double" in text
    assert "`perseid jobs remove job`" in text


def test_the_revision_that_still_runs_counts(world: World) -> None:
    world.apply(world.write())
    running = world.entry().archive
    other = CODE.replace("n=pa.int64()", "n=pa.float64()")
    with job_folders.validated(job_folders.find(world.write(code=other))) as (job,):
        sha = trees.store_archive(world.store, job.tree)
    stored = world.registry.job_entry("job")
    assert stored is not None
    world.registry.put_job_entry(replace(stored.value, archive=sha), stored.version)
    world.plan(running)
    assert "int64 -> double" in refusal(world, world.write(code=other + "# x\n"))


def test_a_revision_that_failed_before_it_ran_does_not_count(world: World) -> None:
    """Its changed state never was: the job is to go back to the state that there is."""
    world.apply(world.write())
    world.plan(world.entry().archive)
    migrating = CODE.replace("n=pa.int64()", "n=pa.float64()") + "    def migrate(self, old): ...\n"
    world.apply(world.write(code=migrating))
    back = world.write(code=CODE + "# corrected\n")
    assert "double -> int64" in refusal(world, back)
    for state in ("failed", "stopped"):
        world.answer(state, error={"kind": "RefusedError", "text": "cannot end epoch 3"})
        with world.prepared(back) as (wanted,):
            assert wanted.action == "change"


def test_more_source_partitions_than_a_job_can_read_are_refused(world: World) -> None:
    world.topics.delete(["in"])
    world.topics.create("in", applying.SOURCE_PARTITIONS_MAX + 1)
    assert "have 10001 partitions, and a job reads at most 10000" in refusal(world, world.write())
    world.topics.delete(["in"])
    world.topics.create("in", applying.SOURCE_PARTITIONS_MAX)
    world.apply(world.write())


def test_sources_must_exist_and_not_be_compacted(world: World) -> None:
    world.topics.delete(["in"])
    assert "`perseid topics create in --partitions 4`" in refusal(world, world.write())
    world.topics.create("in", 1, {"cleanup.policy": "compact"})
    assert "topic in is compacted" in refusal(world, world.write())
    world.topics.delete(["in"])
    world.topics.create("in", 2)
    repo = world.write()
    file = Path(repo) / "job.yaml"
    file.write_text(file.read_text().replace("format: json, c", "start: {2: 5}, format: json, c"))
    assert "start names partition 2, but topic in has 2" in refusal(world, repo)


def test_two_jobs_do_not_write_one_topic(world: World) -> None:
    world.apply(world.write("first"))
    assert "topic out is written by job first too" in refusal(world, world.write("second"))
    assert "topic out" in refusal(world, world.write("second", more=", headers: true"))
    world.apply(world.write("first", more=", headers: true"))
    world.apply(world.write("second", more=", headers: true"))
    assert world.registry.jobs().keys() == {"first", "second"}


@pytest.mark.parametrize("known", [True, False])
def test_what_others_write_is_read_from_archives_where_entries_lack_it(
    world: World, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hundreds of jobs, reading each archive would make every apply take seconds."""
    world.apply(world.write("first", topic="other"))
    if not known:  # as an earlier version wrote it
        entry = world.registry.job_entry("first")
        assert entry is not None
        world.registry.put_job_entry(replace(entry.value, writes=None), entry.version)
    read: list[str] = []
    load = applying.revision

    def noted(cluster: applying.Cluster, sha: str, cache: Path) -> applying.Revision:
        read.append(sha)
        return load(cluster, sha, cache)

    monkeypatch.setattr(applying, "revision", noted)
    assert "topic other is written by job first" in refusal(world, world.write("second", "other"))
    assert len(read) == (0 if known else 1)


def test_all_jobs_of_a_repository_or_none(world: World) -> None:
    world.write("first")
    world.write("second")
    repo = str(world.folder / "repo")
    text = refusal(world, repo)
    assert "first: topic out is written by job second too" in text
    assert "second: topic out is written by job first too" in text
    world.write("second", topic="other", code="x = 1 / 0\n")
    world.write("first", code="import nothing\n")
    with pytest.raises(JobFileErrors) as caught, world.prepared(repo):
        raise AssertionError("not reached")
    assert "first/job.yaml:6: operators.o.use: m.py:1: cannot be imported" in str(caught.value)
    assert "second/job.yaml:6: operators.o.use: m.py:1: cannot be imported" in str(caught.value)
    assert world.registry.jobs() == {}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (CODE.replace("    total", '    output = pa.schema([("word", pa.string())])\n    total'),
         "sinks.s.key: found 'k', expected a column that o declares (word)"),
        (CODE.replace("def process", "def proces"), "has no method process"),
    ],
)  # fmt: skip
def test_classes_are_checked_against_the_job(world: World, code: str, message: str) -> None:
    with pytest.raises(JobFileErrors) as caught, world.prepared(world.write(code=code)):
        raise AssertionError("not reached")
    assert message in str(caught.value)


def test_who_is_slower_is_refused(world: World) -> None:
    world.apply(world.write())
    with world.prepared(world.write(code=CODE + "# mine\n")) as (mine,):
        world.apply(world.write(code=CODE + "# theirs\n"))
        with pytest.raises(RefusedError, match="another user changed it"):
            applying.perform(world.cluster, mine)


def test_without_own_code(world: World) -> None:
    closed = replace(world.cluster, allow_code=False)
    with (
        job_folders.validated(job_folders.find(world.write())) as jobs,
        pytest.raises(RefusedError, match="runs no code of jobs"),
    ):
        applying.prepare(closed, jobs)


def test_brokers_on_which_no_transaction_can_begin_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs would wait without end for one."""
    large = {1: {"transaction.state.log.replication.factor": "3"}}
    monkeypatch.setattr(world.topics, "brokers", lambda: large)
    message = refusal(world, world.write())
    assert "broker 1 has transaction.state.log.replication.factor=3, expected at most 1" in message
    assert "in the broker's server.properties and restart broker 1" in message


def test_topics_that_may_lose_what_was_acknowledged_are_warned_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.topics, "brokers", lambda: {n: {} for n in (1, 2, 3)})
    found = world.topics.describe(["in"])["in"]
    weak = replace(found, replicas=3, min_insync_replicas=1)
    monkeypatch.setattr(
        world.topics, "describe", lambda names: {n: weak for n in names if n == "in"}
    )
    with world.prepared(world.write()) as (change,):
        (text,) = change.warnings
    assert text.startswith("topic in has min.insync.replicas=1 of 3 copies, expected 2")


def test_what_may_not_be_asked_is_no_reason_not_to_apply(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied() -> dict[int, dict[str, str]]:
        raise PermanentError("the broker denies this to us")

    monkeypatch.setattr(world.topics, "brokers", denied)
    assert world.apply(world.write()).action == "create"
