"""Windows of the library against windows of plain Python lists."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.operator import combines
from perseid.jobs.validation import parse
from perseid.testing.operators import Harness

Row = dict[str, Any]
COLUMNS = ("user", "day", "ms", "x", "f")
SCHEMA = pa.schema(
    [("user", pa.string()), ("day", pa.int64()), ("ms", pa.int64()), ("x", pa.int64()),
     ("f", pa.float64())]
)  # fmt: skip
AGGREGATE = "{n: count, total: 'sum(x)', lo: 'min(x)', hi: 'max(f)'}"
TYPES = "{f: float64, day: int64}"
JOB = """
name: windows
sources:
  rows: {{topic: rows, format: json, {event_time}
         columns: {{user: string, day: int64, ms: int64, x: int64, f: float64}}}}
operators:
  windows: {{input: rows, key: [user, day], use: "library:Window", with: {{{with_}}}}}
sinks:
  windows: {{input: windows, topic: windows, format: json, order: free}}
"""
EVENT_TIME = "eventTime: {column: ms, watermark: '1s', late: update},"
DELAY = 50
KINDS = {
    "kind: tumbling, size: 100ms": ("aligned", 100, 100),
    "kind: hopping, size: 100ms, step: 25ms": ("aligned", 100, 25),
    "kind: hopping, size: 90ms, step: 60ms": ("aligned", 90, 60),
    "kind: sliding, size: 70ms": ("sliding", 70, 0),
    "kind: session, gap: 40ms": ("session", 40, 0),
}


def job(folder: Path, with_: str, event_time: str = EVENT_TIME) -> Path:
    (folder / "job.yaml").write_text(JOB.format(with_=with_, event_time=event_time))
    return folder


def of(kind: str, more: str = "") -> str:
    return f"{kind}, time: ms, aggregate: {AGGREGATE}, types: {TYPES}{more}"


def rows_of(chance: random.Random, count: int) -> list[Row]:
    """Rows whose times rise, less up to DELAY; some values are missing."""
    return [
        {"user": chance.choice("abc"), "day": chance.randrange(2),
         "ms": 10_000 + i * 7 - chance.randrange(DELAY),
         "x": chance.choice([None, chance.randint(-50, 50)]),
         "f": chance.choice([None, float(chance.randint(-50, 50))])}
        for i in range(count)
    ]  # fmt: skip


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table({n: [row[n] for row in rows] for n in COLUMNS}, schema=SCHEMA)


def cut(chance: random.Random, rows: Sequence[Row]) -> Iterator[tuple[int | None, list[Row]]]:
    """Epochs: the watermark before the rows, as tokens carry it, and the rows."""
    at, largest = 0, None
    while at < len(rows):
        size = chance.choice([0, 1, 3, 20])
        part = list(rows[at : at + size])
        yield None if largest is None else largest - DELAY, part
        largest = max([row["ms"] for row in part], default=largest)
        at += size
    yield 10**9, []


def windows_of(kind: tuple[str, int, int], times: list[int]) -> set[tuple[int, int]]:
    """Start and end of the windows of one key, by looking at every one there could be."""
    name, size, step = kind
    if name == "aligned":
        starts = range(0, max(times) + 1, step)
        return {(s, s + size) for s in starts if any(s <= t < s + size for t in times)}
    if name == "sliding":
        return {(t + 1 - size, t + 1) for t in times}
    sessions: list[list[int]] = []
    for time in sorted(times):
        if sessions and time - sessions[-1][-1] < size:
            sessions[-1].append(time)
        else:
            sessions.append([time])
    return {(s[0], s[-1] + size) for s in sessions}


def expected(kind: tuple[str, int, int], rows: Sequence[Row]) -> list[Row]:
    found = []
    for user, day in sorted({(row["user"], row["day"]) for row in rows}):
        mine = [row for row in rows if (row["user"], row["day"]) == (user, day)]
        for start, end in windows_of(kind, [row["ms"] for row in mine]):
            inside = [row for row in mine if start <= row["ms"] < end]
            x = [row["x"] for row in inside if row["x"] is not None]
            f = [row["f"] for row in inside if row["f"] is not None]
            found.append(
                {"user": user, "day": day, "start": start, "end": end, "n": len(inside),
                 "total": sum(x), "lo": min(x, default=None), "hi": max(f, default=None)}
            )  # fmt: skip
    return ordered(found)


def ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["user"], row["day"], row["start"], row["end"]))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS)
def test_any_epochs_and_crashes_give_the_windows_of_a_list(
    tmp_path: Path, kind: str, seed: int
) -> None:
    chance = random.Random(seed)
    rows = rows_of(chance, 150)
    windows = Harness(job(tmp_path, of(kind)), "windows", parallelism=2)
    emitted: list[list[Row]] = [[]]
    epochs = list(cut(chance, rows))
    while windows.number < len(epochs):
        windows.watermark, part = epochs[windows.number]
        out = windows.epoch(table(part), splits=2)
        assert all(row["end"] <= (windows.watermark or 0) for row in out)
        emitted.append(out)
        if chance.random() < 0.3:
            windows.crash(chance.randrange(max(0, windows.number - 4), windows.number + 1))
            del emitted[windows.number + 1 :]
    assert ordered([row for out in emitted for row in out]) == expected(KINDS[kind], rows)
    assert windows.rows("panes") == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_late_rows_correct_what_was_reported(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = rows_of(chance, 120)
    late = [row for row in rows if chance.random() < 0.2]
    for row in late:
        row["ms"] -= chance.randrange(300)
    windows = Harness(job(tmp_path, of(kind, ", correct: 1h")), "windows")
    last: dict[tuple[str, int, int], Row] = {}
    emitted = 0
    for watermark, part in cut(chance, rows):
        windows.watermark = 20_000 if watermark == 10**9 else watermark
        for row in windows.epoch(table(part)):
            emitted += 1
            key = row["user"], row["day"], row["start"]
            assert last.get(key) != row, "sent again as it was"
            last[key] = row
            if row["start"] == row["end"]:
                assert row["n"] is None and row["lo"] is None
                del last[key]
    assert ordered(list(last.values())) == expected(KINDS[kind], rows)
    assert emitted > len(last), "no window was corrected"
    windows.watermark = 10**9
    windows.epoch()
    assert windows.rows("panes") == []


@pytest.mark.parametrize(
    ("with_", "gone"),
    [
        ("kind: tumbling, size: 100ms", 1_100),
        ("kind: hopping, size: 100ms, step: 50ms", 1_100),
        ("kind: hopping, size: 100ms, step: 50ms, correct: 60ms", 1_200),  # whole panes
        ("kind: sliding, size: 70ms", 1_110),
        ("kind: session, gap: 40ms", 1_080),
        ("kind: session, gap: 40ms, correct: 20ms", 1_140),  # and a gap more
    ],
)
def test_panes_go_as_soon_as_no_window_needs_them(tmp_path: Path, with_: str, gone: int) -> None:
    windows = Harness(job(tmp_path, of(with_)), "windows")
    windows.epoch(table([{"user": "a", "day": 0, "ms": 1_040, "x": 1, "f": None}]))
    windows.watermark = gone - 1
    windows.epoch()
    assert len(windows.rows("panes")) == 1
    windows.watermark = gone
    windows.epoch()
    assert windows.rows("panes") == []


def test_a_late_row_continues_a_session_that_was_reported(tmp_path: Path) -> None:
    windows = Harness(job(tmp_path, of("kind: session, gap: 40ms, correct: 20ms")), "windows")
    row = {"user": "a", "day": 0, "x": 1, "f": None}
    windows.epoch(table([{**row, "ms": 1_000}]))
    windows.watermark = 1_075
    assert [(one["start"], one["end"]) for one in windows.epoch()] == [(1_000, 1_040)]
    late = table([{**row, "ms": 1_015}, {**row, "ms": 1_020}])  # 1,015 is too late by 1 ms
    assert [(one["start"], one["end"], one["n"]) for one in windows.epoch(late)] == [
        (1_000, 1_060, 2)
    ]


def test_rows_below_every_window_are_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    windows = Harness(job(tmp_path, of("kind: tumbling, size: 100ms")), "windows")
    windows.watermark = 1_150
    windows.epoch()
    late = [{"user": "a", "day": 0, "ms": ms, "x": 1, "f": None} for ms in (1_050, 1_120, 1_130)]
    windows.epoch(table(late))
    assert "1 rows, once combined, came too late" in caplog.text
    windows.watermark = 1_200
    assert [(row["start"], row["n"]) for row in windows.epoch()] == [(1_100, 2)]


@pytest.mark.parametrize("total", ["sum(x)", "sum(f)"])
def test_splits_are_combined_unless_floats_would_round(tmp_path: Path, total: str) -> None:
    types = TYPES if "f" in total else "{day: int64}"
    with_ = f"kind: tumbling, size: 1s, time: ms, types: {types}, aggregate: {{total: '{total}'}}"
    windows = Harness(job(tmp_path, with_), "windows")
    assert combines(windows.operator_class) == (total == "sum(x)")
    rows = rows_of(random.Random(1), 100)
    windows.epoch(table(rows), splits=4)
    windows.watermark = 10**9
    emitted = {(row["user"], row["day"], row["start"]): row["total"] for row in windows.epoch()}
    expected: dict[tuple[str, int, int], float] = {}
    for row in rows:
        key = row["user"], row["day"], row["ms"] // 1_000 * 1_000
        expected[key] = expected.get(key, 0) + (row[total[4]] or 0)
    assert emitted == expected


def test_timestamps_and_the_records_own_time(tmp_path: Path) -> None:
    with_ = (
        "kind: tumbling, size: 1s, aggregate: {first: 'min(timestamp)'}, "
        "types: {timestamp: timestamp, day: int64}"
    )
    windows = Harness(job(tmp_path, with_), "windows")
    assert "timestamp" in windows.operator_class.metadata
    times = pa.array([1_500_000, 1_200_999, 2_000_000], pa.timestamp("us", "UTC"))
    windows.epoch(pa.table({"user": ["a"] * 3, "day": [1] * 3, "timestamp": times}))
    windows.watermark = 2_000
    (row,) = windows.epoch()
    assert (row["start"], row["end"]) == (1_000, 2_000)
    assert row["first"].microsecond == 200_999


@pytest.mark.parametrize(
    ("with_", "shown"),
    [
        (of("kind: tumbling"), "with.size is missing, expected a duration"),
        (of("kind: hopping, size: 1m"), "with.step is missing"),
        (of("kind: hopping, size: 1m, step: 2m"), "at most the size"),
        (of("kind: session, size: 1m"), "with.size is for windows that are no sessions only"),
        (of("kind: session"), 'write `gap: "30s"`'),
        (of("kind: tumbling, size: 1m, step: 1m"), "with.step is for kind hopping only"),
        (of("kind: window, size: 1m"), "expected one of tumbling, hopping, sliding, session"),
        (of("kind: tumbling, size: 10"), "with.size is 10, expected a duration"),
        (of("kind: tumbling, sise: 10s"), "write `size`"),
        ("kind: tumbling, size: 1m", "with.aggregate is missing"),
        ("kind: tumbling, size: 1m, aggregate: {n: mean}", "with.aggregate is 'mean'"),
        ("kind: tumbling, size: 1m, aggregate: {n: 'sum()'}", 'column as "sum(amount)"'),
        ("kind: tumbling, size: 1m, aggregate: {end: count}", "two columns would be called 'end'"),
        ("kind: tumbling, size: 1m, aggregate: {n: 'max(s)'}, types: {s: string}", "for max"),
        ("kind: tumbling, size: 1m, aggregate: {n: count}, types: {x: int64}", "day, user"),
        (of("kind: tumbling, size: 1m, correct: 0s"), "at least 1 ms"),
    ],
)
def test_mistakes_are_reported_when_the_job_is_validated(
    tmp_path: Path, with_: str, shown: str
) -> None:
    folder = job(tmp_path, with_)
    with pytest.raises(JobFileErrors) as caught:
        load_checked(parse.load(folder), folder)
    assert shown in str(caught.value)
    assert "library:Window" in str(caught.value)


def test_a_job_without_event_time_is_refused(tmp_path: Path) -> None:
    folder = job(tmp_path, of("kind: sliding, size: 1m"), event_time="")
    with pytest.raises(JobFileErrors, match="write `eventTime: "):
        load_checked(parse.load(folder), folder)


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ({"ms": [None], "x": [1], "f": [1.0]}, "column 'ms' is null in row 0"),
        ({"ms": ["1"], "x": [1], "f": [1.0]}, "'ms' is of type string, expected a timestamp"),
        ({"ms": [1], "f": [1.0]}, "its input has no column 'x'"),
        ({"x": [1], "f": [1.0]}, "its input has no column 'ms'"),
    ],
)
def test_rows_that_fit_in_no_window_are_refused(
    tmp_path: Path, rows: dict[str, list[Any]], shown: str
) -> None:
    windows = Harness(job(tmp_path, of("kind: tumbling, size: 1m")), "windows")
    given = pa.table({"user": ["a"], "day": [1], **rows})
    if rows.get("ms") == [None]:
        given = given.set_column(given.column_names.index("ms"), "ms", pa.nulls(1, pa.int64()))
    with pytest.raises(BadInputError, match=shown):
        windows.epoch(given)


def test_a_sum_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    windows = Harness(job(tmp_path, of("kind: sliding, size: 1s")), "windows")
    big = [{"user": "a", "day": 0, "ms": ms, "x": 2**62, "f": 0.0} for ms in (1, 2, 3)]
    windows.epoch(table(big))
    windows.watermark = 10_000
    with pytest.raises(BadInputError, match="a sum of a window"):
        windows.epoch()
