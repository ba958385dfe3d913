"""How wrong an answer is, recomputed in float64 with scikit-learn's kernels, which no exact contestant of ours uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.cases import Case

# Up to here every row of K is made again; above, a random sample of the rows gives the norms to a few per cent.
EVERY_ROW_UP_TO = 20_000
SAMPLED_ROWS = 1000
PANEL_ITEMS = 2**24


def largest_residual(case: Case, X: np.ndarray, scores: np.ndarray, eigenvalues: np.ndarray | None) -> float:
    """max ‖Kc u - λ u‖ / λ₁ over the components.

    Parameters
    ----------
    X : array, shape (n, d)
    scores : array, shape (n, p)
        u √λ; only the direction of each column is used.
    eigenvalues : array, shape (p,), optional
        None: Rayleigh quotients, the kindest choice for given vectors.

    Notes
    -----
    With a sample S of m rows the norm of the residual r is estimated by √(n/m) ‖r_S‖; as 1ᵀr = 0, centring from the
    left is subtracting the mean over S.
    """
    n = len(X)
    rows = sampled(n, n if n <= EVERY_ROW_UP_TO else SAMPLED_ROWS)
    U = scores.astype(np.float64)
    U /= np.linalg.norm(U, axis=0)
    means = U.mean(axis=0)
    image = kernel_product(case, X, rows, U - means)
    image -= image.mean(axis=0)
    V = U[rows] - U[rows].mean(axis=0)
    values = np.sum(V * image, axis=0) / np.sum(V * V, axis=0) if eigenvalues is None else eigenvalues
    norms = np.sqrt(n / len(rows)) * np.linalg.norm(image - V * values, axis=0)
    outside = np.sqrt(n) * values * means  # along 1, of vectors that are not centred
    return float(np.max(np.hypot(norms, outside)) / np.max(values))


def product_error(case: Case, X: np.ndarray, V: np.ndarray, product: np.ndarray) -> float:
    """Largest error of K V up to a constant in each column, which centring removes, relative to its largest entry."""
    rows = sampled(len(X), 200)
    exact = kernel_product(case, X, rows, V.astype(np.float64))
    wrong = product[rows] - exact
    wrong -= wrong.mean(axis=0)
    return float(np.max(np.abs(wrong)) / np.max(np.abs(exact)))


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Relative to the largest entry of b."""
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def kernel_product(case: Case, X: np.ndarray, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
    """K(X[rows], X) @ V in float64, by panels of rows."""
    Y = X.astype(np.float64)
    edge = max(1, PANEL_ITEMS // len(X))
    panels = [kernel_panel(case, Y[rows[i : i + edge]], Y) @ V for i in range(0, len(rows), edge)]
    return np.concatenate(panels)


def kernel_panel(case: Case, Y: np.ndarray, X: np.ndarray) -> Any:
    """K(Y, X); parameters that the kernel does not have are ignored."""
    from sklearn.metrics.pairwise import pairwise_kernels  # after the clock: not every contestant needs it

    return pairwise_kernels(Y, X, metric=case.kernel, filter_params=True, gamma=case.gamma, degree=3, coef0=1)


def sampled(n: int, m: int) -> np.ndarray:
    """m of n row numbers, all of them in order where m = n."""
    return np.arange(n) if m >= n else np.sort(np.random.default_rng(0).choice(n, m, replace=False))
