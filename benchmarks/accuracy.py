"""Errors of an answer, recomputed in float64 by code that no exact contestant of ours uses.

On the host with scikit-learn's kernels; on a device, where n is large, by panels of rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.places import on_host

# Up to here every row of K is recomputed on the host; above, a random sample of the rows gives the norms to a few per
# cent. A device recomputes every row, whatever n.
EVERY_ROW_UP_TO = 20_000
SAMPLED_ROWS = 1000
PANEL_ITEMS = 2**24
# Below, the host's independent kernels are fast enough for the answers of devices too.
DEVICE_FROM = 5000
DEVICE_EDGE = 8192
# Columns of a product that are recomputed on a device: in float64 they cost more than the product itself.
CHECKED_COLUMNS = 8

Put = Callable[[np.ndarray], Any]
# Of a panel of rows in float64: 128 MiB.
AXES_ENTRIES = 2**24


def eigen_errors(
    case: Case, X: np.ndarray, scores: np.ndarray, eigenvalues: np.ndarray | None, put: Put | None = None
) -> tuple[float, np.ndarray | None]:
    """Return max ‖Kc u - λ u‖ / λ₁ over the components, and the Rayleigh quotients, or None where they are estimates.

    Of the scores u √λ (n, p) only the direction counts; without eigenvalues (p,) λ are the quotients. With a sample S
    of m rows the norm of the residual r is estimated by √(n/m) ‖r_S‖; as 1ᵀr = 0, centering from the left is
    subtracting the mean over S.
    """
    n = len(X)
    U = scores.astype(np.float64)
    U /= np.linalg.norm(U, axis=0)
    means = U.mean(axis=0)
    if put is not None and n >= DEVICE_FROM and case.kernel == "rbf":
        rows = np.arange(n)
        image = device_product(case, X, U - means, put)
    else:
        rows = sampled(n, n if n <= EVERY_ROW_UP_TO else SAMPLED_ROWS)
        image = kernel_product(case, X, rows, U - means)
    image -= image.mean(axis=0)
    V = U[rows] - U[rows].mean(axis=0)
    quotients = np.sum(V * image, axis=0) / np.sum(V * V, axis=0)
    values = quotients if eigenvalues is None else eigenvalues
    norms = np.sqrt(n / len(rows)) * np.linalg.norm(image - V * values, axis=0)
    outside = np.sqrt(n) * values * means  # along 1, of vectors that are not centered
    worst = float(np.max(np.hypot(norms, outside)) / np.max(values))
    return worst, quotients if len(rows) == n else None


def axes_residual(X: Any, components: np.ndarray, variances: np.ndarray, centered: bool = True) -> float:
    """Return max ‖C v - λ v‖ / λ₁ with the covariance matrix C of X, from panels of rows in float64.

    X may be sparse. Without `centered` C is XᵀX / (n - 1).
    """
    n, panel = X.shape[0], max(1, AXES_ENTRIES // X.shape[1])
    bounds = [(start, min(start + panel, n)) for start in range(0, n, panel)]
    mean = sum(X[start:stop].sum(axis=0, dtype=np.float64) for start, stop in bounds) / n * centered
    products = np.zeros(components.T.shape)
    for start, stop in bounds:
        rows = X[start:stop].astype(np.float64)
        Z = (rows.toarray() if hasattr(rows, "toarray") else rows) - mean
        products += Z.T @ (Z @ components.T)
    errors = products / (n - 1) - components.T * variances[None, :]
    return float(np.max(np.linalg.norm(errors, axis=0)) / variances[0])


def product_error(case: Case, X: np.ndarray, V: np.ndarray, product: np.ndarray, put: Put | None = None) -> float:
    """Return the largest error of K V up to a constant in each column, relative to its largest entry.

    On a device all rows of some columns; on the host some rows of all columns.
    """
    if put is not None and len(X) >= DEVICE_FROM and case.kernel == "rbf":
        exact = device_product(case, X, V[:, :CHECKED_COLUMNS].astype(np.float64), put)
        wrong = product[:, :CHECKED_COLUMNS] - exact
    else:
        rows = sampled(len(X), 200)
        exact = kernel_product(case, X, rows, V.astype(np.float64))
        wrong = product[rows] - exact
    wrong -= wrong.mean(axis=0)
    return float(np.max(np.abs(wrong)) / np.max(np.abs(exact)))


def kernel_product(case: Case, X: np.ndarray, rows: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return K(X[rows], X) @ V in float64, by panels of rows, with scikit-learn's kernel."""
    from sklearn.metrics.pairwise import pairwise_kernels  # after the clock: not every contestant needs it

    Y = X.astype(np.float64)
    edge = max(1, PANEL_ITEMS // len(X))
    parameters = {"gamma": case.gamma, "degree": 3, "coef0": 1}
    panels = [
        pairwise_kernels(Y[rows[i : i + edge]], Y, metric=case.kernel, filter_params=True, **parameters) @ V
        for i in range(0, len(rows), edge)
    ]
    return np.concatenate(panels)


def device_product(case: Case, X: np.ndarray, V: np.ndarray, put: Put, edge: int = DEVICE_EDGE) -> np.ndarray:
    """Return K @ V for the RBF kernel in float64, shape (n, k), on the host; computed where `put` puts arrays.

    One product of the rows [s, -‖s‖²/2, 1] and [s, 1, -‖s‖²/2] of the centered data, s = √(2γ) x, is -γ ‖x - y‖²; what
    rounds above zero is of the size of float64's rounding, and stays. Memory: a tile of edge² items, and n (2 d + 4).
    """
    from array_api_compat import array_namespace

    s = np.sqrt(2.0 * case.gamma) * (X - X.mean(axis=0, dtype=np.float64))
    half, ones = -0.5 * np.einsum("ij,ij->i", s, s)[:, None], np.ones((len(s), 1))
    left, right = put(np.hstack([s, half, ones])), put(np.hstack([s, ones, half]))
    blocks, sums = put(V), []
    xp = array_namespace(left)
    bounds = [(start, min(start + edge, len(s))) for start in range(0, len(s), edge)]
    for start, stop in bounds:
        total = xp.zeros((stop - start, V.shape[1]), dtype=blocks.dtype)
        for first, last in bounds:
            T = left[start:stop, :] @ right[first:last, :].T
            xp.exp(T, out=T)
            total += T @ blocks[first:last, :]
        sums.append(on_host(total))
    return np.concatenate(sums)


def sampled(n: int, m: int) -> np.ndarray:
    """Return m of n row numbers, all of them in order where m = n."""
    return np.arange(n) if m >= n else np.sort(np.random.default_rng(0).choice(n, m, replace=False))


# -- two answers to one problem ----------------------------------------------------------------------------------------


def agreement(ours: dict[str, Any], other: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return the differences of two fits of the same data, given as dicts of host arrays.

    values_in_eps is the largest |λ - λ'| in units of eps λ₁. scores is the largest ‖s - s'‖ / ‖s'‖ of those columns
    that residual over gap determines to `SCORE_TOLERANCE`, None without any; scores_all is that of all columns.
    """
    a, b = (np.asarray(fit["eigenvalues"], dtype=np.float64) for fit in (ours, other))
    eps, largest = float(np.finfo(dtype).eps), float(np.max(b))
    gaps = distances_to_neighbors(b, other["gap"])
    turned = (np.asarray(ours["residual_norms"]) + np.asarray(other["residual_norms"])) / np.maximum(gaps, 1e-300)
    S, R = (np.asarray(fit["scores"], dtype=np.float64) for fit in (ours, other))
    S = S * np.where(np.sum(S * R, axis=0) < 0, -1.0, 1.0)
    apart = np.linalg.norm(S - R, axis=0) / np.linalg.norm(R, axis=0)
    determined = turned <= SCORE_TOLERANCE[dtype]
    return {
        "values_in_eps": float(np.max(np.abs(a - b)) / (eps * largest)),
        "scores": float(np.max(apart[determined])) if determined.any() else None,
        "scores_all": float(np.max(apart)),
        "columns": int(determined.sum()),
    }


# The agreement that two fits at a tolerance of 100 eps should reach.
VALUE_TOLERANCE_IN_EPS = 50.0
SCORE_TOLERANCE = {"float32": 1e-4, "float64": 1e-10}


def distances_to_neighbors(values: np.ndarray, gap: float | None) -> np.ndarray:
    """Return the distance of every eigenvalue to the nearest other one.

    `gap` separates the last one from the one that follows; an unknown gap counts as 0.
    """
    between = -np.diff(values)
    last = 0.0 if gap is None else gap
    return np.minimum(np.concatenate([[np.inf], between]), np.concatenate([between, [last]]))
