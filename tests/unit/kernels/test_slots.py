"""Numbers by first appearance; finding and inserting: `state/test_index.py`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.kernels import slots


@given(st.lists(st.sampled_from([0, 1, 2, 128, -1, 2**63 - 1, -(2**63)]), max_size=60))
def test_numbers_count_up_by_first_appearance(hashes: list[int]) -> None:
    numbers, firsts = slots.number(np.array(hashes, np.int64))
    different = list(dict.fromkeys(hashes))
    assert numbers.tolist() == [different.index(h) for h in hashes]
    assert firsts.tolist() == [hashes.index(h) for h in different]


def test_a_table_without_room_is_refused() -> None:
    hashes, held, added = np.zeros(4, np.int64), np.full(4, -1, np.int32), np.arange(4)
    with pytest.raises(AssertionError, match="a slot for each key"):
        slots.insert(hashes, held, added, added)
    slots.insert(hashes, held, added[:3], added[:3])
    with pytest.raises(AssertionError, match="places"):
        slots.find(hashes, held, added[:1], np.full(1, 4))
