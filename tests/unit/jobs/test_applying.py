"""`jobs apply`, `start`, `stop`, `remove` against a fake ZooKeeper and a model Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from perseid.clocks import ManualClock
from perseid.coordinator.api import answers
from perseid.errors import FencedError, PermanentError, RefusedError, UsageError
from perseid.jobs.model import trees
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations import applying, report, steering, verbs
from perseid.jobs.operations.applying import Change, Cluster
from perseid.jobs.repository import job_folders
from perseid.records import (
    Assignment,
    CheckpointPointers,
    JobEntry,
    JobFailures,
    JobStatus,
    Plan,
)
from perseid.records.repository import RepoRecord
from perseid.registry import codec, paths
from perseid.registry.facade import Registry
from perseid.registry.port import Create, Delete
from perseid.registry.repository import RepoNodes
from perseid.state.durability.store import LocalStore
from perseid.testing.kafka import FakeTopics, ModelKafka
from perseid.testing.registry import FakeZooKeeper
from perseid.topics import names

JOB = """\
name: {name}
parallelism: 2
sources:
  a: {{topic: in, format: json, columns: {{k: string, n: int64}}}}
operators:
  o: {{input: a, key: k, use: "m:O"}}
sinks:
  s: {{input: o, topic: {topic}, format: json, key: k{more}}}
errors: {{tolerance: all}}
"""
CODE = """\
from perseid.jobs import Operator, Table, pa

class O(Operator):
    total = Table(key=pa.string(), n=pa.int64())

    def process(self, batch, out):
        out.emit(self.total.add(batch["k"], n=batch["n"]))
"""


class World:
    """A cluster without processes; `answer` is its coordinator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.zookeeper = FakeZooKeeper()
        self.registry = Registry(self.zookeeper.session())
        self.topics = FakeTopics(ModelKafka())
        self.topics.create("in", 4)
        self.clock = ManualClock()
        self.store = LocalStore(folder / "store")
        self.cluster = Cluster(self.registry, self.topics, self.store, self.clock)

    def write(self, name: str = "job", topic: str = "out", more: str = "", code: str = CODE) -> str:
        folder = self.folder / "repo" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(JOB.format(name=name, topic=topic, more=more))
        (folder / "m.py").write_text(code)
        return str(folder)

    @contextmanager
    def prepared(self, repo: str) -> Iterator[list[Change]]:
        with job_folders.validated(job_folders.find(repo)) as jobs:
            yield applying.prepare(self.cluster, jobs)

    def apply(self, repo: str) -> Change:
        with self.prepared(repo) as changes:
            (wanted,) = changes
            applying.perform(self.cluster, wanted)
            return wanted

    def entry(self, name: str = "job") -> JobEntry:
        stored = self.registry.job_entry(name)
        assert stored is not None
        return stored.value

    def answer(self, state: str, name: str = "job", error: dict[str, str] | None = None) -> None:
        """What the coordinator would write about the entry as it is now."""
        entry = self.entry(name)
        status = JobStatus(entry.uuid, state, 1, entry.counter, 0, error)
        self._put(paths.status(name), codec.encode(status))

    def plan(self, archive: str, name: str = "job") -> None:
        entry = self.entry(name)
        plan = Plan.fused(name, entry.uuid, 1, "w1", entry.revision, archive, 1, 0, 0)
        self._put(paths.plan(name), codec.encode(plan))

    def fail(self, count: int, counter: int, text: str) -> None:
        """So often in a row, the first time five seconds ago."""
        now_ms = self.clock.wall_ms()
        uuid = self.entry().uuid
        failures = JobFailures(uuid, count, now_ms, text, now_ms - 5000, counter)
        self._put(paths.failures("job"), codec.encode(failures))

    def _put(self, path: str, data: bytes) -> None:
        if self.registry.coordination.get(path) is not None:
            self.registry.coordination.write(Delete(path))
        self.registry.coordination.write(Create(path, data))

    def stop(self, *, checkpoint: bool = False) -> None:
        wanted = steering.stop(self.registry, self.clock, "job", checkpoint=checkpoint)
        steering.put(self.registry, *wanted)

    def gone(self, name: str = "job") -> None:
        self.registry.coordination.write(Delete(paths.spec(name)))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def refusal(world: World, repo: str) -> str:
    before = dict(world.registry.jobs()), world.topics.list(), world.store.list()
    with pytest.raises(RefusedError) as caught, world.prepared(repo):
        raise AssertionError("not reached")
    assert (dict(world.registry.jobs()), world.topics.list(), world.store.list()) == before
    return str(caught.value)


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


def test_show_has_the_fragments_of_the_revision_that_runs(world: World) -> None:
    running = world.apply(world.write()).entry
    one = Plan.fused("job", running.uuid, 3, "w1-a", "r1", running.archive, 1, 0, 0)
    both = Assignment("0", (0, 1), "w1-a", 3, split=0), Assignment("1", (2,), "w2-a", 2, split=1)
    world._put(paths.plan("job"), codec.encode(replace(one, assignments=both)))
    world.apply(world.write(more=", partitions: 7"))
    shown, fault = verbs.show(world.cluster, "job", world.folder / "cache")
    assert fault is None
    assert [(f["name"], f["partitions"], f["owner"]) for f in shown["fragments"]] == [
        ("0", "dead-letters 0, o 0", "w1-a"), ("1", "o 1", "w2-a"),
    ]  # fmt: skip
    answers.JobDetails.model_validate({**shown, "spec_error": fault})
    assert [job["owner"] for job in verbs.every(world.registry)] == [None]
    world.plan(running.archive)
    shown, _ = verbs.show(world.cluster, "job", world.folder / "cache")
    assert (shown["owner"], shown["fragments"]) == ("w1", [])


def test_show_has_the_last_error_and_the_next_step(world: World) -> None:
    world.apply(world.write())
    world.answer("failed", error={"kind": "BadInputError", "text": "in[0] offset 5: no JSON"})
    status = world.registry.status("job")
    shown = report.details(world.entry(), status, None, CheckpointPointers("other"), None)
    assert shown["error"]["next"].startswith("mend the job")
    text = "\n".join(report.as_text(shown))
    assert "job: failed (wanted: running)" in text
    assert "BadInputError: in[0] offset 5: no JSON" in text
    assert "`perseid jobs apply`" in text


def test_a_status_of_an_earlier_life_counts_for_nothing(world: World) -> None:
    world.apply(world.write())
    old = JobStatus("another-uuid", "running", 7, 9, 0)
    assert report.summary(world.entry(), old, None)["state"] == "waiting"
    assert report.summary(world.entry(), old, None)["generation"] == 0


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ({"late_records": 0, "watermark_ms": 1_700_000_000_000}, ""),
        ({"late_records": 1000, "watermark_ms": 4_102_444_795_000},
         "1000 records were late, the watermark is 2099-12-31T23:59:55Z"),
        ({"late_records": 1, "watermark_ms": 10**18}, "1 records were late, the watermark is "
         "1000000000000000000 ms"),
        ({"late_records": 2, "watermark_ms": None}, "2 records were late"),
    ],
)  # fmt: skip
def test_late_records_are_reported_with_the_watermark(
    shown: dict[str, int | None], message: str
) -> None:
    assert report.event_time_text(shown) == message
