"""Correlations of the columns of rows in any container with those of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.pca.operator import centered_matrix, feature_scale
from gpukpca.backend.namespace import to_host
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.data.scale import LARGEST_EXPONENT, rescaled

# The power of two that deviations below its inverse are multiplied by.
LARGEST = 2.0 ** LARGEST_EXPONENT["float64"]


def correlations(X: Any, Z: Array, weights: np.ndarray | None = None) -> np.ndarray:
    """Return Pearson's correlations of the columns of X (n, d) with those of an array Z (n, p), on the host, (d, p).

    Z is where X is, and of its dtype. A column that is constant but for rounding has correlation 0. `weights` (n,) on
    the host say how often each row counts.
    """
    if not int(Z.shape[1]):  # a model that keeps no component
        return np.zeros((int(X.shape[1]), 0))
    columns, scores = (_standardized(rows, weights) for rows in (X, Z))
    products = to_host(columns.adjoint(scores.materialized())).astype(np.float64)
    lengths = np.sqrt(np.outer(columns.squares, scores.squares))
    found: np.ndarray = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return found.clip(-1.0, 1.0)


def _standardized(X: Any, weights: np.ndarray | None) -> CenteredMatrix:
    """Return the rows of X less their mean, over the standard deviations; constant columns have weight 0."""
    Z = centered_matrix(X, True, None, weights=weights)
    divisors: Any = feature_scale(True, Z)
    varying = divisors[np.isfinite(divisors)]
    if np.any(varying < 1.0 / LARGEST) and np.max(varying) < 1.0:  # whose inverses overflow
        X = rescaled(X, LARGEST)
        Z = centered_matrix(X, True, None, weights=weights)
        divisors = feature_scale(True, Z)
    Z.rescale(divisors)
    return Z
