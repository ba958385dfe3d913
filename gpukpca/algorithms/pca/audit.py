"""The audit of PCA: one product of the covariance matrix with axes from anywhere."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.audit import (
    Residuals,
    UnitVectors,
    angles_of,
    measured_pairs,
    product_rounding,
    trace_left,
)
from gpukpca.algorithms.pca.operator import centered_matrix, feature_scale
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import cast, move
from gpukpca.covariance.scatter import ScatterOperator
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.scale import variances_of_data


def audit_axes(
    X: Any,
    axes: Array,
    variances: np.ndarray,
    resources: Resources,
    *,
    center: bool = True,
    scale: Any = False,
    weights: np.ndarray | None = None,
    progress: Listener | None = None,
) -> Residuals:
    """Return the audit of axes (d, p) against the covariance matrix of rows X (n, d), divided by `scale` if given.

    X is an array, a CSR matrix, in batches or on a cluster. The matrix has n - 1 degrees of freedom, and if `center`
    the rows' own mean is subtracted, so that eigenvalues are variances. The first sweep over X, for the mean, finds NaN
    and infinity. `weights` (n,) say how often each row counts.
    """
    started = time.perf_counter()
    Z = centered_matrix(X, True, resources.n_jobs, center, weights)
    if (divisors := feature_scale(scale, Z)) is not None:
        Z.rescale(divisors)
    Z.measure()
    op = ScatterOperator(Z, of_samples=False)
    degrees = degrees_of_freedom(Z.count)
    vectors = UnitVectors.of(cast(move(axes, op.like), op.dtype))
    W = op @ vectors.Q
    if progress is not None:
        progress(Progress("pass", "pass 1 of 1 over the data", 1, 1))
    pairs = measured_pairs(op, vectors, W)
    rounding = product_rounding(op, pairs.quotients)
    missed = trace_left(op, Z.total, np.diagonal(pairs.T))[0] + rounding
    total = variances_of_data([Z.total / degrees], Z.unit, np.float64)[0]  # raises where it overflows
    return Residuals(
        matrix="covariance matrix",
        n_samples=int(X.shape[0]),
        eigenvalues=variances,
        rayleigh_quotients=pairs.quotients / degrees / Z.unit / Z.unit,
        residual_norms=pairs.residuals / degrees / Z.unit / Z.unit,
        ritz_values=pairs.ritz_values / degrees / Z.unit / Z.unit,
        skew=pairs.skew,
        trace=float(total),
        **angles_of(op, vectors, pairs, rounding, missed, np.full(len(variances) + 1, np.inf)),
        rounding=rounding / degrees / Z.unit / Z.unit,
        n_passes=1,
        n_products=int(vectors.Q.shape[1]),
        seconds=time.perf_counter() - started,
    )
