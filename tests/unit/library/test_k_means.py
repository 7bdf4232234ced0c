"""Windows of points against blobs whose means are known, and against plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from perseid.errors import BadInputError
from perseid.jobs.library import clusters
from perseid.jobs.library.clusters import k_means, seeds
from perseid.jobs.model.problems import JobFileErrors
from perseid.jobs.operations.classes import load_checked
from perseid.jobs.validation import parse

MINUTE = 60_000
WITH = {"columns": ["x", "y"], "k": 3, "window": "1m", "time": "at"}
EVENT_TIME = {"column": "at", "watermark": "5s"}
MIDDLES = [(0.0, 0.0), (100.0, 0.0), (0.0, -100.0)]

Rows = dict[str, list[Any]]


def blobs(size: int, seed: int, start: int = 0) -> Rows:
    """Points close to three middles, in the minute from `start`."""
    chance = random.Random(seed)
    rows: Rows = defaultdict(list)
    for _ in range(size):
        x, y = chance.choice(MIDDLES)
        rows["g"].append(chance.choice("ab"))
        rows["x"].append(x + chance.uniform(-5, 5))
        rows["y"].append(y + chance.uniform(-5, 5))
        rows["at"].append(start + chance.randrange(MINUTE))
    return dict(rows)


def plain(rows: Rows) -> set[tuple[Any, ...]]:
    """Key, window and size of each blob, and its mean to nine digits."""
    members: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for g, x, y, at in zip(rows["g"], rows["x"], rows["y"], rows["at"], strict=True):
        blob = min(MIDDLES, key=lambda m: (m[0] - x) ** 2 + (m[1] - y) ** 2)
        members[g, at // MINUTE * MINUTE, blob].append((x, y))
    return {
        (g, start, len(p), round(fmean(x for x, _ in p), 9), round(fmean(y for _, y in p), 9))
        for (g, start, _), p in members.items()
    }


def as_set(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    assert all(row["end"] == row["start"] + MINUTE for row in rows)
    return {(r["g"], r["start"], r["points"], round(r["x"], 9), round(r["y"], 9)) for r in rows}


@pytest.mark.parametrize(("partitions", "cut"), [(1, 400), (1, 27), (2, 60)])
def test_centroids_of_blobs_are_their_means(harness: Any, partitions: int, cut: int) -> None:
    modes = harness("KMeans", WITH, key="g", eventTime=EVENT_TIME, partitions=partitions)
    first, second = blobs(200, 1), blobs(200, 2, MINUTE)
    both = {name: first[name] + second[name] for name in first}
    modes.watermark = 0
    for at in range(0, 400, cut):
        assert modes.epoch({name: values[at : at + cut] for name, values in both.items()}) == []
        modes.crash()
    modes.watermark = 2 * MINUTE - 1
    found = modes.epoch()
    assert as_set(found) == plain(first)
    assert [row["cluster"] for row in found] == [0, 1, 2] * 2
    assert [row["points"] for row in found[:3]] == sorted(
        (row["points"] for row in found[:3]), reverse=True
    )
    assert len(modes.rows("points")) == 200  # the second minute's
    modes.crash()
    modes.watermark = 2 * MINUTE
    assert as_set(modes.epoch()) == plain(second)
    assert modes.rows("points") == [] == modes.epoch()


def test_windows_of_token_time_end_with_the_clock(harness: Any) -> None:
    with_ = {"columns": "x", "k": 2, "window": "1m"}
    modes = harness("KMeans", with_, key="g")
    assert modes.epoch({"g": ["a"] * 3, "x": [1.0, 3.0, 9.0]}) == []
    assert modes.epoch({"g": ["b"], "x": [5.0]}) == []
    modes.advance("1m")
    assert modes.epoch({"g": ["a"], "x": [7.0]}) == [
        {"g": "a", "start": 0, "end": MINUTE, "cluster": 0, "x": 2.0, "points": 2},
        {"g": "a", "start": 0, "end": MINUTE, "cluster": 1, "x": 9.0, "points": 1},
        {"g": "b", "start": 0, "end": MINUTE, "cluster": 0, "x": 5.0, "points": 1},
    ]
    modes.advance("5m")
    assert [row["x"] for row in modes.epoch()] == [7.0]


def test_a_row_of_a_window_that_was_reported_is_left_out_and_logged(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    modes = harness("KMeans", WITH, key="g", eventTime=EVENT_TIME)
    modes.watermark = MINUTE
    rows = {"g": ["a", "a"], "x": [1.0, 2.0], "y": [1.0, 2.0], "at": [MINUTE - 1, MINUTE]}
    modes.epoch(rows)  # its watermark counts when the epoch is over: here nothing was sent
    assert len(modes.rows("points")) == 1
    modes.epoch(rows)
    assert "1 rows came too late" in caplog.text
    assert [row["at"] for row in modes.rows("points")] == [MINUTE, MINUTE]


def test_lloyds_rounds_end_where_every_centroid_is_the_mean_of_its_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clusters, "CHUNK", 1000)
    chance = random.Random(3)
    points = np.array([[chance.gauss(0, 1) for _ in range(2500)] for _ in range(2)])
    centroids, sizes = k_means(points, 5, 1000, chance)
    nearest: dict[int, list[tuple[float, float]]] = defaultdict(list)
    middles = centroids.T.tolist()
    for x, y in points.T.tolist():
        apart = [(x - a) ** 2 + (y - b) ** 2 for a, b in middles]
        nearest[apart.index(min(apart))].append((x, y))
    assert [len(nearest[i]) for i in range(5)] == sizes.tolist() == sorted(sizes, reverse=True)
    for place, members in nearest.items():
        mean = (fmean(x for x, _ in members), fmean(y for _, y in members))
        assert mean == pytest.approx(middles[place], abs=1e-9)


def test_seeds_are_drawn_by_the_squares_of_distances() -> None:
    """Of the points 0, 1 and 3 a second seed is drawn by 1:9, 1:4 and 9:4."""
    points = np.array([[0.0, 1.0, 3.0]])
    chance = random.Random(11)
    drawn = Counter(tuple(seeds(points, 2, chance)[0].tolist()) for _ in range(9000))
    for first, others in (
        (0.0, {1.0: 1, 3.0: 9}),
        (1.0, {0.0: 1, 3.0: 4}),
        (3.0, {0.0: 9, 1.0: 4}),
    ):
        for other, weight in others.items():
            wanted = 3000 * weight / sum(others.values())
            assert abs(drawn[first, other] - wanted) < 5 * wanted**0.5


def test_fewer_different_points_than_clusters() -> None:
    points = np.array([[1.0, 1.0, 2.0], [5.0, 5.0, 5.0]])
    centroids, sizes = k_means(points, 10, 20, random.Random(0))
    assert (centroids.tolist(), sizes.tolist()) == ([[1.0, 2.0], [5.0, 5.0]], [2, 1])


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -1e151])
def test_points_that_are_no_numbers_are_refused(harness: Any, bad: float | None) -> None:
    modes = harness("KMeans", {"columns": "x", "k": 2, "window": "1m"}, key="g")
    with pytest.raises(BadInputError, match=r"column 'x' is .* in row 1, expected a number from"):
        modes.epoch({"g": ["a", "a"], "x": [1.0, bad]})


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"columns": []}, "with.columns is [], expected the name of a column, or a list"),
        ({"columns": ["x", "g"]}, "two columns would be called 'g'"),
        ({"k": 0}, "with.k is 0, expected a whole number from 1 to 1000"),
        ({"window": "10"}, "with.window is '10', expected a duration"),
        ({"rounds": 0.5}, "with.rounds is 0.5"),
        ({"windows": "1m"}, "write `window`"),
        ({}, "KMeans waits for event time, and no source has one"),
    ],
)
def test_mistakes_are_found_by_validation(job: Any, change: dict[str, Any], shown: str) -> None:
    folder: Path = job("KMeans", {**WITH, **change}, key="g")
    with pytest.raises(JobFileErrors) as caught:
        load_checked(parse.load(folder), folder)
    assert shown in str(caught.value)
