"""K of rows that count with frequencies: W^½ K W^½."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array, ColumnPanels, Indices, SymmetricOperator
from gpukpca.backend.device import operator_on_its_device
from gpukpca.backend.namespace import cast
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.slicing import gather_rows


@operator_on_its_device
class WeightedGram(SymmetricOperator):
    """The operator W^½ K W^½ of frequencies w of the rows, whose factor by landmarks is W^½ times that of K.

    Parameters
    ----------
    base : SymmetricOperator, shape (n, n)
    frequencies : Frequencies
    """

    def __init__(self, base: SymmetricOperator, frequencies: Frequencies) -> None:
        self.base = base
        self.frequencies = frequencies
        self.shape: tuple[int, int] = base.shape
        self.dtype: Any = base.dtype
        self.like: Array = base.like
        self.name: str = base.name
        self.workers: int = base.workers
        self.rounding: float = base.rounding
        self.positive_definite: bool | None = base.positive_definite
        self.has_diagonal: bool = base.has_diagonal

    def __matmul__(self, V: Array) -> Array:
        rooted = self.frequencies.rooted
        return rooted(self.base @ rooted(V))

    def diagonal(self) -> Array:
        return self.frequencies.times(self.base.diagonal())

    def sizes(self) -> Array | None:
        sizes = self.base.sizes()
        return None if sizes is None else self.frequencies.times(sizes)

    def columns(self, indices: Indices) -> Array:
        return self._weighted(self.base.columns(indices), self.frequencies.roots, indices)

    def column_panels(self, indices: Indices) -> ColumnPanels:
        base, roots = self.base.column_panels(indices), self.frequencies.roots
        return lambda start, stop: self._weighted(base(start, stop), roots[start:stop, :], indices)

    def block(self, rows: Indices, columns: Indices) -> Array | None:
        K = self.base.block(rows, columns)
        return None if K is None else self._weighted(K, gather_rows(self.frequencies.roots, rows), columns)

    def _weighted(self, K: Array, roots: Array, columns: Indices) -> Array:
        """Return entries of K times the roots of their rows (b, 1) and columns."""
        others = gather_rows(self.frequencies.roots, columns)
        return K * cast(roots * others.T, K.dtype)
