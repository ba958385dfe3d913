"""The incremental update: moments, axes and singular values of the rows so far, and the same with a batch more."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.magnitude import are_safe, row_bounds, safe_scale, scaled_rows
from gpukpca.backend.namespace import from_host, namespace_of, to_host
from gpukpca.backend.orthogonalization import orthonormal_factors, triangular_factor
from gpukpca.covariance.moments import Moments, moments_and_rows
from gpukpca.eigen.residuals import signs
from gpukpca.exceptions import InvalidParameterError


@dataclass(frozen=True)
class IncrementalState:
    """What is known of the rows so far.

    Attributes
    ----------
    moments : Moments
    axes : array, shape (p, d)
        Unit rows in the widest floating type, in descending order of singular value.
    singular_values : host array, shape (q,), q >= p
        Of the last stack of rows, in float64: those kept and those given up.
    noise : float
        Mean variance of what was given up, over n - 1.
    scale : float
        The power of two that the rows are multiplied by: all of the above is in these units.
    """

    moments: Moments
    axes: Array
    singular_values: np.ndarray
    noise: float
    scale: float = 1.0

    @property
    def mean(self) -> Array:
        """Return the mean in the units of the data, shape (d,)."""
        return self.moments.mean / self.scale

    def rescaled(self, scale: float) -> IncrementalState:
        """Return the same for rows that are multiplied by another power of two."""
        factor, moments = scale / self.scale, self.moments
        moments = Moments(moments.count, moments.mean * factor, moments.squares * factor * factor)
        return IncrementalState(moments, self.axes, self.singular_values * factor, self.noise * factor * factor, scale)

    @property
    def total(self) -> float:
        """Sum over the features of Σ (x - mean)², exact."""
        return float(namespace_of(self.moments.squares).sum(self.moments.squares))


def updated(before: IncrementalState | None, X: Array, p: int) -> IncrementalState:
    """Return the rows so far with a batch X (m, d) and p axes, in other units where squares in the old ones are unsafe.

    The singular vectors of the old axes times their singular values, the centered batch, and one row for the shift of
    the mean.

    Ross, Lim, Lin & Yang, Int. J. Computer Vision 77 (2008) 125, section 3.1.
    """
    scale = 1.0 if before is None else before.scale
    fresh, rows = moments_and_rows(scaled_rows(X, scale))
    moments = fresh if before is None else before.moments.merged(fresh)
    if not are_safe(moments.squares):
        low, high = _bounds(before, X)
        scale = safe_scale(low, high, moments.mean.dtype)
        before = None if before is None else before.rescaled(scale)
        fresh, rows = moments_and_rows(scaled_rows(X, scale), low == high)
        moments = fresh if before is None else before.moments.merged(fresh)
    stack = rows
    if before is not None:
        known, count = before.moments, before.moments.count
        weight = math.sqrt(count / moments.count * fresh.count)
        kept = from_host(before.singular_values[: before.axes.shape[0]], rows)
        shift = weight * (known.mean - fresh.mean)
        stack = namespace_of(rows).concat([kept[:, None] * before.axes, rows, shift[None, :]], axis=0)
    values, axes = right_singular_pairs(stack, p)
    return IncrementalState(
        moments, axes, values, _noise(values, p, fresh.count, int(X.shape[1]), moments.count), scale
    )


def _bounds(before: IncrementalState | None, X: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and largest entries (d,) of a batch, and of the rows before as far as their deviations say."""
    low, high = row_bounds([X])
    if before is None:
        return low, high
    mean = to_host(before.mean).astype(np.float64)
    deviations = np.sqrt(to_host(before.moments.squares).astype(np.float64) / before.moments.count) / before.scale
    return np.minimum(low, mean - deviations), np.maximum(high, mean + deviations)


def _noise(values: np.ndarray, p: int, rows: int, d: int, count: int) -> float:
    """Mean of the variances left out; 0 where scikit-learn says so."""
    left = values[p:]
    if p in (rows, d) or not len(left) or count < 2:
        return 0.0
    return float(np.mean(left**2) / (count - 1))


def right_singular_pairs(A: Array, p: int) -> tuple[np.ndarray, Array]:
    """All min(m, d) singular values of A (m, d) on the host, and the p leading right singular vectors as rows.

    By QR of the longer side and the small factor on the host: the standard's `svd` would make the long vectors as well.
    Every row has its entry of largest modulus positive.
    """
    m, d = A.shape
    xp = namespace_of(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise InvalidParameterError(
            "the data overflow: differences from the mean are beyond the floating-point range. Divide the data by a "
            "constant."
        )
    if m >= d:
        # All d right vectors of R, also where a device has left out rows that depend on the others.
        _, values, right = np.linalg.svd(triangular_factor(A), full_matrices=True)
        axes = from_host(right[:p], A)
    else:
        Q, R = orthonormal_factors(xp.matrix_transpose(A))
        if len(R) < p:
            Q, R = xp.linalg.qr(xp.matrix_transpose(A), mode="reduced")
            R = to_host(R)
        left, values, _ = np.linalg.svd(R, full_matrices=False)
        axes = xp.matrix_transpose(Q @ from_host(left[:, :p], A))
    padded = np.zeros(min(m, d))
    padded[: len(values)] = values
    return padded, axes * signs(xp.matrix_transpose(axes))[:, None]


def checked_count(wanted: int | None, before: IncrementalState | None, rows: int, d: int) -> int:
    """How many components a batch of so many rows gives.

    Raises
    ------
    InvalidParameterError
        As scikit-learn: more than the features, more than the rows of the first batch, or not the same as before.
    """
    if wanted is None:
        return min(rows, d) if before is None else int(before.axes.shape[0])
    if wanted > d:
        raise InvalidParameterError(
            f"n_components={wanted!r} invalid for n_features={d}, need more rows than columns for IncrementalPCA "
            "processing: at most as many components as features."
        )
    if before is None and wanted > rows:
        raise InvalidParameterError(
            f"n_components={wanted} must be less or equal to the batch number of samples {rows} for the first "
            "partial_fit call. Make the first batch larger."
        )
    if before is not None and before.axes.shape[0] != wanted:
        raise InvalidParameterError(
            f"n_components has changed from {before.axes.shape[0]} to {wanted} between calls to partial_fit; fit again "
            "to change it."
        )
    return wanted
