"""K relative to one of its points, for a K that may be conditionally positive semidefinite only."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gpukpca._typing import Array, ColumnPanels, Indices, SymmetricOperator
from gpukpca.backend.device import operator_on_its_device
from gpukpca.backend.external import as_operator
from gpukpca.backend.linalg import column_sums, subtract_outer_sum
from gpukpca.backend.namespace import accumulation_dtype, cast, namespace_of
from gpukpca.data.slicing import gather_rows
from gpukpca.gram.arguments import check_block, check_indices


@operator_on_its_device
class BasePointGram(SymmetricOperator):
    """Operator of k(x, y) - k(x, x₀) - k(x₀, y) + k(x₀, x₀): inner products of features minus the feature of x₀.

    Double centering gives the same matrix as for k itself. A k that is only conditionally positive semidefinite (the
    flat form k - 1, or -‖x - y‖/2) becomes positive semidefinite up to rounding.

    A point x₀ far from all others costs digits. One column of the base, n items, is computed once and kept. Everything
    else costs as much as in the base. Schoenberg, Trans. Amer. Math. Soc. 44 (1938).
    """

    def __init__(self, base: SymmetricOperator, anchor: int = 0) -> None:
        base = as_operator(base)
        self.base: SymmetricOperator = base
        self.anchor = anchor
        self.shape: tuple[int, int] = base.shape
        self.dtype: Any = base.dtype
        self.like: Array = base.like
        self.name: str = self.base.name
        self.workers: int = self.base.workers
        self.rounding: float = self.base.rounding
        self.positive_definite: bool | None = self.base.positive_definite

    @cached_property
    def _column(self) -> Array:
        """Return k(x, x₀) - k(x₀, x₀) / 2 of every row, which is subtracted for x and for y."""
        wide = cast(self.base.columns([self.anchor])[:, 0], accumulation_dtype(self.like))
        return wide - 0.5 * float(wide[self.anchor])

    def __matmul__(self, V: Array) -> Array:
        check_block(self, V)
        xp = namespace_of(self.like, V)
        V = cast(V, self.dtype)
        c, wide = self._column, self._column.dtype
        along_c = xp.sum(c[:, None] * cast(V, wide), axis=0)
        return cast(cast(self.base @ V, wide) - c[:, None] * column_sums(V)[None, :] - along_c[None, :], self.dtype)

    def diagonal(self) -> Array:
        return cast(cast(self.base.diagonal(), self._column.dtype) - 2.0 * self._column, self.dtype)

    def sizes(self) -> Array:
        """Return the sizes of the numbers that cancel in the diagonal, shape (n,); its error is u times these."""
        xp = namespace_of(self.like)
        return xp.abs(cast(self.base.diagonal(), self._column.dtype)) + 2.0 * xp.abs(self._column)

    def columns(self, indices: Indices) -> Array:
        check_indices(self, indices)
        C, chosen = self.base.columns(indices), gather_rows(self._column, indices)
        return subtract_outer_sum(C, self._column, chosen)

    def column_panels(self, indices: Indices) -> ColumnPanels:
        check_indices(self, indices)
        base, chosen = self.base.column_panels(indices), gather_rows(self._column, indices)
        return lambda start, stop: _relative(base(start, stop), self._column[start:stop], chosen)

    def block(self, rows: Indices, columns: Indices) -> Array | None:
        if (K := self.base.block(rows, columns)) is None:
            return None
        return subtract_outer_sum(K, gather_rows(self._column, rows), gather_rows(self._column, columns))

    def to_dense(self) -> Array:
        return subtract_outer_sum(self.base.to_dense(), self._column, self._column)

    def factor(self) -> Array | None:
        """Return F minus its row of the anchor, where the base has a factor F."""
        F = self.base.factor()
        return None if F is None else F - F[self.anchor : self.anchor + 1, :]


def _relative(C: Array, own: Array, chosen: Array) -> Array:
    """Return a panel of columns less the terms of its rows and of the chosen ones, as a new array."""
    return subtract_outer_sum(namespace_of(C).asarray(C, copy=True), own, chosen)
