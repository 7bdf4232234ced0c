"""Each of the four faults is planted into a good output and must be reported, and nothing else."""

from __future__ import annotations

import json

import pytest

from perseid.testing.verify import Verdict, WordcountCheck, count_words, wordcount
from perseid.testing.verify.read import Record

LINES = [b"a b a", b"b c", None, b"a"]
GOOD = [("a", 2), ("b", 1), ("a", 3), ("b", 2), ("c", 1)]


def records(counts: list[tuple[str, int]], partition: int = 0) -> list[Record]:
    return [
        Record(partition, i, word.encode(), json.dumps({"word": word, "n": n}).encode())
        for i, (word, n) in enumerate(counts)
    ]


def judge(output: list[Record]) -> Verdict:
    check = WordcountCheck()
    check.input(LINES)
    for record in output:
        check.output(record)
    return check.verdict()


def faults(verdict: Verdict) -> tuple[int, int, int, int]:
    return (verdict.lost, verdict.duplicated, verdict.reordered, verdict.wrong)


def test_good_output_has_no_faults() -> None:
    verdict = judge(records(GOOD))
    assert verdict.ok
    assert (verdict.records, verdict.output_records) == (4, 5)
    assert verdict.examples == ()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([*GOOD[:2], *GOOD[3:]], (1, 0, 0, 0), id="lost-last-update"),
        pytest.param(GOOD[:4], (1, 0, 0, 0), id="lost-word"),
        pytest.param([*GOOD, ("a", 3)], (0, 1, 0, 0), id="duplicated"),
        pytest.param([GOOD[1], GOOD[2], GOOD[0], *GOOD[3:]], (1, 0, 1, 0), id="reordered"),
        pytest.param([("a", 2), ("a", 1), *GOOD[1:]], (0, 0, 1, 0), id="reordered-then-right"),
        pytest.param([*GOOD, ("a", 4)], (0, 0, 0, 1), id="too-many"),
        pytest.param([*GOOD, ("zz", 1)], (0, 0, 0, 1), id="unknown-word"),
        pytest.param([*GOOD[:1], ("a", 1), ("a", 2), *GOOD[1:]], (0, 1, 1, 0), id="replayed"),
        pytest.param([], (6, 0, 0, 0), id="no-output"),
    ],
)
def test_planted_fault_is_reported(
    output: list[tuple[str, int]], expected: tuple[int, int, int, int]
) -> None:
    verdict = judge(records(output))
    assert faults(verdict) == expected
    assert not verdict.ok
    assert verdict.examples


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"a", b"not json"),
        (b"a", None),
        (None, b'{"word": "a", "n": 4}'),
        (b"b", b'{"word": "a", "n": 4}'),
        (b"a", b'{"word": "a", "n": true}'),
        (b"a", b'{"word": "a", "n": 0}'),
        (b"a", b'{"word": "a"}'),
        (b"a", b"[1]"),
    ],
)
def test_record_that_is_no_count_is_wrong(key: bytes | None, value: bytes | None) -> None:
    assert faults(judge([*records(GOOD), Record(0, 9, key, value)])) == (0, 0, 0, 1)


def test_word_in_two_partitions_is_wrong() -> None:
    other = Record(1, 0, b"a", b'{"word": "a", "n": 3}')
    assert faults(judge([*records(GOOD), other])) == (0, 0, 0, 1)


def test_totals_right_forgives_repeats_only() -> None:
    assert judge(records([*GOOD, ("a", 3)])).totals_right
    assert not judge(records(GOOD[:4])).totals_right


def test_examples_are_bounded_and_faults_are_not() -> None:
    verdict = judge(records([*GOOD, *[("a", 3)] * 100]))
    assert verdict.duplicated == 100
    assert len(verdict.examples) == 20


def test_blanks_make_empty_words_as_split_does() -> None:
    check = WordcountCheck()
    check.input([b"x  x"])
    for record in records([("x", 2), ("", 1)]):
        check.output(record)
    assert check.verdict().ok


def cut(output: list[tuple[str, int]], lines: int = 20_000_000) -> Verdict:
    """Of 20 million lines with 1,000 `a` and 2,000 `b`: 100 and 200 in two million."""
    check = WordcountCheck()
    check.counted({"a": 1_000, "b": 2_000}, lines)
    for record in records(output):
        check.output(record)
    return check.verdict_of_cut()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([("a", 300), ("b", 600)], (0, 0, 0, 0), id="in-proportion"),
        pytest.param([("a", 240), ("b", 660)], (0, 0, 0, 0), id="read-unevenly"),
        pytest.param([], (0, 0, 0, 0), id="nothing-yet"),
        pytest.param([("a", 10), ("b", 620)], (1, 0, 0, 0), id="lost"),
        pytest.param([("a", 700), ("b", 200)], (1, 0, 0, 1), id="wrong"),
        pytest.param([("a", 1_001), ("b", 2_000)], (0, 0, 0, 1), id="more-than-was-sent"),
        pytest.param([("a", 300), ("a", 300), ("b", 600)], (0, 1, 0, 0), id="repeated"),
    ],
)
def test_counts_of_a_job_that_was_cut_off(
    output: list[tuple[str, int]], expected: tuple[int, int, int, int]
) -> None:
    verdict = cut(output)
    assert faults(verdict) == expected
    assert verdict.records == 20_000_000


def test_words_are_counted_once_for_many_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordcount, "_CHUNK_LINES", 2)
    lines = [b"a b a", b"a b a", b"a b a", None, b"b"]
    assert count_words(lines) == ({"a": 6, "b": 4}, 5)
