"""Correlations of the columns of rows in any container with those of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.pca.operator import centered_matrix, feature_scale
from gpukpca.backend.namespace import to_host
from gpukpca.covariance.centered_matrix import CenteredMatrix


def correlations(X: Any, Z: Array) -> np.ndarray:
    """Return Pearson's correlations of the columns of X (n, d) with those of an array Z (n, p), on the host, (d, p).

    Z is where X is, and of its dtype. A column that is constant but for rounding has correlation 0.
    """
    columns, scores = _standardized(X), _standardized(Z)
    products = to_host(columns.adjoint(scores.materialized())).astype(np.float64)
    lengths = np.sqrt(np.outer(columns.squares, scores.squares))
    found: np.ndarray = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return found.clip(-1.0, 1.0)


def _standardized(X: Any) -> CenteredMatrix:
    """Return the rows of X less their mean, over the standard deviations; constant columns have weight 0."""
    Z = centered_matrix(X, True, None)
    if (divisors := feature_scale(True, Z)) is not None:
        Z.rescale(divisors)
    return Z
