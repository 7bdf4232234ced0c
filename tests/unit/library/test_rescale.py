"""Library operators under another parallelism: as if nothing had happened."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from perseid.errors import PermanentError

TIMED = {"column": "at", "watermark": "1s", "late": "update"}
# use, with, more of the operator
USES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Distinct", {"column": "w"}, {}),
    ("Distinct", {"column": "w", "error": 0.05, "keys": 50}, {}),
    ("Window", {"kind": "tumbling", "size": "2s", "aggregate": {"n": "count"}, "time": "at"},
     {"eventTime": TIMED}),
    ("KMeans", {"columns": ["x", "y"], "k": 1, "window": "2s", "time": "at"},
     {"eventTime": TIMED}),
    ("Decaying", {"halfLife": "5s"}, {}),
    ("TopK", {"of": "w", "k": 2}, {}),
    ("AsOf", {"time": "at", "left": {"at": "int64", "n": "int64"},
              "right": {"at": "int64", "x": "float64"}, "within": "2s"},
     {"inputs": {"left": "rows", "right": "others"}, "eventTime": TIMED}),
]  # fmt: skip


def rows_of(epoch: int) -> dict[str, list[Any]]:
    chance = random.Random(epoch)
    size = 40
    return {
        "g": [f"g{chance.randrange(12)}" for _ in range(size)],
        "w": [f"w{chance.randrange(30)}" for _ in range(size)],
        "n": [chance.randrange(9) for _ in range(size)],
        "x": [float(chance.randrange(9)) for _ in range(size)],
        "y": [float(chance.randrange(9)) for _ in range(size)],
        "at": [epoch * 500 + chance.randrange(500) for _ in range(size)],
    }


def play(harness: Any, epochs: range, inputs: bool) -> list[Counter[str]]:
    """What each epoch emits, without regard to the order of keys."""
    found = []
    for epoch in epochs:
        harness.watermark = epoch * 500 - 1000
        rows = rows_of(epoch)
        given = {"left": rows, "right": rows_of(epoch + 1000)} if inputs else rows
        found.append(Counter(repr(sorted(row.items())) for row in harness.epoch(given)))
    return found


@pytest.mark.parametrize(("use", "with_", "more"), USES, ids=lambda v: str(v)[:20])
def test_one_three_and_two_partitions_emit_what_one_does(
    harness: Any, use: str, with_: dict[str, Any], more: dict[str, Any]
) -> None:
    inputs = "inputs" in more

    def made(count: int) -> Any:
        return harness(use, with_, key="g", partitions=count, **more)

    whole = play(made(1), range(15), inputs)
    assert sum(map(len, whole)) > 20
    found, snapshot = [], None
    for count, epochs in ((1, range(5)), (3, range(5, 10)), (2, range(10, 15))):
        part = made(count)
        if snapshot is not None:
            part.restore(snapshot)
        found += play(part, epochs, inputs)
        snapshot = part.snapshot()
    assert found == whole


def test_a_sketch_of_all_keys_cannot_be_dealt_out(harness: Any) -> None:
    with_ = {"threshold": 5}
    one, three = (harness("HeavyHitters", with_, key="w", partitions=n) for n in (1, 3))
    one.epoch(rows_of(0))
    with pytest.raises(PermanentError, match="counters, total of HeavyHitters cannot be dealt out"):
        three.restore(one.snapshot())
