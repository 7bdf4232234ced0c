"""Running sums against Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.kernels.folds import running_sums

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**62), 2**62)), max_size=12)


@given(ROWS, st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4))
def test_each_row_has_the_sum_of_its_key_so_far(
    rows: list[tuple[int, int]], held: list[int]
) -> None:
    exact, wanted = list(held), []
    for key, amount in rows:
        exact[key] += amount
        wanted.append(exact[key])
    if not all(-(2**63) <= total < 2**63 for total in exact):
        return  # such a total is refused before
    after = np.array(exact, np.int64)
    keys, amounts = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    found = running_sums(keys, amounts, after)
    if all(-(2**63) <= total < 2**63 for total in wanted):
        assert found is not None
        assert found.tolist() == wanted
    else:
        assert found is None
    assert after.tolist() == exact


def test_a_key_without_a_number_is_a_defect() -> None:
    one = np.ones(1, np.int64)
    with pytest.raises(AssertionError, match="numbers of keys"):
        running_sums(one, one, one)
