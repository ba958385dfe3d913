"""Means, norms and bounds of rows, dense or CSR, in any container."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import column_norms, column_sums, down_columns
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    from_host,
    is_numpy,
    is_sparse,
    namespace_of,
    to_host,
)
from gpukpca.data.csr import canonical, stored_means
from gpukpca.data.frequencies import sum_over_rows
from gpukpca.data.rows import fold
from gpukpca.data.slicing import (
    by_panels,
    gather_rows,
    place_of,
    row_panels,
    shifted_panel,
    shifted_rows,
    take_rows,
)


def feature_means(X: Array) -> Array:
    """Return the means of the columns of a dense X, shape (d,), in the widest floating type.

    Data near the largest number of their type overflow in the sum; they are then divided by n first.
    """
    return fold(X, _share_of_means, int(X.shape[0]))


def _share_of_means(X: Array, total: int) -> Array:
    """Return the means of the rows of a panel times its share of the total number of rows."""
    n = X.shape[0]
    means = _panel_sums(X, column_sums) / n
    xp = namespace_of(means)
    if not bool(xp.all(xp.isfinite(means))):
        means = _panel_sums(X, lambda rows: column_sums(cast(rows, accumulation_dtype(X)) / n))
    return means if n == total else means * (n / total)


def _panel_sums(X: Array, sums: Callable[[Array], Array]) -> Array:
    """Return sums over the rows of X; by panels on devices, whose reductions count entries with 32 bits."""
    if not is_on_gpu(X):
        return sums(X)
    return reduce(operator.add, (sums(X[start:stop, :]) for start, stop in row_panels(X)))


def mean_row(X: Any) -> Any:
    """Return the mean of the rows as a row like those of X, shape (1, d); a constant column keeps its value."""
    if is_sparse(X):
        return type(X)(np.asarray(X.mean(axis=0)).reshape(1, -1).astype(X.dtype))
    return cast(exact_means(X), X.dtype)[None, :]


def exact_means(X: Any, constant: np.ndarray | None = None) -> Any:
    """Return the means to subtract from X, shape (d,): that of a constant column is the constant, to the last bit.

    `constant` are the `constant_columns` of X, where they are known. Those of CSR rows are `stored_means`.
    """
    if is_sparse(X):
        return stored_means(X)
    means, constant = feature_means(X), constant_columns(X) if constant is None else constant
    if not X.shape[0] or not constant.any():
        return means
    xp = namespace_of(means)
    return xp.where(from_host(constant, means) > 0, cast(gather_rows(X, [0])[0, :], means.dtype), means)


def row_square_sums(X: Any) -> Array:
    """Return squared Euclidean norms of the rows, shape (n,), accumulated in the widest type, in the dtype of X."""
    if is_sparse(X):
        X = canonical(X)
        squares = type(X)((np.square(X.data, dtype=np.float64), X.indices, X.indptr), shape=X.shape)
        return np.asarray(squares.sum(axis=1)).reshape(-1).astype(X.dtype)
    if is_numpy(X):  # one pass without a temporary of the size of X
        return np.einsum("ij,ij->i", X, X, dtype=np.float64).astype(X.dtype)
    xp = namespace_of(X)
    wide = cast(X, accumulation_dtype(X))
    return cast(xp.sum(wide * wide, axis=1), X.dtype)


def square_sums(X: Array) -> Array:
    """Return squared norms of dense rows in the widest type, shape (n,), a panel at a time."""
    wide = accumulation_dtype(X)

    def panel(rows: Array, *_: int) -> Array:
        rows = cast(rows, wide)
        return namespace_of(rows).sum(rows * rows, axis=1)

    return by_panels(X, panel)


def row_norms(X: Any) -> np.ndarray:
    """Return Euclidean norms of the rows on the host; huge and tiny rows of a dense X are safe."""
    if is_sparse(X):
        norms: np.ndarray = np.sqrt(row_square_sums(X.astype(np.float64)))
        return norms
    panels = [X[start:stop, :] for start, stop in row_panels(X)]
    return np.concatenate([column_norms(panel.T) for panel in panels])


def variance_of_entries(X: Any, weights: np.ndarray | None = None) -> float:
    """Return the variance of all entries about their common mean, in the widest floating type.

    `weights` (n,) on the host say how often each row counts.
    """
    count = (int(X.shape[0]) if weights is None else float(np.sum(weights))) * int(X.shape[1])
    mean = sum_over_rows(X, weights, _row_powers_about, 0.0, 1) / count
    return sum_over_rows(X, weights, _row_powers_about, mean, 2) / count


def _row_powers_about(X: Any, mean: float, power: int) -> Array:
    """Return Σ (x - mean)^power over the entries of every row of one array, shape (n,)."""
    if is_sparse(X):
        X, entries = canonical(X), blocking.PANEL_ENTRIES.cpu  # of a panel of stored entries
        cuts = np.searchsorted(X.indptr, np.arange(entries, X.indptr[-1], entries))
        bounds = pairwise(np.unique([0, *cuts, X.shape[0]]))
        return np.concatenate([_stored_powers(X[start:stop], mean, power) for start, stop in bounds])
    xp, wide = namespace_of(X), accumulation_dtype(X)
    return by_panels(X, lambda panel, *_: xp.sum((cast(panel, wide) - mean) ** power, axis=1))


def _stored_powers(X: Any, mean: float, power: int) -> np.ndarray:
    """Return Σ (x - mean)^power of the rows of a CSR matrix."""
    stored = np.diff(X.indptr)
    deviations = (X.data.astype(np.float64) - mean) ** power
    sums = np.bincount(np.repeat(np.arange(len(stored)), stored), deviations, minlength=len(stored))
    return np.asarray(sums + (X.shape[1] - stored) * (0.0 - mean) ** power)


def total_range(X: Any) -> float:
    """Return the sum over features of max - min: no two rows are further apart in the 1-norm."""
    xp = namespace_of(place_of(X))
    low, high = feature_bounds(X)
    wide = accumulation_dtype(high)
    total = float(xp.sum(cast(high, wide) - cast(low, wide)))
    return total if math.isfinite(total) else math.inf


def half_range(low: Array, high: Array) -> float:
    """Return the largest of (high - low) / 2, which cannot overflow, for the bounds (d,) of features."""
    return float(namespace_of(low).max(0.5 * high - 0.5 * low))


def feature_bounds(X: Any) -> tuple[Array, Array]:
    """Return the smallest and the largest entry of every column, shapes (d,)."""
    if is_sparse(X):
        return X.min(axis=0).toarray().reshape(-1), X.max(axis=0).toarray().reshape(-1)
    bounds: tuple[Array, Array] = fold(X, _bounds, merge=outer_bounds)
    return bounds


def outer_bounds(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the bounds of the rows of both."""
    xp = namespace_of(one[0])
    return xp.minimum(one[0], other[0]), xp.maximum(one[1], other[1])


def _bounds(X: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest entry of every column of one array."""
    xp = namespace_of(X)
    panels = (X[start:stop, :] for start, stop in row_panels(X)) if is_on_gpu(X) else (X,)
    return reduce(outer_bounds, ((down_columns(panel, xp.min), down_columns(panel, xp.max)) for panel in panels))


def constant_columns(X: Array) -> np.ndarray:
    """Return which columns of a dense X hold one value only, on the host, shape (d,)."""
    low, high = feature_bounds(X)
    return to_host(low == high)


def square_norm_sizes(X: Any, mean: Array, scale: float) -> tuple[float, float]:
    """Return the largest and the root mean square of ||scale (x - mean)||² over the rows, in the widest type.

    Both are infinite where they overflow. `mean` may hold zeros for columns that CSR rows keep as they are.
    """
    parts = fold(X, _square_norm_sizes, mean, scale)
    largest = max(parts)[0]
    if largest == 0 or not math.isfinite(largest):
        return largest, largest
    shares, count = 0.0, 0
    for most, share, rows in parts:
        shares, count = shares + rows * (most / largest) ** 2 * share, count + rows
    return largest, largest * math.sqrt(shares / count)


def _square_norm_sizes(X: Any, mean: Array, scale: float) -> list[tuple[float, float, int]]:
    """Return, of every panel, the largest squared norm, the mean of squares over its square, and the rows."""
    xp, parts = namespace_of(mean), [(0.0, 0.0, 0)]
    for start, stop in row_panels(X):
        if start < stop:
            shifted = shifted_rows if is_sparse(X) else shifted_panel
            squares = row_square_sums(shifted(take_rows(X, start, stop), mean, scale, mean.dtype))
            largest = float(xp.max(squares))
            if not math.isfinite(largest):
                return [(math.inf, 1.0, X.shape[0])]
            parts.append((largest, float(xp.mean((squares / (largest or 1.0)) ** 2)), stop - start))
    return parts
