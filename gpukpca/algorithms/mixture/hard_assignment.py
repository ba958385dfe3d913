"""The hard variant: every row belongs to the cluster with the nearest plane.

Kambhatla & Leen, Neural Computation 9 (1997) 1493: vector quantization with the reconstruction distance.
"""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.component import Cluster, joint_log_densities
from gpukpca.algorithms.mixture.initialization import one_hot
from gpukpca.algorithms.mixture.scaled_rows import ScaledRows
from gpukpca.backend.namespace import namespace_of


def hard_assignment(clusters: list[Cluster], rows: Array, missing: int = 0) -> tuple[Array, Array]:
    """Return 1 for the cluster with the nearest plane, else 0 (m, k), and minus its squared distance (m,)."""
    xp = namespace_of(rows)
    distances = xp.stack([cluster.split(rows)[1] for cluster in clusters], axis=1)
    return one_hot(xp.argmin(distances, axis=1), len(clusters), rows), -xp.min(distances, axis=1)


def classification_log_likelihood(points: ScaledRows, clusters: list[Cluster]) -> float:
    """Return Σ log(weight N(x)) of the rows, each under the cluster that it belongs to."""
    xp = namespace_of(points.like)

    def part(rows: Array, start: int) -> float:
        members, _ = hard_assignment(clusters, rows)
        joint = joint_log_densities(clusters, rows, points.missing)
        return float(xp.sum(xp.where(members > 0.5, joint, xp.zeros_like(joint))))

    return sum(points.over_panels(part))
