"""Bisections: which intervals run, what is found, and what is presumed."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.errors import RefusedError
from perseid.replay import bisection
from perseid.replay.bisecting import Search
from perseid.replay.findings import Audit, Cause, ComparedState
from perseid.replay.request import Request
from support.audit_reports import example


@given(
    first=st.integers(1, 50), size=st.integers(1, 60),
    checkpoints=st.lists(st.integers(0, 120), max_size=12),
)  # fmt: skip
def test_intervals_have_each_epoch_once_and_end_with_checkpoints(
    first: int, size: int, checkpoints: list[int]
) -> None:
    last = first + size - 1
    parts = bisection.intervals(first, last, checkpoints)
    assert [e for p in parts for e in range(p.first_epoch, p.last_epoch + 1)] == list(
        range(first, last + 1)
    )
    assert [p.last_epoch for p in parts if p.checkpoint] == sorted(
        {e for e in checkpoints if first <= e <= last}
    )
    assert all(p.checkpoint for p, _ in pairwise(parts))


@pytest.mark.parametrize("count", [*range(1, 20), 100, 1000])
def test_the_first_one_of_differences_that_last_is_found_in_few_steps(count: int) -> None:
    for first in range(count + 1):
        differs: dict[int, bool] = {}
        while (number := bisection.next_interval(count, differs)) is not None:
            assert number not in differs
            differs[number] = number >= first
        assert bisection.first_differing(differs) == (first if first < count else None)
        assert len(differs) <= 2 + math.ceil(math.log2(max(1, count - 1)))


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_what_it_finds_differs_and_the_one_before_does_not(truth: list[bool]) -> None:
    """Whatever the differences are; and what it presumes is all that it did not look at."""
    differs: dict[int, bool] = {}
    while (number := bisection.next_interval(len(truth), differs)) is not None:
        differs[number] = truth[number]
    found = bisection.first_differing(differs)
    presumed = bisection.presumed(len(truth), differs)
    if found is None:
        assert not truth[0] and not truth[-1]
    else:
        assert truth[found] and (found == 0 or differs[found - 1] is False)
        first = truth.index(True)
        assert first == found or first in presumed
    assert not set(presumed) & differs.keys()


class Job:
    """A job whose intervals differ from `broken` on; audits of it, as they are asked for."""

    def __init__(self, broken: int | None, *, state_alone: bool = False) -> None:
        self.broken, self.state_alone = broken, state_alone
        self.asked: list[tuple[int, int]] = []
        self.without_state: set[int] = set()

    def audit(self, request: Request) -> Audit:
        assert request.epochs is not None
        first, last = request.epochs
        assert last is not None
        self.asked.append((first, last))
        differs = self.broken is not None and last >= self.broken
        causes: tuple[Cause, ...] = ()
        if differs:
            epoch = last if self.state_alone else max(first, self.broken or 0)
            state = "total" if self.state_alone else ""
            causes = (replace(example().causes[0], first_epoch=epoch, state=state),)
        states = () if last in self.without_state else (ComparedState(last, 2, 10, int(differs)),)
        return replace(
            example(), first_epoch=first, last_epoch=last, epochs=last - first + 1,
            verdict="diverged" if differs else "equal", causes=causes, states=states,
            reasons=("It was so.",),
        )  # fmt: skip

    def search(self, checkpoints: list[int]) -> Audit:
        return Search("orders", 1, 800, checkpoints, self.audit, lambda _: None).run()


HUNDREDS = list(range(100, 800, 100))


def test_it_reports_the_first_epoch_and_what_it_cost() -> None:
    job = Job(433)
    found = job.search(HUNDREDS)
    assert job.asked == [(1, 100), (701, 800), (301, 400), (501, 600), (401, 500)]
    assert (found.verdict, found.first_epoch, found.last_epoch) == ("diverged", 401, 500)
    assert found.bisection is not None
    assert (found.bisection.differs_from, found.bisection.intervals) == (433, 8)
    assert [s.first_epoch for s in found.bisection.steps] == [1, 701, 301, 501, 401]
    assert found.bisection.presumed == ("101:200", "201:300")
    text = " ".join(found.reasons)
    assert "first epoch that differs is 433, between the checkpoint of epoch 400 and that of " \
        "epoch 500" in text  # fmt: skip
    assert "5 of 8 intervals ran, 500 epochs for a range of 800" in text
    assert "presumed" in text and "101:200, 201:300" in text


def test_nothing_is_presumed_of_the_first_interval() -> None:
    job = Job(7)
    found = job.search(HUNDREDS)
    assert job.asked == [(1, 100)]
    assert found.bisection is not None and found.bisection.presumed == ()
    assert "presumed" not in " ".join(found.reasons)
    assert "between the start of the range and that of epoch 100" in " ".join(found.reasons)


def test_a_state_alone_is_found_between_two_checkpoints() -> None:
    found = Job(350, state_alone=True).search(HUNDREDS)
    assert found.bisection is not None and found.bisection.differs_from is None
    assert "between the checkpoint of epoch 300 and that of epoch 400" in " ".join(found.reasons)


def test_equal_ends_leave_nothing_to_search_for() -> None:
    job = Job(None)
    found = job.search(HUNDREDS)
    assert len(job.asked) == 2
    assert found.exit_code == 0
    text = " ".join(found.reasons)
    assert "nothing to search for" in text and "2 of 8 intervals ran" in text
    assert "101:200" in text and "audit them without --bisect" in text


def test_an_interval_without_an_answer_ends_the_search() -> None:
    job = Job(433)
    gone = replace(job.audit(Request(epochs=(1, 100))), verdict="input_gone", causes=())
    search = Search("orders", 1, 800, HUNDREDS, lambda _: gone, lambda _: None)
    assert search.run() == gone


@pytest.mark.parametrize(
    ("checkpoints", "without", "error"),
    [
        ([], set(), "nothing to bisect"),
        ([800], set(), "nothing to bisect"),
        (HUNDREDS, {100}, "checkpoint of epoch 100 of orders was removed meanwhile"),
    ],
)
def test_what_cannot_be_bisected_is_refused(
    checkpoints: list[int], without: set[int], error: str
) -> None:
    job = Job(433)
    job.without_state = without
    with pytest.raises(RefusedError, match=error):
        job.search(checkpoints)


def test_a_state_that_cannot_be_compared_is_no_answer() -> None:
    job = Job(433)
    unknown = ComparedState(100, 0, 0, 0, "manifest-1.json is damaged")
    audit = replace(job.audit(Request(epochs=(1, 100))), states=(unknown,))
    search = Search("orders", 1, 800, HUNDREDS, lambda _: audit, lambda _: None)
    with pytest.raises(RefusedError, match=r"manifest-1\.json is damaged"):
        search.run()
