"""A partial Cholesky factor with its certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.linalg import solve_triangular, triangular_inverse
from gpukpca.backend.namespace import to_host
from gpukpca.eigen.norm_bound import NormLooks


@dataclass(frozen=True, kw_only=True)
class PivotedCholesky:
    """A partial Cholesky factor: K ≈ F Fᵀ, exact in the rows and columns of the pivots.

    Attributes
    ----------
    F : array, shape (n, k), dtype and place of the operator
    pivots : array of int on the host, shape (k,)
        Indices of the landmarks, in the order of the columns of F.
    pivot_factor : array of float64 on the host, shape (k, k)
        Lower triangular L with K[pivots, pivots] = L Lᵀ and F[pivots] = L; a new point x has the row
        f(x) = k(x, landmarks) L⁻ᵀ.
    residual_trace : float
        tr(K - F Fᵀ), in float64 from the entries of F as they are stored.
    trace : float
        tr K.
    uncancelled_trace : float
        The sum of the diagonal before anything was subtracted from it (`SymmetricOperator.sizes`); else tr K.
    rounding : float
        Allowance for rounding, in the units of the trace.
    n_columns : int
        Columns of K that were evaluated.
    stopped : "rank", "tolerance" or "exhausted"
        The reason: all columns allowed, the tolerance, or no residual above rounding.
    noise : float
        By how much residuals that can only be rounding exceed its usual size.
    residuals, sizes : array of float64, shape (n,)
        The diagonal of K - F Fᵀ, from F as it is stored, and that of K before anything was subtracted from it.
    looks : NormLooks or None
        What stopped it with "tolerance", where that is a bound on the norm.
    """

    F: Array = field(repr=False)
    pivots: np.ndarray = field(repr=False)
    pivot_factor: np.ndarray = field(repr=False)
    residual_trace: float
    trace: float
    uncancelled_trace: float
    rounding: float
    n_columns: int
    stopped: str
    noise: float = 0.0
    residuals: Array | None = field(default=None, repr=False)
    sizes: Array | None = field(default=None, repr=False)
    looks: NormLooks | None = field(default=None, repr=False)

    @property
    def rank(self) -> int:
        """Return the number of columns of F."""
        return len(self.pivots)

    @property
    def certificate(self) -> float:
        """Return a bound on the sum of what F misses: Σ (lambda_i(H K H) - theta_i) <= certificate.

        theta_i are the eigenvalues of H F Fᵀ H, H = I - 11ᵀ/n. K - F Fᵀ is positive semidefinite in exact arithmetic,
        so no difference is negative. They sum to the trace of H (K - F Fᵀ) H, and centering only lowers a trace: the
        first term. The sum bounds each difference too. The second term
        allows for rounding. Let s be the diagonal before anything was subtracted from it. Where entries of K and F Fᵀ
        err by at most c sqrt(s_i s_j), trace and 2-norm of the error are at most c Σ s_i. Likewise
        ``lambda_i - theta_i >= -rounding``.

        The bound holds for positive semidefinite K; it excludes negative eigenvalues that no residual showed.
        """
        return max(self.residual_trace, 0.0) + self.rounding

    @cached_property
    def inverse(self) -> np.ndarray:
        """Return L⁻¹."""
        return triangular_inverse(self.pivot_factor)

    def errors(self, op: SymmetricOperator, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the entries of K - F Fᵀ between rows of an operator, and K_ii; None where it gives no entries."""
        K, inside = op.block(rows, rows), op.block(self.pivots, rows)
        if K is None:
            return None
        F = solve_triangular(self.pivot_factor, to_host(inside).astype(np.float64)).T
        K = to_host(K).astype(np.float64)
        return K - F @ F.T, np.abs(np.diagonal(K))
