"""The topics that a job keeps for itself: made before a plan needs them, deleted afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import actions as act
from perseid.coordinator import own_topics
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.loading import Loader
from perseid.errors import PermanentError, RetryableError
from perseid.jobs.model.layout import build
from perseid.jobs.model.spec import JobSpec, PlacementSpec
from perseid.jobs.model.spread import spread_of
from perseid.records import (
    Assignment,
    CheckpointPointer,
    CheckpointPointers,
    JobEntry,
    Plan,
)
from perseid.topics import names
from support.coordinator import job_spec
from support.coordinator_setting import JOB, Setting, running

IN_PYTHON = {
    "sql: \"SELECT explode(split(value, ' ')) AS word FROM input\"": 'use: "wordcount:Words"',
}
SPREAD = {"parallelism: 4": "parallelism: 4\nplacement: {spread: 2}", **IN_PYTHON}


def of_counts(layout: int) -> str:
    return names.buffer(JOB, "counts", layout)


def buffers(setting: Setting) -> dict[str, int]:
    there = [n for n in setting.topics.list() if n.startswith(names.buffers(JOB))]
    return {n: info.partitions for n, info in setting.topics.describe(there).items()}


def spread_of_entry(setting: Setting, entry: JobEntry, layout: int = 1) -> tuple[Assignment, ...]:
    spec: JobSpec = setting.loader()._spec(entry.archive)
    spread = spread_of(spec, build(spec, layout))
    assert spread is not None
    return tuple(
        Assignment(str(n), share.gids, f"w{n}-1", 3, split=n)
        for n, share in enumerate(spread.shares)
    )


def runs_spread(setting: Setting, layout: int = 1) -> JobEntry:
    """A spread job whose plan has this layout."""
    running(setting)
    entry = setting.apply(**SPREAD)
    plan = setting.registry.plan(JOB)
    assert plan is not None
    setting.fenced.put_plan(replace(
        plan, archive=entry.archive, layout=layout,
        assignments=spread_of_entry(setting, entry, layout),
    ))  # fmt: skip
    return entry


# -- made ----------------------------------------------------------------------------------------


def test_a_job_that_is_not_spread_has_no_buffers(setting: Setting) -> None:
    setting.source()
    setting.loader().load(setting.entry)
    assert buffers(setting) == {}


def test_buffers_are_there_before_the_first_plan(setting: Setting) -> None:
    setting.source()
    loaded = setting.loader().load(setting.apply(**SPREAD))
    assert loaded.plan is None
    assert buffers(setting) == {of_counts(1): 4}


def test_buffers_of_the_plan_that_are_gone_are_made_again(setting: Setting) -> None:
    """After a restore of a backup, or when they were deleted by hand."""
    entry = runs_spread(setting, layout=3)
    loaded = setting.loader(epoch=2).load(entry)
    assert loaded.plan is not None
    assert len(loaded.plan.assignments) == 2
    assert buffers(setting) == {of_counts(3): 4}


def test_a_switch_has_its_buffers_before_its_plan(setting: Setting) -> None:
    entry = runs_spread(setting)
    setting.loader(epoch=2).load(entry)
    wider = setting.apply(
        **{"parallelism: 4": "parallelism: 6\nplacement: {spread: 2}", **IN_PYTHON}
    )
    for archive, expected in (
        (entry.archive, {of_counts(1): 4}), (wider.archive, {of_counts(1): 4, of_counts(2): 6}),
    ):  # fmt: skip
        action = act.LoadProgram(JOB, "r2", archive, frozenset({("lines", "lines")}))
        setting.loader(epoch=2).program(action)
        assert buffers(setting) == expected


def test_a_job_that_becomes_spread_gets_another_layout(setting: Setting) -> None:
    running(setting)
    setting.loader(epoch=2).load(setting.entry)
    action = act.LoadProgram(
        JOB, "r2", setting.apply(**SPREAD).archive, frozenset({("lines", "lines")})
    )
    setting.loader(epoch=2).program(action)
    assert buffers(setting) == {of_counts(2): 4}


def test_a_buffer_of_a_plan_with_another_size_is_refused(setting: Setting) -> None:
    entry = runs_spread(setting)
    setting.topics.create(of_counts(1), 7, {"retention.ms": "-1"})
    text = r"has 7 partitions, expected 4, .*`kafka-topics --delete --topic .*counts.1`"
    with pytest.raises(PermanentError, match=text):
        setting.loader(epoch=2).load(entry)
    assert buffers(setting) == {of_counts(1): 7}


def test_a_buffer_that_loses_rows_is_refused(setting: Setting) -> None:
    entry = runs_spread(setting)
    setting.topics.create(of_counts(1), 4, {"retention.ms": "1000"})
    with pytest.raises(PermanentError, match=r"retention.ms=1000, expected -1: it is rows for"):
        setting.loader(epoch=2).load(entry)


def test_a_buffer_of_a_dropped_revision_is_made_again(setting: Setting) -> None:
    """It had another parallelism, and was corrected before it ran."""
    setting.loader(epoch=2).load(runs_spread(setting))
    known = frozenset({("lines", "lines")})
    for parallelism in (6, 5):
        entry = setting.apply(**{
            "parallelism: 4": f"parallelism: {parallelism}\nplacement: {{spread: 2}}", **IN_PYTHON
        })  # fmt: skip
        action = act.LoadProgram(JOB, "r2", entry.archive, known)
        if parallelism == 5:
            with pytest.raises(RetryableError, match="had 6 partitions, expected 5; no plan has"):
                setting.loader(epoch=2).program(action)
        setting.loader(epoch=2).program(action)
        assert buffers(setting) == {of_counts(1): 4, of_counts(2): parallelism}


# -- deleted -------------------------------------------------------------------------------------


def checkpoint_of(setting: Setting, epoch: int, uuid: str = "u1") -> None:
    pointer = CheckpointPointer(epoch, 3, 2, "r0", 1, "m", 1, 10, 0, epoch, (epoch,))
    setting.fenced.put_pointers(JOB, CheckpointPointers(uuid, (pointer,)))


def switched(setting: Setting) -> Loader:
    """Of a switch to layout 2 after epoch 2, the topics of both layouts are there."""
    entry = runs_spread(setting, layout=2)
    loader = setting.loader(epoch=2)
    loader.load(entry)
    plan = setting.registry.plan(JOB)
    assert plan is not None
    setting.fenced.put_plan(plan.based_on(2, 3))
    for topic in (of_counts(1), of_counts(3), names.buffer("other", "counts", 1)):
        setting.topics.create(topic, 4)
    return loader


TRIM = act.TrimLogs(JOB, "u1", Tip(2, 3), 0)


def test_those_of_an_old_layout_go_after_a_checkpoint_of_the_new_one(setting: Setting) -> None:
    loader = switched(setting)
    checkpoint_of(setting, 2)
    assert loader.drop_buffers(TRIM) == [], "the plan may go back to its base only"
    checkpoint_of(setting, 3, uuid="u0")
    assert loader.drop_buffers(TRIM) == [], "of an earlier job"
    checkpoint_of(setting, 3)
    assert loader.drop_buffers(replace(TRIM, job_uuid="u0")) == []
    assert loader.drop_buffers(TRIM) == [of_counts(1)]
    assert buffers(setting).keys() == {of_counts(2), of_counts(3)}, "a switch may need the last"
    assert names.buffer("other", "counts", 1) in setting.topics.list()


def test_a_layout_is_looked_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = switched(setting)
    checkpoint_of(setting, 3)
    loader.drop_buffers(TRIM)
    monkeypatch.setattr(setting.topics, "list", lambda: pytest.fail("asked again"))
    assert loader.drop_buffers(TRIM) == []


def test_a_job_that_is_no_longer_spread_keeps_none() -> None:
    plan = Plan.fused(JOB, "u1", 4, "w1-1", "r1", "a", 2, 8, 80)
    there = [of_counts(1), of_counts(2), names.tokens(JOB), names.ledger(JOB)]
    assert own_topics.unneeded(there, job_spec(), plan) == there[:2]
    spread = job_spec(placement=PlacementSpec(spread=2))
    assert own_topics.unneeded(there, spread, plan) == there[:1]
