"""Extrapolation of EM along its own steps, and the change of the subspace in a step.

Where variances hardly differ, as those of noise, a step of EM is one of subspace iteration on a spectrum without a gap.
From the steps r = θ₁ - θ₀ and r + v = θ₂ - θ₁, SQUAREM moves to θ₀ + 2a r + a² v with a = ‖r‖/‖v‖: lengths that vary
remove errors of all rates, as those of Barzilai and Borwein do for gradients. θ are loadings, mean and log σ².

Varadhan & Roland, Scand. J. Stat. 35 (2008) 335, scheme S3 with an adaptive limit of a.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.latent.e_step import Parameters
from gpukpca.algorithms.latent.em import Move
from gpukpca.algorithms.latent.m_step import orthogonal_columns
from gpukpca.backend.linalg import inner_products
from gpukpca.backend.namespace import from_host, namespace_of

# The limit of a begins here, grows by this factor after a move as long as it allows, and falls after one that fails.
FACTOR, LONGEST = 4.0, 1024.0
# Most change of log σ² by a move: far from the end its logarithm is far from linear.
MOST_GROWTH = 4.0


@dataclass(frozen=True)
class Extrapolation:
    """SQUAREM; the limit of a adapts."""

    limit: float = FACTOR

    def along(self, steps: tuple[Parameters, Parameters, Parameters], floor: float) -> Move:
        """Return the move from two steps; the noise variance stays at least `floor`."""
        frame = steps[-1].loadings
        x0, x1, x2 = (_stacked(parameters, frame) for parameters in steps)
        log0, log1, log2 = (math.log(parameters.noise) for parameters in steps)
        r, v = x1 - x0, (x2 - x1) - (x1 - x0)
        size = _norm(v)
        length = _norm(r) / size if size > 0 else 1.0
        a = min(max(length, 1.0), self.limit)
        # θ₀ + 2a r + a² v = θ₂ + 2 (a - 1) r + (a² - 1) v: θ₂ itself for a = 1.
        moved = x2 + 2.0 * (a - 1.0) * r + (a * a - 1.0) * v
        growth = 2.0 * (a - 1.0) * (log1 - log0) + (a * a - 1.0) * (log2 - 2.0 * log1 + log0)
        noise = max(math.exp(log2 + min(max(growth, -MOST_GROWTH), MOST_GROWTH)), floor)
        return Move(orthogonal_columns(Parameters(moved[:, :-1], moved[:, -1], noise)), length >= self.limit)

    def after(self, move: Move, is_accepted: bool) -> Extrapolation:
        """Return the extrapolation for the next move."""
        factor = 1.0 / FACTOR if not is_accepted else FACTOR if move.is_longest else 1.0
        return Extrapolation(min(max(FACTOR, factor * self.limit), LONGEST))


def _stacked(parameters: Parameters, frame: Array) -> Array:
    """Return [W Q, μ], shape (d, p + 1), with the orthogonal Q that minimizes ‖W Q - frame‖: the same model."""
    W = parameters.loadings
    left, _, right = np.linalg.svd(inner_products(W, frame))
    return namespace_of(W).concat([W @ from_host(left @ right, W), parameters.mean[:, None]], axis=1)


def _norm(A: Array) -> float:
    return math.sqrt(float(namespace_of(A).sum(A * A)))


def subspace_change(before: Parameters, after: Parameters) -> float:
    """Return how far a step turned the loadings, which are orthogonal, out of their span.

    It is the largest share of the standard deviation (‖w‖² + σ²)^½ along a loading w after the step that is outside of
    the span before: the sine of the largest angle where the noise is small, less for directions that are mostly noise.
    For complete data it is the residual of subspace iteration relative to the variance.
    """
    V, W = before.loadings, after.loadings
    lengths = np.sqrt(np.diag(inner_products(V, V)))
    V = V * from_host(1.0 / np.where(lengths > 0, lengths, 1.0), V)[None, :]
    # Rounding leaves the unit columns of V less than orthogonal where their lengths differ by many orders.
    inside = np.linalg.lstsq(inner_products(V, V), inner_products(V, W), rcond=None)[0]
    outside = W - V @ from_host(inside, V)
    sizes = np.sqrt(np.diag(inner_products(W, W)) + after.noise)
    shares = inner_products(outside, outside) / sizes[:, None] / sizes[None, :]
    return math.sqrt(max(float(np.linalg.eigvalsh(shares)[-1]), 0.0))
