"""Backpressure for state near its limit: epochs get smaller and the input waits in its topics.

The worker enforces the limit itself, for each partition and after each epoch
(`perseid.worker.epoch.memory`). Here only the sum over an operator's partitions is known. From the
level at which the worker warns, an epoch names less input. The last epoch before the limit then
adds little, and the user has time to reduce the operator's state or to raise its limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perseid.coordinator.model import JobState
from perseid.jobs.model.spec import MEMORY_NEAR, JobSpec
from perseid.topics.records import OperatorState

LEAST = 0.02  # share of a full epoch


def seen(job: JobState, states: Iterable[OperatorState]) -> JobState:
    """Applies the states after an epoch; an event reports when backpressure begins or ends."""
    if job.program is None:
        return job
    fullest, filled = _fullest(job.program.spec, states)
    room = room_at(filled)
    if (room < 1) != (job.inputs.throttle_factor < 1):
        job = job.with_events(
            f"backpressure: the state of {fullest} fills {filled:.0%} of its `memory:`"
            if room < 1
            else "backpressure has ended: states are well within their `memory:`"
        )
    return replace(job, inputs=job.inputs.throttled(room))


def room_at(filled: float) -> float:
    """The share of a full epoch that may be named when a state fills this share of its limit.

    >>> [room_at(filled) for filled in (0.5, 0.8, 0.9, 1.1)]
    [1.0, 1.0, 0.5, 0.02]
    """
    return round(max(LEAST, min(1.0, (1 - filled) / (1 - MEMORY_NEAR))), 3)


def _fullest(spec: JobSpec, states: Iterable[OperatorState]) -> tuple[str, float]:
    """The operator nearest to its limit and the share that it fills; ("", 0) if there is none."""
    limits = {name: operator.memory_bytes for name, operator in spec.operators.items()}
    filled = {s.operator: s.bytes / limit for s in states if (limit := limits.get(s.operator))}
    return max(filled.items(), key=lambda one: one[1], default=("", 0.0))
