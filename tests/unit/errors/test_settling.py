"""Which answers of a broker become final, and when."""

from __future__ import annotations

import pytest

from perseid.errors import RetryableError, TransientAnswer, UndecidedTransaction, carried, settling
from perseid.errors.settling import FINAL_S, Repeated, heard

ANSWER = TransientAnswer.__name__


def repeated(kind: str, pause_s: float, times: int) -> Repeated:
    """What is known after so many of the same answers."""
    answer = None
    for number in range(times):
        answer = heard(answer, "load", kind, 100.0 + number * pause_s)
    assert answer is not None
    return answer


@pytest.mark.parametrize("kind", sorted(FINAL_S))
def test_an_answer_is_final_once_it_was_repeated_for_its_time(kind: str) -> None:
    assert heard(None, "load", kind, 100.0) == Repeated("load", kind, 100.0)
    seconds = round(FINAL_S[kind])
    assert not repeated(kind, 1.0, seconds).is_final
    assert repeated(kind, 1.0, seconds + 1).is_final


def test_a_few_answers_that_are_far_apart_are_not_final() -> None:
    """A job whose restore takes minutes may hear of one restarted broker after the other."""
    assert not repeated(ANSWER, 3600.0, 4).is_final
    assert repeated(ANSWER, 3600.0, 5).is_final


def test_who_waited_for_a_transaction_twice_has_waited_long_enough() -> None:
    kind = UndecidedTransaction.__name__
    assert repeated(kind, FINAL_S[kind], 2).is_final


def test_something_else_begins_again() -> None:
    first = heard(None, "load", ANSWER, 100.0)
    assert heard(first, "worker", ANSWER, 120.0) == Repeated("worker", ANSWER, 120.0)
    assert heard(first, "load", UndecidedTransaction.__name__, 120.0) == Repeated(
        "load", UndecidedTransaction.__name__, 120.0
    )
    assert heard(first, "load", RetryableError.__name__, 120.0) is None
    assert heard(None, "load", ANSWER, 140.0) == Repeated("load", ANSWER, 140.0)


def test_the_final_error_names_for_how_long() -> None:
    error = settling.final(TransientAnswer("no topic t"), Repeated("sink", ANSWER, 131.0, 31.0))
    assert str(error) == "no topic t (the same answer for 31 s)"


@pytest.mark.parametrize("kind", [TransientAnswer, UndecidedTransaction])
def test_its_kind_survives_the_way_through_spark(kind: type[TransientAnswer]) -> None:
    reported = carried.describe(kind("no topic t"), "token")
    found = carried.parse(f"RuntimeError: {reported}", "token")
    assert type(found) is kind
