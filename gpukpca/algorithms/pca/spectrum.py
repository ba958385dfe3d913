"""Variances, shares and the number of components, their evidence, and the warnings about them."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.pca.components import Components
from gpukpca.algorithms.pca.model import PCAFit
from gpukpca.algorithms.pca.settings import RankRequest
from gpukpca.algorithms.solver_warnings import (
    OF_UNITS,
    warn_of_convergence,
    warn_of_fallbacks,
    warn_of_share,
)
from gpukpca.backend.namespace import dtype_name, epsilon, namespace_of, to_host
from gpukpca.covariance.centered_matrix import CenteredMatrix
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.scale import check_variance, variances_of_data
from gpukpca.eigen.request import count_of_share
from gpukpca.exceptions import ConvergenceWarning, GpuKPCAWarning, PrecisionWarning, RankWarning, warn_user

ADVICE = (
    'Use iterated_power="auto" (passes=None of PCASettings), a larger tol, or svd_solver="covariance_eigh" or "dual".'
)
# What components leave of a feature is rounding up to this many eps of it.
ROUNDING = 20.0
OF_UNRESOLVED = 'Request fewer components, or pass scale=True, float64 data, a smaller tol, or svd_solver="auto".'
OF_WRONG_SVD = (
    "the singular value decomposition has residuals above the tolerance (residual_norms_), so the library is wrong, or "
    'the device. Pass svd_solver="auto", or device="cpu".'
)
# Components that explain less than this share of a feature do not hold it.
EXPLAINED = 0.5
# A column with a larger share of the variance is a component by itself.
OF_ONE_COLUMN = 0.999
# Variances up to this share of the largest are rounding, and have no likelihood.
NOTHING = 1e-15


def log_evidence(variances: np.ndarray, n: float, d: int) -> np.ndarray:
    """Return the logarithm of the evidence for K = 1 ... d - 1 components, shape (d - 1,), up to a constant; or -inf.

    Variances (missing ones are 0) up to a share of the largest have no likelihood.
    Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000) 598, equation (30). The terms of the determinant,
    equation (31), that do not depend on K are summed once, so that all K cost O(d²) together.
    """
    values = np.zeros(d)
    values[: min(d, len(variances))] = variances[:d]
    size = float(values[0]) if values[0] > 0 else 1.0
    values = values / size  # shifts the evidence of all K by the same number
    positive = np.maximum(values, NOTHING)
    # Equal variances count as different by their rounding. One row at a time: a matrix of d x d would be all of them.
    gaps = (np.maximum(values[i] - values[i + 1 :], NOTHING * positive[i]) for i in range(d))
    turns = (np.maximum(1.0 / positive[j] - 1.0 / positive[:j], NOTHING / positive[j]) for j in range(d))
    K = np.arange(1, d)
    gap_sums, turn_sums = (np.cumsum([np.sum(np.log(row)) for row in rows])[:-1] for rows in (gaps, turns))
    tail = np.maximum((np.cumsum(values[::-1])[::-1][1:]) / (d - K), NOTHING)
    # Σ log(1/v - 1/λ) of the mean variance v left out and those retained.
    differences = (np.maximum(1.0 / v - 1.0 / positive[:k], NOTHING / v) for k, v in zip(K, tail, strict=True))
    outer = np.array([np.sum(np.log(difference)) for difference in differences])
    pairs = d * K - K * (K + 1) / 2.0
    halves = (d - K + 1) / 2.0
    log_volume = -K * math.log(2.0) + np.cumsum(gammaln(halves) - math.log(math.pi) * halves)
    log_determinant = gap_sums + turn_sums + (d - K) * outer + pairs * math.log(n)
    evidence = (
        log_volume
        - np.cumsum(np.log(positive))[:-1] * n / 2.0
        - np.log(tail) * n * (d - K) / 2.0
        + math.log(2.0 * math.pi) * (pairs + K) / 2.0
        - log_determinant / 2.0
        - K * math.log(n) / 2.0
    )
    return np.where(values[:-1] > NOTHING, evidence, -np.inf)


def most_evident(evidence: np.ndarray) -> int:
    """Return the number of components with the largest evidence; 0 where none has any."""
    return int(np.argmax(evidence)) + 1 if np.any(np.isfinite(evidence)) else 0


@record()
class Variances:
    """Variances of the retained components in the units of the data, over n - 1 degrees of freedom, on the host."""

    values: np.ndarray = field_of("p", "of the scores, descending")
    ratios: np.ndarray = field_of("p", "shares of the total")
    singular_values: np.ndarray = field_of("p", "norms of the columns of scores")
    residual_norms: np.ndarray = field_of("p", "of the eigenpairs of the covariance matrix")
    total: float = field_of("", "of all features")
    noise: float = field_of("", "the mean of those left out")
    degrees: float = field_of("", "n - 1; 1 of a single row")

    @property
    def kept(self) -> int:
        """Return the number p of retained components."""
        return len(self.values)


def variances_of(solution: Components, Z: CenteredMatrix, rank: RankRequest) -> Variances:
    """Return the variances of a fit; warn or raise where the dtype of the data does not hold them.

    The total is the trace, so the ratios are exact with few components.
    """
    n, rows = Z.count, Z.shape[0] if Z.frequencies is None else Z.frequencies.rows
    max_count = min(max(n, rows), Z.shape[1])
    degrees = degrees_of_freedom(n)
    nothing = not (solution.squares > 0).any()
    total = 0.0 if nothing else max(Z.total, float(solution.squares.sum())) / degrees
    kept = _kept(solution, total * degrees, n, rank, Z.eps)
    values = solution.squares[:kept] / degrees
    ratios = values / total if total > 0 else np.zeros_like(values)
    noise = _noise(solution, Z, total * degrees, kept, max_count) / degrees
    values = variances_of_data(values, Z.unit, Z.dtype)
    check_variance(total, Z.unit, np.float64)
    total, noise = total / Z.unit / Z.unit, noise / Z.unit / Z.unit
    norms = solution.residual_norms[:kept] / degrees / Z.unit / Z.unit
    return Variances(values, ratios, np.sqrt(solution.squares[:kept]) / Z.unit, norms, total, noise, degrees)


def _kept(solution: Components, total: float, n: float, rank: RankRequest, eps: float) -> int:
    """Return the number of retained components; `eps` is that of the type of the ratios."""
    if rank.minka and solution.spectrum is not None:
        variances = solution.spectrum / degrees_of_freedom(n)
        return most_evident(log_evidence(variances, n, len(variances)))
    if rank.share is None:
        return rank.max_count
    varying = max(1, int(np.sum(solution.squares > 0)))
    return min(count_of_share(solution.squares, total, rank.share, eps) or varying, rank.max_count)


def _noise(solution: Components, Z: CenteredMatrix, total: float, kept: int, max_count: float) -> float:
    """Return the mean of the squares left out; `total` is the sum of all."""
    if kept >= max_count:
        return 0.0
    left = total - float(solution.squares[:kept].sum())
    if solution.spectrum is not None:
        left = float(solution.spectrum[kept:].sum())
    if left <= Z.eps**0.5 * total:  # the difference of sums has few digits: that of every feature
        V = to_host(solution.vectors).astype(np.float64)[:, :kept]
        rest = Z.squares - np.sum(V**2 * solution.squares[:kept][None, :], axis=1)
        left = float(np.sum(np.where(rest > ROUNDING * Z.eps * Z.squares, rest, 0.0)))
    return left / (max_count - kept)


def warn_of_components(solution: Components, variances: Variances, rank: RankRequest, converged: np.ndarray) -> None:
    """Warn of residuals above the tolerance, a share not reached, and a device that failed."""
    if (eigen := solution.eigen) is not None:
        warn_of_fallbacks(eigen)
        if not eigen.converged.all():
            warn_of_convergence(solution.as_eigen(), ADVICE)
    elif not converged.all():
        warn_user(OF_WRONG_SVD, ConvergenceWarning, components=(np.flatnonzero(~converged) + 1).tolist())
    reached = float(variances.ratios.sum())
    if eigen is not None and rank.share is not None and variances.kept < rank.max_count and 0 < reached < rank.share:
        warn_of_share(variances.kept, reached, rank.share)
    nonzero = int(np.count_nonzero(variances.singular_values))
    if nonzero < variances.kept and (rank.is_number or nonzero == 0):
        warn_user(
            "fewer components carry variance than were requested. The others have variance 0.",
            RankWarning,
            nonzero=nonzero,
            n_components=variances.kept,
        )


def warn_of_lost_features(solution: Components, Z: CenteredMatrix) -> None:
    """Warn where components of variance 0 hide features that vary: the rounding of the largest component is larger."""
    carried = solution.squares > 0.0
    if np.count_nonzero(carried) in (0, len(carried)):
        return
    V = to_host(solution.vectors).astype(np.float64)[:, carried]
    explained = np.sum(V**2 * solution.squares[carried][None, :], axis=1)
    lost = (explained < EXPLAINED * Z.squares) & ~Z.constant
    if lost.any():
        dtype = dtype_name(solution.vectors.dtype)
        warn_user(
            f"variances were set to 0 because the rounding of the largest one in {dtype} exceeds them, though features "
            'in small units vary. Pass scale=True (or data in similar units), float64 data, or svd_solver="auto".',
            PrecisionWarning,
            components=(np.flatnonzero(~carried) + 1).tolist(),
            features=np.flatnonzero(lost).tolist(),
        )


def warn_of_another_unit(Z: CenteredMatrix) -> None:
    """Warn where one of several columns that vary, none of which was scaled, holds nearly all of the variance."""
    share = float(Z.squares.max()) / (Z.total or 1.0)
    if share > OF_ONE_COLUMN and Z.center and Z.scale is None and np.count_nonzero(~Z.constant) > 1:
        warn_user(
            f"one column holds more than {OF_ONE_COLUMN} of the variance, so the first component is that column. "
            + OF_UNITS.format("scale=True"),
            GpuKPCAWarning,
            column=int(np.argmax(Z.squares)),
            share=share,
        )


def warn_of_lost_variances(fit: PCAFit) -> None:
    """Warn of variances within the rounding of the data before centering.

    An entry x is stored to eps |x|, and a component has the rounding of the means of its features.
    """
    V, xp = fit.components, namespace_of(fit.components)
    deviations = np.sqrt(to_host(fit.explained_variance).astype(np.float64))
    mean = xp.abs(fit.mean) if fit.scale is None else xp.abs(fit.mean / fit.scale)
    eps, size = epsilon(V), float(xp.max(mean))
    # Where the smallest is far above the noise, all are, as shares are at most 1.
    if size == 0.0 or deviations.size == 0 or deviations[-1] > 2.0 * eps * size:
        return
    shares = to_host(xp.sqrt(xp.sum((V * (mean / size)[None, :]) ** 2, axis=1)))
    lost = np.flatnonzero((deviations > 0.0) & (deviations <= eps * size * shares))
    if lost.size:
        warn_user(
            f"{dtype_name(V.dtype)} cannot resolve the smallest variances: they are within the rounding of the data "
            "before centering. Request fewer components, or pass float64 data, or data less their means.",
            PrecisionWarning,
            components=(lost + 1).tolist(),
            n_components=len(deviations),
            size=size,
        )
