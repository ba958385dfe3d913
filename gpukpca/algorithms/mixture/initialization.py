"""Starts of clusters: k-means++ and some rounds of Lloyd's algorithm; random numbers are drawn on the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.assignment import one_hot
from gpukpca.algorithms.mixture.iteration import Responsibilities, without_gaps
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend.namespace import concat, from_host, namespace_of
from gpukpca.backend.random import weighted_draws
from gpukpca.data.statistics import row_square_sums

# After these the planes take over.
LLOYD_ROUNDS = 10


def start_labels(points: ScaledRows, k: int, rng: np.random.Generator) -> Array:
    """Return a cluster for every row, shape (n,): 0 … at most k - 1, none of them empty."""
    centers = points.take(kmeans_plusplus(points, k, rng))
    return without_gaps(_lloyd(points, centers), int(centers.shape[0]))


def kmeans_plusplus(points: ScaledRows, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return up to k rows far from each other; fewer where there are not k different ones.

    Each is drawn with probability proportional to the squared distance from those before, the best of 2 + ⌊log k⌋
    draws: Arthur & Vassilvitskii, Proc. SODA (2007) 1027, with the greedy choice of their section 7. The draws are
    those of repeated rows.
    """
    xp = namespace_of(points.like)

    def distances_from(chosen: Any) -> list[Array]:
        centers = points.take(chosen)  # differences are exactly 0 for its copies
        few = [centers[row : row + 1, :] for row in range(len(chosen))]
        parts = points.map_panels(lambda rows, _: [row_square_sums(rows - center) for center in few])
        return [concat(of_center) for of_center in zip(*parts, strict=True)]

    first = int(rng.integers(int(points.count)))
    chosen = [first if points.often is None else int(np.searchsorted(np.cumsum(points.often), first, side="right"))]
    nearest = distances_from(chosen)[0]
    while len(chosen) < k and float(xp.max(nearest)) > 0.0:
        drawn = weighted_draws(rng, points.times(nearest), 2 + int(math.log(k)))
        shorter = [xp.minimum(nearest, distances) for distances in distances_from(drawn)]
        best = int(xp.argmin(xp.stack([xp.sum(points.times(distances)) for distances in shorter])))
        chosen.append(int(drawn[best]))
        nearest = shorter[best]
    return np.asarray(chosen)


def _lloyd(points: ScaledRows, centers: Array) -> Array:
    """Return labels of the rows after some rounds of assignment and means; a center that loses all its rows stays."""
    xp, labels = namespace_of(centers), None

    def nearest(rows: Array, start: int) -> tuple[Array, Array]:
        # ‖x - c‖² less ‖x‖², which is the same for all centers.
        own = xp.argmin(row_square_sums(centers)[None, :] - 2.0 * (rows @ centers.T), axis=1)
        return one_hot(own, int(centers.shape[0]), rows), own

    for _ in range(LLOYD_ROUNDS):
        to = Responsibilities.of(points, nearest)
        before, labels = labels, to.values
        if before is not None and bool(xp.all(before == labels)):
            break
        centers = xp.where(from_host(to.counts, centers)[:, None] > 0, to.means, centers)
    return labels
