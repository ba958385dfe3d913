"""The bytes of a fit of local PCA from shapes alone: panels of rows, weights, covariances, and rows in their span."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpukpca._typing import Array
from gpukpca.algorithms.mixture.scaled_rows import mixture_panel_rows, workers_for
from gpukpca.algorithms.mixture.settings import MixtureSettings
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import accumulation_dtype, item_size
from gpukpca.eigen import Dense

# Arrays of the size of a panel: where its moments are formed, and where it is scaled and split into a plane and the
# rest, or centered and weighted.
IN_MOMENTS, IN_SPLIT = 6, 4
# Arrays (m, k) of a panel of m rows: distances or log-densities, and weights.
OF_CLUSTERS = 6
# Vectors (n,): of labels without a gap, and of the rows of a cluster with their weights.
IN_LABELS, IN_CLUSTER = 3, 3
# Matrices (d, d) of a worker while its covariance is summed.
SQUARES_HELD = 2
# Bytes of an item of sums and covariances.
WIDE = 8
# Bytes of the objects of a fit that are no arrays of the data.
OBJECT_BYTES = 2**17


@dataclass(frozen=True)
class MixtureMemory:
    """The sizes of a fit of at most k clusters with planes of at most p dimensions to rows (n, d), in items."""

    n: int
    d: int
    k: int
    p: int
    n_init: int
    n_pairs: int
    workers: int
    on_gpu: bool

    @property
    def width(self) -> int:
        """Return the number of columns of the iteration: those of the span of the rows where that is smaller."""
        return min(self.n, self.d)

    @cached_property
    def peak(self) -> int:
        """Return the most items that are held at a time, without the data."""
        n, d, rotated = self.n, self.d, self.d > self.n
        moments = IN_MOMENTS * self._panel(d, 1)
        # The rows by panels and joined, or joined and twice in the QR.
        spanning = max(n * d + self._panels(d), 3 * n * d) if rotated else 0
        span = 2 * n * d if rotated else 0  # coordinates and a basis
        # The labels of all starts, how often each row is there, and the weights of the best pair before.
        held = span + (self.n_init + 2) * n + (self._weights if self.n_pairs > 1 else 0)
        return max(moments, spanning, held + max(self._assigning, self._fitting, self._labeling))

    @property
    def _weights(self) -> int:
        """Return the items of the weights and values of all rows."""
        return self.n * (self.k + 1)

    @property
    def _assigning(self) -> int:
        """Return the items of an assignment: weights of the best start, of before, and of now in panels and joined.

        A start by k-means++ takes less.
        """
        return self._sums + 3 * self._weights + max(self._weights, self._panels(self.width))

    @property
    def _sums(self) -> int:
        """Return the items of the sums of the rows of every cluster in all panels."""
        return -(-self.n // mixture_panel_rows(self.width, 1, self.on_gpu)) * self.k * self.width

    @property
    def _fitting(self) -> int:
        """Return the items of the covariances of all workers, while they are summed or decomposed."""
        r = self.width
        summed = SQUARES_HELD * r * r + IN_SPLIT * self._panel(r, 3 * r)
        decomposed = 2 * r * r + Dense().workspace_bytes(r, min(self.p, r), WIDE, self.on_gpu) // WIDE
        return 2 * self._weights + self.workers * (max(summed, decomposed) + IN_CLUSTER * self.n)

    @property
    def _labeling(self) -> int:
        """Return the items of the labels of a start, or of those of the data at the end."""
        return 2 * self._weights + IN_LABELS * self.n + self._panels(self.d)

    def _panels(self, width: int) -> int:
        """Return the items of the panels of all workers, with values of the clusters."""
        rows = min(self.n, mixture_panel_rows(width, 1, self.on_gpu))
        return self.workers * rows * (IN_SPLIT * width + OF_CLUSTERS * self.k)

    def _panel(self, width: int, least: int) -> int:
        """Return the items of a panel."""
        return min(self.n, mixture_panel_rows(width, least, self.on_gpu)) * width


def predicted_bytes(X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources) -> int:
    """Return the most bytes that a fit of rows X holds in addition to them."""
    (n, d), work = (int(X.shape[0]), int(X.shape[1])), resources.place.work
    k, p = max(k for k, _ in pairs), max(p for _, p in pairs)
    workers = workers_for((n, d), work, resources.n_jobs)
    memory = MixtureMemory(n, d, k, p, settings.n_init, len(pairs), workers, is_on_gpu(work))
    copied = n * d * item_size(X.dtype) if resources.place.moved else 0
    return copied + memory.peak * item_size(accumulation_dtype(work)) + OBJECT_BYTES


def check_mixture_memory(
    X: Array, pairs: list[tuple[int, int]], settings: MixtureSettings, resources: Resources
) -> None:
    """Raise `MemoryBudgetError` where a fit needs more than is allowed."""
    what = f"{max(k for k, _ in pairs)} clusters of {X.shape[0]} rows of {X.shape[1]} features need"
    advice = "Reduce the features with PCA first, request fewer clusters, set n_jobs=1"
    resources.check(predicted_bytes(X, pairs, settings, resources), what, advice)
