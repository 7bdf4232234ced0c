"""Joins of the library against loops over plain Python lists."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness

Row = dict[str, Any]
JOB = """
name: joins
sources:
  l: {{topic: l, format: json, columns: {{user: string, day: int64, ms: int64, x: int64}}
      {event_time}}}
  r: {{topic: r, format: json, columns: {{user: string, day: int64, ms: int64, y: string}}
      {event_time}}}
operators:
  joined: {{inputs: {{{inputs}}}, key: [user, day], use: "library:{use}", with: {{{with_}}}}}
sinks:
  joined: {{input: joined, topic: joined, format: json, order: free}}
"""
EVENT_TIME = ", eventTime: {column: ms, watermark: 40ms}"
INPUTS = "left: l, right: r"
SIDES = "time: ms, types: {day: int64}, left: {ms: int64, x: int64}, right: {ms: int64, y: string}"
LEFT = pa.schema(
    [("user", pa.string()), ("day", pa.int64()), ("ms", pa.int64()), ("x", pa.int64())]
)
RIGHT = pa.schema([*list(LEFT)[:3], ("y", pa.string())])
DELAY = 40
Epoch = tuple[int | None, list[Row], list[Row]]  # watermark, left rows, right rows
Meets = Callable[[int, int], bool]
REACHES: dict[str, Meets] = {
    "within: 30ms": lambda left, right: abs(left - right) <= 30,
    "before: 50ms, after: 10ms": lambda left, right: left - 50 <= right <= left + 10,
    "after: 60ms": lambda left, right: left <= right <= left + 60,
    "window: 100ms": lambda left, right: left // 100 == right // 100,
}


def job(
    folder: Path, use: str, with_: str, *, inputs: str = INPUTS, event_time: str = EVENT_TIME
) -> Path:
    text = JOB.format(use=use, with_=with_, inputs=inputs, event_time=event_time)
    (folder / "job.yaml").write_text(text)
    return folder


def epochs_of(chance: random.Random) -> list[Epoch]:
    """Rows whose times rise, less up to DELAY, with the watermark before each epoch's rows."""
    found: list[Epoch] = []
    largest, number = None, 0
    while number < 150:
        sides: tuple[list[Row], list[Row]] = ([], [])
        watermark = None if largest is None else largest - DELAY
        for _ in range(chance.choice([0, 1, 4, 25])):
            ms = 10_000 + number * 6 - chance.randrange(DELAY)
            row = {"user": chance.choice("ab"), "day": chance.randrange(2), "ms": ms}
            if chance.random() < 0.5:
                sides[0].append({**row, "x": number})
            else:
                sides[1].append({**row, "y": f"y{number}"})
            number, largest = number + 1, max(ms, largest or ms)
        found.append((watermark, *sides))
    return [*found, (10**9, [], [])]


def run(chance: random.Random, joined: Harness, epochs: Sequence[Epoch]) -> list[list[Row]]:
    """What each epoch emitted, through crashes that take some of them back."""
    emitted: list[list[Row]] = []
    while joined.number < len(epochs):
        joined.watermark, left, right = epochs[joined.number]
        emitted.append(
            joined.epoch({"left": pa.Table.from_pylist(left, LEFT),
                          "right": pa.Table.from_pylist(right, RIGHT)})
        )  # fmt: skip
        if chance.random() < 0.3:
            joined.crash(chance.randrange(max(0, joined.number - 4), joined.number + 1))
            del emitted[joined.number :]
    return emitted


def pair(left: Row, right: Row | None) -> Row:
    other = {"right_ms": None, "y": None}
    if right is not None:
        other = {"right_ms": right["ms"], "y": right["y"]}
    return {
        "user": left["user"],
        "day": left["day"],
        "left_ms": left["ms"],
        "x": left["x"],
        **other,
    }


def ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def same_key(left: Row, right: Row) -> bool:
    return (left["user"], left["day"]) == (right["user"], right["day"])


def all_of(epochs: Sequence[Epoch]) -> tuple[list[Row], list[Row]]:
    return [row for _, left, _ in epochs for row in left], [
        r for *_, right in epochs for r in right
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("reach", REACHES)
def test_any_epochs_and_crashes_give_the_pairs_of_two_loops(
    tmp_path: Path, reach: str, seed: int
) -> None:
    chance = random.Random(seed)
    epochs = epochs_of(chance)
    joined = Harness(job(tmp_path, "Join", f"{reach}, {SIDES}"), "joined", parallelism=2)
    emitted = run(chance, joined, epochs)
    lefts, rights = all_of(epochs)
    expected = [
        pair(left, right) for left in lefts for right in rights
        if same_key(left, right) and REACHES[reach](left["ms"], right["ms"])
    ]  # fmt: skip
    assert len(expected) > 50
    assert ordered([row for out in emitted for row in out]) == ordered(expected)
    assert joined.rows("left") == joined.rows("right") == []


def test_a_join_keeps_no_more_than_it_must(tmp_path: Path) -> None:
    joined = Harness(job(tmp_path, "Join", f"before: 50ms, after: 10ms, {SIDES}"), "joined")
    rows = {"user": ["a"] * 2, "day": [0] * 2, "ms": [1_000, 1_001]}
    joined.epoch({"left": {**rows, "x": [1, 2]}, "right": {**rows, "y": ["p", "q"]}})
    joined.watermark = 1_011
    joined.epoch()
    assert [row["ms"] for row in joined.rows("left")] == [1_001]
    assert [row["ms"] for row in joined.rows("right")] == [1_000, 1_001]
    joined.watermark = 1_051
    joined.epoch()
    assert joined.rows("left") == []
    assert [row["ms"] for row in joined.rows("right")] == [1_001]


@pytest.mark.parametrize("within", [None, 45])
@pytest.mark.parametrize("seed", range(4))
def test_as_of_finds_the_newest_row_at_or_before(
    tmp_path: Path, within: int | None, seed: int
) -> None:
    chance = random.Random(seed)
    epochs = epochs_of(chance)
    with_ = SIDES + (f", within: {within}ms" if within else "")
    joined = Harness(job(tmp_path, "AsOf", with_), "joined", parallelism=2)
    emitted = run(chance, joined, epochs)
    lefts, rights = all_of(epochs)
    expected = []
    for left in lefts:
        known = [
            right for right in rights
            if same_key(left, right) and right["ms"] <= left["ms"]
            and right["ms"] >= left["ms"] - (within or 10**9)
        ]  # fmt: skip
        newest = max((right["ms"] for right in known), default=None)
        at_once = [right for right in known if right["ms"] == newest]
        expected.append(pair(left, at_once[-1] if at_once else None))
    assert within is None or any(row["y"] is None for row in expected)
    assert ordered([row for out in emitted for row in out]) == ordered(expected)
    assert joined.rows("left") == joined.rows("right") == []
    for (watermark, *_), out in zip(epochs, emitted, strict=True):
        assert all(row["left_ms"] < (watermark or 0) for row in out)


def test_as_of_answers_late_rows_out_of_what_it_kept(tmp_path: Path) -> None:
    joined = Harness(job(tmp_path, "AsOf", f"{SIDES}, within: 1s"), "joined")
    none: Row = {"user": [], "day": [], "ms": [], "x": [], "y": []}
    prices = {"user": ["a"], "day": [0], "ms": [1_000], "y": ["p"]}
    joined.watermark = 1_500
    joined.epoch({"left": none, "right": prices})
    late = {"user": ["a"] * 3, "day": [0] * 3, "ms": [999, 1_000, 1_400], "x": [1, 2, 3]}
    emitted = joined.epoch({"left": late, "right": none})
    assert [(row["x"], row["y"]) for row in emitted] == [(1, None), (2, "p"), (3, "p")]
    joined.epoch({"left": none, "right": {**prices, "ms": [900], "y": ["older"]}})
    assert [row["y"] for row in joined.rows("newest")] == ["p"]
    joined.watermark = 2_001 + 1_000
    joined.epoch()
    assert joined.rows("newest") == []


@pytest.mark.parametrize(
    ("use", "with_", "shown"),
    [
        ("Join", SIDES, "with.within is missing, expected one of: within; before and after; w"),
        ("Join", f"within: 1s, after: 1s, {SIDES}", "expected one of: within"),
        ("Join", f"window: 1, {SIDES}", "with.window is 1, expected a duration"),
        ("Join", "within: 1s, left: {ms: int64}, right: {ms: int64}", "with.time is missing"),
        ("Join", "within: 1s, time: ms, left: {ms: int64}", "with.right is missing"),
        ("Join", "within: 1s, time: ms, left: {ms: int}, right: {ms: int64}", "with.left is 'int'"),
        ("Join", f"within: 1s, {SIDES}".replace("time: ms", "time: x"), "a column of right with"),
        ("Join", f"within: 1s, {SIDES}".replace("y: string", "user: string"), "called 'user'"),
        ("AsOf", f"after: 1s, {SIDES}", "found the unknown parameter 'after'"),
        ("AsOf", f"within: 1w, {SIDES}", "with.within is '1w', expected a duration"),
    ],
)
def test_mistakes_are_reported_when_the_job_is_validated(
    tmp_path: Path, use: str, with_: str, shown: str
) -> None:
    folder = job(tmp_path, use, with_)
    with pytest.raises(JobFileErrors) as caught:
        load_checked(parse.load(folder), folder)
    assert shown in str(caught.value)
    assert f"library:{use}" in str(caught.value)


@pytest.mark.parametrize("use", ["Join", "AsOf"])
def test_names_of_inputs_and_event_time_are_needed(tmp_path: Path, use: str) -> None:
    with_ = f"within: 1s, {SIDES}"
    folder = job(tmp_path, use, with_, inputs="l: l, r: r")
    with pytest.raises(JobFileErrors, match="its inputs are called l, r; write `inputs: "):
        load_checked(parse.load(folder), folder)
    folder = job(tmp_path, use, with_, event_time="")
    with pytest.raises(JobFileErrors, match="waits for event time, and no source has one"):
        load_checked(parse.load(folder), folder)


def test_rows_of_other_types_are_refused(tmp_path: Path) -> None:
    joined = Harness(job(tmp_path, "Join", f"within: 1s, {SIDES}"), "joined")
    none: Row = {"user": [], "day": [], "ms": [], "x": [], "y": []}
    row = {"user": ["a"], "day": [0], "ms": [1], "x": ["one"]}
    with pytest.raises(BadInputError, match="write the column's type in `with:`"):
        joined.epoch({"left": row, "right": none})
    with pytest.raises(BadInputError, match="its input has no column 'y'"):
        joined.epoch({"left": none, "right": row})
