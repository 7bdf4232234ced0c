"""What a full buffer makes the coordinator do, and what of a buffer must stay."""

from __future__ import annotations

from random import Random

import pytest

from perseid.topics.buffer_limits import Verdict, floor, judge

TOPIC = "perseid.shop.buffer.totals.1"


def judged(used: int, *, checkpointing: bool = False, **readers: int) -> Verdict:
    return judge(TOPIC, used, 1000, readers, 50, checkpointing=checkpointing)


@pytest.mark.parametrize(
    ("used", "checkpointing", "expected"),
    [
        (799, False, ("free", False, True, None)), (799, True, ("free", False, True, None)),
        (800, False, ("near", True, True, None)), (800, True, ("near", False, False, None)),
        (999, False, ("near", True, True, None)),
        (1000, False, ("full", True, True, "slow")), (1000, True, ("full", False, False, "slow")),
        (5000, True, ("full", False, False, "slow")),
    ],
)  # fmt: skip
def test_from_80_percent_on_only_a_checkpoint_is_granted_and_at_100_a_reader_goes(
    used: int, checkpointing: bool, expected: tuple[str, bool, bool, str | None]
) -> None:
    found = judged(used, checkpointing=checkpointing, fast=40, slow=20, middle=30)
    assert (found.level, found.checkpoint, found.grants, found.dropped) == expected
    assert (found.event == "") == (found.level == "free")


def test_a_reader_that_has_done_all_is_not_dropped() -> None:
    assert judged(1000, one=50, two=50).dropped is None
    assert judged(1000).dropped is None
    assert judged(1000, b=10, a=10).dropped == "a"


def test_the_event_names_topic_and_reader() -> None:
    assert judged(1100, slow=3).event == (
        f"{TOPIC} holds 110% of 1000 bytes: slow is dropped and restores from a checkpoint; "
        "nothing else is granted until a checkpoint is complete"
    )


def test_nothing_is_trimmed_that_a_kept_checkpoint_or_a_reader_needs() -> None:
    assert floor([], [7, 9]) is None, "no checkpoint: a restore begins at the first epoch"
    assert floor([12, 8], [9, 20]) == 8
    assert floor([12, 8], [5]) == 5
    assert floor([12], []) == 12
    chance = Random(3)
    for _ in range(200):
        checkpoints = [chance.randrange(50) for _ in range(chance.randrange(1, 4))]
        readers = [chance.randrange(50) for _ in range(chance.randrange(4))]
        kept = floor(checkpoints, readers)
        assert kept is not None and all(kept <= one for one in (*checkpoints, *readers))
        assert kept in (*checkpoints, *readers)
