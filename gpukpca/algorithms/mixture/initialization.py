"""Starts of clusters: k-means++ and some rounds of Lloyd's algorithm; random numbers are drawn on the host."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.assignment import one_hot
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend.namespace import namespace_of, to_host
from gpukpca.backend.random import weighted_draws
from gpukpca.data.statistics import row_square_sums

# After these the planes take over.
LLOYD_ROUNDS = 10


def start_labels(points: ScaledRows, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return a cluster for every row, shape (n,), on the host: 0 … at most k - 1, none of them empty."""
    labels = _lloyd(points, points.take(kmeans_plusplus(points, k, rng)))
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def kmeans_plusplus(points: ScaledRows, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return up to k rows far from each other; fewer where there are not k different ones.

    Each is drawn with probability proportional to the squared distance from those before, the best of 2 + ⌊log k⌋
    draws: Arthur & Vassilvitskii, Proc. SODA (2007) 1027, with the greedy choice of their section 7. The draws are
    those of repeated rows.
    """
    often: Any = np.ones(points.shape[0]) if points.often is None else points.often

    def distances_from(row: int) -> np.ndarray:
        center = points.take([row])  # differences are exactly 0 for its copies
        return to_host(points.concatenate(lambda rows: row_square_sums(rows - center))).astype(np.float64)

    chosen = [int(np.searchsorted(np.cumsum(often), rng.integers(int(points.count)), side="right"))]
    nearest = distances_from(chosen[0])
    while len(chosen) < k and np.max(nearest) > 0.0:
        drawn = weighted_draws(rng, often * nearest, 2 + int(math.log(k)))
        shorter = [np.minimum(nearest, distances_from(int(row))) for row in drawn]
        best = int(np.argmin([float(np.sum(often * distances)) for distances in shorter]))
        chosen.append(int(drawn[best]))
        nearest = shorter[best]
    return np.asarray(chosen)


def _lloyd(points: ScaledRows, centers: Array) -> np.ndarray:
    """Return labels of the rows after some rounds of assignment and means; a center that loses all its rows stays."""
    xp, labels = namespace_of(centers), np.zeros(0)
    for _ in range(LLOYD_ROUNDS):
        parts = points.map_panels(partial(_nearest, points, centers))
        before, labels = labels, np.concatenate([to_host(part[0]) for part in parts])
        if np.array_equal(before, labels):
            break
        counts = sum((part[1] for part in parts[1:]), start=parts[0][1])
        sums = sum((part[2] for part in parts[1:]), start=parts[0][2])
        filled = counts > 0
        means = sums / xp.where(filled, counts, xp.ones_like(counts))[:, None]
        centers = xp.where(filled[:, None], means, centers)
    return labels


def _nearest(points: ScaledRows, centers: Array, rows: Array, start: int) -> tuple[Array, Array, Array]:
    """Return the nearest center of every row, and by center the number and the sum of its rows."""
    xp = namespace_of(rows)
    # ‖x - c‖² less ‖x‖², which is the same for all centers.
    distances = row_square_sums(centers)[None, :] - 2.0 * (rows @ centers.T)
    labels = xp.argmin(distances, axis=1)
    members = points.times(one_hot(labels, int(centers.shape[0]), rows), start)
    return labels, xp.sum(members, axis=0), members.T @ rows
