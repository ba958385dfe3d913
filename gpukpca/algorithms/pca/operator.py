"""The rows of a fit of PCA as an operator, whatever holds them, and the scale of their features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array, HasShape
from gpukpca.backend.namespace import is_sparse, to_host
from gpukpca.covariance.centered_matrix import CONSTANT_ENTRIES, CenteredMatrix
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.covariance.sparse import SparseCenteredMatrix
from gpukpca.data.finite import check_finite
from gpukpca.data.frequencies import Frequencies, checked_frequencies, degrees_of_freedom
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import InvalidParameterError


def centered_matrix(
    X: Array | Rows, by_rows: bool, n_jobs: int | None, center: bool = True, weights: np.ndarray | None = None
) -> CenteredMatrix:
    """Return the operator of the rows of X less their mean if `center`, read in blocks of rows or of columns.

    `weights` (n,) on the host say how often each row counts.
    """
    frequencies = None if weights is None else Frequencies.of(weights, place_of(X))
    if isinstance(X, Rows):
        return PanelCenteredMatrix(X, by_rows, None, n_jobs, center, frequencies)
    if is_sparse(X):
        return SparseCenteredMatrix(X, by_rows, center, frequencies)
    return DenseCenteredMatrix(X, by_rows, n_jobs, center=center, frequencies=frequencies)


def counted_weights(sample_weight: Any, n: int) -> tuple[np.ndarray | None, int]:
    """Return the weights of n rows, checked, None where each counts once, and the number of rows that count."""
    weights = checked_frequencies(sample_weight, n)
    return weights, n if weights is None else int(np.count_nonzero(weights))


def finite_scores(scores: Array, Z: CenteredMatrix) -> Array:
    """Return the scores of a fit; raise where one of a row of weight 0, which may hold anything, is not finite."""
    if Z.frequencies is not None and Z.frequencies.skips_rows:
        check_finite(scores, "Its row has weight 0: call fit, and transform for the other rows.", "The array of scores")
    return scores


def feature_scale(scale: bool | HasShape | Sequence[float], Z: CenteredMatrix) -> np.ndarray | None:
    """Return the divisors (d,) of the features on the host in float64, checked; None where they stay as they are."""
    if isinstance(scale, (bool, np.bool_)):
        return _deviations(Z) if scale else None
    d = Z.shape[1]
    try:
        divisors = to_host(scale) if hasattr(scale, "shape") else np.asarray(scale, dtype=np.float64)
        if np.iscomplexobj(divisors):
            raise TypeError("complex numbers")
        divisors = divisors.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"scale={scale!r} is not allowed; give True, False or {d} numbers > 0.") from error
    if divisors.shape != (d,):
        raise InvalidParameterError(
            f"scale has shape {divisors.shape}; the data have {d} features, so it must be ({d},)."
        )
    bad = np.flatnonzero(~(np.isfinite(divisors) & (divisors > 0)))
    if bad.size:
        raise InvalidParameterError(f"scale must be positive and finite; scale[{bad[0]}] is {divisors[bad[0]]!r}.")
    return divisors


def _deviations(Z: CenteredMatrix) -> np.ndarray:
    """Return standard deviations with n - 1 degrees of freedom; infinity for columns constant but for rounding.

    Of rows that are not centered they are those about 0.
    """
    deviations = Z.feature_deviations(degrees_of_freedom(Z.count))  # measures features, which the next line reads
    return np.where(Z.constant_columns(CONSTANT_ENTRIES), np.inf, deviations)
