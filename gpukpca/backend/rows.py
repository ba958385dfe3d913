"""Rows of data, dense or CSR: checks, slices, means, norms and bounds."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.csr import canonical, relabeled
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import column_norms, column_sums, down_columns
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    device_of,
    dtype_name,
    from_host,
    indices,
    is_numpy,
    is_sparse,
    namespace_of,
    to_host,
    writes_in_place,
)
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.partitioned_rows import PartitionedRows, map_row_blocks
from gpukpca.backend.random import seeded_subset
from gpukpca.exceptions import InvalidParameterError

# Largest power of two that data are multiplied or divided by: it and its inverse are normal numbers.
LARGEST_EXPONENT = {"float64": 1020, "float32": 124}
# Deviations of 2**-e to 2**e have fourth powers, and long sums of them, well inside the range of the type.
SAFE_EXPONENT = {"float64": 200, "float32": 20}


def check_widths(X: Any, Y: Any) -> None:
    """Raise where the rows of X and Y live in different places or have different widths."""
    namespace_of(X, Y)
    if X.shape[1] != Y.shape[1]:
        raise InvalidParameterError(
            f"X has {X.shape[1]} features and Y has {Y.shape[1]}; the rows of both must be of one width."
        )


def take_rows(X: Any, start: int, stop: int) -> Any:
    """Return the rows from `start` to `stop`; X itself where these are all."""
    if start == 0 and stop == X.shape[0]:
        return X
    if isinstance(X, PartitionedRows):
        return X.like if start == stop else X.take(np.arange(start, stop))
    return X[start:stop] if is_sparse(X) else X[start:stop, :]


def gather_rows(X: Any, chosen: Any) -> Any:
    """Return the rows (entries of a vector) named by host integers, in their order, as a copy."""
    if isinstance(X, PartitionedRows):
        return X.take(chosen)
    if is_sparse(X):
        return X[np.asarray(chosen, dtype=np.int64).reshape(-1)]
    if writes_in_place(X):  # NumPy's `take` first copies the whole of an array that is not in C order
        return X[indices(chosen, X)]
    return namespace_of(X).take(X, indices(chosen, X), axis=0)


def subtract_row(X: Any, v: Array) -> Any:
    """Return X - 1 vᵀ; in place where the library can."""
    if isinstance(X, PartitionedRows):
        return X.map_panels(_panel_less_row, v, width=X.shape[1])
    return add(X, -v[None, :])


def _panel_less_row(panel: Array, v: Array) -> Array:
    return panel - v[None, :]


def take_columns(X: Array, chosen: Any) -> Array:
    """Return the columns of a dense X named by host integers, as a copy."""
    if writes_in_place(X):  # `take` first copies the whole of an array that is not in C order
        return X[:, indices(chosen, X)]
    return namespace_of(X).take(X, indices(chosen, X), axis=1)


def place_of(X: Any) -> Array:
    """Return a dense array with the library, dtype and device of X."""
    if isinstance(X, PartitionedRows):
        return X.like
    return X.data if is_sparse(X) else X


def dense_rows(X: Any) -> Array:
    """Return X as a dense array."""
    return X.toarray() if is_sparse(X) else X


def dense_pair(a: Any, b: Any) -> tuple[Array, Array]:
    """Return two blocks of rows as dense arrays, of two CSR blocks without the columns in which neither has an entry.

    Such columns add nothing to inner products and distances.
    """
    if is_sparse(a) and is_sparse(b):
        kept = np.union1d(a.indices, b.indices)
        a, b = relabeled(a, kept), relabeled(b, kept)
    return dense_rows(a), dense_rows(b)


def as_csr(X: Any) -> Any:
    """Return a host array or sparse matrix as CSR."""
    return X.tocsr() if is_sparse(X) else scipy.sparse.csr_array(X)


def less_full_columns(X: Any, shift: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return a canonical CSR X less `shift` in columns that more than half of the rows store, and what was subtracted.

    Only such columns can have a mean that is large relative to their deviations. In a column of which half is zero the
    deviations have the size of the mean. The result has at most twice the entries of X. Both results
    are float64, and the subtracted row (d,) is 0 in all other columns.
    """
    subtracted, full = np.zeros(X.shape[1]), _full_columns(X)
    subtracted[full] = shift[full]
    return _less_row(cast(X, np.float64), subtracted), subtracted


def _full_columns(X: Any) -> np.ndarray:
    """Return the numbers of the columns of a canonical CSR X that more than half of the rows store."""
    return np.flatnonzero(2 * np.bincount(X.indices, minlength=X.shape[1]) > X.shape[0])


def _less_row(X: Any, row: np.ndarray) -> Any:
    """Return a float64 CSR X less a row that is mostly zeros; X itself where it is all zeros."""
    n, kept = int(X.shape[0]), np.flatnonzero(row)
    if not kept.size:
        return X
    rows = (np.tile(row[kept], n), np.tile(kept, n), np.arange(n + 1) * kept.size)
    return (X - type(X)(rows, shape=X.shape)).tocsr()


def power_of_two_scale(largest: float, dtype: Any) -> float:
    """Return the power of two that brings `largest` into [1/2, 1), as far as `dtype` allows; 1 where it is 0."""
    most = LARGEST_EXPONENT[dtype_name(dtype)]
    return 2.0 ** max(-most, min(most, -math.frexp(largest)[1]))


def scale_for_squares(largest: float, dtype: Any) -> float:
    """Return 1 where deviations up to `largest` can be squared safely in `dtype`, else `power_of_two_scale`."""
    safe = SAFE_EXPONENT[dtype_name(dtype)]
    return 1.0 if abs(math.frexp(largest)[1]) <= safe else power_of_two_scale(largest, dtype)


def feature_means(X: Array) -> Array:
    """Return the means of the columns of a dense X, shape (d,), in the widest floating type.

    Data near the largest number of their type overflow in the sum; they are then divided by n first.
    """
    parts = map_row_blocks(X, _counted_means)
    total = sum(count for count, _ in parts)
    return parts[0][1] if len(parts) == 1 else sum(means * (count / total) for count, means in parts if count)


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


def _counted_means(X: Array) -> tuple[int, Array]:
    """Return the number and the means of the rows of one array."""
    n = X.shape[0]
    means = _panel_sums(X, column_sums) / n
    xp = namespace_of(means)
    if not bool(xp.all(xp.isfinite(means))):
        means = _panel_sums(X, lambda rows: column_sums(cast(rows, accumulation_dtype(X)) / n))
    return n, means


def _panel_sums(X: Array, sums: Callable[[Array], Array]) -> Array:
    """Return sums over the rows of X; by panels on devices, whose reductions count entries with 32 bits."""
    if not is_on_gpu(X):
        return sums(X)
    return reduce(operator.add, (sums(X[start:stop, :]) for start, stop in row_panels(X)))


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


def by_panels(X: Array, function: Callable[[Array, int, int], Array]) -> Array:
    """Return ``function(X[start:stop], start, stop)`` of panels of rows, joined, without a wide copy of all of X.

    The function returns one row for each of its rows.
    """
    bounds = row_panels(X)
    if len(bounds) == 1:
        return function(X, 0, X.shape[0])
    panels = (function(X[start:stop, :], start, stop) for start, stop in bounds)
    if not writes_in_place(X):
        return namespace_of(X).concat(list(panels), axis=0)
    first = next(panels)
    joined = namespace_of(X).empty((X.shape[0], *first.shape[1:]), dtype=first.dtype, device=device_of(X))
    joined[: bounds[0][1], ...] = first
    for (start, stop), panel in zip(bounds[1:], panels, strict=True):
        joined[start:stop, ...] = panel
    return joined


def row_panels(X: Any) -> list[tuple[int, int]]:
    """Return (start, stop) of panels of the rows of X; at least one, which may be empty."""
    n, d = int(X.shape[0]), max(1, int(X.shape[1]))
    on_gpu = is_on_gpu(X)
    fitting = blocking.PANEL_ENTRIES.on(on_gpu) // d
    rows = max(1, fitting if on_gpu else min(blocking.PANEL_ROWS, fitting))
    return row_slices(n, rows) or [(0, 0)]


def shifted_rows(X: Any, mean: Array, scale: float, dtype: Any) -> Any:
    """Return scale (X - mean) as `dtype`, the difference taken in the dtype of the mean; CSR stays CSR."""
    if is_sparse(X):
        return (_less_row(X.astype(np.float64), mean) * scale).astype(dtype, copy=False)
    return by_panels(X, lambda panel, *_: cast((cast(panel, mean.dtype) - mean[None, :]) * scale, dtype))


def stored_means(X: Any) -> np.ndarray:
    """Return the float64 means of the stored entries of the full columns of a CSR X, 0 in the others, shape (d,)."""
    X = canonical(X)
    means, full = np.zeros(X.shape[1]), _full_columns(X)
    if len(full):
        columns = X[:, full].tocsc()
        values, starts, counts = columns.data.astype(np.float64), columns.indptr[:-1], np.diff(columns.indptr)
        first = values[starts]
        # About the first entry: a constant column has its mean to the last bit.
        means[full] = first + np.add.reduceat(values - np.repeat(first, counts), starts) / counts
    return means


def sparse_square_distances(a: Any, b: Any) -> np.ndarray:
    """Return ‖x - y‖² of the rows of two CSR matrices by differences, which stay sparse; equal rows give exactly 0."""
    distances = np.empty((a.shape[0], b.shape[0]))
    for i in range(a.shape[0]):
        row = a[i : i + 1]
        columns, m = row.indices, b.shape[0]
        starts = len(columns) * np.arange(m + 1)
        same = scipy.sparse.csr_array((np.tile(row.data, m), np.tile(columns, m), starts), shape=b.shape)
        difference = b - same
        distances[i, :] = np.asarray(difference.multiply(difference).sum(axis=1)).reshape(-1)
    return distances


def row_norms(X: Any) -> np.ndarray:
    """Return Euclidean norms of the rows on the host; huge and tiny rows of a dense X are safe."""
    if is_sparse(X):
        return np.sqrt(row_square_sums(X.astype(np.float64)))
    xp = namespace_of(X)
    panels = [X[start:stop, :] for start, stop in row_panels(X)]
    return np.concatenate([column_norms(xp.matrix_transpose(panel)) for panel in panels])


def divided_rows(X: Any, divisors: np.ndarray) -> Any:
    """Return every row divided by its divisor, in the dtype of X."""
    if is_sparse(X):
        return (scipy.sparse.diags_array(1.0 / divisors) @ X).tocsr().astype(X.dtype)
    wide = accumulation_dtype(X)
    columns = from_host(divisors, X, wide)[:, None]
    return by_panels(X, lambda panel, start, stop: cast(cast(panel, wide) / columns[start:stop, :], X.dtype))


def variance_of_entries(X: Any) -> float:
    """Return the variance of all entries about their common mean, in the widest floating type."""
    count = X.shape[0] * X.shape[1]
    if is_sparse(X):
        mean = sum(float(values.sum()) for values in _stored_values(X)) / count
        stored, squares = 0, 0.0
        for values in _stored_values(X):
            stored, squares = stored + values.size, squares + float(np.sum((values - mean) ** 2))
        return (squares + (count - stored) * mean * mean) / count
    mean = sum(map_row_blocks(X, _sum_of_entries)) / count
    return sum(map_row_blocks(X, _squares_about, mean)) / count


def _stored_values(X: Any) -> Iterator[np.ndarray]:
    """Yield the stored entries of a CSR matrix in float64, duplicates summed, by panels of about a million."""
    entries = blocking.PANEL_ENTRIES.cpu
    cuts = np.searchsorted(X.indptr, np.arange(entries, X.indptr[-1], entries), side="left")
    for start, stop in pairwise(np.unique([0, *cuts, X.shape[0]])):
        panel = X[start:stop].astype(np.float64)
        panel.sum_duplicates()
        yield panel.data


def _sum_of_entries(X: Array) -> float:
    return float(namespace_of(X).sum(X, dtype=accumulation_dtype(X)))


def _squares_about(X: Array, mean: float) -> float:
    """Return the sum over all entries of (x - mean)²."""
    xp, wide, squares = namespace_of(X), accumulation_dtype(X), 0.0
    for start, stop in row_panels(X):
        centered = cast(X[start:stop, :], wide) - mean
        squares += float(xp.sum(centered * centered))
    return squares


def sampled_panels(X: Any, most: int) -> Iterator[np.ndarray]:
    """Yield at most `most` rows of X on the host in float64, by panels of columns; the same rows in every run.

    Each panel is a copy of at most 8 MiB (one column at least) for any width of X. Columns in which the sampled rows of
    a CSR matrix store no entry are omitted.
    """
    n, columns = int(X.shape[0]), np.arange(int(X.shape[1]))
    count = min(n, most)
    chosen = seeded_subset(n, count)
    if not writes_in_place(X) and (n > most or isinstance(X, PartitionedRows)):
        X, chosen = gather_rows(X, chosen), np.arange(count)
    if is_sparse(X):
        stored = np.zeros(len(columns), dtype=bool)
        stored[X.indices] = True
        columns = np.flatnonzero(stored) if stored.any() else columns[:1]
    width = max(1, blocking.PANEL_ENTRIES.cpu // max(1, count))
    for start in range(0, len(columns), width):
        few = columns[start : start + width]
        panel = X[:, few] if is_sparse(X) else gather_rows(X[:, start : start + len(few)], chosen)
        yield to_host(panel).astype(np.float64)


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
    parts = map_row_blocks(X, _bounds)
    if len(parts) == 1:
        return parts[0]
    xp = namespace_of(place_of(X))
    low, high = (xp.stack(list(ends)) for ends in zip(*parts, strict=True))
    return xp.min(low, axis=0), xp.max(high, axis=0)


def _bounds(X: Array) -> tuple[Array, Array]:
    """Return the smallest and the largest entry of every column of one array."""
    xp = namespace_of(X)
    bounds = row_panels(X) if is_on_gpu(X) else [(0, X.shape[0])]
    low, high = (
        xp.stack([down_columns(X[start:stop, :], extreme) for start, stop in bounds]) for extreme in (xp.min, xp.max)
    )
    return xp.min(low, axis=0), xp.max(high, axis=0)


def constant_columns(X: Array) -> np.ndarray:
    """Return which columns of a dense X hold one value only, on the host, shape (d,)."""
    low, high = feature_bounds(X)
    return to_host(low == high)


def square_norm_sizes(X: Any, mean: Array, scale: float) -> tuple[float, float]:
    """Return the largest and the root mean square of ||scale (x - mean)||² over the rows, in the widest type.

    Both are infinite where they overflow. `mean` may hold zeros for columns that CSR rows keep as they are.
    """
    parts = map_row_blocks(X, _square_norm_sizes, mean, scale)
    largest = max(part[0] for part in parts)
    if largest == 0 or not math.isfinite(largest):
        return largest, largest
    shares = sum(count * (most / largest) ** 2 * share for most, share, count in parts)
    return largest, largest * math.sqrt(shares / sum(count for *_, count in parts))


def _square_norm_sizes(X: Any, mean: Array, scale: float) -> tuple[float, float, int]:
    """Return the largest squared norm of one array, the mean of all squares over its square, and the number of rows."""
    xp, parts = namespace_of(mean), []
    for start, stop in row_panels(X):
        if start < stop:
            panel = take_rows(X, start, stop)
            rows = shifted_rows(panel, mean, scale, mean.dtype)
            parts.append(row_square_sums(rows))
    if not parts:
        return 0.0, 0.0, 0
    squares = xp.concat(parts, axis=0)
    largest = float(xp.max(squares))
    if not math.isfinite(largest):
        return math.inf, 1.0, X.shape[0]
    return largest, float(xp.mean((squares / (largest or 1.0)) ** 2)), int(X.shape[0])
