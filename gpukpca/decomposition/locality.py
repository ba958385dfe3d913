"""New points so far from the training rows that every kernel value is 0 to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, epsilon, is_sparse, move, namespace_of, to_host
from gpukpca.backend.rows import gather_rows
from gpukpca.exceptions import PrecisionWarning, warn_user
from gpukpca.gram.product import prepared_matmat


def far_rows(estimator: Any, Y: Any, scores: Array) -> np.ndarray:
    """Return which new rows have no kernel value above rounding with any training row; landmarks are not all of them.

    Their k(y, X) A is 0 to rounding, which is cheap to see; the few rows where it is so are evaluated again.
    """
    kernel, model = estimator.kernel_, estimator._map
    if not kernel.depends_on_distance or hasattr(estimator, "landmarks_") or not int(scores.shape[1]):
        return np.zeros(0, dtype=np.int64)
    rows = model.prepared(kernel)
    if rows.shifted:
        return np.zeros(0, dtype=np.int64)
    eps, xp = epsilon(scores), namespace_of(scores)
    offset = float(model.offset[0])
    size = float(xp.sum(xp.abs(model.projection[:, 0]))) + 8.0 * abs(offset)
    near_nothing = np.flatnonzero(to_host(xp.abs(scores[:, 0] + offset)) <= 2.0 * eps * size)
    if not near_nothing.size:
        return near_nothing
    Z = gather_rows(Y, near_nothing)
    Z = Z if is_sparse(Z) else move(Z, model.like)
    ones = xp.ones_like(model.projection[:, :1])
    sums = to_host(prepared_matmat(kernel, Z, model.basis, rows, ones, n_jobs=estimator.n_jobs))[:, 0]
    own = to_host(kernel.diagonal(cast(gather_rows(Z, [0]), model.projection.dtype)))[0]
    return near_nothing[sums <= eps * own]


def warn_of_far_rows(far: np.ndarray, n_rows: int) -> None:
    """Warn, once for all, of new rows that are far from all training rows."""
    if far.size:
        warn_user(
            f"{far.size} of {n_rows} row(s), the first is row {far[0]}, are so far from all training rows that every "
            "kernel value is below rounding: their scores are the same wherever they are. Check their units, or fit "
            "with a smaller gamma.",
            PrecisionWarning,
        )
