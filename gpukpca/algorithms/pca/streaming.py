"""PCA of rows that are read again in every pass: the mean in the first, the components in one or a few more.

Nothing but d numbers, a d × d matrix or a block of d-vectors is kept between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.magnitude import ScaledBatches, are_safe, row_bounds, safe_scale
from gpukpca.backend.linalg import column_sums, inner_panel
from gpukpca.backend.namespace import cast, empty_like, from_host, namespace_of
from gpukpca.backend.rows import feature_means, take_columns
from gpukpca.eigen import BlockKrylov, Dense, EigenResult, top_eigh
from gpukpca.gram import DenseGram

# Called after every pass with its number and what it was for.
PassReport = Callable[[int, str], None]


@dataclass(frozen=True)
class Moments:
    """Count, mean and centered sums of squares of rows.

    Attributes
    ----------
    count : int
    mean, squares : array, shape (d,)
        In the widest floating type; `squares` is Σ (x - mean)².
    """

    count: int
    mean: Array
    squares: Array

    def merged(self, other: Moments) -> Moments:
        """The moments of both sets of rows (Chan, Golub & LeVeque, The American Statistician 37 (1983) 242)."""
        total = self.count + other.count
        step = other.mean - self.mean
        return Moments(
            total,
            self.mean + step * (other.count / total),
            self.squares + other.squares + step * step * (self.count * other.count / total),
        )


def moments_and_rows(X: Array, constant: np.ndarray | None = None) -> tuple[Moments, Array]:
    """Return the moments of the rows of one batch, and the centered rows in the widest floating type.

    Columns that are known to be `constant`, a host array (d,), have variance 0, whatever the rounding of a huge mean.
    """
    mean = feature_means(X)
    if constant is not None:
        mean = namespace_of(mean).where(from_host(constant, mean) > 0.5, cast(X[0, :], mean.dtype), mean)
    rows = cast(X, mean.dtype) - mean[None, :]
    # The mean was rounded, so the rows do not quite sum to zero.
    left = column_sums(rows)
    squares = column_sums(rows * rows) - left * left / X.shape[0]
    xp = namespace_of(squares)
    # Overflow is NaN here, which must not become 0.
    return Moments(int(X.shape[0]), mean, xp.where(squares < 0, xp.zeros_like(squares), squares)), rows


def safe_moments(batches: Iterable[Array]) -> tuple[Moments, float]:
    """Return the moments of all rows times a power of two, and that number: 1, in one pass, at ordinary sizes."""
    moments = moments_of(batches)
    if are_safe(moments.squares):
        return moments, 1.0
    low, high = row_bounds(batches)
    scale = safe_scale(low, high, moments.mean.dtype)
    return moments_of(ScaledBatches(batches, scale), low == high), scale


def moments_of(batches: Iterable[Array], constant: np.ndarray | None = None) -> Moments:
    """Return the moments of all rows, in one pass; see `moments_and_rows` for `constant`."""
    total: Moments | None = None
    for batch in batches:
        part, _ = moments_and_rows(batch, constant)
        total = part if total is None else total.merged(part)
    if total is None:
        raise ValueError("the iterable of batches gave nothing when it was gone through.")
    return total


class Scatter(SymmetricOperator):
    """Σ (x - mean)(x - mean)ᵀ as an operator that reads all batches at every product.

    Parameters
    ----------
    batches : iterable of arrays, each (rows, d)
        Can be gone through more than once.
    moments : Moments
    """

    def __init__(self, batches: Iterable[Array], moments: Moments) -> None:
        self.batches, self.moments = batches, moments
        d = int(moments.mean.shape[0])
        self.shape = (d, d)
        self.dtype = moments.mean.dtype
        self.like = empty_like(moments.mean)

    def _summed(self, part: Callable[[Array], Array]) -> Array:
        """The sum over panels of centered rows; few rows at a time, as BLAS fails on a large A with its own Aᵀ."""
        total, seen = None, 0
        for batch in self.batches:
            seen += int(batch.shape[0])
            step = inner_panel(batch, is_wide=True)
            for start in range(0, int(batch.shape[0]), step):
                stop = min(start + step, int(batch.shape[0]))
                rows = cast(batch[start:stop, :], self.dtype) - self.moments.mean[None, :]
                share = part(rows)
                total = share if total is None else total + share
        if seen != self.moments.count:
            raise ValueError(
                f"the batches changed between passes: the first pass gave {self.moments.count} rows, a later one "
                f"{seen}. exact=True needs an iterable that gives the same batches every time it is gone through."
            )
        return total

    def __matmul__(self, V: Array) -> Array:
        return self._summed(lambda rows: namespace_of(rows).matrix_transpose(rows) @ (rows @ V))

    def diagonal(self) -> Array:
        """Sums of squares, shape (d,)."""
        return self.moments.squares

    def columns(self, indices: Any) -> Array:
        """The named columns, shape (d, len(indices))."""
        return self._summed(lambda rows: namespace_of(rows).matrix_transpose(rows) @ take_columns(rows, indices))

    def to_dense(self, overwrite: bool = False) -> Array:
        """The matrix, in one pass, exactly symmetric."""
        matrix = self._summed(lambda rows: namespace_of(rows).matrix_transpose(rows) @ rows)
        return 0.5 * (matrix + namespace_of(matrix).matrix_transpose(matrix))


def components_of(
    batches: Iterable[Array], moments: Moments, p: int, solver: Dense | BlockKrylov, report: PassReport
) -> EigenResult:
    """The p largest eigenpairs of the scatter matrix.

    Notes
    -----
    `Dense`: the matrix, O(n d²) in one pass, and O(d³). `BlockKrylov`: O(n d p) a pass.
    """
    op = Scatter(batches, moments)
    if isinstance(solver, BlockKrylov):
        # A fixed start: the answer does not depend on it, and the last digits are the same in every run.
        return top_eigh(op, p, solver, rng=0, report=lambda done, *_: report(done + 1, "product"))
    matrix = DenseGram(op.to_dense())
    report(2, "covariance")
    return top_eigh(matrix, p, solver)
