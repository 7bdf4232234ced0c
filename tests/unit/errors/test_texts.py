"""Any text of any error comes out short, and as one that can be written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import (
    BadInputError,
    FencedError,
    PermanentError,
    PerseidError,
    ReplayDataLost,
    UnexpectedError,
)
from perseid.errors.carried import describe, parse
from perseid.errors.texts import TEXT_MAX, cut, named, text_of

ANY = st.builds(
    lambda part, times: part * times,
    st.text(st.characters(exclude_categories=()), max_size=20),  # surrogates, too
    st.sampled_from([1, 20, 1000]),
)


@given(ANY, st.integers(100, TEXT_MAX))
def test_a_text_is_cut_to_size_and_can_be_written(text: str, bytes_max: int) -> None:
    found = cut(text, bytes_max)
    assert len(found.encode()) <= bytes_max
    assert cut(found, bytes_max) == found


def test_what_is_left_out_is_the_middle_and_is_reported() -> None:
    found = cut("operator a: " + "x" * 2_000_000 + " correct it", 200)
    assert found.startswith("operator a: xxx")
    assert "[... cut: 2000023 characters in all ...]" in found
    assert found.endswith("xxx correct it")
    assert cut("short\n\u00e4") == "short\n\u00e4"


def test_an_exception_without_a_text_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

    assert text_of(Mute()) == "Mute, whose text cannot be made: that raises SystemExit"
    assert named(ValueError()) == "ValueError"
    assert named(KeyError("a")) == "KeyError: 'a'"


@given(ANY, st.sampled_from([BadInputError, FencedError, PermanentError, UnexpectedError]))
def test_kind_and_text_come_through_any_other_text(text: str, kind: type[PerseidError]) -> None:
    line = describe(kind(text), "token")
    assert line.isascii()
    assert "\n" not in line
    found = parse(f"{text}\n{line}\n{text}", "token")
    assert type(found) is kind
    assert str(found) == cut(text or kind.__name__) or not text


def test_one_with_fields_comes_as_its_base() -> None:
    found = parse(describe(ReplayDataLost("t", 1, 2, 3), "token"), "token")
    assert type(found) is PermanentError
    assert str(found).startswith("ReplayDataLost(t, 1, needed=2")


def test_a_line_that_was_cut_carries_nothing() -> None:
    line = describe(PermanentError("x"), "token")
    assert parse(line[:-3], "token") is None
    assert parse(line, "another") is None
