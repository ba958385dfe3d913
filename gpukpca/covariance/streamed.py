"""The centered rows of batches that every pass reads again."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import column_sums, inner_panel
from gpukpca.backend.namespace import cast, empty_like, namespace_of, to_host
from gpukpca.backend.orthogonalization import joined_triangle, triangular_factor
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.rows import feature_bounds
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.covariance.moments import Moments


class StreamedCenteredMatrix(CenteredMatrix):
    """The rows of batches less their mean, in the widest type; see `CenteredMatrix`.

    Parameters
    ----------
    batches : iterable of arrays, each (rows, d)
        Gives the same batches in every iteration.
    moments : Moments

    Raises
    ------
    ValueError
        From every product: the batches changed.
    """

    by_rows = True
    workers = 1

    def __init__(self, batches: Iterable[Array], moments: Moments) -> None:
        self.batches = batches
        self.shape: tuple[int, int] = (moments.count, int(moments.mean.shape[0]))
        self.dtype: Any = moments.mean.dtype
        self.wide: Any = self.dtype
        self.like: Array = empty_like(moments.mean)
        self.shift: Array = moments.mean
        self.rest: Array = namespace_of(moments.mean).zeros_like(moments.mean)
        self.squares: np.ndarray = to_host(moments.squares).astype(np.float64)

    def check_entries(self) -> None:
        """Pass: the moments were computed of batches that were checked."""

    def _panels(self) -> Iterator[Array]:
        """Yield panels of centered rows; small ones, because BLAS fails on a large A with its own Aᵀ."""
        seen = 0
        for batch in self.batches:
            seen += int(batch.shape[0])
            for start, stop in row_slices(int(batch.shape[0]), inner_panel(batch, is_wide=True)):
                rows = cast(batch[start:stop, :], self.wide) - self.shift[None, :]
                yield rows if self.weights is None else rows * self.weights[None, :]
        if seen != self.shape[0]:
            raise ValueError(
                f"the batches changed between passes: the first pass gave {self.shape[0]} rows, a later one {seen}. "
                "exact=True needs an iterable that gives the same batches in every iteration."
            )

    def _summed(self, part: Callable[[Array], Array]) -> Array:
        return reduce(operator.add, map(part, self._panels()))

    def moments(self) -> Array:
        xp = namespace_of(self.like)
        return self._summed(lambda rows: xp.stack([column_sums(rows), column_sums(rows * rows)]))

    def bounds(self) -> tuple[Array, Array]:
        xp = namespace_of(self.like)
        low, high = zip(*(feature_bounds(batch) for batch in self.batches), strict=True)
        return xp.min(xp.stack(low), axis=0), xp.max(xp.stack(high), axis=0)

    def times(self, V: Array) -> Array:
        return namespace_of(self.like).concat([rows @ V for rows in self._panels()], axis=0)

    def adjoint(self, U: Array) -> Array:
        start, total = 0, None
        for rows in self._panels():
            stop = start + int(rows.shape[0])
            share = namespace_of(rows).matrix_transpose(rows) @ U[start:stop, :]
            start, total = stop, share if total is None else total + share
        return total

    def scatter_times(self, V: Array) -> Array:
        return self._summed(lambda rows: namespace_of(rows).matrix_transpose(rows) @ (rows @ V))

    def triangle(self, V: Array) -> tuple[np.ndarray, None]:
        """Return R of Z V = Q R, by QR of the panels and of their R; Z V is never stored."""
        factors = (triangular_factor(rows @ V) for rows in self._panels())
        return reduce(joined_triangle, factors), None

    def scatter_and_sums(self) -> tuple[Array, Array]:
        return self.scatter(), self.moments()[0, :]

    def scatter(self) -> Array:
        return _symmetric(self._summed(lambda rows: namespace_of(rows).matrix_transpose(rows) @ rows))

    def scatter_without(self, deflated: Any) -> Array:
        """Return ZᵀZ without the directions of a `DeflatedMatrix`, in one sweep over the batches."""
        V, xp = deflated.V, namespace_of(self.like)

        def part(rows: Array) -> Array:
            rows = rows - (rows @ V) @ xp.matrix_transpose(V)
            return xp.matrix_transpose(rows) @ rows

        return _symmetric(self._summed(part))

    def shifted_gram(self) -> Array:
        Z = self.materialized()
        return _symmetric(Z @ namespace_of(Z).matrix_transpose(Z))

    def materialized(self) -> Array:
        return namespace_of(self.like).concat(list(self._panels()), axis=0)


def _symmetric(A: Array) -> Array:
    return 0.5 * (A + namespace_of(A).matrix_transpose(A))
