"""Which answers of a broker become final, and when."""

from __future__ import annotations

import pytest

from perseid.errors import PassingAnswer, RetryableError, UndecidedTransaction, carried, settling
from perseid.errors.settling import FINAL_S, Repeated, heard

ANSWER = PassingAnswer.__name__


@pytest.mark.parametrize("kind", sorted(FINAL_S))
def test_an_answer_is_final_once_it_was_repeated_for_its_time(kind: str) -> None:
    first = heard(None, "load", kind, 100.0)
    assert first == Repeated("load", kind, 100.0)
    again = heard(first, "load", kind, 100.0 + FINAL_S[kind] - 0.1)
    assert again is first
    assert not first.is_final(100.0 + FINAL_S[kind] - 0.1)
    assert first.is_final(100.0 + FINAL_S[kind])


def test_something_else_begins_anew() -> None:
    first = heard(None, "load", ANSWER, 100.0)
    assert heard(first, "worker", ANSWER, 120.0) == Repeated("worker", ANSWER, 120.0)
    assert heard(first, "load", UndecidedTransaction.__name__, 120.0) == Repeated(
        "load", UndecidedTransaction.__name__, 120.0
    )
    assert heard(first, "load", RetryableError.__name__, 120.0) is None
    assert heard(None, "load", ANSWER, 140.0) == Repeated("load", ANSWER, 140.0)


def test_the_final_error_says_for_how_long() -> None:
    first = Repeated("sink", ANSWER, 100.0)
    error = settling.final(PassingAnswer("no topic t"), first, 131.0)
    assert str(error) == "no topic t (the same answer for 31 s)"


@pytest.mark.parametrize("kind", [PassingAnswer, UndecidedTransaction])
def test_its_kind_survives_the_way_through_spark(kind: type[PassingAnswer]) -> None:
    told = carried.describe(kind("no topic t"), "token")
    found = carried.parse(f"RuntimeError: {told}", "token")
    assert type(found) is kind
