"""The M step: regressions of the features on z, the expansion of the distribution of z, and orthogonal loadings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics
from gpukpca.backend.batched_linalg import batched_products, batched_solutions, packed_symmetric, unpacked_symmetric
from gpukpca.backend.linalg import add_to_diagonal, inner_products
from gpukpca.backend.namespace import from_host, full, namespace_of, to_host
from gpukpca.data.slicing import gather_rows

# The moments of a regression get this share of their trace on the diagonal. It shortens a step and keeps its solution.
RIDGE = 1e-14


def m_step(sums: SufficientStatistics, parameters: Parameters, pull: np.ndarray | None, floor: float) -> Parameters:
    """Return the next parameters without expansion; `pull` (p,) is σ² times the precisions of a prior of W.

    The normal equations are solved for the step, so that rounding is relative to the step.
    """
    W, noise, p = parameters.loadings, parameters.noise, int(parameters.loadings.shape[1])
    xp = namespace_of(W)
    now = xp.concat([W.T, full((1, int(W.shape[0])), 0.0, W)], axis=0)
    moments = _LatentMoments(sums, p, W)
    downhill = sums.cross - moments.times(now)
    penalty = np.zeros(p + 1) if pull is None else np.append(pull, 0.0)
    step = moments.solve(downhill - from_host(penalty, W)[:, None] * now, penalty)
    gain = float(xp.sum(step * (2.0 * downhill - moments.times(step))))
    left = sums.residuals + noise * (sums.rows * p - sums.spread) - gain
    moved = now + step
    return Parameters(moved[:p, :].T, parameters.mean + moved[p, :], max(left / sums.observed, floor))


class _LatentMoments:
    """Σ (z, 1)(z, 1)ᵀ of every feature: one matrix for all where no entry is missing."""

    def __init__(self, sums: SufficientStatistics, p: int, like: Array) -> None:
        # The packed entries of ⟨(z, 1)(z, 1)ᵀ⟩ in the order of `SufficientStatistics`.
        q = p * (p + 1) // 2
        where = np.zeros((p + 1, p + 1), dtype=np.int64)
        where[np.triu_indices(p)] = np.arange(q)
        where[:, p] = q + np.arange(p + 1)
        order = packed_symmetric(where)
        shared = sums.shared[order]
        self._shared: Array = None
        self._each: Array = None
        if sums.partial is None:
            matrix = to_host(unpacked_symmetric(shared[:, None], p + 1))[:, :, 0]
            self._shared = from_host(matrix, like)
        else:
            entries = gather_rows(sums.partial, order) + from_host(shared, like)[:, None]
            self._each = unpacked_symmetric(entries, p + 1)

    def times(self, V: Array) -> Array:
        """Return the matrices times the columns of V (p + 1, d)."""
        return self._shared @ V if self._each is None else batched_products(self._each, V)

    def solve(self, V: Array, penalty: np.ndarray) -> Array:
        """Return the inverses of the matrices plus `penalty` on their diagonals, times the columns of V."""
        xp = namespace_of(V)
        extra = from_host(np.diag(penalty), V)
        if self._each is None:
            A = self._shared + extra
            return xp.linalg.solve(add_to_diagonal(A, RIDGE * float(xp.linalg.trace(A))), V)
        A = self._each + extra[:, :, None]
        eye = from_host(np.eye(len(penalty)), V)[:, :, None]
        traces = xp.sum(xp.sum(A * eye, axis=0), axis=0)
        return batched_solutions(A + RIDGE * traces[None, None, :] * eye, V)


def expand_parameters(sums: SufficientStatistics, parameters: Parameters) -> Parameters:
    """Return the parameters after the estimated distribution of z is transformed to N(0, I)."""
    a, second = _latent_moments(sums, int(parameters.loadings.shape[1]))
    values, vectors = np.linalg.eigh(second)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return _absorbed(parameters, a, root)


def stretch_columns(sums: SufficientStatistics, parameters: Parameters) -> Parameters:
    """Expand one column of W at a time, as is best for the prior with α = d / ‖w‖² as well.

    γ² maximizes -n (log γ² + S/γ²) - d log γ², S the variance of z, which keeps a fixed point of a column.
    """
    W = parameters.loadings
    a, second = _latent_moments(sums, int(W.shape[1]))
    share = sums.rows / (sums.rows + int(W.shape[0]))
    return _absorbed(parameters, a, np.diag(np.sqrt(share * np.diag(second))))


def _latent_moments(sums: SufficientStatistics, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (p,) and covariance (p, p) of z over all rows."""
    q = p * (p + 1) // 2
    a = sums.latent[q : q + p] / sums.rows
    return a, unpacked_symmetric(sums.latent[:q, None], p)[:, :, 0] / sums.rows - np.outer(a, a)


def _absorbed(parameters: Parameters, a: np.ndarray, root: np.ndarray) -> Parameters:
    W = parameters.loadings
    shift = (W @ from_host(a[:, None], W))[:, 0]
    return replace(parameters, loadings=W @ from_host(root, W), mean=parameters.mean + shift)


def orthogonal_columns(parameters: Parameters) -> Parameters:
    """Return the same model with orthogonal columns of W, the longest first.

    Then M is graded, and rounding relative to its largest entries does not affect the smallest. No other rotation of z
    gives the columns a larger normal prior (Hadamard).
    """
    W = parameters.loadings
    _, vectors = np.linalg.eigh(inner_products(W, W))
    return replace(parameters, loadings=W @ from_host(vectors[:, ::-1], W))
