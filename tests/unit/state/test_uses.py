"""What operators of the library do, in the few lines that it should take, against plain Python."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from perseid.state import Matrix, Pool, Set, Table, Vector
from perseid.state.primitives.index import hash_numbers

EPOCHS = 6


def commit(*state: Table | Set | Pool | Vector | Matrix) -> None:
    for primitive in state:
        primitive.commit()


def test_the_top_three_of_growing_counts() -> None:
    chance, counts, top, seen = np.random.default_rng(1), table_of_counts(), table_of_counts(), []
    for _ in range(EPOCHS):
        words = [f"w{n}" for n in chance.zipf(1.5, 200) % 40]
        seen += words
        top.upsert((changed := counts.add(words, n=1))["key"], n=changed["n"])
        order = [("n", "descending"), ("key", "ascending")]
        top.delete(top.scan().sort_by(order)["key"][3:])
        commit(counts, top)
        best = sorted(Counter(seen).items(), key=lambda item: (-item[1], item[0]))[:3]
        assert sorted(top.scan().to_pylist(), key=lambda r: (-r["n"], r["key"])) == [
            {"key": word, "n": n} for word, n in best
        ]


def table_of_counts() -> Table:
    return Table(key=pa.string(), n=pa.int64())


def test_a_distinct_count_exactly_and_about() -> None:
    chance, exact, registers = np.random.default_rng(2), Set(pa.int64()), Vector(pa.int8(), 256)
    seen: set[int] = set()
    for _ in range(EPOCHS):
        items = chance.integers(0, 5000, 2000)
        seen |= set(items.tolist())
        exact.add(pa.array(items))
        # HyperLogLog: the longest run of zeros of a hash by register (Flajolet et al., 2007)
        hashes = hash_numbers(items) & (1 << 56) - 1
        registers.max_at(hashes & 255, 49 - np.frexp((hashes >> 8).astype(float))[1])
        commit(exact, registers)
    assert len(exact) == len(seen)
    estimate = 0.7182725932 * 256**2 / np.sum(0.5 ** registers.values.astype(float))
    assert abs(estimate - len(seen)) < 6 * 1.04 / 16 * len(seen)  # six standard errors


def test_an_interval_join() -> None:
    chance = np.random.default_rng(3)
    types = {"at": pa.int64(), "user": pa.int64()}
    clicks, found = Pool(types, time="at", key=["user"]), []
    views_seen: list[tuple[int, int]] = []
    clicks_seen: list[tuple[int, int]] = []
    for epoch in range(EPOCHS):
        came = {"at": chance.integers(0, 50, 30) + epoch * 50, "user": chance.integers(0, 9, 30)}
        views = pa.table({"at": np.arange(20) * 2 + epoch * 50, "user": np.arange(20) % 9})
        clicks.append(came)
        places, rows = clicks.match(views["user"])
        left = views.take(places)
        near = pc.less_equal(pc.abs(pc.subtract(left["at"], rows["at"])), 40)
        found += [*zip(*(t.filter(near)["at"].to_pylist() for t in (left, rows)), strict=True)]
        clicks.expire((epoch + 1) * 50 - 40)
        clicks.commit()
        views_seen += zip(views["at"].to_pylist(), views["user"].to_pylist(), strict=True)
        clicks_seen += zip(came["at"].tolist(), came["user"].tolist(), strict=True)
    expected = [
        (v, c) for v, user in views_seen for c, other in clicks_seen
        if user == other and abs(v - c) <= 40 and c < (v // 50 + 1) * 50
    ]  # fmt: skip
    assert sorted(found) == sorted(expected)


def test_k_means_over_a_window() -> None:
    chance = np.random.default_rng(4)
    points = Pool({"at": pa.int64(), "x": pa.float64(), "y": pa.float64()}, time="at")
    centroids = Matrix(pa.float64(), rows=2, columns=2)
    centroids.set([[0, 0], [10, 10]])
    for epoch in range(EPOCHS):
        x = chance.normal(0, 1, 200) + np.repeat([2 * epoch, 20 + 2 * epoch], 100)
        points.append({"at": [epoch] * 200, "x": x, "y": x + chance.normal(0, 1, 200)})
        points.expire(epoch - 1)
        window = np.stack([points.scan()[name].to_numpy() for name in "xy"], axis=1)
        for _ in range(5):
            near = ((window[:, None] - centroids.values) ** 2).sum(axis=2).argmin(axis=1)
            centroids.set([window[near == k].mean(axis=0) for k in (0, 1)])
        commit(points, centroids)
    # the window holds the last two epochs, whose clusters lie about 2 * 4.5 and 20 + 2 * 4.5
    assert np.abs(centroids.values - [[9, 9], [29, 29]]).max() < 1


def test_online_logistic_regression() -> None:
    chance, weights = np.random.default_rng(5), Vector(pa.float64(), 3)
    weights.mark_backup()
    for _ in range(200):
        x = chance.normal(0, 1, (50, 3))
        label = (x @ [2.0, -1.0, 0.0] > 0).astype(float)
        guess = 1 / (1 + np.exp(-(x @ weights.values)))
        weights.add(0.5 * (label - guess) @ x / len(x))
        weights.commit()
    learned = weights.values / np.abs(weights.values).max()
    assert np.abs(learned - [1, -0.5, 0]).max() < 0.1
    assert weights.divergence("euclidean") == pytest.approx(math.dist(weights.values, [0, 0, 0]))


def test_a_session_monitor() -> None:
    sessions = Table(
        key=pa.string(), ttl=timedelta(seconds=30),
        clicks=pa.int64(), first=pa.timestamp("ms"), last=pa.timestamp("ms"),
    )  # fmt: skip
    ended = []
    for now in range(0, 100_000, 10_000):
        ended += sessions.advance(now).to_pylist()
        users = ["a"] if now < 30_000 else ["b"] if now < 60_000 else []
        at = pa.array([now] * len(users), pa.timestamp("ms"))
        sessions.fold(users, add={"clicks": 1}, min={"first": at}, max={"last": at})
        sessions.commit()
    lengths = [(s["key"], s["clicks"], (s["last"] - s["first"]).seconds) for s in ended]
    assert lengths == [("a", 3, 20), ("b", 3, 20)]
