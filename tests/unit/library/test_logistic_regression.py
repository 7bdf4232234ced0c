"""Online logistic regression against a record-at-a-time one in plain Python."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from perseid.errors import BadInputError

Rows = dict[str, list[Any]]
WITH = {"features": ["x", "y"], "label": "n", "rate": 0.05, "models": 3, "every": 20}


def rows_of(size: int, seed: int) -> Rows:
    """Labels that follow 2x - 3y + 1, mostly."""
    chance = random.Random(seed)
    rows: Rows = {"g": [], "x": [], "y": [], "n": []}
    for _ in range(size):
        x, y = chance.gauss(0, 1), chance.gauss(0, 1)
        p = 1 / (1 + math.exp(-(2 * x - 3 * y + 1)))
        for name, value in (("g", "a"), ("x", x), ("y", y), ("n", int(chance.random() < p))):
            rows[name].append(value)
    return rows


def plain(rows: Rows, rate: float, count: int, every: int) -> list[list[float]]:
    """Records, loss, bias and weights at each average."""
    models = [[0.0] * 3 for _ in range(count)]
    emitted, loss = [], 0.0
    for i, (x, y, label) in enumerate(zip(rows["x"], rows["y"], rows["n"], strict=True)):
        model = models[i % every % count]
        p = 1 / (1 + math.exp(-(model[0] + model[1] * x + model[2] * y)))
        loss -= math.log(p if label else 1 - p)
        for at, value in enumerate((1.0, x, y)):
            model[at] -= rate * (p - label) * value
        if (i + 1) % every == 0:
            mean = [sum(m[at] for m in models) / count for at in range(3)]
            models = [list(mean) for _ in range(count)]
            emitted.append([i + 1, loss / every, *mean])
            loss = 0.0
    return emitted


@pytest.mark.parametrize(("count", "every"), [(3, 20), (1, 7), (20, 20), (7, 50)])
def test_models_are_those_of_a_plain_loop(harness: Any, count: int, every: int) -> None:
    rows = rows_of(230, count)
    model = harness("LogisticRegression", {**WITH, "models": count, "every": every}, key="g")
    found = model.epoch(rows)
    wanted = plain(rows, 0.05, count, every)
    assert [list(row) for row in found[:1]] == [["partition", "records", "loss", "bias", "x", "y"]]
    assert [row["partition"] for row in found] == [0] * len(wanted)
    for row, expected in zip(found, wanted, strict=True):
        assert list(row.values())[1:] == pytest.approx(expected, rel=1e-9)


def test_the_cut_into_epochs_does_not_matter(harness: Any) -> None:
    rows = rows_of(130, 4)
    found = []
    for size in (130, 20, 13, 3):
        model = harness("LogisticRegression", WITH, key="g")
        emitted = []
        for at in range(0, 130, size):
            emitted += model.epoch({n: values[at : at + size] for n, values in rows.items()})
            model.crash()
        found.append((emitted, [model.rows(name) for name in model.state_names]))
    assert len(found[0][0]) == 6
    assert all(state == found[0] for state in found)


def test_it_learns(harness: Any) -> None:
    """Trained on 20,000 records with the defaults it finds the weights that made the labels."""
    model = harness("LogisticRegression", {"features": ["x", "y"], "label": "n"}, key="g")
    last = model.epoch(rows_of(20_000, 8))[-1]
    assert [last[name] for name in ("bias", "x", "y")] == pytest.approx([1, 2, -3], abs=0.35)
    assert last["loss"] < 0.45  # of coin tosses it is 0.69
    assert last["records"] == 20_000


def test_every_partition_has_a_model_of_its_own(harness: Any) -> None:
    model = harness("LogisticRegression", {**WITH, "every": 3}, key="g", partitions=2)
    rows = rows_of(60, 5)
    rows["g"] = [f"g{i}" for i in range(60)]
    found = model.epoch(rows)
    assert {row["partition"] for row in found} == {0, 1}
    assert {row["records"] for row in found} == set(range(3, 3 * len(found), 3)) & {
        row["records"] for row in found
    }


def test_booleans_are_labels_and_others_are_refused(harness: Any) -> None:
    with_ = {**WITH, "models": 1, "every": 1}
    one = {"g": ["a"], "x": [1.0], "y": [0.0]}
    found = harness("LogisticRegression", with_, key="g").epoch({**one, "n": [True]})
    assert found[0]["bias"] == pytest.approx(0.05 * 0.5)
    for bad in (2, None, 0.5):
        with pytest.raises(BadInputError, match=r"column 'n' is .* in row 0, expected 0 or 1"):
            harness("LogisticRegression", with_, key="g").epoch({**one, "n": [bad]})
    with pytest.raises(BadInputError, match="column 'x' is nan in row 0"):
        harness("LogisticRegression", with_, key="g").epoch({**one, "x": [math.nan], "n": [1]})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"features": None}, "with.features is None, expected the name of a column, or a list"),
        ({"label": "x"}, "expected a column that is no feature"),
        ({"features": ["loss"]}, "two columns would be called 'loss'"),
        ({"rate": -1}, "with.rate is -1, expected a number above 0"),
        ({"models": 21}, "with.models is 21, expected a whole number from 1 to 20"),
        ({"every": 0}, "with.every is 0"),
    ],
)
def test_parameters(harness: Any, change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        harness("LogisticRegression", {**WITH, **change}, key="g")
    assert text in str(caught.value)
