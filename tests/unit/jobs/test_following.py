"""What a look at a config repository decides, and that a death in one leaves nothing half."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from perseid.clocks import ManualClock
from perseid.errors import (
    BadInputError,
    FencedError,
    RefusedError,
    RetryableError,
    UsageError,
)
from perseid.jobs.following import asking, deciding
from perseid.jobs.following.deciding import Found, Seen, work
from perseid.jobs.following.follower import Follower
from perseid.jobs.following.one_job import Order, Outcome
from perseid.jobs.following.remote import Remote
from perseid.jobs.following.service import STANDBY_LOOK_S, Loop, in_child
from perseid.jobs.following.settings import Settings, settings
from perseid.records import Deployment, JobEntry
from perseid.records.repository import RepoJob, RepoRecord
from perseid.registry.facade import Registry
from perseid.registry.repository import RepoNodes
from perseid.testing.registry import FakeZooKeeper

URL = "https://git.example/jobs.git"
ONE, TWO = "1" * 40, "2" * 40


def entry(job: str, archive: str, desired: str = "running") -> JobEntry:
    return JobEntry(job, "u", "r", archive, desired, 1, 0)


def applied(folder: str, tree: str = "t1", job: str = "") -> RepoJob:
    return RepoJob(folder, job or folder, "applied", tree, ONE, f"archive-{tree}")


def record(*jobs: RepoJob, commit: str = ONE, unfinished: bool = False) -> RepoRecord:
    return RepoRecord(URL, "main", 60, "applied", 0, commit, commit, unfinished, jobs=jobs)


ENTRIES = {"a": entry("a", "archive-t1"), "b": entry("b", "archive-t1")}


def test_only_what_has_changed_is_applied() -> None:
    before = record(applied("a"), applied("b"))
    found = work(before, TWO, [Found("a", "t2", "a"), Found("b", "t1", "b"), Found("c", "t1", "c")],
                 ENTRIES, prune=False)  # fmt: skip
    assert found.apply == ("a", "c")
    assert found.kept == (applied("b"),)
    assert found.remove == ()


def test_a_broken_folder_leaves_its_job_and_the_others_as_they_are() -> None:
    before = record(applied("a"), applied("b"))
    found = work(before, TWO, [Found("a", "t2", "", "job.yaml:1: no"), Found("b", "t2", "b")],
                 ENTRIES, prune=True)  # fmt: skip
    assert found.apply == ("b",)
    assert found.remove == ()
    (a,) = found.kept
    assert (a.job, a.result, a.commit, a.archive) == ("a", "broken", ONE, "archive-t1")
    assert a.text == "job.yaml:1: no"


def test_what_the_cluster_refused_is_tried_at_each_look_and_what_is_broken_is_not() -> None:
    refused = replace(applied("a", "t2"), result="refused")
    broken = replace(applied("b", "t2"), result="broken")
    before = record(refused, broken)
    here = [Found("a", "t2", "a"), Found("b", "t2", "b")]
    assert work(before, ONE, here, ENTRIES, prune=False).apply == ("a",)
    assert not deciding.is_settled(before, ONE)
    assert deciding.is_settled(record(broken), ONE)
    back = [Found("a", "t1", "a"), Found("b", "t1", "b")]
    assert work(before, TWO, back, ENTRIES, prune=False).apply == ("a", "b")


@pytest.mark.parametrize(
    "now", [{}, {"a": entry("a", "by-hand")}, {"a": entry("a", "archive-t1", "removed")}],
    ids=["removed", "other files", "being removed"],
)  # fmt: skip
def test_what_was_done_by_hand_stays_until_the_next_commit(now: dict[str, JobEntry]) -> None:
    before, here = record(applied("a")), [Found("a", "t1", "a")]
    assert deciding.is_settled(before, ONE)
    assert work(before, TWO, here, now, prune=False).apply == ("a",)
    assert work(before, TWO, here, ENTRIES, prune=False).apply == ()


def test_an_unfinished_look_is_done_again_although_the_ref_has_gone_back() -> None:
    before = record(applied("a"), unfinished=True)
    assert not deciding.is_settled(before, ONE)
    half = {"a": entry("a", "archive-t2")}
    assert work(before, ONE, [Found("a", "t1", "a")], half, prune=False).apply == ("a",)


def test_a_job_that_is_gone_is_reported_and_runs_until_prune() -> None:
    before, here = record(applied("a"), applied("b")), [Found("a", "t1", "a")]
    planned = work(before, TWO, here, ENTRIES, prune=False)
    assert planned.remove == ()
    (gone,) = [job for job in planned.kept if job.result == "gone"]
    assert gone.job == "b"
    assert "perseid jobs remove b" in gone.text
    after = record(*planned.kept, commit=TWO)
    assert not deciding.is_settled(after, TWO)  # somebody may remove it, or set --prune
    assert work(after, TWO, here, {"a": ENTRIES["a"]}, prune=False).kept == (applied("a"),)
    assert work(after, TWO, here, ENTRIES, prune=True).remove == (gone,)
    assert work(before, TWO, here, ENTRIES, prune=True).remove == (applied("b"),)


def test_prune_removes_nothing_that_somebody_else_has_applied_or_that_may_have_moved() -> None:
    before, here = record(applied("a"), applied("b")), [Found("a", "t1", "a")]
    mine = ENTRIES | {"b": entry("b", "by-hand")}
    assert work(before, TWO, here, mine, prune=True) == deciding.Work((), (), (applied("a"),))
    unread = [*here, Found("new", "t9", "", "job.yaml:1: no")]
    assert work(before, TWO, unread, ENTRIES, prune=True).remove == ()


def test_a_folder_whose_job_has_another_name_now() -> None:
    found = work(record(applied("f", job="a")), TWO, [Found("f", "t2", "b")], ENTRIES, prune=False)
    assert found.apply == ("f",)
    assert [(j.job, j.result) for j in found.kept] == [("a", "gone")]


def test_one_name_in_two_folders_is_neither_ones() -> None:
    here = [Found("x", "t1", "a"), Found("y", "t1", "a")]
    found = work(None, ONE, here, {}, prune=True)
    assert found.apply == ()
    assert [job.result for job in found.kept] == ["broken", "broken"]
    assert "several folders (x, y)" in found.kept[0].text


def test_a_commit_is_taken_or_not() -> None:
    before = record()
    assert deciding.fault(before, Seen(TWO), "", signed=True) is None
    unsigned = deciding.fault(before, Seen(TWO, "it is not signed"), TWO, signed=True)
    assert unsigned is not None and unsigned.kind == "NotSigned"
    back = Seen(TWO, follows=False)
    assert deciding.fault(before, back, "", signed=False) is None
    rewritten = deciding.fault(before, back, ONE, signed=True)
    assert rewritten is not None and f"perseid jobs look --accept {TWO}" in rewritten.next
    assert deciding.fault(before, back, TWO, signed=True) is None


def test_pauses_are_the_interval_and_short_when_a_look_is_asked_for() -> None:
    assert deciding.pause_s(60, 10, asked=False) == 50
    assert deciding.pause_s(60, float("inf"), asked=False) == 0
    assert deciding.pause_s(60, 0.25, asked=True) == deciding.GAP_S - 0.25
    assert deciding.pause_s(60, 10, asked=True) == 0


def test_looks_with_transient_failures_are_repeated_soon_and_then_less_often() -> None:
    pauses = [deciding.pause_s(60, 0, asked=False, tries=n) for n in range(1, 7)]
    assert pauses == [5, 10, 20, 40, 60, 60]
    assert deciding.pause_s(2, 0, asked=False, tries=1) == 2  # never less often than without
    assert deciding.pause_s(3600, 0, asked=False, tries=10**9) == 3600


@pytest.mark.parametrize(
    ("state", "result", "passes"),
    [
        ("unreachable", "applied", True),
        ("applied", "refused", True),  # by the cluster: such as a topic that is not there yet
        ("applied", "broken", False),
        ("refused", "applied", False),  # the commit as a whole, by its signature
    ],
)
def test_what_may_pass_by_itself(state: Any, result: Any, passes: bool) -> None:
    found = record(replace(applied("a"), result=result))
    assert deciding.may_pass(replace(found, state=state)) == passes


def test_texts_of_all_jobs_fit_into_one_entry() -> None:
    text = deciding.cut("ä" * 5000)
    assert len(text.encode()) < 700
    jobs = tuple(RepoJob(f"f{i}" * 30, "j" * 63, "broken", "t" * 64, ONE, "a" * 64, text)
                 for i in range(200))  # fmt: skip
    RepoNodes(Registry(FakeZooKeeper().session())).put(record(*jobs), None)


@pytest.mark.parametrize(
    "url",
    ["https://ann:secret@git.example/j.git", "https://secret@git.example/j.git",
     "ssh://git:secret@git.example/j.git", "https://git.example/j.git?token=secret"],
)  # fmt: skip
def test_addresses_with_logins_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(url, "main")
    if "?" not in url:
        assert "secret" not in str(caught.value)
        assert "PERSEID_JOBS_REPO_AUTH" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["file:///srv/jobs", "ext::sh -c id", "http://git.example/j.git", "git://git.example/j",
            "/srv/jobs", "-x"]
)  # fmt: skip
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises((UsageError, RefusedError)):
        settings(url, "main")
    if not url.startswith("file"):
        with pytest.raises((UsageError, RefusedError)):
            settings(url, "main", insecure=True)


def test_a_login_is_in_no_text_of_the_settings() -> None:
    found = settings(URL, "main", login="ann:secret")
    assert "secret" not in repr(found)
    with pytest.raises(UsageError):
        settings(URL, "main", login="secret")


# -- looks, on a ZooKeeper in memory -------------------------------------------------------------


class FakeRemote(Remote):
    """A repository whose folders are set by the test."""

    def __init__(self, config: Settings) -> None:
        super().__init__(config, Path("nothing reads it"))
        self.commit, self.folders, self.error = ONE, [Found("a", "t1", "a")], ""

    def look(self, before: str) -> Seen:
        if self.error:
            raise RetryableError(self.error)
        return Seen(self.commit)

    def found(self, commit: str) -> list[Found]:
        if not self.folders:
            raise BadInputError("has no job.yaml")
        return self.folders


class World:
    """A registry, and an `apply` that writes entries as the child does."""

    def __init__(self) -> None:
        self.zookeeper = FakeZooKeeper()
        self.session = self.zookeeper.session()
        self.registry = Registry(self.session)
        self.nodes = RepoNodes(self.registry)
        self.remote = FakeRemote(settings(URL, "main"))
        self.dies_at: str = ""
        self.done: list[str] = []

    def follower(self, *, prune: bool = False) -> Follower:
        config = settings(URL, "main", prune=prune)
        return Follower(config, self.registry, self.remote, self.apply, ManualClock())

    def apply(self, order: Order) -> Outcome:
        if order.folder == self.dies_at:
            raise KeyboardInterrupt
        tree = next(one.tree for one in self.remote.folders if one.folder == order.folder)
        if tree == "bad":
            return Outcome(kind="BadInputError", text="no", broken=True)
        stored = self.registry.job_entry(order.folder)
        self.registry.put_job_entry(
            entry(order.folder, f"archive-{tree}"), stored.version if stored else None,
            [self.nodes.guard(order.version)],
        )  # fmt: skip
        self.done.append(order.folder)
        return Outcome(archive=f"archive-{tree}")

    def breaks_off(self, commit: str) -> list[Found]:
        """In the place of `remote.found`, once: ZooKeeper is away from here on."""
        del self.remote.found
        self.session.suspend()
        return self.remote.found(commit)


def test_who_dies_while_applying_is_finished_by_the_next() -> None:
    world = World()
    world.remote.folders = [Found(n, "t1", n) for n in "abc"]
    world.dies_at = "b"
    with pytest.raises(KeyboardInterrupt):
        world.follower().look()
    stored = world.nodes.record()
    assert stored is not None and stored.value.unfinished
    assert world.registry.jobs().keys() == {"a"}
    world.dies_at = ""
    done = world.follower().look()
    assert world.registry.jobs().keys() == {"a", "b", "c"}
    assert not done.unfinished
    assert (done.state, done.commit, {j.result for j in done.jobs}) == ("applied", ONE, {"applied"})
    world.done.clear()
    world.follower().look()
    assert world.done == []


def test_an_unfinished_look_stays_so_while_the_server_is_away() -> None:
    world = World()
    world.follower().look()
    world.remote.commit, world.remote.folders = TWO, [Found("a", "t2", "a"), Found("b", "t2", "b")]
    world.dies_at = "b"
    with pytest.raises(KeyboardInterrupt):
        world.follower().look()
    world.remote.error, world.dies_at = "gone", ""
    assert world.follower().look().unfinished
    world.remote.error, world.remote.commit = "", ONE
    world.remote.folders = [Found("a", "t1", "a")]
    done = world.follower().look()
    assert (done.commit, done.jobs) == (ONE, (applied("a"),))
    assert world.registry.jobs()["a"].archive == "archive-t1"


def test_a_server_that_vanishes_and_a_repository_without_jobs_touch_nothing() -> None:
    world = World()
    world.follower(prune=True).look()
    before = dict(world.registry.jobs())
    world.remote.error = "the server has gone"
    away = world.follower(prune=True).look()
    assert (away.state, away.commit) == ("unreachable", ONE)
    assert [f for f in asking.faults(away, 0) if "the server has gone" in f]
    world.remote.error, world.remote.commit, world.remote.folders = "", TWO, []
    empty = world.follower(prune=True).look()
    assert (empty.state, empty.commit, empty.seen) == ("refused", ONE, TWO)
    assert world.registry.jobs() == before


def test_a_follower_that_was_overtaken_writes_nothing() -> None:
    world, late = World(), World()
    late.registry, late.nodes = Registry(world.zookeeper.session()), world.nodes
    late.remote.folders = [Found("a", "t1", "a"), Found("b", "t1", "b")]

    def overtaken(order: Order) -> Outcome:
        world.follower().look()
        try:
            return late.apply(order)
        except Exception as error:
            return Outcome(kind=FencedError.__name__, text=str(error))

    slow = Follower(settings(URL, "main"), late.registry, late.remote, overtaken, ManualClock())
    with pytest.raises(FencedError):
        slow.look()
    assert late.done == []
    assert world.registry.jobs().keys() == {"a"}


def test_a_check_that_does_not_end_is_ended(tmp_path: Path) -> None:
    nowhere = Deployment(kafka="127.0.0.1:1", zookeeper="127.0.0.1:1", redis="redis://127.0.0.1:1",
                         store=str(tmp_path), state=str(tmp_path), logs=str(tmp_path))  # fmt: skip
    before = psutil.Process().children()
    outcome = in_child(nowhere, Order(str(tmp_path), URL, ONE, "", "a", 0), timeout_s=0.2)
    assert (outcome.kind, outcome.broken) == ("TookTooLong", True)
    assert psutil.Process().children() == before


def test_only_one_of_two_sessions_follows() -> None:
    zookeeper = FakeZooKeeper()
    one, two = (RepoNodes(Registry(zookeeper.session())) for _ in range(2))
    assert one.hold("one") and one.hold("one")
    assert not two.hold("two")
    assert two.follower() == "one"


def test_pruned_jobs_are_removed_and_broken_ones_are_reported() -> None:
    world = World()
    world.remote.folders = [Found("a", "t1", "a"), Found("b", "t1", "b")]
    world.follower().look()
    world.remote.commit, world.remote.folders = TWO, [Found("a", "bad", "a")]
    done = world.follower(prune=True).look()
    assert world.registry.jobs()["b"].desired == "removed"
    assert world.registry.jobs()["a"].archive == "archive-t1"
    (shown,) = asking.faults(done, done.looked_ms)
    assert shown == f"repository: a broken ({ONE[:12]} continues): BadInputError: no"


class Steps:
    """Continues from step to step, moving the clock by what the loop asks for."""

    def __init__(self, world: World, who: Registry | None = None) -> None:
        self.clock = ManualClock()
        nodes, config = RepoNodes(who or world.registry), settings(URL, "main", every="1h")
        self.loop = Loop(nodes, world.follower(), config, self.clock)

    def pauses(self, steps: int) -> list[float]:
        """Between the next looks; a step that looks asks for the next one at once."""
        found = []
        for _ in range(steps):
            found.append(self.loop.step())
            self.clock.sleep(found[-1])
        return found


def test_a_server_that_was_away_for_a_moment_is_asked_again_soon() -> None:
    world = World()
    world.remote.error = "connection reset"
    steps = Steps(world)
    assert steps.pauses(6) == [0, 5, 0, 10, 0, 20]
    world.remote.error = ""
    assert steps.pauses(2) == [0, 3600]
    assert world.done == ["a"]
    world.remote.error = "connection reset"
    assert steps.pauses(2) == [0, 5]  # from the beginning


def test_a_look_that_zookeeper_broke_off_is_repeated_soon() -> None:
    world = World()
    steps = Steps(world)
    world.session.suspend()
    assert steps.pauses(2) == [STANDBY_LOOK_S] * 2
    world.session.resume()
    world.remote.found = world.breaks_off  # type: ignore[method-assign]
    assert steps.pauses(1) == [STANDBY_LOOK_S]
    world.session.resume()
    assert steps.pauses(3) == [5 - STANDBY_LOOK_S, 0, 3600]
    assert world.done == ["a"]


def test_a_follower_stands_by_until_the_other_one_goes_and_looks_when_it_is_asked() -> None:
    world = World()
    first = Registry(world.zookeeper.session())
    assert Steps(world, first).pauses(1) == [0]
    second = Steps(world)
    assert second.pauses(2) == [STANDBY_LOOK_S] * 2
    first.close()
    assert second.pauses(2) == [0, 3600]
    asking.look(world.registry)
    assert second.pauses(2) == [0, 3600]


def test_another_repository_takes_no_jobs_over() -> None:
    world = World()
    world.follower().look()
    config = settings("https://git.example/other.git", "main", prune=True)
    world.remote.folders = [Found("x", "t1", "x")]
    done = Follower(config, world.registry, world.remote, world.apply, ManualClock()).look()
    assert [job.job for job in done.jobs] == ["x"]
    assert world.registry.jobs()["a"].desired == "running"


def test_no_look_for_long_is_a_fault() -> None:
    found = record(applied("a"))
    assert asking.faults(found, 200_000) == []
    (shown,) = asking.faults(found, 400_000)
    assert "it was not checked for 400 s" in shown


def test_a_look_is_asked_for_only_where_one_follows() -> None:
    world = World()
    with pytest.raises(asking.NotFollowed):
        asking.look(world.registry)
    world.follower().look()
    assert world.nodes.asked() == (0, "")
    asking.look(world.registry)
    asking.look(world.registry, TWO)
    assert world.nodes.asked() == (2, TWO)
    with pytest.raises(UsageError):
        asking.look(world.registry, "main")
