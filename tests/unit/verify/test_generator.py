from __future__ import annotations

import pytest

from perseid.testing.generator import Allowance, stripe_of
from perseid.testing.lines import VOCABULARY, WORDS_PER_LINE, Lines, UniqueLines


def test_lines_are_of_the_promised_shape_and_depend_on_the_seed_alone() -> None:
    block = Lines(7).block(3)
    assert [m["value"] for m in block] == [m["value"] for m in Lines(7).block(3)]
    assert block != Lines(8).block(3)
    lengths = [len(m["value"]) for m in block]
    assert 95 < sum(lengths) / len(lengths) < 100
    words = [m["value"].split(b" ") for m in block]
    assert {len(w) for w in words} == {WORDS_PER_LINE}
    assert len({x for w in words for x in w}) > 0.9 * min(VOCABULARY, 10 * len(words))


@pytest.mark.parametrize("chunk", [1, 7, 20, 1000])
def test_stripes_are_the_same_however_the_sequence_is_cut(chunk: int) -> None:
    lines = Lines(1)
    whole = [m["value"] for m in lines.block(0) + lines.block(1)]
    sent, got, stripes = 0, [], {}
    while sent < 1_500:
        stripe, messages = stripe_of(lines, sent, chunk)
        assert 1 <= len(messages) <= chunk
        for message in messages:
            stripes[sent] = stripe
            got.append(message["value"])
            sent += 1
    assert got == whole[: len(got)]
    assert all(stripe == place // 20 for place, stripe in stripes.items())


def test_unique_words_occur_once_and_have_the_size_asked_for() -> None:
    lines = UniqueLines(88)
    words = [w for n in (0, 1, 0) for m in lines.block(n) for w in m["value"].split(b" ")]
    assert len(set(words)) == 2 * 1_000 * WORDS_PER_LINE
    assert {len(word) for word in words} == {88}


def test_allowance_follows_rate_and_limit() -> None:
    allowance = Allowance(100.0, 1_000)
    sent = sum_ = 0
    for tick in range(101):
        due = allowance.due(10.0 + tick * 0.1, sent)
        sent += due
        sum_ = max(sum_, due)
    assert 999 <= sent <= 1_000
    assert sum_ <= 11
    assert allowance.due(100.0, 1_000) == 0


def test_allowance_forgoes_most_of_a_stall_and_has_no_bound_at_rate_zero() -> None:
    allowance = Allowance(100.0, 10_000)
    assert allowance.due(0.0, 0) == 0
    assert allowance.due(60.0, 0) == 100
    allowance.rate = 0.0
    assert allowance.due(60.1, 100) == 9_900
