"""gamma from the data: 1/d, "scale" and "median"."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from gpukpca._typing import Array
from gpukpca.backend.namespace import accumulation_dtype, cast, is_sparse, namespace_of, to_host
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.base import checked_number

GAMMA_RULES = ("scale", "median")
MEDIAN_SAMPLE = 1000


def resolved_gamma(owner: str, gamma: Any, X: Array) -> float:
    """gamma as a number.

    Parameters
    ----------
    owner : str
        Named in the error.
    gamma : float >= 0, None, "scale" or "median"
        None is 1/d; "scale" is 1 / (d · Var(X)) over all entries; "median" is 1 / (2 m²) with m the median Euclidean
        distance between the rows of a sample of at most 1000 (the same rows in every run). Data without spread give
        1/d for both.
    X : array or CSR matrix, shape (n, d)

    Raises
    ------
    InvalidParameterError
        For anything else.
    """
    d = int(X.shape[1])
    if gamma is None:
        return 1.0 / d
    if not isinstance(gamma, str):
        return checked_number(owner, "gamma", gamma, low=0, what='a number >= 0, None, "scale" or "median"')
    if gamma == "scale":
        spread = _variance(X) * d
    elif gamma == "median":
        spread = 2.0 * _median_distance(X) ** 2
    else:
        raise InvalidParameterError(
            f'{owner}: gamma={gamma!r} is not allowed; gamma must be a number >= 0, None, "scale" or "median".'
        )
    return 1.0 / spread if np.isfinite(spread) and spread > 0 else 1.0 / d


def _variance(X: Any) -> float:
    """Variance of all entries about their common mean, in the widest floating type."""
    if is_sparse(X):
        mean = float(X.mean(dtype=np.float64))
        return float(X.multiply(X).astype(np.float64).mean()) - mean * mean
    xp = namespace_of(X)
    wide = accumulation_dtype(X)
    count = X.shape[0] * X.shape[1]
    mean = float(xp.sum(X, dtype=wide)) / count
    centred = cast(X, wide) - mean
    return float(xp.sum(centred * centred)) / count


def _median_distance(X: Any) -> float:
    """Median distance between the rows of a seeded sample."""
    n = int(X.shape[0])
    if n > MEDIAN_SAMPLE:
        rows = np.sort(np.random.default_rng(0).choice(n, MEDIAN_SAMPLE, replace=False))
        sample = X[rows] if is_sparse(X) else _taken(X, rows)
    else:
        sample = X
    distances = pdist(to_host(sample).astype(np.float64))
    return float(np.median(distances)) if distances.size else 0.0


def _taken(X: Array, rows: np.ndarray) -> Array:
    xp = namespace_of(X)
    indices = xp.asarray(rows, device=getattr(X, "device", None)) if not isinstance(X, np.ndarray) else rows
    return xp.take(X, indices, axis=0)
