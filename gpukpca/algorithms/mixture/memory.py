"""The bytes of a fit of local PCA from shapes alone: panels of rows, weights, covariances, and rows in their span."""

from __future__ import annotations

from dataclasses import replace

from gpukpca._typing import Array
from gpukpca.algorithms.bill import fewer
from gpukpca.algorithms.mixture.scaled_rows import mixture_panel_rows, workers_for
from gpukpca.algorithms.mixture.settings import MixtureSettings
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, item_size
from gpukpca.eigen import Dense

# Arrays of the size of a panel, and of its distances to the clusters and weights: as it is scaled, and split into a
# plane and the rest, or as its moments are formed.
IN_PANEL = 6
# Vectors (n,) of labels, and arrays (n, k) of weights, those by panels among them.
IN_LABELS, IN_WEIGHTS = 5, 5
# Bytes of the objects of a fit that are no arrays of the data.
OBJECT_BYTES = 2**17


def mixture_bytes(X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources) -> int:
    """Return the bytes that a fit of rows X holds in addition to them."""
    (n, d), work = (int(X.shape[0]), int(X.shape[1])), resources.place.work
    k, p = max(k for k, _ in pairs), max(p for _, p in pairs)
    workers, on_gpu, item = workers_for((n, d), work, resources.n_jobs), is_on_gpu(work), item_size(X.dtype)
    wide = item_size(accumulation_dtype(work))
    r = min(n, d)  # columns of the span of the rows: its coordinates and basis, and their QR decomposition
    span, rows = 3 * n * d * (d > n), min(n, mixture_panel_rows(d, 1, on_gpu))
    labels = n * (settings.n_init + IN_LABELS + IN_WEIGHTS * (k + 1))
    sums = -(-n // mixture_panel_rows(r, 1, on_gpu)) * k * r  # of the clusters, by panels
    assigned = sums + workers * rows * IN_PANEL * (d + k)
    panel = min(n, mixture_panel_rows(r, 3 * r, on_gpu)) * r
    fitted = wide * (IN_PANEL * panel + 3 * n + 2 * r * r) + Dense().workspace_bytes(r, min(p, r), wide, on_gpu)
    copied = n * d * item * resources.place.moved + OBJECT_BYTES
    return copied + wide * (span + labels) + max(wide * assigned, workers * fitted)


def check_mixture_memory(
    X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources
) -> None:
    """Raise `MemoryBudgetError` where a fit needs more than is allowed."""
    k = max(k for k, _ in pairs)

    def peak(most: int, n_jobs: int | None = resources.n_jobs) -> int:
        fewer_pairs = [(min(k, most), p) for k, p in pairs]
        return mixture_bytes(X, fewer_pairs, settings, replace(resources, n_jobs=n_jobs))

    changes = [[("n_jobs=1", peak(k, 1))], fewer("n_clusters={}", k, peak)]
    resources.check(peak(k), f"{k} clusters of {X.shape[0]} rows of {X.shape[1]} features need", changes)
