"""The rows of a fit with its resources, and the facts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpukpca.algorithms.placement import Placement
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import is_sparse, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.distributed import ClusterRows


@dataclass(frozen=True)
class Task:
    """The rows X of a fit (n, d), dense, CSR or on a cluster, and its resources.

    While a fit is planned, the rows may not be at the place of `resources` yet.
    """

    X: Any
    resources: Resources

    @property
    def n(self) -> int:
        """Return the number of samples."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.X.shape[1])

    @property
    def item(self) -> int:
        """Return the bytes of an item."""
        return item_size(self.X.dtype)

    @property
    def stored(self) -> int:
        """Return the number of stored entries."""
        return int(self.X.nnz) if is_sparse(self.X) else self.n * self.d

    @property
    def is_on_cluster(self) -> bool:
        """Return whether the rows are on a cluster."""
        return isinstance(self.X, ClusterRows)

    @property
    def place(self) -> Placement:
        """Return the places of the computation and of the data."""
        return self.resources.place

    @property
    def on_gpu(self) -> bool:
        """Return whether the fit computes on a GPU."""
        return is_on_gpu(self.place.work)

    @property
    def limit(self) -> int:
        """Return the bytes that may be allocated."""
        return self.resources.limit

    @cached_property
    def workers(self) -> int:
        """Return the number of threads."""
        return worker_count(self.place.work, self.resources.n_jobs)
