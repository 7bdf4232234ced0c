"""An epoch of several fragments counts once, with the sums of their parts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.coordinator.epoch_ends import merged, reported
from perseid.coordinator.job.inputs import Ending, Inputs
from perseid.topics.records import EpochDone, EventTimes, InputCheck, OperatorState

NAMES = ("0", "1", "2")


def end(fragment: str, epoch: int, rows: int = 1) -> EpochDone:
    split = int(fragment)
    return EpochDone(
        "u1", 1, "w1-1", epoch, 100 + epoch, rows, 2 * rows, 10 * split,
        {"read": split, f"level {split}": 5}, 7, 3, 1,
        checks=(InputCheck(epoch, split, "a", rows, 1),),
        states=(OperatorState("a1", 4, 2),), bytes_in={"a": 10 * rows}, fragment=fragment,
        buffered={"a1": 2, f"a{split}": 5},
    )  # fmt: skip


def test_the_parts_of_an_epoch_are_one_report() -> None:
    found = merged(merged(end("1", 5, 10), end("2", 5, 20)), end("0", 5, 30))
    assert (found.rows_in, found.rows_out, found.duration_ms) == (60, 120, 20)
    assert (found.state_bytes, found.state_rows, found.dead_letters) == (21, 9, 3)
    assert found.stage_ms == {"read": 2, "level 0": 5, "level 1": 5, "level 2": 5}
    assert [(c.split, c.count) for c in found.checks] == [(0, 30), (1, 10), (2, 20)]
    assert found.states == (OperatorState("a1", 12, 6),)
    assert found.bytes_in == {"a": 600}
    assert found.buffered == {"a0": 5, "a1": 9, "a2": 5}


@given(st.permutations([(name, epoch) for name in NAMES for epoch in range(1, 5)]))
def test_each_epoch_counts_once_however_reports_mix(order: list[tuple[str, int]]) -> None:
    """Each fragment's reports are in the order of its epochs, as in its log."""
    by_name = {name: iter(range(1, 5)) for name in NAMES}
    ending, ended = tuple[Ending, ...](), list[EpochDone]()
    for name, _ in order:
        ending, more = reported(ending, end(name, next(by_name[name])), NAMES)
        ended += more
    assert ending == ()
    assert [(done.epoch, done.rows_in) for done in ended] == [(e, 3) for e in range(1, 5)]


def test_a_report_that_comes_again_counts_once() -> None:
    ending, _ = reported((), end("0", 1), NAMES)
    ending, _ = reported(ending, end("0", 1), NAMES)
    ending, _ = reported(ending, end("1", 1), NAMES)
    _, (done,) = reported(ending, end("2", 1), NAMES)
    assert done.rows_in == 3


def test_a_report_that_was_lost_keeps_no_epoch_open() -> None:
    ending: tuple[Ending, ...] = ()
    for name, epoch in (("0", 1), ("1", 1), ("0", 2), ("1", 2), ("0", 3)):
        ending, ended = reported(ending, end(name, epoch), NAMES)
        assert ended == ()
    ending, ended = reported(ending, end("2", 2), NAMES)
    assert [(done.epoch, done.rows_in) for done in ended] == [(1, 2), (2, 3)]
    assert [one.report.epoch for one in ending] == [3]


def test_a_fragment_that_the_job_lacks_does_not_count() -> None:
    assert reported((), end("7", 1), NAMES) == ((), ())


def test_a_job_that_is_one_fragment_has_its_reports_as_they_are() -> None:
    done = replace(end("0", 1), fragment="whole")
    assert reported((), done, ["whole"]) == ((), (done,))


def test_a_rewind_forgets_the_ends_above_it() -> None:
    inputs = Inputs()
    for epoch in (1, 2, 3):
        inputs = inputs.awaits(reported(inputs.ending, end("0", epoch), NAMES)[0])
    assert [one.report.epoch for one in inputs.rewound({}, 1).ending] == [1]
    assert inputs.switched({}, 0.0).ending == ()


@pytest.mark.parametrize("again", [False, True])
def test_late_rows_of_each_fragment_count_once(again: bool) -> None:
    inputs = Inputs()
    for name in [*NAMES, *(NAMES if again else ())]:
        inputs = inputs.with_event_times(EventTimes("u1", 1, 4, 104, 5, (), name))
    assert inputs.late == 15
