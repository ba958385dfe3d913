"""Laplace's approximation of the evidence of a probabilistic PCA, which chooses the number of components."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

# Variances of at most this share of the largest are rounding, and have no likelihood.
NOTHING = 1e-15


def log_evidence(variances: np.ndarray, n: int, d: int, floor: float | None = None) -> np.ndarray:
    """Return the logarithm of the evidence for K = 1 ... d - 1 components, shape (d - 1,); -inf where one has none.

    From all variances (missing ones are 0), up to a number that is the same for all K. Variances up to `floor`, by
    default a share of the largest, have no likelihood.
    Minka, Automatic choice of dimensionality for PCA, NIPS 13 (2000) 598, equation (30).

    The determinant of equation (31) is a sum over pairs; what does not depend on K is summed once, so that all K cost
    O(d²) together.
    """
    values = np.zeros(d)
    values[: min(d, len(variances))] = variances[:d]
    size = float(values[0]) if values[0] > 0 else 1.0
    values = values / size  # the evidence of all K shifts by the same
    least = NOTHING if floor is None else floor / size
    positive = np.maximum(values, least)
    gaps = np.triu(values[:, None] - values[None, :], k=1)
    turns = np.triu(1.0 / positive[None, :] - 1.0 / positive[:, None], k=1)
    # Equal variances count as apart by their rounding, which no data can tell them from.
    log_gaps = np.log(np.maximum(gaps, NOTHING * positive[:, None]))
    log_turns = np.log(np.maximum(turns, NOTHING / positive[None, :]))
    K = np.arange(1, d)
    gap_sums = np.cumsum(np.sum(np.triu(log_gaps, k=1), axis=1))[:-1]
    turn_sums = np.cumsum(np.sum(np.triu(log_turns, k=1), axis=0))[:-1]
    tail = np.maximum((np.cumsum(values[::-1])[::-1][1:]) / (d - K), least)
    outer = np.array([np.sum(_log_difference(v, positive[:k])) for k, v in zip(K, tail, strict=True)])
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
    return np.where(values[:-1] > least, evidence, -np.inf)


def most_evident(evidence: np.ndarray) -> int:
    """Return the number of components with the largest evidence; 0 where none has any."""
    return int(np.argmax(evidence)) + 1 if np.any(np.isfinite(evidence)) else 0


def _log_difference(tail: float, kept: np.ndarray) -> np.ndarray:
    """Return log(1/v - 1/λ) of the mean variance left out and those retained."""
    return np.log(np.maximum(1.0 / tail - 1.0 / kept, NOTHING / tail))
