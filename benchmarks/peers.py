"""The contestants, one table; and the residual of anybody's answer, recomputed in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.metrics.pairwise import rbf_kernel

import gpukpca

# name -> (n_components, gamma, tol) -> estimator. Each peer at its default and at our tolerance.
PEERS: dict[str, Callable[[int, float, float], Any]] = {
    "gpukpca": lambda p, gamma, tol: gpukpca.KernelPCA(p, kernel="rbf", gamma=gamma, tol=tol, random_state=0),
    "sklearn auto": lambda p, gamma, tol: SklearnKernelPCA(p, kernel="rbf", gamma=gamma, random_state=0),
    "sklearn arpack, matched": lambda p, gamma, tol: SklearnKernelPCA(
        p, kernel="rbf", gamma=gamma, eigen_solver="arpack", tol=tol, random_state=0
    ),
    "sklearn arpack, default": lambda p, gamma, tol: SklearnKernelPCA(
        p, kernel="rbf", gamma=gamma, eigen_solver="arpack", random_state=0
    ),
    "sklearn randomized, default": lambda p, gamma, tol: SklearnKernelPCA(
        p, kernel="rbf", gamma=gamma, eigen_solver="randomized", random_state=0
    ),
}


def largest_residual(model: Any, X: np.ndarray, gamma: float) -> float:
    """max ‖Kc u - λ u‖ / λ₁ over the components, everything in float64, K by panels of rows."""
    X = X.astype(np.float64)
    U = np.asarray(model.eigenvectors_, dtype=np.float64)
    values = np.asarray(model.eigenvalues_, dtype=np.float64)
    centred = U - U.mean(axis=0)
    product = np.concatenate([rbf_kernel(X[i : i + 1000], X, gamma=gamma) @ centred for i in range(0, len(X), 1000)])
    product -= product.mean(axis=0)
    return float(np.max(np.linalg.norm(product - U * values, axis=0)) / values[0])
