"""The two assignments of rows to clusters: by responsibilities under the mixture, or to the nearest plane.

`assign` returns weights (m, k) and values (m,) of rows. `precursor` is the assignment whose clusters are one more
start.

Tipping & Bishop, Neural Computation 11 (1999) 443 (mixture); Kambhatla & Leen, Neural Computation 9 (1997) 1493:
vector quantization with the reconstruction distance (hard).
"""

from __future__ import annotations

import math
from typing import Any

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.cluster import GaussianCluster
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend.elementwise import exp
from gpukpca.backend.namespace import arange, cast, namespace_of


class HardAssignment:
    """Every row belongs to the cluster with the nearest plane."""

    precursor = None
    # The field of a result with the history of the values, and their sign there.
    history: tuple[str, float] = ("errors", -1.0)

    def assign(self, clusters: list[GaussianCluster], rows: Array, missing: int = 0) -> tuple[Array, Array]:
        """Return 1 for the nearest plane, else 0, and minus the squared distances from it."""
        xp = namespace_of(rows)
        distances = xp.stack([cluster.split(rows)[1] for cluster in clusters], axis=1)
        return one_hot(xp.argmin(distances, axis=1), len(clusters), rows), -xp.min(distances, axis=1)

    def unit_of_gain(self, points: ScaledRows) -> float:
        """Return the total variance."""
        return points.frame.variance * points.true_width

    def log_likelihood(self, points: ScaledRows, clusters: list[GaussianCluster], value: float) -> float:
        """Return the classification log-likelihood Σ log(weight N(x)), each row under its own cluster."""
        xp = namespace_of(points.like)

        def part(rows: Array, start: int) -> float:
            members, _ = self.assign(clusters, rows)
            joint = joint_log_densities(clusters, rows, points.missing)
            return float(xp.sum(points.times(xp.where(members > 0.5, joint, xp.zeros_like(joint)), start)))

        return sum(points.map_panels(part))

    def in_data_units(self, values: Any, factor: float, d: int) -> Any:
        """Return squared distances in the units of the data."""
        return values / factor / factor


class SoftAssignment:
    """Every row belongs to every cluster by its responsibility."""

    # Responsibilities move slowly between clusters that overlap at first, as long clusters side by side do. The nearest
    # planes do not.
    precursor: HardAssignment = HardAssignment()
    history: tuple[str, float] = ("log_likelihoods", 1.0)

    def assign(self, clusters: list[GaussianCluster], rows: Array, missing: int = 0) -> tuple[Array, Array]:
        """Return responsibilities and the log-densities of rows: the E step, in log space."""
        xp = namespace_of(rows)
        joint = joint_log_densities(clusters, rows, missing)
        largest = xp.max(joint, axis=1)
        weights = exp(joint - largest[:, None])
        totals = xp.sum(weights, axis=1)
        return weights / totals[:, None], largest + xp.log(totals)

    def unit_of_gain(self, points: ScaledRows) -> float:
        """Return 1: log-likelihoods have no unit."""
        return 1.0

    def log_likelihood(self, points: ScaledRows, clusters: list[GaussianCluster], value: float) -> float:
        """Return the sum of the values."""
        return points.count * value

    def in_data_units(self, values: Any, factor: float, d: int) -> Any:
        """Return log-densities in the units of the data."""
        return values + d * math.log(factor)


Assignment = SoftAssignment | HardAssignment
ASSIGNMENTS: dict[str, Assignment] = {"mixture": SoftAssignment(), "hard": HardAssignment()}


def joint_log_densities(clusters: list[GaussianCluster], rows: Array, missing: int) -> Array:
    """Return log(weight N(x)) by row and cluster, shape (m, k)."""
    return namespace_of(rows).stack([cluster.joint_log_density(rows, missing) for cluster in clusters], axis=1)


def one_hot(labels: Array, k: int, like: Array) -> Array:
    """Return 1 in the column of the label, else 0: shape (m, k), dtype of `like`."""
    return cast(labels[:, None] == arange(k, labels, labels.dtype)[None, :], like.dtype)
