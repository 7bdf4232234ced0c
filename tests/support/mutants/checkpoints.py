"""Defects of checkpoints and their parts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from perseid.coordinator import checkpoints, horizon, log_trimming, store_sweep, trimming
from perseid.coordinator.job.chain import Tip
from perseid.coordinator.model import JobState
from perseid.records import CheckpointPointers
from perseid.registry import Registry
from perseid.state.durability import checkpoint
from perseid.state.durability.log import StateLog
from perseid.worker.checkpoint import parts
from perseid.worker.epoch.partition_state import PartitionState


def checkpoint_before_all_parts() -> AbstractContextManager[Any]:
    """A checkpoint is complete with the parts that have arrived so far."""
    complete = checkpoints.complete

    def mutant(job: Any) -> Any:
        layout, collecting = job.layout, job.checkpointing.collecting
        if collecting is None or layout is None or not collecting.parts:
            return complete(job)
        (generation, *_), *_ = sorted(collecting.parts)
        there = {key[1:] for key in collecting.parts if key[0] == generation}
        kept = tuple(t for t in layout.tasks if (t.operator, t.partition) in there)
        return complete(replace(job, layout=replace(layout, tasks=kept)))

    return patch.object(checkpoints, "complete", mutant)


def net_deltas_lack_an_epoch() -> AbstractContextManager[Any]:
    """A checkpoint's changes begin one epoch too late after its base checkpoint."""
    net = parts._net

    def mutant(log: StateLog, order: Any, after: int) -> Any:
        return net(log, order, min(after + 1, order.epoch - 1))

    return patch.object(parts, "_net", mutant)


def links_are_collected() -> AbstractContextManager[Any]:
    """The store keeps a complete checkpoint's own files, but not those of its base."""

    def mutant(live: Any) -> frozenset[str]:
        return frozenset(part.path for manifest in live for part in manifest.parts)

    return patch.object(checkpoint, "needed", mutant)


def checkpoints_without_output() -> AbstractContextManager[Any]:
    """A checkpoint has the state of its epoch, but not the feedback for the next one."""
    part_order = PartitionState.part_order

    def mutant(self: PartitionState, *rest: Any) -> Any:
        return replace(part_order(self, *rest), emitted=())

    return patch.object(PartitionState, "part_order", mutant)


def logs_are_trimmed_after_the_newest() -> AbstractContextManager[Any]:
    """The token log is deleted up to the newest checkpoint, though an older one may be needed."""

    def mutant(job: JobState) -> Tip | None:
        newest = job.newest
        return Tip(newest.epoch, newest.token_offset) if newest is not None else None

    return patch.object(trimming, "kept_from", mutant)


def last_ledger_records_are_trimmed() -> AbstractContextManager[Any]:
    """A ledger partition whose records all precede the checkpoint is deleted up to its end."""

    def mutant(records: Any, kept_epoch: int) -> int | None:
        cut = None
        for offset, epoch in records:
            if epoch > kept_epoch:
                return int(offset)
            cut = offset + 1
        return cut

    return patch.object(log_trimming, "ledger_cut", mutant)


def horizons_hold_no_log() -> AbstractContextManager[Any]:
    """The token log is deleted up to the oldest checkpoint that a restore needs."""

    def mutant(found: CheckpointPointers, _horizon_ms: int) -> Tip:
        oldest = found.pointers[-1]
        return Tip(oldest.epoch, oldest.token_offset)

    return patch.object(horizon, "log_base", mutant)


def horizons_hold_no_files() -> AbstractContextManager[Any]:
    """The store keeps the files of the checkpoints that a restore needs, and no others."""
    return patch.object(horizon, "needed_epochs", lambda _past: ())


def horizons_hold_no_archives() -> AbstractContextManager[Any]:
    """Archives of earlier revisions go from the store, as without a horizon."""
    named = store_sweep.named

    def mutant(registry: Registry) -> Any:
        found = named(registry)
        (entry,) = registry.jobs().values()
        plan = registry.plan(entry.name)
        known = {entry.archive, *([plan.archive] if plan is not None else [])}
        return replace(found, archives=found.archives & known)

    return patch.object(store_sweep, "named", mutant)


def horizons_begin_too_late() -> AbstractContextManager[Any]:
    """The oldest checkpoint that stays is one inside the horizon, not the one before it."""
    chosen = horizon.chosen

    def mutant(older: Any, kept: Any, horizon_ms: int) -> Any:
        early_ms = kept[0].time_ms - horizon_ms
        return tuple(p for p in chosen(older, kept, horizon_ms) if p.time_ms >= early_ms)

    return patch.object(horizon, "chosen", mutant)


def changes_of_revision_are_thinned_out() -> AbstractContextManager[Any]:
    """The last checkpoint before another revision goes like any other one."""
    return patch.object(horizon, "_code", lambda _pointer: None)
