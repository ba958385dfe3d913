"""Slices, panels and chosen rows of data, dense or CSR, in any container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    device_of,
    from_host,
    indices,
    is_sparse,
    namespace_of,
    to_host,
    writes_in_place,
)
from gpukpca.backend.parallel import row_slices
from gpukpca.backend.random import seeded_subset
from gpukpca.backend.sparse import narrowed
from gpukpca.data.csr import less_row
from gpukpca.data.rows import Rows
from gpukpca.exceptions import InvalidParameterError


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
    if isinstance(X, Rows):
        return X.like if start == stop else X.take(np.arange(start, stop))
    return X[start:stop] if is_sparse(X) else X[start:stop, :]


def gather_rows(X: Any, chosen: Any) -> Any:
    """Return the rows (entries of a vector) named by host integers, in their order, as a copy."""
    if isinstance(X, Rows):
        return X.take(chosen)
    if is_sparse(X):
        return X[np.asarray(chosen, dtype=np.int64).reshape(-1)]
    if writes_in_place(X):  # NumPy's `take` first copies the whole of an array that is not in C order
        return X[indices(chosen, X)]
    return namespace_of(X).take(X, indices(chosen, X), axis=0)


def take_columns(X: Array, chosen: Any) -> Array:
    """Return the columns of a dense X named by host integers, as a copy."""
    if writes_in_place(X):  # `take` first copies the whole of an array that is not in C order
        return X[:, indices(chosen, X)]
    return namespace_of(X).take(X, indices(chosen, X), axis=1)


def place_of(X: Any) -> Array:
    """Return a dense array with the library, dtype and device of X."""
    if isinstance(X, Rows):
        return X.like
    return X.data if is_sparse(X) else X


def in_memory(X: Any) -> Any:
    """Return X where all of it is in the memory of this process, else None."""
    return None if isinstance(X, Rows) else X


def dense_rows(X: Any) -> Array:
    """Return X as a dense array."""
    return X.toarray() if is_sparse(X) else X


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
    n, length = int(X.shape[0]), panel_length(int(X.shape[1]), is_on_gpu(X))
    return row_slices(n, length) if n > length else [(0, n)]


def panel_length(d: int, on_gpu: bool) -> int:
    """Return the rows of a panel of d features."""
    if on_gpu:
        return max(1, blocking.PANEL_ENTRIES.gpu // max(1, d))
    return max(1, min(blocking.PANEL_ROWS, blocking.PANEL_ENTRIES.cpu // max(1, d)))


def sampled_panels(X: Any, limit: int) -> Iterator[np.ndarray]:
    """Yield at most `limit` rows of X on the host in float64, by panels of columns; the same rows in every run.

    Each panel is a copy of at most 8 MiB (one column at least) for any width of X. Columns in which the sampled rows of
    a CSR matrix store no entry are omitted.
    """
    n, columns = int(X.shape[0]), np.arange(int(X.shape[1]))
    count = min(n, limit)
    chosen = seeded_subset(n, count)
    if not writes_in_place(X) and (n > limit or isinstance(X, Rows)):
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


def divided_rows(X: Any, divisors: np.ndarray) -> Any:
    """Return every row divided by its divisor, in the dtype of X."""
    if is_sparse(X):
        data = X.data * np.repeat(1.0 / divisors, np.diff(X.indptr))  # a product of matrices would read all columns
        return type(X)((data.astype(X.dtype), X.indices, X.indptr), shape=X.shape)
    wide = accumulation_dtype(X)
    columns = from_host(divisors, X, wide)[:, None]
    return by_panels(X, lambda panel, start, stop: cast(cast(panel, wide) / columns[start:stop, :], X.dtype))


def shifted_rows(X: Any, mean: Array, scale: float, dtype: Any) -> Any:
    """Return scale (X - mean) as `dtype`, the difference taken in the dtype of the mean; CSR stays CSR."""
    if is_sparse(X):
        return (less_row(X.astype(np.float64), mean) * scale).astype(dtype, copy=False)
    return by_panels(X, lambda panel, *_: shifted_panel(panel, mean, scale, dtype))


def shifted_panel(panel: Array, mean: Array, scale: float, dtype: Any) -> Array:
    """Return the same of a few dense rows."""
    return cast((cast(panel, mean.dtype) - mean[None, :]) * scale, dtype)


def dense_pair(a: Any, b: Any) -> tuple[Array, Array]:
    """Return two blocks of rows as dense arrays, of two CSR blocks without the columns that both lack."""
    if is_sparse(a) and is_sparse(b):
        a, b = narrowed(a, b)
    return dense_rows(a), dense_rows(b)
