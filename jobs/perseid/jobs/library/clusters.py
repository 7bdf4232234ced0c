"""k-means: Lloyd's algorithm from k-means++ seeds (Arthur and Vassilvitskii 2007). Pure.

Sums are taken in the order of the points (`bincount`, `cumsum`). No matrix product is used: its
rounding depends on the processor, and a replay on another host must find the same centroids.
"""

from __future__ import annotations

from random import Random

import numpy as np

from perseid.state.primitives.undo import Slots, Values

CHUNK = 2**16  # points whose distances to all centroids are in memory at a time


def k_means(points: Values, k: int, rounds_max: int, chance: Random) -> tuple[Values, Slots]:
    """Centroids and the number of points of each, the largest first.

    `points` is of shape (dimensions, n), n >= 1, centroids (dimensions, found). Fewer than `k` are
    found where there are fewer different points, or where a centroid loses all of its points.
    """
    centroids = seeds(points, k, chance)
    labels = nearest(points, centroids)
    for _ in range(rounds_max):
        centroids = means(points, labels, centroids)
        before, labels = labels, nearest(points, centroids)
        if np.array_equal(before, labels):
            break
    sizes = np.bincount(labels, minlength=centroids.shape[1])
    order = np.lexsort((*centroids[::-1], -sizes))
    order = order[sizes[order] > 0]
    return centroids[:, order], sizes[order]


def seeds(points: Values, k: int, chance: Random) -> Values:
    """Points, each drawn with the square of its distance to the previous ones as weight."""
    chosen = [int(chance.random() * points.shape[1])]
    apart = squares(points, points[:, chosen])[:, 0]
    while len(chosen) < k:
        running = np.cumsum(apart)
        if running[-1] == 0:
            break  # every point is a seed
        drawn = int(np.searchsorted(running, chance.random() * running[-1], side="right"))
        chosen.append(min(drawn, int(np.flatnonzero(apart)[-1])))  # rounding may exceed the end
        apart = np.minimum(apart, squares(points, points[:, chosen[-1:]])[:, 0])
    return points[:, chosen]


def nearest(points: Values, centroids: Values) -> Slots:
    """The centroid that each point is closest to, the first one of equals."""
    parts = [
        squares(points[:, at : at + CHUNK], centroids).argmin(axis=1)
        for at in range(0, points.shape[1], CHUNK)
    ]
    return np.concatenate(parts)


def squares(points: Values, centroids: Values) -> Values:
    """Squared distances, shape (n, centroids)."""
    found = np.zeros((points.shape[1], centroids.shape[1]))
    for values, middle in zip(points, centroids, strict=True):
        found += np.square(values[:, None] - middle)
    return found


def means(points: Values, labels: Slots, centroids: Values) -> Values:
    """The mean of each label's points; a label without points keeps its centroid."""
    sizes = np.bincount(labels, minlength=centroids.shape[1])
    sums = np.stack([np.bincount(labels, values, len(sizes)) for values in points])
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), centroids)
