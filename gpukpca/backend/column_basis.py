"""A block of columns that grows: one piece of memory where the library can write into parts of an array.

The standard can only join arrays, which would copy a growing basis at every step.
"""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import inner_products
from gpukpca.backend.namespace import from_host, namespace_of, writable


class ColumnBasis:
    """Up to `capacity` columns of length n; columns are contiguous, so that slices of them go into BLAS as they are.

    Parameters
    ----------
    n, capacity : int
    like : array
        Tells namespace, dtype and device.
    """

    def __init__(self, n: int, capacity: int, like: Array) -> None:
        store = writable((capacity, n), like)
        self._store = None if store is None else store.T
        self._joined: Array | None = None
        self.count = 0

    @property
    def array(self) -> Array:
        """All columns so far, shape (n, count); shares memory."""
        return self._joined if self._store is None else self._store[:, : self.count]

    def append(self, block: Array) -> None:
        """Add the columns of a block (n, b)."""
        stop = self.count + block.shape[1]
        if self._store is not None:
            self._store[:, self.count : stop] = block
        elif self.count == 0:
            self._joined = block
        else:
            self._joined = namespace_of(block).concat([self._joined, block], axis=1)
        self.count = stop

    def replace(self, block: Array) -> None:
        """Forget all columns but those of a new block, which may have been made of the old ones."""
        self.count = 0
        self.append(block)

    def combined(self, S: np.ndarray) -> Array:
        """The columns times a small host matrix (count, k)."""
        return self.array @ from_host(S, self.array)

    def products_with(self, W: Array) -> np.ndarray:
        """Inner products with the columns of W, on the host, shape (count, b), summed in the widest type."""
        return inner_products(self.array, W)
