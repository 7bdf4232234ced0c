"""Rounds of restores: who is asked again, down to where, and when that comes to its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from perseid.engine.agreement import ROUNDS_MAX, RestoreOrder, agree
from perseid.engine.feed import TokenHistory
from perseid.engine.resume import Restored
from perseid.errors import RetryableError
from perseid.records import CheckpointPointer, Plan
from perseid.topics.chain import Base

POINTERS = tuple(CheckpointPointer(e, 1, 1, "r1", e + 10, f"c-{e}/m", 0, 100, 0) for e in (8, 4, 1))
PLAN = Plan.fused("sums", "uuid", 3, "w1", "r1", "a", 1, 2, 12, POINTERS)
PAST = TokenHistory(Base("uuid", 4, 14), {e: e + 10 for e in range(4, 10)}, {}, 20)


def test_who_is_ahead_and_cannot_hand_out_again_goes_back_and_the_others_stay() -> None:
    asked: list[tuple[tuple[int, ...], int | None]] = []

    def restore(order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        asked.append((tuple(gids), order.floor))
        for gid in gids:
            if order.floor is not None:
                yield Restored(gid, 4, 5, "checkpoint:4", (f"{gid} goes back",))
            elif gid == 1:
                yield Restored(gid, 6, 3, "log", ("1 has been cut",))
            else:
                yield Restored(gid, 9, 10, "log")

    found = agree(PLAN, PAST, [0, 1, 2], restore, lambda: {0: 8, 1: 8, 2: 8})
    assert asked == [((0, 1, 2), None), ((0, 2), 6)]
    assert (found.epoch, found.events) == (4, ("1 has been cut", "0 goes back", "2 goes back"))
    assert {gid: r.epoch for gid, r in found.restored.items()} == {0: 4, 1: 6, 2: 4}


def test_an_order_names_only_checkpoints_after_the_plans_base() -> None:
    seen: list[RestoreOrder] = []

    def restore(order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        seen.append(order)
        return (Restored(gid, 8, 9, "checkpoint:8") for gid in gids)

    assert agree(PLAN, PAST, [0], restore, lambda: {0: 8}).epoch == 8
    (order,) = seen
    assert [p.epoch for p in order.pointers] == [8, 4]
    assert (order.tokens, order.tip_epoch, order.taken_back_below) == (PAST.offsets, 9, 14)
    assert (order.base_epoch, order.base_offset, order.generation) == (2, 12, 3)


def test_partitions_that_never_agree_are_tried_again_later() -> None:
    rounds = 0

    def restore(_order: RestoreOrder, gids: Sequence[int]) -> Iterator[Restored]:
        nonlocal rounds
        rounds += 1
        return (Restored(gid, 9 - gid, 10 - gid, "log") for gid in gids)

    with pytest.raises(RetryableError, match="partitions of sums did not agree"):
        agree(PLAN, PAST, [0, 2], restore, lambda: {})
    assert rounds == ROUNDS_MAX
