"""Online learning on a whole cluster: models of partitions averaged by feedback, a worker killed.

Predictions and models are judged by a record-at-a-time computation in plain NumPy, which takes from
the sinks' headers only which records made up an epoch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition

from perseid.testing.running import RunningCluster
from perseid.testing.verify.read import partitions

JOB = """\
name: learning
parallelism: 3
sources:
  rows: {topic: learning-in, format: json,
         columns: {user: string, x: float64, y: float64, n: int64}}
operators:
  model:
    inputs: {rows: rows, average: {from: average.replies, feedback: {delay: 1}}}
    key: user
    use: "library:LogisticRegression"
    with: {features: [x, y], label: n, rate: 0.05, models: 3, every: 20, predictions: true}
  average: {input: model.local, key: user, parallelism: 1, use: "library:ModelAverage",
            with: {features: [x, y]}}
sinks:
  models: {input: average, topic: learning-models, format: json, order: free, headers: true}
  predictions: {input: model.predictions, topic: learning-predictions, format: json, key: user,
                headers: true}
faultTolerance: {checkpoint: {period: "3s"}}
"""
ROWS, BATCHES = 400, 6
Row = dict[str, Any]


def committed(running: RunningCluster, topic: str) -> list[Row]:
    """All records with their epoch and place in it."""
    found = []
    settings = {"bootstrap.servers": running.kafka, "group.id": "test", "enable.auto.commit": False,
                "isolation.level": "read_committed"}  # fmt: skip
    consumer = Consumer(settings)
    for partition in partitions(running.kafka, topic):
        place = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=10)
        place.offset = low
        consumer.assign([place])
        while place.offset < high:
            for message in consumer.consume(1000, 0.5):
                headers: dict[str, Any] = dict(message.headers() or [])
                at = {name: int(headers[f"perseid.{name}"]) for name in ("epoch", "seq")}
                found.append({**json.loads(message.value() or b""), **at})
            place.offset = consumer.position([place])[0].offset
    consumer.close()
    return sorted(found, key=lambda row: (row["epoch"], row.get("partition", 0), row["seq"]))


def learnt(rows: list[Row]) -> tuple[list[float], list[tuple[int, list[float]]]]:
    """Probabilities of `rows`, which have features, label, epoch and partition; the averages."""
    weights, common = np.zeros((3, 3, 3)), np.zeros((3, 3))
    seen, sent = [0] * 3, [0] * 3
    known: set[int] = set()
    chances: list[float] = []
    averages: list[tuple[int, list[float]]] = []
    newest: dict[int, Any] = {}
    for i, row in enumerate(rows):
        if i and row["epoch"] != rows[i - 1]["epoch"]:
            reply, newest = _send(newest, seen, sent, common, averages, rows[i - 1]["epoch"]), {}
            known |= {p for p in range(3) if sent[p]}
            for p in known if reply is not None else ():
                weights[p] += reply - common[p]
                common[p] = reply
        p = row["partition"]
        model = weights[p, seen[p] % 20 % 3]
        features = np.array([1, row["x"], row["y"]])
        chance = 1 / (1 + np.exp(-np.dot(model, features)))
        chances.append(chance)
        model -= 0.05 * (chance - row["n"]) * features
        seen[p] += 1
        if seen[p] % 20 == 0:
            weights[p] = newest[p] = weights[p].mean(axis=0)
    _send(newest, seen, sent, common, averages, rows[-1]["epoch"])
    return chances, averages


def _send(
    newest: dict[int, Any], seen: list[int], sent: list[int], common: Any, averages: list[Any],
    epoch: int,
) -> Any:  # fmt: skip
    if not newest:
        return None
    counts = {p: seen[p] // 20 * 20 - sent[p] for p in newest}
    for p, model in newest.items():
        common[p] = model
        sent[p] += counts[p]
    average = sum(newest[p] * counts[p] for p in newest) / sum(counts.values())
    averages.append((epoch, average.tolist()))
    return average


@pytest.mark.drawn(group="feedback edges")
def test_predictions_and_models_are_those_of_plain_numpy(
    running: RunningCluster, tmp_path: Path
) -> None:
    running.topic("learning-in", 1)  # in one order, so that the records of an epoch are known
    (tmp_path / "job.yaml").write_text(JOB)
    running.do("jobs", "apply", str(tmp_path))
    chance = np.random.default_rng(5)
    given: list[Row] = []
    for number in range(BATCHES):
        for _ in range(ROWS):
            x, y = chance.normal(size=2).tolist()
            label = int(chance.random() < 1 / (1 + np.exp(-(2 * x - 3 * y + 1))))
            given.append({"user": f"u{chance.integers(30)}", "x": x, "y": y, "n": label})
        batch = given[-ROWS:]
        running.produce("learning-in", [json.dumps(row).encode() for row in batch])
        if number == 2:  # at once: models are on their way round
            running.kill_owner("learning")
        running.wait_caught_up("learning")

    predictions = committed(running, "learning-predictions")
    assert len(predictions) == len(given)
    owners = {row["user"]: row["partition"] for row in predictions}
    assert set(owners.values()) == {0, 1, 2}
    epochs: dict[str, list[Row]] = {user: [] for user in owners}
    for row in predictions:
        epochs[row["user"]].append(row)
    for row in given:  # of a user the n-th prediction is of the n-th record
        sent = epochs[row["user"]].pop(0)
        assert sent["label"] == row["n"]
        row.update(epoch=sent["epoch"], partition=sent["partition"], seq=sent["seq"])
    in_order = sorted(given, key=lambda row: (row["epoch"], row["partition"], row["seq"]))
    chances, averages = learnt(in_order)
    assert [row["probability"] for row in predictions] == pytest.approx(chances, rel=1e-9)
    models = committed(running, "learning-models")
    assert [row["epoch"] for row in models] == [epoch for epoch, _ in averages]
    for row, (_, average) in zip(models, averages, strict=True):
        assert [row[n] for n in ("bias", "x", "y")] == pytest.approx(average, rel=1e-9)
    assert any(row["models"] == 3 for row in models)
    running.do("jobs", "remove", "learning", "--purge")
