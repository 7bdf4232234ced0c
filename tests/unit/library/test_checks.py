"""Every operator of the library through every check that an operator must pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perseid.jobs.library import catalogue
from perseid.testing.operator_checks import Epoch, WithWatermark, check
from perseid.testing.operators import Harness

TIMED = {"column": "at", "watermark": "1s", "late": "update"}
COUNTED = {"time": "at", "aggregate": {"rows": "count", "total": "sum(n)", "newest": "max(at)"}}
SIDES = {
    "time": "at", "left": {"at": "int64", "n": "int64"}, "right": {"at": "int64", "w": "string"},
}  # fmt: skip
TWO = {"left": "rows", "right": "others"}
USES: list[tuple[str, dict[str, Any]]] = [
    ("CountByKey", {}),
    ("Sum", {"column": "n"}),
    ("Sum", {"column": "x", "type": "float64"}),
    ("RunningSum", {"column": "n"}),
    ("Window", {"kind": "tumbling", "size": "500ms", **COUNTED}),
    ("Window", {"kind": "hopping", "size": "500ms", "step": "200ms", **COUNTED}),
    ("Window", {"kind": "sliding", "size": "300ms", **COUNTED}),
    ("Window", {"kind": "session", "gap": "100ms", "correct": "1s", **COUNTED}),
    ("Decaying", {"halfLife": "1s", "time": "at"}),
    ("Decaying", {"halfLife": "1s", "column": "n"}),
    ("Join", {"within": "100ms", **SIDES}),
    ("Join", {"window": "200ms", **SIDES}),
    ("AsOf", {"within": "1s", **SIDES}),
    ("TopK", {"of": "w", "k": 2}),
    ("Distinct", {"column": "w"}),
    ("Distinct", {"column": "w", "error": 0.09, "keys": 5}),
    ("KMeans", {"columns": ["x", "y"], "k": 2, "window": "500ms", "time": "at"}),
    ("LogisticRegression", {"features": ["x", "y"], "label": "i", "every": 5}),
    ("RippleJoin", {"sample": 0.5, "sum": "n"}),
    ("Grep", {"column": "w", "pattern": "^w[0-3]"}),
]
FREE = ("CountByKey", "Grep", "Sum", "TopK")  # of order, unless they round
ELSEWHERE = {"HeavyHitters", "ModelAverage"}  # one is slow, the other needs feedback
EPOCHS = 3


def rows_of(chance: random.Random, epoch: int) -> dict[str, list[Any]]:
    size = chance.choice([5, 12])
    return {
        "g": chance.choices("abc", k=size),
        "w": [f"w{chance.randrange(7)}" for _ in range(size)],
        "i": [chance.randrange(2) for _ in range(size)],
        "n": [chance.randrange(9) for _ in range(size)],
        "x": [chance.random() for _ in range(size)],
        "y": [chance.random() for _ in range(size)],
        "at": [epoch * 500 + chance.randrange(500) for _ in range(size)],
    }


def epochs_of(chance: random.Random, joins: bool) -> Sequence[Epoch]:
    """Rows with a watermark a second before them; an idle epoch; one past all windows."""
    found: list[Epoch] = []
    for epoch in range(EPOCHS):
        rows: Any = rows_of(chance, epoch)
        rows = {"left": rows, "right": rows_of(chance, epoch)} if joins else rows
        found.append(WithWatermark(epoch * 500 - 1000, rows))
    return [*found, None, WithWatermark(10**6)]


@pytest.mark.parametrize(("use", "with_"), USES, ids=lambda v: str(v)[:40])
def test_every_operator_passes_every_check(job: Any, use: str, with_: dict[str, Any]) -> None:
    joins = "left" in with_ or use == "RippleJoin"
    more: dict[str, Any] = {"inputs": TWO} if joins else {}
    if use not in catalogue.STATELESS:
        more["key"] = "g"
    if use in FREE and "float64" not in with_.values():
        more["order"] = "free"
    folder: Path = job(use, with_, eventTime=TIMED, **more)
    epochs = epochs_of(random.Random(1), joins)
    check(folder, "tried", epochs)
    assert emitted(folder, epochs) > EPOCHS, "what emits nothing passes all checks"


def emitted(folder: Path, epochs: Sequence[Epoch]) -> int:
    harness, rows = Harness(folder, "tried", parallelism=2), 0
    for given in epochs:
        if isinstance(given, WithWatermark):
            harness.watermark = given.watermark
        rows += len(harness.epoch(given.rows if isinstance(given, WithWatermark) else given))
    return rows


def test_no_operator_is_left_out() -> None:
    assert {use for use, _ in USES} | ELSEWHERE == set(catalogue.NAMES)
