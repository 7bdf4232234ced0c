"""A job with as many source partitions as one may have, and with more input checks than fit."""

from __future__ import annotations

import time
from dataclasses import replace

from perseid.coordinator import input_checks
from perseid.coordinator.job.positions import ranges_of
from perseid.coordinator.model import JobState
from perseid.jobs.operations.applying import SOURCE_PARTITIONS_MAX
from perseid.topics import codec
from perseid.topics.admin import MESSAGE_BYTES_MAX
from perseid.topics.records import InputCheck
from support.coordinator import World, job_entry
from support.coordinator_steps import leading

JOB = "wordcount"
EPOCHS = 5
EPOCH_CPU_S = 2.0  # of one that has all partitions; about 0.2 on an idle machine


def test_10_000_source_partitions_are_issued_in_records_that_fit() -> None:
    world = World(entries={JOB: job_entry()}, workers=["w1-1"])
    world.ends = {("lines", p): 0 for p in range(SOURCE_PARTITIONS_MAX)}
    leader = leading(world)
    started_s = time.process_time()
    for _ in range(EPOCHS):
        for partition in range(SOURCE_PARTITIONS_MAX):
            world.produce(partition, 2)
        leader.poll()
        world.work(JOB, 1)
        leader.listen()
    assert time.process_time() - started_s < EPOCHS * EPOCH_CPU_S
    tokens = list(world.valid(JOB).values())
    assert len(ranges_of(tokens[0])) == SOURCE_PARTITIONS_MAX
    assert sum(t.records for t in tokens) > EPOCHS * SOURCE_PARTITIONS_MAX
    assert max(len(codec.encode(t)) for t in tokens) < MESSAGE_BYTES_MAX / 4


def checks(epoch: int, count: int) -> tuple[InputCheck, ...]:
    return tuple(InputCheck(epoch, n, f"source-{n % 40}", 100, 2**32 - 1) for n in range(count))


def test_a_token_carries_the_checks_of_256_tasks_and_40_sources() -> None:
    """All that an epoch reports; so they do not become more and more."""
    job = JobState(JOB, job_entry())
    for epoch in range(1, 50):
        job = input_checks.with_checks(job, checks(epoch, 256 * 40))
        carried = input_checks.carried(job.inputs.checks)
        assert {c.epoch for c in carried} == {epoch}
        left = job.inputs.checks[len(carried) :]
        job = replace(job, inputs=job.inputs.waiting(left, epoch))
        assert job.inputs.checks == ()
        assert job.health.events == ()


def test_checks_that_no_token_has_room_for_go_by_whole_epochs_and_it_is_reported() -> None:
    job = JobState(JOB, job_entry())
    for epoch in range(1, 30):
        job = input_checks.with_checks(job, checks(epoch, 20_000))
        assert len({c.epoch for c in job.inputs.checks}) <= 1 + (epoch > 1)
        carried = input_checks.carried(job.inputs.checks)
        left = job.inputs.checks[len(carried) :]
        job = replace(job, inputs=job.inputs.waiting(left, epoch))
    assert "will not compare the input of epochs" in job.health.events[-1]
    assert "an epoch has 20000 checks" in job.health.events[-1]
    assert job.inputs.checks_to == 29
