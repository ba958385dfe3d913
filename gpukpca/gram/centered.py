"""Double centering: H K H with H = I - 11ᵀ/n, by means, without a second matrix; or K itself, with H = I.

With frequencies w of the rows it is W^½ H K Hᵀ W^½ with H = I - 1wᵀ/Σw.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import cached_property
from typing import Any, overload

import numpy as np

from gpukpca._rules import FLAG
from gpukpca._typing import Array, HasProducts, Indices, NumpyArray, NumpyRows, Real, SymmetricOperator, UnknownRows
from gpukpca.backend.device import missing_columns, on_its_device, operator_on_its_device
from gpukpca.backend.external import as_operator
from gpukpca.backend.linalg import column_norms, column_sums, largest_asymmetry, subtract_outer_sum, times_outer_product
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    full,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.backend.parallel import TileReport
from gpukpca.data.finite import not_finite, overflow
from gpukpca.data.frequencies import Frequencies, without_mean
from gpukpca.data.slicing import gather_rows
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.arguments import check_block, check_indices, checked_matrix
from gpukpca.gram.dense import DenseGram
from gpukpca.gram.tiled import shifted_gram
from gpukpca.kernels.base import Kernel


@overload
def double_center(K: UnknownRows, *, overwrite: bool = False) -> Array: ...
@overload
def double_center(K: NumpyRows[Real], *, overwrite: bool = False) -> NumpyArray[Real]: ...
@overload
def double_center(K: Array, *, overwrite: bool = False) -> Array: ...
@on_its_device
def double_center(K: Array, *, overwrite: bool = False) -> Array:
    """Return H K H = K - row means - column means + mean of all, H = I - 11ᵀ/n.

    Parameters
    ----------
    K : array, shape (n, n)
        Need not be symmetric; an exactly symmetric K gives an exactly symmetric result.
    overwrite : bool
        Write into K where the library can.

    Returns
    -------
    array, shape (n, n), dtype of K (integers become float64)

    Raises
    ------
    InvalidParameterError
        K is not square, or holds NaN or infinity.

    See Also
    --------
    CenteredGram : The same for an operator, without the matrix.

    Notes
    -----
    Means are accumulated in float64. Cost O(n²); no second matrix with `overwrite` on NumPy and CuPy.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import double_center
    >>> x = np.array([[1.0], [2.0], [6.0]])
    >>> double_center(x @ x.T)
    array([[ 4.,  2., -6.],
           [ 2.,  1., -3.],
           [-6., -3.,  9.]])
    """
    container, K = K, checked_matrix(K, "K", "(n, n)")
    if K.shape[0] != K.shape[1] or K.shape[0] == 0:
        raise InvalidParameterError(f"double centering needs a square matrix; got shape {tuple(K.shape)}.")
    if not overwrite and getattr(container, "dtype", K.dtype) == K.dtype:  # another dtype is a copy already
        K = namespace_of(K).asarray(K, copy=True)
    columns = checked_means(column_sums(K) / K.shape[0], DenseGram(K))
    rows = columns if largest_asymmetry(K)[0] == 0.0 else column_sums(K.T) / K.shape[0]
    half = float(namespace_of(K).sum(columns)) / K.shape[0] / 2.0
    return subtract_outer_sum(K, rows - half, columns - half)


def checked_means(means: Array, base: SymmetricOperator) -> Array:
    """Return the column means of a kernel matrix; raise where they show NaN or infinity in it."""
    xp = namespace_of(means)
    finite = xp.isfinite(means)
    if bool(xp.all(finite)):
        return means
    j = int(np.flatnonzero(~to_host(finite))[0])
    with overflow_allowed(), suppress(NotImplementedError):  # an operator of the user may lack columns
        column = to_host(base.columns([j])).reshape(-1)
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size and np.isnan(column[bad[0]]):
            raise not_finite(base, bad[0], j, column[bad[0]])
    raise overflow(base, f"NaN or infinity, first in column {j}")


@operator_on_its_device
class CenteredGram(SymmetricOperator):
    """The centered matrix H op H as an operator, H = I - 11ᵀ/n.

    ``H (K (H V))`` subtracts means before and after a product. The first product computes the column means of K with
    one more column, so that centering takes no further pass.

    Parameters
    ----------
    base : SymmetricOperator, or an object of another library
        The uncentered operator: also a sparse matrix, a LinearOperator, or an object with shape, dtype and ``@``; see
        `gpukpca.eigen.top_eigh`. Without a diagonal it has no `trace`.
    center : bool
        False: nothing is centered, H = I, and all means are 0.
    frequencies : gpukpca.data.frequencies.Frequencies, optional
        Of the rows, w > 0: the operator is W^½ H K Hᵀ W^½ with H = I - 1wᵀ/Σw, and Σw stands in place of n.

    Attributes
    ----------
    base : SymmetricOperator
    center : bool
    frequencies : Frequencies or None
    count : float
        n, or Σw.
    column_means : array, shape (n,), in the widest floating type
        m = K 1 / n, or K w / Σw, and 0 without centering; costs one pass if no product has been made yet.
    trace : float
        tr(H K H) = tr K - 1ᵀK1/n, the sum of all eigenvalues.
    uncentered_trace : float
        tr K.
    noise_scale : float
        ``|1ᵀK1|/n``: the size of the numbers that cancel; rounding noise is u times this.
    entry_noise : float
        ``‖K1‖/n``, also without centering: what rounding of entries of random signs leaves is u times this.
    rounding : float
        That of the entries of `base`, at least 1.
    known_means : array, shape (n,), or None
        The means of the columns of K after the first product, also without centering; may be set to those of another
        operator on the same data.

    See Also
    --------
    CenteredGram.of_kernel : The operator of a kernel and data, with more digits for offset data and flat kernels.
    gpukpca.eigen.top_eigh : The largest eigenpairs of an operator.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import CenteredGram, TiledGram
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> op = CenteredGram(TiledGram(RBF(gamma=0.1), X))
    >>> V = op @ np.ones((100, 1))  # a constant vector is in the null space
    >>> bool(np.abs(V).max() < 1e-10)
    True
    """

    def __init__(
        self,
        base: SymmetricOperator | HasProducts,
        *,
        center: bool = True,
        frequencies: Frequencies | None = None,
    ) -> None:
        self.base: SymmetricOperator = as_operator(base)
        FLAG.check_argument("center", center)
        self.center: bool = bool(center)
        self.frequencies = frequencies
        self.shape: tuple[int, int] = self.base.shape
        self.dtype: Any = self.base.dtype
        self.like: Array = self.base.like
        self.rounding: float = max(1.0, self.base.rounding)
        self.resolution: float = self.base.resolution
        self.workers: int = self.base.workers
        self.known_means: Array | None = None
        self.count: float = self.shape[0] if frequencies is None else frequencies.count
        # The ones of K 1, divided by a power of two so that the sums of a finite K are finite.
        self._one = 2.0 ** -max(math.ceil(self.count) - 1, 0).bit_length()

    @classmethod
    def of_kernel(
        cls,
        kernel: Kernel,
        X: Array,
        *,
        cached_tiles: int | None = None,
        tile_edge: int | None = None,
        n_jobs: int | None = None,
        report: TileReport | None = None,
    ) -> CenteredGram:
        """Return the centered kernel matrix of X, by upper tiles without the terms that centering removes.

        Features are centered before they are multiplied, and a flat kernel is computed as k - 1. That keeps the digits
        that would cancel in ``CenteredGram(TiledGram(kernel, X))``.

        Parameters
        ----------
        kernel, X, cached_tiles, tile_edge, n_jobs, report : see `TiledGram`

        Returns
        -------
        CenteredGram, shape (n, n)
            Its `base` is the kernel matrix up to terms of one argument alone.

        Raises
        ------
        InvalidParameterError
            The kernel cannot be evaluated tile by tile.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca.gram import CenteredGram
        >>> from gpukpca.kernels import Linear
        >>> X = np.random.default_rng(0).standard_normal((50, 3)) + 1e8
        >>> op = CenteredGram.of_kernel(Linear(), X)
        >>> centered = X - X.mean(axis=0)
        >>> bool(np.allclose(op.to_dense(), centered @ centered.T, atol=1e-6))
        True
        """
        return cls(
            shifted_gram(kernel, X, cached_tiles=cached_tiles, tile_edge=tile_edge, n_jobs=n_jobs, report=report)
        )

    def project(self, V: Array) -> Array:
        """Return H V, the projection onto vectors whose entries sum to zero; they hold the range.

        With frequencies the vectors are orthogonal to w^½.
        """
        return without_mean(V, self.frequencies) if self.center else V

    def __matmul__(self, V: Array) -> Array:
        """Return H (K (H V))."""
        xp = check_block(self, V)
        V = self.project(V) if self.frequencies is None else self.rooted(self.project(V))
        if self.known_means is not None:
            return self.project(self.rooted(self.base @ V))
        b, ones = V.shape[1], self._ones(V.dtype)
        padding = [0.0 * ones] * missing_columns(V, b + 1)
        W = self.base @ xp.concat([V, ones, *padding], axis=1)
        self._set_means(W[:, b])
        return self.project(self.rooted(W[:, :b]))

    def rooted(self, V: Array) -> Array:
        """Return V (n, b), without frequencies; else W^½ V."""
        return V if self.frequencies is None else self.frequencies.rooted(V)

    def _ones(self, dtype: Any = None) -> Array:
        """Return the frequencies of the rows in a unit in which sums are finite, shape (n, 1)."""
        ones = full((self.shape[0], 1), self._one, self.like, dtype)
        return ones if self.frequencies is None else self.rooted(self.rooted(ones))

    def _set_means(self, row_sums: Array) -> None:
        means = cast(row_sums, accumulation_dtype(self.like)) / (self.count * self._one)
        self.known_means = checked_means(means, self.base)  # NaN and infinity in K are seen here

    @property
    def column_means(self) -> Array:
        means = self._means_of_columns()
        return means if self.center else namespace_of(means).zeros_like(means)

    def _means_of_columns(self) -> Array:
        """Return the means of the columns of K, also without centering."""
        if self.known_means is None:
            self._set_means((self.base @ self._ones())[:, 0])
        return self.known_means

    @cached_property
    def _grand_sum(self) -> float:
        """Return 1ᵀK1/n, or wᵀKw/Σw."""
        return float(namespace_of(self.like).sum(self._often(self.column_means)))

    def _often(self, v: Array) -> Array:
        """Return numbers of the rows, shape (n,), times the frequencies."""
        return v if self.frequencies is None else self.frequencies.times(v)

    @property
    def mean_norm(self) -> float:
        """Return the squared norm of the mean of the features."""
        return self._grand_sum / self.count

    @cached_property
    def trace(self) -> float:  # type: ignore[override]
        diagonal = cast(self.base.diagonal(), accumulation_dtype(self.like))
        with overflow_allowed():
            trace = float(namespace_of(self.like).sum(self._often(diagonal))) - self._grand_sum
        if not math.isfinite(trace):  # shares of it would be 0
            raise overflow(self.base, "its trace is infinite")
        return trace

    @property
    def uncentered_trace(self) -> float:
        """Return the sum of the eigenvalues before centering."""
        return self.trace + self.count * self.mean_norm

    @cached_property
    def noise_scale(self) -> float:  # type: ignore[override]
        return abs(self._grand_sum)

    @cached_property
    def entry_noise(self) -> float:
        # The sum of the means cancels where they do not: K = a_i + a_j with Σ a_i = 0.
        means = self.rooted(self._means_of_columns()[:, None])
        return float(column_norms(means)[0]) * math.sqrt(self.count / self.shape[0])

    def diagonal(self) -> Array:
        means = self.column_means
        wide = cast(self.base.diagonal(), means.dtype) - 2.0 * means + self.mean_norm
        return cast(self._often(wide), self.dtype)

    def columns(self, indices: Indices) -> Array:
        check_indices(self, indices)
        means = self.column_means
        wide = cast(self.base.columns(indices), means.dtype) - means[:, None] - gather_rows(means, indices)[None, :]
        wide = wide + self.mean_norm
        if self.frequencies is not None:
            wide = self.rooted(wide) * gather_rows(self.frequencies.roots, indices)[:, 0][None, :]
        return cast(wide, self.dtype)

    def to_dense(self) -> Array:
        K = self.base.to_dense()
        if self.known_means is None:
            sums = column_sums(K) if self.frequencies is None else self.frequencies.sums(K, self.frequencies.roots**2)
            self.known_means = checked_means(sums / self.count, self.base)
        if self.center:
            means = cast(self.known_means, accumulation_dtype(K))
            half = self.mean_norm / 2.0
            K = subtract_outer_sum(K, means - half, means - half)
        return K if self.frequencies is None else times_outer_product(K, self.frequencies.roots[:, 0])

    def factor(self) -> Array | None:
        """Return F minus the mean of its rows, where the base has a factor F; with frequencies W^½ times that."""
        F = self.base.factor()
        return None if F is None else self.project(self.rooted(F))
