"""Defects of a leader's decisions that no output shows at once: an invariant finds them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator import corrections, owning, progress
from perseid.coordinator.actions import PutPlan
from perseid.coordinator.model import JobState
from perseid.coordinator.token_time import Now
from perseid.records import WHOLE, Plan
from perseid.topics.records import FragmentState, Rewind


def moves_keep_their_generation() -> AbstractContextManager[Any]:
    """The next owner of a job gets the generation of the one before."""
    place = owning._place

    def mutant(job: JobState, plan: Plan, owners: Mapping[str, str], now: Now) -> owning.Step:
        placed, actions = place(job, plan, owners, now)
        if job.plan is None:
            return placed, actions
        plan = plan.placed(owners, job.ownership.generation)
        ownership = replace(placed.ownership, plan=plan, generation=plan.generation)
        return replace(placed, ownership=ownership), [PutPlan(job.name, plan)]

    return patch.object(owning, "_place", mutant)


def restores_take_back_what_is_done() -> AbstractContextManager[Any]:
    """After a restore from a checkpoint only its epochs count as done."""
    fragment = progress._fragment

    def mutant(job: JobState, record: FragmentState, now: Now) -> progress.Step:
        job, actions = fragment(job, record, now)
        if record.state == "running" and record.generation == job.ownership.generation:
            done = min(record.epoch, job.chain.tip.epoch)
            job = replace(job, ownership=replace(job.ownership, done_by={WHOLE: done}))
        return job, actions

    return patch.object(progress, "_fragment", mutant)


def checkpoints_outlive_their_tokens() -> AbstractContextManager[Any]:
    """A checkpoint is still collected whose token was taken back."""
    rewound = corrections.rewound

    def mutant(job: JobState, record: Rewind, now: Now) -> JobState:
        after = rewound(job, record, now)
        collecting = job.checkpointing.collecting
        return replace(after, checkpointing=replace(after.checkpointing, collecting=collecting))

    return patch.object(corrections, "rewound", mutant)
