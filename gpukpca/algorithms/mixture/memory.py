"""The bytes of a fit of local PCA from shapes alone: panels of rows, weights, covariances, and rows in their span."""

from __future__ import annotations

from dataclasses import replace

from gpukpca._typing import Array
from gpukpca.algorithms.bill import Bill, fewer
from gpukpca.algorithms.mixture.scaled_rows import mixture_panel_rows, workers_for
from gpukpca.algorithms.mixture.settings import MixtureSettings
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, item_size
from gpukpca.eigen import Dense

# Arrays of the size of a panel, and of its distances to the clusters and weights: as it is scaled, and split into a
# plane and the rest, or as its moments are formed.
IN_PANEL = 6
# Vectors (n,): of labels without a gap, and of the rows of a cluster with their weights.
IN_LABELS, IN_CLUSTER = 3, 3
# Bytes of the objects of a fit that are no arrays of the data.
OBJECT_BYTES = 2**17


def mixture_bill(X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources) -> Bill:
    """Return the bytes that a fit of rows X holds in addition to them."""
    (n, d), work = (int(X.shape[0]), int(X.shape[1])), resources.place.work
    k, p = max(k for k, _ in pairs), max(p for _, p in pairs)
    workers, on_gpu, item = workers_for((n, d), work, resources.n_jobs), is_on_gpu(work), item_size(X.dtype)
    wide = item_size(accumulation_dtype(work))
    r, rows = min(n, d), min(n, mixture_panel_rows(d, 1, on_gpu))  # columns of the span of the rows
    weights, square = wide * n * (k + 1), wide * r * r
    panel = min(n, mixture_panel_rows(r, 3 * r, on_gpu)) * r
    return Bill(
        {
            "": {
                "data copy": n * d * item * resources.place.moved,
                "span of the rows": 2 * wide * n * d * (d > n),  # coordinates and a basis
                "labels": wide * n * (settings.n_init + 2 + IN_LABELS),  # of all starts, how often each row is there
                "weights": weights * (2 + (len(pairs) > 1)),
                "objects": OBJECT_BYTES,
            },
            "span": {"QR": wide * n * d * (d > n)},
            "assign": {
                "sums of clusters": wide * -(-n // mixture_panel_rows(r, 1, on_gpu)) * k * r,
                "weights by panels": 2 * weights,
                "panels": wide * workers * rows * IN_PANEL * (d + k),
            },
            "fit": {
                "covariances": workers * (2 * square + Dense().workspace_bytes(r, min(p, r), wide, on_gpu)),
                "panels": wide * workers * (IN_PANEL * panel + IN_CLUSTER * n),
            },
        }
    )


def check_mixture_memory(
    X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources
) -> None:
    """Raise `MemoryBudgetError` where a fit needs more than is allowed."""
    k = max(k for k, _ in pairs)

    def peak(most: int, n_jobs: int | None = resources.n_jobs) -> int:
        return mixture_bill(X, [(min(k, most), p) for k, p in pairs], settings, replace(resources, n_jobs=n_jobs)).peak

    changes = [[("n_jobs=1", peak(k, 1))], fewer("n_clusters={}", k, peak)]
    resources.check(peak(k), f"{k} clusters of {X.shape[0]} rows of {X.shape[1]} features need", changes)
