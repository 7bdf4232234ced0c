"""Library operators under another parallelism: as if nothing had happened."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from perseid.jobs.library.heavy_hitters import COLUMNS
from perseid.jobs.library.ripple_join import estimated

TIMED = {"column": "at", "watermark": "1s", "late": "update"}
INPUTS = {"left": "rows", "right": "others"}
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
     {"inputs": INPUTS, "eventTime": TIMED}),
]  # fmt: skip
# How many partitions, for which epochs.
CHANGES = ((1, range(5)), (3, range(5, 10)), (2, range(10, 15)))


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
    whole = play(harness(use, with_, key="g", **more), range(15), inputs)
    assert sum(map(len, whole)) > 20
    found = []
    for part, epoch in changed(harness, use, with_, key="g", **more):
        found += play(part, range(epoch, epoch + 1), inputs)
    assert found == whole


def changed(harness: Any, use: str, with_: dict[str, Any], **more: Any) -> Iterator[Any]:
    """A harness after each of its epochs, of one, then three, then two partitions."""
    snapshot = None
    for count, epochs in CHANGES:
        part = harness(use, with_, partitions=count, **more)
        if snapshot is not None:
            part.restore(snapshot)
        for epoch in epochs:
            yield part, epoch
        snapshot = part.snapshot()


def test_a_sketch_loses_no_heavy_key_and_no_count(harness: Any) -> None:
    counts: Counter[str] = Counter()
    emitted: dict[str, int] = {}
    for heavy, epoch in changed(harness, "HeavyHitters", {"threshold": 22}, key="w"):
        rows = rows_of(epoch)
        counts.update(rows["w"])
        emitted |= {row["w"]: row["n"] for row in heavy.epoch(rows)}
        wanted = {w for w, n in counts.items() if n >= 22}
        assert wanted <= emitted.keys()
        assert sum(row["value"] for row in heavy.rows("total")) == counts.total()
    assert len(wanted) > 3
    # 30 keys in 8,000 counters a row: none shares all four of its own with others.
    assert emitted == {w: counts[w] for w in wanted}


def test_a_full_sketch_is_never_too_low_and_seldom_too_high(harness: Any) -> None:
    """With the keys of all partitions in each: the bound is that of all rows."""
    chance = random.Random(5)
    counts: Counter[str] = Counter()
    found: dict[str, int] = {}
    for heavy, _ in changed(harness, "HeavyHitters", {"threshold": 1}, key="w"):
        rows = [f"w{int(chance.paretovariate(0.4)) % 50_000}" for _ in range(10_000)]
        counts.update(rows)
        heavy.epoch({"w": rows})
        found = {row["w"]: row["n"] for row in heavy.rows("hitters")}
    assert found.keys() == counts.keys()
    over = [found[w] - n for w, n in counts.items()]
    assert min(over) == 0
    assert max(over) > 0  # there were collisions
    slack = math.e / COLUMNS * counts.total()
    assert sum(n > slack for n in over) <= math.exp(-4) * len(over)


@pytest.mark.parametrize("summed", [False, True])
def test_a_join_that_samples_all_rows_stays_the_truth(harness: Any, summed: bool) -> None:
    sides: dict[str, list[tuple[str, int]]] = {"left": [], "right": []}
    with_ = {"sample": 1, **({"sum": "n"} if summed else {})}
    for join, epoch in changed(harness, "RippleJoin", with_, key="g", inputs=INPUTS):
        given = {"left": rows_of(epoch), "right": rows_of(epoch + 1000)}
        for name, rows in given.items():
            sides[name] += zip(rows["g"], rows["n"], strict=True)
        rows = join.epoch(given)
        rights = Counter(key for key, _ in sides["right"])
        truth = sum((n if summed else 1) * rights[key] for key, n in sides["left"])
        assert sum(row["estimate"] for row in rows) == pytest.approx(truth)
        assert [sum(row[name] for row in rows) for name in sides] == list(map(len, sides.values()))


def test_the_estimate_of_a_sample_does_not_move(harness: Any) -> None:
    one, three = (
        harness("RippleJoin", {"sample": 0.3}, key="g", partitions=count, inputs=INPUTS)
        for count in (1, 3)
    )
    for epoch in range(8):
        (before,) = one.epoch({"left": rows_of(epoch), "right": rows_of(epoch + 1000)})
    three.restore(one.snapshot())
    # Three partitions of a third of the rows each, and the same share of them sampled: nearly,
    # for rows are whole.
    total = 0.0
    for state in three._states:
        seen, sums = state.operator.seen.values, state.operator.sums.values
        total += estimated(seen, sums, 2.0)[0] or 0
    assert total == pytest.approx(before["estimate"], rel=0.05)


def test_models_continue_from_those_of_all_by_their_records(harness: Any) -> None:
    with_ = {"features": ["x", "y"], "label": "n", "models": 2, "every": 30}
    three, two = (harness("LogisticRegression", with_, key="g", partitions=n) for n in (3, 2))
    for epoch in range(5):
        three.epoch({**rows_of(epoch), "n": [n % 2 for n in rows_of(epoch)["n"]]})
    old = [state.operator for state in three._states]
    seen = [one.seen.get() for one in old]
    assert sum(seen) == 200
    assert len(set(seen)) > 1
    two.restore(three.snapshot())
    new = [state.operator for state in two._states]
    wanted = sum(n * one.weights.values for n, one in zip(seen, old, strict=True)) / 200
    for one in new:
        assert one.weights.values == pytest.approx(wanted, rel=1e-12)
    assert sum(one.seen.get() for one in new) == 200

    # Log losses of the records after the last average, a record.
    def loss(of: list[Any]) -> float:
        rest = sum(one.seen.get() % 30 for one in of)
        return float(sum(one.losses.values.sum() for one in of) / rest)

    assert loss(new) == pytest.approx(loss(old), rel=1e-12)


def test_a_model_that_has_seen_nothing_can_be_redistributed(harness: Any) -> None:
    with_ = {"features": ["x", "y"], "label": "n"}
    one, three = (harness("LogisticRegression", with_, key="g", partitions=n) for n in (1, 3))
    three.restore(one.snapshot())
    assert [state.operator.seen.get() for state in three._states] == [0, 0, 0]
    assert not any(state.operator.weights.values.any() for state in three._states)
