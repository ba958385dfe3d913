"""A block of columns that grows in one piece of memory, where the library can write into parts of an array."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import inner_products, times_small
from gpukpca.backend.namespace import concat, to_host, writable
from gpukpca.data.slicing import gather_rows


@dataclass(frozen=True)
class ColumnBasis:
    """Columns of length n. Each is contiguous in memory, so that BLAS takes slices of the basis without a copy.

    `append` writes behind the columns of the basis, and `replace_all` over them.

    Attributes
    ----------
    parts : tuple of arrays, each (n, k)
        The columns side by side; several arrays only where the library cannot write into one.
    store : array, shape (n, capacity), or None
        The memory that `parts` is a view of.
    versions : list of one int
        How often the first columns of the memory were overwritten; shared by all bases in it.
    version : int
        The number when `parts` were written.
    count : int
        Of the columns.
    """

    parts: tuple[Array, ...] = ()
    store: Array | None = field(default=None, repr=False)
    versions: list[int] = field(default_factory=lambda: [0], repr=False)
    version: int = 0
    count: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", sum([int(part.shape[1]) for part in self.parts]))

    @classmethod
    def with_capacity(cls, n: int, capacity: int, like: Array) -> ColumnBasis:
        """Return an empty basis of at most `capacity` columns, in the namespace, dtype and device of `like`."""
        rows = writable((capacity, n), like)
        return cls((), None if rows is None else rows.T)

    @property
    def is_intact(self) -> bool:
        """Return whether `replace_all` has not overwritten the columns."""
        return self.version == self.versions[0]

    @property
    def array(self) -> Array:
        """Return all columns, shape (n, count); shares memory."""
        return concat(self.parts, axis=1) if len(self.parts) > 1 else self.parts[0]

    def take(self, chosen: np.ndarray) -> np.ndarray:
        """Return the rows named by host integers, shape (len(chosen), count), on the host in float64."""
        return np.concatenate([to_host(gather_rows(part, chosen)) for part in self.parts], axis=1).astype(np.float64)

    def memory_for(self, b: int) -> Array | None:
        """Return the memory (n, b) of the columns that are appended next; None where the library cannot write to it."""
        return None if self.store is None else self.store[:, self.count : self.count + b]

    def with_room(self, capacity: int) -> ColumnBasis:
        """Return the basis in memory for so many columns, where the library can write into parts of an array."""
        if self.store is None or self.store.shape[1] >= capacity:
            return self
        return ColumnBasis.with_capacity(self.store.shape[0], capacity, self.store).append(self.array)

    def append(self, block: Array) -> ColumnBasis:
        """Return the basis with the columns of a block (n, b), which may be in `memory_for` them."""
        if self.store is None:
            return ColumnBasis((ColumnBasis((*self.parts, block)).array,))
        stop = self.count + block.shape[1]
        self.store[:, self.count : stop] = block
        return ColumnBasis((self.store[:, :stop],), self.store, self.versions, self.version)

    def replace_all(self, block: Array) -> ColumnBasis:
        """Return a basis of the columns of a new block, which may depend on the old ones."""
        if self.store is None:
            return ColumnBasis((block,))
        self.versions[0] += 1
        return replace(self, parts=(), version=self.versions[0]).append(block)

    def combine(self, S: np.ndarray) -> Array:
        """Return the columns times a small host matrix (count, k)."""
        return times_small(self.array, S)

    def products_with(self, W: Array) -> np.ndarray:
        """Return inner products with the columns of W, on the host, shape (count, b), summed in the widest type."""
        return inner_products(self.array, W)
