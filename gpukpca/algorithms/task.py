"""The rows of a fit with its resources, and the facts that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from gpukpca._formatting import format_bytes
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import is_sparse, item_size
from gpukpca.backend.parallel import worker_count
from gpukpca.data.batches import BatchedRows
from gpukpca.data.place import Placement
from gpukpca.distributed.rows import ClusterRows
from gpukpca.exceptions import MemoryBudgetError

# Blocks of n rows that this process holds in addition to the solver's where a cluster multiplies: V and its copies,
# products that return, and sums in float64.
BLOCKS_IN_TRANSIT = 6


class HasPrediction(Protocol):
    """A way to fit, with the bytes that it will allocate."""

    @property
    def predicted_bytes(self) -> int:
        """Return the peak of the bytes."""


Route = TypeVar("Route", bound=HasPrediction)


def note_on_share(most: int, beyond: str, route: HasPrediction | None) -> str:
    """Return the note of a plan on a share of the variance of more than `most` components, which a route computes."""
    if route is None:
        return f"at most {most} components fit into memory"
    return f"a share of more than {most} components is left to {beyond}, with {format_bytes(route.predicted_bytes)}"


def share_beyond_memory(share: float | None, reason: str) -> MemoryBudgetError:
    """Return the error for a share of the variance that takes too many components."""
    return MemoryBudgetError(
        f"n_components={share} needs many components: {reason}, and these do not fit into the memory. "
        "Give their number, for which less memory is enough, or a larger memory_limit."
    )


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
    def copy_bytes(self) -> int:
        """Return the bytes of the rows that the fit copies to its place: all, or a batch as read and as converted."""
        if isinstance(self.X, BatchedRows):
            return 2 * self.X.largest * self.d * self.item
        return self.n * self.d * self.item if self.place.moved else 0

    @property
    def place(self) -> Placement:
        """Return the places of the computation and of the data."""
        return self.resources.place

    @property
    def on_gpu(self) -> bool:
        """Return whether the fit computes on a GPU."""
        return is_on_gpu(self.place.work)

    @property
    def multiplications(self) -> float:
        """Return the multiplications of the largest step, which decide about threads."""
        return self.stored * (min(self.n, self.d) + blocking.ENTRY_PASS)

    @cached_property
    def workers(self) -> int:
        """Return the number of threads."""
        return worker_count(self.place.work, self.resources.n_jobs, self.multiplications)

    def first_that_fits(self, routes: Iterable[Route]) -> tuple[Route | None, Route | None]:
        """Return the first route that fits into memory, and the smallest of those before it; None where none is."""
        smallest: Route | None = None
        for route in routes:
            if route.predicted_bytes <= self.resources.allowed(route.predicted_bytes):
                return route, smallest
            if smallest is None or route.predicted_bytes < smallest.predicted_bytes:
                smallest = route
        return None, smallest
