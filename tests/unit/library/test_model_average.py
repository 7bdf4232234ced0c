"""Models of several partitions averaged through a feedback edge, against plain NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from perseid.errors import BadInputError
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.repository import job_folders
from perseid.jobs.validation import parse
from perseid.testing.operator_checks import check_deterministic, check_recovery
from perseid.testing.operators import Harness

RATE, MODELS, EVERY = 0.05, 3, 20
PARTITIONS = 3
Epoch = dict[str, list[Any]]


def job(folder: Path, **changes: Any) -> Path:
    """The shipped job with smaller numbers; JSON is YAML."""
    document = {
        "name": "shared", "parallelism": PARTITIONS,
        "sources": {"rows": {"topic": "rows", "format": "json", "columns": {
            "user": "string", "x": "float64", "y": "float64", "n": "int64"}}},
        "operators": {
            "model": {
                "inputs": {"rows": "rows", "average": {
                    "from": "average.replies", "feedback": {"delay": 1}}},
                "key": "user", "use": "library:LogisticRegression",
                "with": {"features": ["x", "y"], "label": "n", "rate": RATE, "models": MODELS,
                         "every": EVERY, "predictions": True},
            },
            "average": {
                "input": "model.local", "key": "user", "parallelism": 1,
                "use": "library:ModelAverage", "with": {"features": ["x", "y"]},
            },
        },
        "sinks": {
            "models": {"input": "average", "topic": "models", "format": "json", "order": "free"},
            "predictions": {"input": "model.predictions", "topic": "predictions",
                            "format": "json", "key": "user"},
        },
    }  # fmt: skip
    for path, value in changes.items():
        operator, key = path.split("__")
        document["operators"][operator][key] = value  # type: ignore[index]
    (folder / "job.yaml").write_text(json.dumps(document))
    return folder


def rows_of(size: int, seed: int, users: int = 12) -> Epoch:
    """Labels that follow 2x - 3y + 1, mostly."""
    chance = np.random.default_rng(seed)
    x, y = chance.normal(size=(2, size))
    label = chance.random(size) < 1 / (1 + np.exp(-(2 * x - 3 * y + 1)))
    user = [f"u{i}" for i in chance.integers(0, users, size)]
    return {"user": user, "x": x.tolist(), "y": y.tolist(), "n": label.astype(int).tolist()}


class Ring:
    """Both operators, the second one's replies in the next epoch's hands of the first."""

    def __init__(self, folder: Path) -> None:
        self.model = Harness(folder, "model", parallelism=PARTITIONS)
        self.average = Harness(folder, "average")
        self.models: list[dict[str, Any]] = []
        self._heard = self._table([])

    def epoch(self, rows: Epoch | None) -> list[dict[str, Any]]:
        """The predictions of one epoch."""
        given = pa.table(rows or {})
        self.model.epoch({"rows": given, "average": self._heard})
        local = self.model.outputs["local"]
        schema = self.model.operator_class.outputs["local"]
        self.models += self.average.epoch(pa.Table.from_pylist(local, schema=schema))
        self._heard = self._table(self.average.outputs["replies"])
        return self.model.outputs["predictions"]

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        schema = self.average.operator_class.outputs["replies"]
        return pa.Table.from_pylist(rows, schema=schema)


def plain(
    epochs: list[Epoch], owner: dict[str, int]
) -> tuple[list[list[tuple[str, int, float]]], list[list[float]]]:
    """A record at a time: predictions of each epoch, and the averages of all partitions."""
    weights = np.zeros((PARTITIONS, MODELS, 3))
    common = np.zeros((PARTITIONS, 3))
    seen, emitted = [0] * PARTITIONS, [0] * PARTITIONS
    known: set[int] = set()
    reply: Any = None
    total = 0
    predicted, averages = [], []
    for rows in epochs:
        for p in known if reply is not None else ():
            weights[p] += reply - common[p]
            common[p] = reply
        newest: dict[int, Any] = {}
        found = []
        for user, x, y, label in zip(rows["user"], rows["x"], rows["y"], rows["n"], strict=True):
            p = owner[user]
            model = weights[p, seen[p] % EVERY % MODELS]
            row = np.array([1, x, y])
            chance = 1 / (1 + np.exp(-np.dot(model, row)))
            found.append((user, label, chance))
            model -= RATE * (chance - label) * row
            seen[p] += 1
            if seen[p] % EVERY == 0:
                weights[p] = newest[p] = weights[p].mean(axis=0)
        predicted.append(found)
        counts = {p: seen[p] // EVERY * EVERY - emitted[p] for p in newest}
        reply = None
        for p, model in newest.items():
            common[p] = model
            emitted[p] += counts[p]
        if newest:
            total += sum(counts.values())
            reply = sum(newest[p] * counts[p] for p in newest) / sum(counts.values())
            averages.append([len(newest), total, *reply])
        known |= set(newest)
    return predicted, averages


SIZES = (100, 7, 230, 0, 60, 1, 400, 90)


@pytest.fixture(scope="module")
def epochs() -> list[Epoch]:
    return [rows_of(size, seed) for seed, size in enumerate(SIZES)]


def run(folder: Path, epochs: list[Epoch], *, crashing: bool = False) -> Any:
    ring = Ring(folder)
    emitted = []
    for rows in epochs:
        emitted.append(ring.epoch(rows if rows["user"] else None))
        if crashing:
            ring.model.crash()
            ring.average.restore(ring.average.snapshot())
    return emitted, ring.models


def test_models_and_predictions_are_those_of_a_record_at_a_time(
    tmp_path: Path, epochs: list[Epoch]
) -> None:
    emitted, models = run(job(tmp_path), epochs)
    owner = {row["user"]: row["partition"] for rows in emitted for row in rows}
    assert set(owner.values()) == set(range(PARTITIONS))
    predicted, averages = plain(epochs, owner)
    for rows, wanted in zip(emitted, predicted, strict=True):
        by_partition = sorted(wanted, key=lambda row: owner[row[0]])  # stable: in their order
        found = [(row["user"], row["label"]) for row in rows]
        assert found == [(user, label) for user, label, _ in by_partition]
        chances = [row["probability"] for row in rows]
        assert chances == pytest.approx([chance for _, _, chance in by_partition], rel=1e-9)
    assert [list(models[0])] == [["models", "records", "bias", "x", "y"]]
    for model, expected in zip(models, averages, strict=True):
        assert list(model.values()) == pytest.approx(expected, rel=1e-9)
    assert {model["models"] for model in models} >= {PARTITIONS}


def test_crashes_change_nothing(tmp_path: Path, epochs: list[Epoch]) -> None:
    assert run(job(tmp_path), epochs) == run(tmp_path, epochs, crashing=True)
    heard = pa.table({"user": ["u1"], "bias": [0.5], "x": [1.0], "y": [-1.0]})
    alone = [{"rows": rows_of(30, 1), "average": heard.slice(0, n)} for n in (0, 1, 0)]
    check_recovery(tmp_path, "model", alone)
    check_deterministic(tmp_path, "model", alone)
    local = pa.table({
        "user": ["u1", "u2"], "partition": [1, 0], "records": [20, 40],
        "bias": [0.1, 0.7], "x": [0.3, 1.9], "y": [2.0, -2.0],
    })  # fmt: skip
    check_recovery(tmp_path, "average", [local, None, local.slice(1)])


def test_a_partition_learns_from_what_others_have_seen(tmp_path: Path) -> None:
    """One has 20 records an epoch, the other 2,000: with the average the first knows as much."""
    small, large = rows_of(20 * 12, 7), rows_of(2000 * 12, 8)

    def loss(changes: dict[str, Any]) -> float:
        ring = Ring(job(tmp_path, **changes))
        owner = {r["user"]: r["partition"] for r in ring.epoch(rows_of(200, 1))}
        first = next(user for user, p in owner.items() if p == 0)
        second = next(user for user, p in owner.items() if p == 1)
        ring = Ring(tmp_path)
        found: list[float] = []
        for epoch in range(12):
            part = {n: v[20 * epoch : 20 * epoch + 20] for n, v in small.items()}
            rest = {n: v[2000 * epoch : 2000 * epoch + 2000] for n, v in large.items()}
            rows = {n: part[n] + rest[n] for n in part}
            rows["user"] = [first] * 20 + [second] * 2000
            for row in ring.epoch(rows):
                if row["partition"] == 0:
                    found.append(row["probability"] if row["label"] else 1 - row["probability"])
        return float(-np.mean(np.log(found[100:])))

    shared = loss({})
    alone = loss({"average__with": {"features": ["x", "y"]}, "model__with": {
        "features": ["x", "y"], "label": "n", "rate": RATE, "models": 1, "every": 10**9,
        "predictions": True,
    }})  # fmt: skip
    assert shared < 0.8 * alone


def test_the_shipped_job_averages_its_partitions() -> None:
    folder = job_folders.example("clicks")
    model = Harness(folder, "model", parallelism=4)
    average = Harness(folder, "average")
    rows = rows_of(20_000, 3, users=400)
    columns = {"user": rows["user"], "age": rows["x"], "price": rows["y"], "clicked": rows["n"]}
    heard = average.operator_class.outputs["replies"].empty_table()
    model.epoch({"rows": columns, "average": heard})
    local = model.outputs["local"]
    schema = model.operator_class.outputs["local"]
    (found,) = average.epoch(pa.Table.from_pylist(local, schema=schema))
    assert found["models"] == len(average.outputs["replies"]) == 4
    assert found["records"] == sum(row["records"] for row in local) > 16_000
    direction = [found[name] / found["bias"] for name in ("age", "price")]
    assert direction == pytest.approx([2, -3], rel=0.2)
    assert len(model.outputs["predictions"]) == 20_000
    reply = {row["user"]: row for row in average.outputs["replies"]}
    assert {row["user"] for row in local} == set(reply)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"average__parallelism": 2}, "parallelism 2, but only one partition can know the models"),
        ({"average__with": {"features": ["x", "bias"]}}, "two columns would be called 'bias'"),
        ({"average__with": {"features": []}}, "with.features is [], expected the name of a column"),
        ({"model__inputs": {"a": "rows", "average": {
            "from": "average.replies", "feedback": {"delay": 1}}}},
         "its inputs are called a, average; write `inputs: {rows: NAME, average: {from: average."),
        ({"model__inputs": {"rows": "rows", "average": "rows"}}, "inputs are called average, rows"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    folder = job(tmp_path, **changes)
    with pytest.raises(BadInputError) as caught:
        load_checked(parse.load(folder), folder)
    assert text in str(caught.value)
