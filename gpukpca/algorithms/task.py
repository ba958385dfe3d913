"""The rows of a fit with its resources, and the facts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import describe_device, is_on_gpu
from gpukpca.backend.namespace import dtype_name, is_sparse, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.data.place import Placement
from gpukpca.data.rows import Rows
from gpukpca.distributed.rows import ClusterRows

# Blocks of n rows that this process holds in addition to the solver's where a cluster multiplies: V and its copies,
# products that return, and sums in float64.
BLOCKS_IN_TRANSIT = 6


@dataclass(frozen=True)
class Task:
    """The rows X of a fit (n, d), dense, CSR, in panels or on a cluster, and its resources.

    While a fit is planned, the rows may not be at the place of `resources` yet.
    """

    X: Any
    resources: Resources

    @cached_property
    def n(self) -> int:
        """Return the number of samples."""
        return int(self.X.shape[0])

    @cached_property
    def d(self) -> int:
        """Return the number of features."""
        return int(self.X.shape[1])

    @cached_property
    def item(self) -> int:
        """Return the bytes of an item."""
        return item_size(self.X.dtype)

    @cached_property
    def stored(self) -> int:
        """Return the number of stored entries."""
        return int(self.X.nnz) if self.is_sparse else self.n * self.d

    @property
    def is_sparse(self) -> bool:
        """Return whether the rows are a CSR matrix."""
        return is_sparse(self.X)

    @property
    def is_batched(self) -> bool:
        """Return whether the rows are read panel by panel, by this process as far as it knows."""
        return self.is_in_panels and not self.is_on_cluster

    @property
    def is_in_panels(self) -> bool:
        """Return whether no process holds all rows: batches, or panels on a cluster."""
        return isinstance(self.X, Rows)

    @property
    def is_on_cluster(self) -> bool:
        """Return whether the rows are on a cluster."""
        return isinstance(self.X, ClusterRows)

    @cached_property
    def rows_at_once(self) -> int:
        """Return the number of rows that are in memory together: all, or those of the largest batch."""
        return self.X.largest if self.is_batched else self.n

    @cached_property
    def copy_bytes(self) -> int:
        """Return the bytes of the rows that the fit copies to its place: all, or a batch as read and as converted."""
        if self.is_batched:
            return 2 * self.rows_at_once * self.d * self.item
        return self.n * self.d * self.item if self.place.moved else 0

    @property
    def place(self) -> Placement:
        """Return the places of the computation and of the data."""
        return self.resources.place

    @cached_property
    def on_gpu(self) -> bool:
        """Return whether the fit computes on a GPU."""
        return is_on_gpu(self.place.work)

    @cached_property
    def multiplications(self) -> float:
        """Return the multiplications of the largest step, which decide about threads."""
        return self.stored * (min(self.n, self.d) + blocking.ENTRY_PASS)

    def plan(self, predicted_bytes: int, **parts: Any) -> Plan:
        """Return the plan of a fit of these rows that takes so many bytes; `parts` are its other fields."""
        return Plan(
            n_samples=self.n,
            n_features=self.d,
            dtype=dtype_name(self.X.dtype),
            device=describe_device(self.place.work),
            predicted_bytes=predicted_bytes,
            available_bytes=self.resources.allowed(predicted_bytes),
            **parts,
        )

    @cached_property
    def workers(self) -> int:
        """Return the number of threads."""
        return worker_count(self.place.work, self.resources.n_jobs, self.multiplications)
