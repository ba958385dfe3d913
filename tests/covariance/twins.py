"""One body for all centered matrices: every member against the matrix itself in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca.backend.namespace import cast, from_host, namespace_of, to_host
from gpukpca.covariance.centered_matrix import CONSTANT, CenteredMatrix
from gpukpca.exceptions import InvalidParameterError
from tests.tolerances import eps

# Odd sizes: one row, few of them, tall, wide, and as many rows as a panel has at least, one more and one less.
SHAPES = ((1, 3), (2, 1), (63, 5), (5, 63), (255, 4), (256, 4), (257, 4))
OFFSETS = (0.0, 1e4)


def rows(shape: tuple[int, int], offset: float, dtype: str) -> np.ndarray:
    """Random rows, a third of them zeros, with a constant added to the first half of the columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) * np.linspace(1.0, 0.1, shape[1])
    X[rng.random(shape) < 0.3] = 0.0
    X[:, : -(-shape[1] // 2)] += offset
    return X.astype(dtype)


def check_twin(Z: CenteredMatrix, X: np.ndarray, scale: np.ndarray | None = None) -> None:
    """Check all members of Z, the centered matrix of the host rows X, over the divisors `scale` (d,)."""
    n, d = X.shape
    wide = X.astype(np.longdouble)
    mean = wide.mean(axis=0)
    if scale is not None:
        Z.rescale(scale)
    exact = ((wide - mean) * Z.unit / (1.0 if scale is None else scale)).astype(np.float64)
    size = max(float(np.max(np.abs(exact))), np.finfo(np.float64).tiny)
    # A mean has the rounding of entries of the size of the offset.
    offset = float(np.max(np.abs(X))) * Z.unit / (1.0 if scale is None else float(np.min(scale)))
    error = 30 * eps(str(X.dtype)) * size + 30 * np.finfo(np.float64).eps * offset
    rng = np.random.default_rng(1)
    V, U = rng.standard_normal((d, 3)), rng.standard_normal((n, 3))
    U -= U.mean(axis=0)

    def there(block: np.ndarray) -> Any:
        return from_host(block, Z.like)

    def same(found: Any, expected: Any, terms: float) -> None:
        np.testing.assert_allclose(to_host(found), expected, atol=terms * error, rtol=0)

    assert Z.shape == (n, d)
    Z.measure()
    np.testing.assert_allclose(to_host(Z.mean), mean.astype(np.float64), rtol=0, atol=error + 1e-15 * offset)
    squares = np.sum(exact**2, axis=0)
    same(Z.squares, squares, 4 * n * size)
    assert Z.total == pytest.approx(float(np.sum(squares)), rel=1e-5, abs=4 * n * d * size * error)
    np.testing.assert_array_equal(Z.constant_columns(CONSTANT), squares == 0.0)
    same(Z.times(there(V)), exact @ V, 10 * d)
    same(Z.adjoint(there(U)), exact.T @ U, 10 * n)
    same(Z.scatter_times(there(V)), exact.T @ (exact @ V), 20 * n * d * size)
    same(Z.gram_times(there(U)), exact @ (exact.T @ U), 20 * n * d * size)
    S, G = Z.scatter(), Z.gram()
    same(S, exact.T @ exact, 10 * n * size)
    same(G, exact @ exact.T, 10 * d * size)
    assert np.array_equal(to_host(G), to_host(G).T)
    R = Z.triangle(there(V[:, : min(3, d, n)]))
    same(R.T @ R, (exact @ V[:, : R.shape[1]]).T @ (exact @ V[:, : R.shape[1]]), 100 * n * d * size)
    for found, dtype in ((Z.times(there(V)), Z.dtype), (Z.adjoint(there(U)), Z.dtype), (S, Z.wide), (G, Z.wide)):
        assert found.dtype == cast(namespace_of(found).zeros(1), dtype).dtype
    try:
        matrix = Z.materialized()
    except InvalidParameterError:
        return
    if matrix is not None:
        same(matrix, exact, 2)
