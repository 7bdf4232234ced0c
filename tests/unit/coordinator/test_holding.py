"""A checkpoint store that is away for hours holds epochs back instead of filling memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.cli.status import job_faults
from perseid.coordinator import events as ev
from perseid.coordinator import holding, view
from perseid.coordinator.actions import AppendToken, WriteManifest
from perseid.coordinator.model import JobState
from support.coordinator import Leader, World

JOB, PERIOD_S = "wordcount", 30.0


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "TOKENS_MAX", 20)


def epochs(world: World, leader: Leader, count: int, seconds: float = 1.0) -> int:
    """Runs so many epochs, if it may; how many tokens came."""
    before = len([a for a in leader.performed if isinstance(a, AppendToken)])
    for _ in range(count):
        world.time_s += seconds
        world.produce(0, 10)
        leader.poll()
        world.work(JOB, epochs=9)
        leader.listen()
    return len([a for a in leader.performed if isinstance(a, AppendToken)]) - before


def full(action: WriteManifest) -> ev.ManifestFailed:
    return ev.ManifestFailed(action.job, action.job_uuid, action.epoch, "no space left")


def unwritten(job: JobState) -> JobState:
    """`job` after the store has refused a checkpoint."""
    return replace(job, checkpointing=job.checkpointing.refused(0.0))


def test_epochs_are_held_back_until_the_store_takes_a_checkpoint(
    world: World, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs(world, leader, 2, PERIOD_S)
    assert view.job_status(leader.job(), world.now)["held_back"] is None
    with monkeypatch.context() as away:
        away.setattr(leader, "_write_manifest", full)
        epochs(world, leader, 60, 3.0)
        tokens = len(leader.job().chain.tokens)
        held = epochs(world, leader, 60, 0.1)
    job = leader.job()
    assert job.checkpointing.unwritten
    assert tokens >= holding.TOKENS_MAX
    assert held <= 3  # those that try a checkpoint
    assert [e for e in leader.job().health.events if e.startswith("epochs are held back: ")]
    shown = view.job_status(leader.job(), world.now)
    assert job_faults(shown) == [f"job {JOB}: {shown['held_back']}"]
    assert "the checkpoint store has not taken the last" in shown["held_back"]

    epochs(world, leader, 40, 5.0)
    assert view.job_status(leader.job(), world.now)["held_back"] is None
    assert epochs(world, leader, 10) >= 9
    assert leader.job().inputs.backlog <= 20


def test_a_long_period_alone_holds_nothing_back(world: World, leader: Leader) -> None:
    job = leader.job()
    long = replace(job.chain, tokens=job.chain.tokens * 1000)
    assert not holding.is_full(replace(job, chain=long))


def test_tokens_of_many_partitions_are_fewer(
    world: World, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs(world, leader, 8)
    job = unwritten(leader.job())
    assert not holding.is_full(job)
    monkeypatch.setattr(holding, "RANGES_MAX", 5)
    assert holding.is_full(job)


def test_one_failure_soon_after_a_checkpoint_holds_nothing_back(
    world: World, leader: Leader
) -> None:
    """Tokens in front of the newest checkpoint are kept for older ones, and are there anyway."""
    epochs(world, leader, 6, PERIOD_S)
    job = leader.job()
    assert job.newest is not None
    following = job.chain.tip.epoch - job.newest.epoch
    assert following < len(job.chain.tokens)
    job = unwritten(job)
    with pytest.MonkeyPatch.context() as few:
        few.setattr(holding, "TOKENS_MAX", len(job.chain.tokens))
        assert not holding.is_full(job)
        few.setattr(holding, "TOKENS_MAX", following)
        assert holding.reason(job).startswith(f"epochs are held back: {following} follow")
