"""Faded sums of the library against sums over all rows of a list."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.validation import parse
from perseid.testing.operators import EPOCH_MS, Harness

JOB = """
name: decaying
sources:
  rows: {{topic: rows, format: json, columns: {{user: string, ms: int64, x: int64}} {event_time}}}
operators:
  hot: {{input: rows, key: user, use: "library:Decaying", with: {{{with_}}}}}
sinks:
  hot: {{input: hot, topic: hot, format: json, key: user}}
"""
EVENT_TIME = ", eventTime: {column: ms}"
HALF_MS = 100


def job(folder: Path, with_: str, event_time: str = EVENT_TIME) -> Path:
    (folder / "job.yaml").write_text(JOB.format(with_=with_, event_time=event_time))
    return folder


@pytest.mark.parametrize("seed", range(4))
def test_any_epochs_and_crashes_give_the_sum_over_all_rows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        (chance.choice("abc"), 10_000 + i * 9 - chance.randrange(150), chance.randint(-9, 9))
        for i in range(200)
    ]
    hot = Harness(job(tmp_path, 'halfLife: "100ms", time: ms, column: x'), "hot", parallelism=2)
    at = 0
    while at < len(rows):
        part = rows[at : at + chance.choice([0, 1, 5, 30])]
        columns = zip(*part, strict=True) if part else ((), (), ())
        table = pa.table(dict(zip(("user", "ms", "x"), map(list, columns), strict=True)))
        out = hot.epoch(table if part else None)
        if chance.random() < 0.3 and hot.number > 1:
            hot.crash(hot.number - 1)  # this epoch again
            assert hot.epoch(table if part else None) == out
        at += len(part)
        emitted = {row["user"]: row for row in out}
        assert emitted.keys() == {user for user, _, _ in part}
        for user, row in emitted.items():
            mine = [(ms, x) for name, ms, x in rows[:at] if name == user]
            newest = max(ms for ms, _ in mine)
            faded = sum(x * 0.5 ** ((newest - ms) / HALF_MS) for ms, x in mine)
            assert row["at"] == newest
            assert row["sum"] == pytest.approx(faded, abs=1e-9)


def test_token_time_counts_rows(tmp_path: Path) -> None:
    with_ = f'halfLife: "{EPOCH_MS}ms"'
    hot = Harness(job(tmp_path, with_, event_time=""), "hot")
    rows: dict[str, list[Any]] = {"user": ["a", "a", "b"], "ms": [None] * 3, "x": [None] * 3}
    assert [row["sum"] for row in hot.epoch(rows)] == [2.0, 1.0]
    assert [row["sum"] for row in hot.epoch(rows)] == [3.0, 1.5]
    hot.epoch()
    (row,) = hot.epoch({"user": ["a"], "ms": [0], "x": [0]})
    assert (row["sum"], row["at"]) == (1.75, hot.now)


def test_forgotten_keys_leave_the_state(tmp_path: Path) -> None:
    hot = Harness(job(tmp_path, 'halfLife: "100ms", time: ms'), "hot")
    hot.epoch({"user": ["old", "new"], "ms": [1_000_000, 1_005_000], "x": [1, 1]})
    hot.watermark = 1_007_999
    hot.epoch()
    assert [row["user"] for row in hot.rows("sums")] == ["new"]
    hot.watermark = 1_013_000
    hot.epoch()
    assert hot.rows("sums") == []


@pytest.mark.parametrize(
    ("with_", "event_time", "text"),
    [
        ("column: x", EVENT_TIME, "with.halfLife is missing, expected a duration"),
        ('halflife: "1s"', EVENT_TIME, "write `halfLife`"),
        ('halfLife: "1s", time: 5', EVENT_TIME, "with.time is 5, expected the name of a column"),
        ('halfLife: "1s", time: ms', "", "Decaying waits for event time"),
        ('halfLife: "1s", types: {x: int64}', EVENT_TIME, "types of some of the columns user"),
        ('halfLife: "1s", types: {user: int}', EVENT_TIME, "with.types is 'int', expected types"),
    ],
)
def test_mistakes_are_reported_when_the_job_is_validated(
    tmp_path: Path, with_: str, event_time: str, text: str
) -> None:
    folder = job(tmp_path, with_, event_time)
    with pytest.raises(JobFileErrors) as caught:
        load_checked(parse.load(folder), folder)
    assert text in str(caught.value)
