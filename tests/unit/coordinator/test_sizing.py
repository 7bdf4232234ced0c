"""Epoch sizing settles where overhead does not rule, whatever an epoch's fixed cost is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perseid.coordinator import issue
from perseid.coordinator.job.inputs import Done
from perseid.coordinator.model import JobState
from perseid.topics.records import EpochDone
from support.coordinator import Leader


def settled(job: JobState, fixed_ms: float, record_ms: float) -> int:
    """The size after 40 full epochs that cost `fixed_ms` and `record_ms` a record."""
    recent: list[Done] = []
    for epoch in range(1, 41):
        rows = job.inputs.size or issue.SIZE_FIRST
        duration_ms = round(fixed_ms + rows * record_ms)
        size = issue.adapted_size(job, EpochDone("u1", 1, "w1-1", epoch, 0, rows, 0, duration_ms))
        recent.append(Done(float(epoch), epoch, rows, rows, duration_ms))
        inputs = replace(job.inputs, size=size, recent=tuple(recent[-10:]))
        job = replace(job, inputs=inputs)
    return job.inputs.size


@pytest.mark.parametrize(
    ("fixed_ms", "record_ms", "least_ms", "most_ms"),
    [
        (200, 0.005, 350, 650),  # meets the target of 500 ms
        (700, 0.005, 1_000, 2_000),  # the fixed cost alone is over it: as long again for records
        (50, 1.0, 350, 700),  # slow records: small epochs
    ],
)
def test_sizing_meets_the_target_or_spends_half_the_time_on_records(
    leader: Leader, fixed_ms: float, record_ms: float, least_ms: int, most_ms: int
) -> None:
    size = settled(leader.job(), fixed_ms, record_ms)
    assert least_ms <= fixed_ms + size * record_ms <= most_ms, size


def lagging(job: JobState, records: int) -> JobState:
    """`job` with so many records waiting."""
    (_, partition), position = next(iter(job.inputs.positions.items()))
    end = {(position.topic, partition): position.offset + records}
    return replace(job, inputs=job.inputs.with_ends(end))


def test_a_job_with_a_large_lag_makes_epochs_of_several_targets(leader: Leader) -> None:
    job = leader.job()
    target_ms = 1000 * job.program.spec.epoch.target_s if job.program else 0
    for records, most_ms in ((1_000, target_ms), (10**9, issue.CATCH_UP * target_ms)):
        size = settled(lagging(job, records), 20, 0.05)
        assert 0.7 * most_ms <= 20 + size * 0.05 <= 1.3 * most_ms, (records, size)
