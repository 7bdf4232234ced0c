"""What a Python process keeps for the fragments whose tasks it runs, and when an epoch is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from perseid.engine.epoch import batches, complete
from perseid.engine.order import EpochOrder
from perseid.engine.task_report import PartitionReport, TaskReport
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.model.layout import Layout, Task
from perseid.records import Deployment
from perseid.topics.records import SourceRange, Token
from perseid.worker.dataflow.context import FragmentContext, is_small
from perseid.worker.epoch import tasks
from support.coordinator import job_spec

DEPLOYMENT = Deployment(kafka="k:1", zookeeper="z:2", redis="r:3", store="s", state="t", logs="l")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    tasks._processes.clear()
    yield
    tasks._processes.clear()


def context(
    uuid: str, generation: int = 1, *, lanes: int = 2, one_task_each: bool = False
) -> FragmentContext:
    """A fragment of a job of four partitions, owned by one worker whatever its job is."""
    return FragmentContext(
        deployment=DEPLOYMENT, job=f"job-{uuid}", job_uuid=uuid,
        generation=generation, incarnation="w1-a", revision="r", archive="a", folder="/nowhere",
        layout=Layout(1, tuple(Task(g, "counts", g, 1, True, g) for g in range(4))),
        base_epoch=0, lanes=lanes, one_task_each=one_task_each, rescaled=False,
    )  # fmt: skip


def token(records: int) -> Token:
    split = (SourceRange("lines", "lines", "id", 0, 100, 100 + records),)
    return Token(1, "u", 7, 3, "r", 1, (split,), 1_000)


def test_two_jobs_of_one_worker_and_generation_do_not_share_what_a_process_keeps() -> None:
    first, second = tasks.process_of(context("u1")), tasks.process_of(context("u2"))
    assert first is not second
    assert tasks.process_of(context("u1")) is first
    assert tasks.process_of(context("u2")) is second
    assert second.context.job_uuid == "u2"


def test_two_fragments_of_a_job_do_not_share_what_a_process_keeps() -> None:
    """They may have one generation, and a new life of one drops nothing of the other."""
    first, second = (replace(context("u1"), fragment=fragment, split=0) for fragment in "01")
    kept = tasks.process_of(first), tasks.process_of(second)
    assert kept[0] is not kept[1]
    assert first.owned != second.owned
    again = tasks.process_of(replace(second, generation=2))
    assert again is not kept[1]
    assert tasks.process_of(first) is kept[0]


def test_a_layout_with_other_fragments_leaves_nothing_of_the_last_one() -> None:
    """The state of the job would be here twice."""
    whole = context("u1")
    tasks.process_of(whole)
    other = tasks.process_of(context("u2"))
    next_layout = replace(whole.layout, number=2)
    first, second = (
        replace(whole, fragment=fragment, split=0, generation=2, layout=next_layout)
        for fragment in "01"
    )
    kept = [tasks.process_of(first), tasks.process_of(second)]
    assert list(tasks._processes.values()) == [other, *kept]


def test_a_newer_fragment_of_the_same_job_starts_again() -> None:
    old = tasks.process_of(context("u1", generation=1))
    assert tasks.process_of(context("u1", generation=2)) is not old


def test_what_was_unused_for_a_minute_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("perseid.worker.epoch.tasks.time.monotonic", lambda: now)
    idle = tasks.process_of(context("u1"))
    now += tasks.IDLE_S + 1
    busy = tasks.process_of(context("u2"))
    assert list(tasks._processes.values()) == [busy]
    assert tasks.process_of(context("u1")) is not idle


def test_a_job_that_was_idle_alone_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("perseid.worker.epoch.tasks.time.monotonic", lambda: now)
    mine = tasks.process_of(context("u1"))
    now += 10 * tasks.IDLE_S
    assert tasks.process_of(context("u1")) is mine


@pytest.mark.parametrize(
    ("epoch", "reported", "missing"),
    [(7, [0, 1, 2], "counts-3"), (7, [1, 2], "counts-0, counts-3"), (7, [], "counts-0, counts-1"),
     (6, [0, 1, 2, 3], "counts-0, counts-1")],
)  # fmt: skip
def test_an_epoch_that_not_every_partition_reports_is_not_done(
    epoch: int, reported: list[int], missing: str
) -> None:
    def report(epoch: int, gids: list[int]) -> TaskReport:
        return TaskReport(epoch, partitions={gid: PartitionReport() for gid in gids})

    whole = report(7, [3, 1, 0, 2])
    layout = context("u1").layout
    assert complete("job-u1", layout, 7, whole) is whole
    with pytest.raises(RetryableError, match=f"epoch 7 of job job-u1: .* {missing}"):
        complete("job-u1", layout, 7, report(epoch, reported))


def test_how_many_tasks_a_stage_has() -> None:
    small, large = token(19_999), token(20_000)
    assert is_small(small)
    assert not is_small(large)
    local, cluster = context("u1", lanes=2), context("u1", lanes=0)
    late = context("u1", lanes=2, one_task_each=True)
    assert [c.is_single_task(small) for c in (local, cluster, late)] == [True, False, False]
    assert [c.is_single_task(large) for c in (local, cluster, late)] == [False, False, False]
    assert [c.width(1, single_task=False) for c in (local, cluster, late)] == [2, 4, 4]
    assert local.width(1, single_task=True) == 1
    assert local.width(2, single_task=False) == 1


def test_headers_name_the_job_and_epoch_of_a_record() -> None:
    """Two jobs that write one topic are distinguished by nothing else."""
    order = EpochOrder(token(1), 5, None, generation=1)
    first, second = tasks._headers("job-u1", order, 2)
    assert dict(first) == {
        "perseid.job": b"job-u1", "perseid.epoch": b"7", "perseid.generation": b"1",
        "perseid.seq": b"0",
    }  # fmt: skip
    assert dict(second) == {**dict(first), "perseid.seq": b"1"}


def test_dead_letters_that_an_earlier_revision_kept_need_a_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its correction took the topic out; the job reports it, and does not retry without end."""
    monkeypatch.setattr(FragmentContext, "job_folder", "/nowhere")
    monkeypatch.setattr("perseid.worker.epoch.flow.spec_of", lambda _: job_spec())
    fragment, order = context("u1"), EpochOrder(token(1), 5, None)
    letters = pa.table({"key": [b"k"], "value": [b"v"]})
    text = r"counts-0 has dead letters of epoch 7.*apply it with"
    with pytest.raises(PermanentError, match=text):
        list(batches(tasks.TaskExecutor(fragment), order, fragment.layout.tasks[0], {}, letters))
