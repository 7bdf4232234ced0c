"""Divergence counters: what a reader makes of one, and texts from outside."""

from __future__ import annotations

import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import DamagedFile, RetryableError, UsageError
from perseid.state.durability import counters as module
from perseid.state.durability.counters import (
    STAMP_MAX,
    TEXT_CHARACTERS_MAX,
    CounterKey,
    Divergence,
    Standing,
    decode,
    encode,
    judge,
)
from perseid.state.durability.counters_redis import RedisCounters

STAMPS = st.integers(0, 3) | st.integers(0, STAMP_MAX)
DIVERGENCES = st.builds(
    Divergence, STAMPS, STAMPS, st.floats(min_value=0, allow_nan=False, allow_infinity=False)
)


@given(DIVERGENCES)
def test_every_counter_comes_back(divergence: Divergence) -> None:
    assert len(encode(divergence)) <= TEXT_CHARACTERS_MAX
    assert decode(encode(divergence), "k") == divergence


@given(st.text(max_size=100))
@pytest.mark.security("5.5", "5.9")
def test_any_text_is_a_counter_or_an_error(text: str) -> None:
    try:
        found = decode(text, "perseid:k")
    except DamagedFile as error:
        assert "perseid:k" in str(error)
    else:
        assert math.isfinite(found.value)
        assert found.value >= 0


@given(DIVERGENCES, st.none() | DIVERGENCES)
def test_a_hint_never_raises_trust(known: Divergence, read: Divergence | None) -> None:
    hint = judge(known, read)
    assert hint.divergence >= known.value
    if hint.standing is not Standing.CURRENT:
        assert hint.back_up_first
        assert hint.divergence == known.value
    else:
        assert read is not None
        assert read.stamp >= known.stamp


def test_what_stands_where() -> None:
    known = Divergence(3, 5, 2.0)
    stamps = ((2, 9), (3, 4), (3, 5), (4, 0))
    found = [judge(known, Divergence(*stamp, 1.0)).standing for stamp in stamps]
    assert found == [Standing.STALE, Standing.STALE, Standing.CURRENT, Standing.CURRENT]
    assert judge(known, None).standing is Standing.ABSENT


@pytest.mark.parametrize(
    ("generation", "sequence", "value"),
    [(-1, 0, 0.0), (0, -1, 0.0), (2**63, 0, 0.0), (0, 0, math.nan), (0, 0, math.inf), (0, 0, -0.5)],
)
@pytest.mark.security("5.5", "5.9")
def test_impossible_counters_are_refused(generation: int, sequence: int, value: float) -> None:
    with pytest.raises(UsageError, match="expected"):
        Divergence(generation, sequence, value)


def test_a_server_that_is_away_is_named() -> None:
    counters = RedisCounters("redis://127.0.0.1:1/0")
    with pytest.raises(RetryableError, match=r"Redis at redis://127.0.0.1:1/0, reading a counter"):
        counters.read(CounterKey("j", "o", 0))
    counters.close()


def test_the_examples_hold() -> None:
    assert doctest.testmod(module).attempted == 2
    assert doctest.testmod(module).failed == 0
