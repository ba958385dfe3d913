"""Eigenpairs of F Fᵀ from the small matrix Fᵀ F."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.linalg import (
    has_narrow_square,
    leading_ritz_pairs,
    narrow_square,
    newton_factor,
)
from gpukpca.backend.namespace import epsilon, namespace_of
from gpukpca.backend.orthogonalization import orthonormal_factors, orthonormalizing_factor
from gpukpca.backend.parallel import occupied, single_threaded_blas, worker_count
from gpukpca.backend.random import random_directions
from gpukpca.data.finite import overflow
from gpukpca.data.products import inner_products, times_small
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solver import TOLERANCE, Solver, SolverParameters
from gpukpca.exceptions import InvalidParameterError

# Residuals up to this many eps of the largest eigenvalue are those of rounding.
ACCURATE = 8.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LowRank(SolverParameters, Solver, rules=(("tol", TOLERANCE),)):
    """Exact solver for operators that are known by a factor, op = F Fᵀ with F of shape (n, k).

    `tol` is the largest residual that counts as converged, relative to the largest eigenvalue; 0 is the default of the
    dtype. The accuracy itself does not depend on it.

    Work: n k² operations for Fᵀ F, k³ for its eigenproblem on the host, and 6 n k p for the vectors and one step of
    Rayleigh–Ritz, which restores the digits of small eigenvalues that the square of F lost. On NumPy the products of
    float32 columns are formed in float32 and summed in float64; they are formed again in float64 where the residuals
    of the pairs, from Fᵀ U in float64, exceed 8 eps.
    Memory: a few blocks of p columns, and k² on the host.
    """

    name = "low rank"
    tol: float = 0.0

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        widened = 2 * 8 if item_size < 8 or on_gpu else 0
        return n * (p + 1) * (5 * item_size + widened)

    def solve(
        self, op: SymmetricOperator, p: int, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        few = op.shape[0] <= blocking.LOW_RANK_ONE_THREAD_UP_TO and not is_on_gpu(op.like)
        with single_threaded_blas(few):
            return self._solve(op, p, rng)

    def _solve(self, op: SymmetricOperator, p: int, rng: np.random.Generator) -> EigenResult:
        F = op.factor()
        if F is None:
            raise InvalidParameterError("LowRank needs an operator that is known by a factor, such as LowRankGram(F).")
        n, k = F.shape
        count = min(p + 1, n)
        workers = op.workers or worker_count(F, None, n * k**2)
        shared = occupied(workers, n * k * count)
        U, C = self._spanning(op, F, count, rng, workers)
        R = orthonormalizing_factor(inner_products(U, U))
        if R is None:
            U = orthonormal_factors(U, least=count)[0]
            C, R = inner_products(F, U, shared), np.eye(count)
        C = C @ R
        # Rayleigh–Ritz: Uᵀ F Fᵀ U = Cᵀ C.
        squares, S = np.linalg.eigh(C.T @ C)
        values, S = squares[::-1], S[:, ::-1][:, :p]
        U = times_small(U, R @ S)
        N = newton_factor(U)  # the products of the last step in the type of U are rounded
        U, C = times_small(U, N), C @ S @ N
        W = times_small(F, C, shared)
        if not bool(namespace_of(W).all(namespace_of(W).isfinite(W))):
            raise overflow(op, "a product with it is infinite")
        return EigenResult.of(
            op,
            values[:p],
            U,
            W,
            tolerance=self.tol,
            next_eigenvalue=float(values[p]) if p < n else None,
            n_passes=1,
            n_products=count,
            solver=f"low rank ({k} columns)",
            smallest_seen=0.0,
        )

    def _spanning(
        self, op: SymmetricOperator, F: Array, count: int, rng: np.random.Generator, workers: int
    ) -> tuple[Array, np.ndarray]:
        """Return U = F V θ^(-1/2) and FᵀU for eigenpairs (θ, V) of Fᵀ F."""
        n, k = F.shape
        shared, squared = occupied(workers, n * k * count), occupied(workers, n * k**2)
        if has_narrow_square(F):
            U, C, is_accurate = self._from_square(op, F, narrow_square(F, squared), count, rng, shared)
            if is_accurate:
                return U, C
            squared = 1  # one sum, for the sake of memory
        return self._from_square(op, F, inner_products(F, F, squared), count, rng, shared)[:2]

    def _from_square(
        self, op: SymmetricOperator, F: Array, square: np.ndarray, count: int, rng: np.random.Generator, workers: int
    ) -> tuple[Array, np.ndarray, bool]:
        """Return U, FᵀU, and whether FᵀU = V θ^½ up to rounding, given Fᵀ F.

        Random columns make up for what the rank of F lacks.
        """
        n, k = F.shape
        if not np.all(np.isfinite(square)):
            raise overflow(op, "inner products of the features are infinite")
        with single_threaded_blas(k <= blocking.EIGH_ONE_THREAD_UP_TO):
            theta, V = leading_ritz_pairs(square, min(count, k), op.like)
        largest = max(float(np.max(theta, initial=0.0)), 0.0)
        kept = theta > epsilon(op.like) ** 2 * largest
        roots = np.sqrt(theta[kept])
        U = times_small(F, V[:, kept] / roots, workers)
        missing = count - int(kept.sum())
        if missing:
            U = namespace_of(U).concat([U, op.project(random_directions(rng, (n, missing), op.like))], axis=1)
        C = inner_products(F, U, workers)
        wrong = np.linalg.norm(C[:, : len(roots)] - V[:, kept] * roots, axis=0)
        return U, C, bool(np.max(wrong, initial=0.0) <= ACCURATE * epsilon(op.like) * math.sqrt(largest))
