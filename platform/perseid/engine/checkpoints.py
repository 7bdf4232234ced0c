"""What complete checkpoints mean for an epoch: its parts' base, logs to collect, orders. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from perseid.records import CheckpointPointer


def collectable(pointers: Sequence[CheckpointPointer]) -> int | None:
    """The epoch up to which state logs may be collected: that of the second newest checkpoint.

    If the newest checkpoint is damaged, a partition is restored from that one.
    """
    return pointers[:2][-1].epoch if pointers else None


def base_of(
    pointers: Sequence[CheckpointPointer], generation: int, *, whole: bool
) -> tuple[str, int] | None:
    """The base of parts of this owner: `EpochOrder.base`.

    A checkpoint has the highest generation of its parts. One with a lower generation than this
    owner has no part of it; of any other one the part's folder decides (`Manifest.is_made_by`).

    The checkpoint of a final token is whole: another revision or layout begins with it and cannot
    go back before it, so it must not depend on an older, possibly damaged one. So is one after
    which older ones are to be dropped (`Token.whole`).
    """
    if whole or not pointers or pointers[0].generation < generation:
        return None
    return pointers[0].manifest, pointers[0].crc


def outstanding(ordered_epoch: int, pointers: Sequence[CheckpointPointer]) -> bool:
    """Whether parts of the checkpoint of `ordered_epoch` may be unfinished.

    Then orders of dead processes must be taken over even while no epoch runs: a stop, a switch and
    a rescale run none while they wait for their checkpoint (simulation seed 2829).
    """
    return ordered_epoch > max((p.epoch for p in pointers), default=0)
