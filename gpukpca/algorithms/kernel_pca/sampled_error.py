"""The bound on the norm of K - F Fᵀ, from entries between the rows that a fit by landmarks has drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.factor_sums import LandmarkFeatures
from gpukpca.algorithms.kernel_pca.landmark_sums import FactorSums
from gpukpca.algorithms.slots import NormBound
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import cast, epsilon, overflow_allowed
from gpukpca.eigen.landmarks import judges_norm
from gpukpca.eigen.norm_bound import EPS, FAILURE, excess

NO_ROWS = (
    "the fit drew no rows: bound_rows=0, a small memory_limit, a matrix that gives no entries, a function of two rows, "
    "or an earlier version"
)


def norm_bound_of(fit: Any) -> NormBound:
    """Return the bound of a `KernelPCAFit` by landmarks, which is at most its certificate."""
    if fit.stream is None:  # a model file of an earlier version
        return NormBound(value=None, reason=NO_ROWS)
    if fit.plan.storage.is_exact:
        return NormBound(value=fit.certificate)
    found: NormBound = fit.measured
    if found is None:
        with device_context(fit.map.like), overflow_allowed():
            found = _of_slots(LandmarkFeatures.of_fit(fit), fit.map.basis)
    if found.value is None:
        return found
    # The certificate is the trace with the rounding, and with the eigenvalues that were set to 0.
    value = found.value + fit.certificate - max(fit.stream.residual, 0.0)
    return NormBound(value=fit.certificate) if value >= fit.certificate else replace(found, value=value)


def measured_norm(task: Any, basis: Any, sums: FactorSums, solver: Any) -> NormBound | None:
    """Return the bound that must be known now: a tolerance is compared with it, or a kernel matrix is not kept.

    Where no look was needed, the certificate has met the tolerance.
    """
    factor, like, n, is_stored = basis.factor, basis.features.like, task.n, task.kernel.stored_only
    if not ((is_judged := judges_norm(solver)) or is_stored):
        return None
    features = replace(basis.features, start=sums)
    if is_judged and factor is not None and factor.looks.count:
        looks = factor.looks
        sure: dict[str, Any] = {"failure_probability": 0.0 if looks.rows >= n else FAILURE}
        return NormBound(value=looks.value, rows=min(looks.rows, n), is_estimate=epsilon(like) > EPS, **sure)
    if not is_stored:
        return None if factor is not None else _of_slots(features, basis.rows)
    if sums.slots is None or (found := factor.errors(basis.whole, sums.slots.rows[:, 0])) is None:
        return NormBound(value=None, reason=NO_ROWS)
    return _bounded(features, found, lambda: factor.errors(basis.whole, factor.pivots)[0], like)


def _of_slots(features: LandmarkFeatures, basis: Any) -> NormBound:
    """Return the bound from the rows in the slots, without the rounding of the eigenvalues."""
    if (slots := features.start.slots) is None or basis is None:
        return NormBound(value=None, reason=NO_ROWS)
    wide = features.at(basis, cast(features.like, features.wide))
    return _bounded(wide, wide.errors(slots.rows), lambda: wide.errors(basis)[0], features.like)


def _bounded(features: LandmarkFeatures, entries: Any, of_landmarks: Callable[[], np.ndarray], like: Any) -> NormBound:
    """Return the bound from entries of K - F Fᵀ between the rows in the slots, and where it counts the landmarks."""
    sums: Any = features.start
    (E, sizes), r, is_estimate = entries, features.rank, epsilon(like) > EPS
    is_safe = is_estimate or not sums.slots.is_drawn  # all rows need no semidefinite E
    share = 0.0 if is_safe else excess(sums.pivot_factor, of_landmarks()[:r, :r])
    found: NormBound = sums.slots.bound(E, features.allowances(sizes), (share * sizes, share * sums.sizes))
    return replace(found, is_estimate=is_estimate)
