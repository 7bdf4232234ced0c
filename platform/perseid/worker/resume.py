"""From which epoch a fragment goes on: a pure decision over logs, checkpoints and ledgers.

An epoch runs for all operator partitions or for none, so the fragment goes on behind the lowest
epoch that any of them has finished. A partition that is ahead must be able to hand out again what
it made since then: its log has those epochs' retained outputs, or its ledger has committed them.
One that is ahead and lacks them goes back to a checkpoint, which may lower the epoch for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Restored:
    """What one stateful operator partition has after a restore.

    `epoch`: its state is that of the end of this epoch. `held_from`: the log holds the outputs of
    all epochs from here to `epoch`; `epoch` + 1 when of none. `source`: "log", "checkpoint:<epoch>"
    or "scratch".
    """

    gid: int
    epoch: int
    held_from: int
    source: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Again:
    """These partitions must be restored to `floor` or below before the fragment can go on."""

    gids: tuple[int, ...]
    floor: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """The fragment runs the epochs above `epoch`."""

    epoch: int


def decide(
    restored: Mapping[int, Restored], ledgers: Mapping[int, int], base_epoch: int
) -> GoOn | Again:
    """What to do after every stateful partition was restored once.

    Args:
        restored: by gid, all stateful partitions.
        ledgers: by gid, the last committed epoch of all partitions that feed a sink; partitions
            that have committed nothing yet are at `base_epoch`.
        base_epoch: the epoch behind which the plan starts.
    """
    reached = [r.epoch for r in restored.values()] + list(ledgers.values())
    floor = min(reached, default=base_epoch)
    lacking = tuple(
        gid for gid, r in sorted(restored.items()) if r.epoch > floor and r.held_from > floor + 1
    )
    return Again(lacking, floor) if lacking else GoOn(floor)
