"""Restores a fragment's stateful partitions, in rounds, until all agree on an epoch.

The caller decides where the restore runs (executors, or simulated processes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perseid.engine import resume
from perseid.errors import RetryableError
from perseid.records import CheckpointPointer

if TYPE_CHECKING:
    from perseid.engine.feed import TokenHistory
    from perseid.engine.resume import Restored
    from perseid.records import Plan

ROUNDS_MAX = 4  # each round restores at least one checkpoint earlier, and there are two


@dataclass(frozen=True)
class RestoreOrder:
    """What to restore to.

    `tokens`: epoch -> offset of the valid tokens after the oldest usable base. `tip_epoch`: the
    newest of them. `taken_back_below`: a token below this offset may have been rolled back.
    `floor`: the state must not be above this epoch; None in the first round.
    """

    tokens: Mapping[int, int]
    tip_epoch: int
    taken_back_below: int
    pointers: tuple[CheckpointPointer, ...]
    base_epoch: int
    base_offset: int
    generation: int
    floor: int | None = None

    @property
    def complete_epoch(self) -> int:
        """The epoch of the newest complete checkpoint, 0 without one."""
        return self.pointers[0].epoch if self.pointers else 0


@dataclass(frozen=True, slots=True)
class Agreement:
    """The fragment runs the epochs above `epoch`. `events`: of all rounds, for users."""

    epoch: int
    restored: Mapping[int, Restored]
    events: tuple[str, ...]


def agree(
    plan: Plan,
    past: TokenHistory,
    gids: Sequence[int],
    restore: Callable[[RestoreOrder, Sequence[int]], Iterable[Restored]],
    ledgers: Callable[[], Mapping[int, int]],
) -> Agreement:
    """Restores the tasks `gids`, and again those that are ahead of others.

    Args:
        plan: the fragment's plan.
        past: the token log, read after the previous owner was fenced.
        gids: all stateful tasks.
        restore: restores these tasks as ordered; one `Restored` each.
        ledgers: the last committed epochs, for `resume.decide`; called after the restore. None of
            a replica: it begins after its own lowest epoch.

    Raises:
        RetryableError: they did not agree in ROUNDS_MAX rounds.
        PermanentError: see `resume.decide` and `worker.recovery.restore.PartitionRestore`.
    """
    order = _order(plan, past)
    restored: dict[int, Restored] = {}
    events: list[str] = []
    for _ in range(ROUNDS_MAX):
        for found in restore(order, gids):
            restored[found.gid] = found
            events += found.events
        verdict = resume.decide(
            restored, ledgers(), plan.base_epoch, order.complete_epoch,
            resends=plan.only.split is not None,
        )  # fmt: skip
        if isinstance(verdict, resume.Proceed):
            return Agreement(verdict.epoch, restored, tuple(events))
        gids = verdict.gids
        order = replace(order, floor=verdict.floor)
    raise RetryableError(f"the partitions of {plan.job} did not agree on an epoch: {restored}")


def _order(plan: Plan, past: TokenHistory) -> RestoreOrder:
    return RestoreOrder(
        tokens=past.offsets,
        tip_epoch=past.tip_epoch,
        taken_back_below=past.taken_back_below,
        pointers=plan.usable_checkpoints,
        base_epoch=plan.base_epoch,
        base_offset=plan.base_offset,
        generation=plan.generation,
    )
