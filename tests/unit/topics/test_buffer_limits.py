"""What of a buffer must stay."""

from __future__ import annotations

from random import Random

from perseid.topics.buffer_limits import floor


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
