"""The dense solver: LAPACK or cuSOLVER on the whole matrix, with fallbacks where cuSOLVER fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gpukpca._rules import FLAG
from gpukpca._typing import Array, PassReport, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import host_free_bytes, is_on_gpu
from gpukpca.backend.elementwise import multiply
from gpukpca.backend.lapack import are_divided
from gpukpca.backend.linalg import all_eigenpairs, inner_products, largest_eigenpairs, largest_modulus
from gpukpca.backend.namespace import epsilon, from_host, item_size, namespace_of, overflow_allowed, to_host
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.work import Work
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.residuals import ldexp
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solver import TOLERANCE, Solver, SolverParameters
from gpukpca.exceptions import ConvergenceError

# No correct answer of a device's solver errs by so many sqrt(n) eps; `gpukpca.cuda.eigh` checks its values.
WRONG = 100.0
# Matrices of the size of K that LAPACK holds on the host.
HOST_SQUARES = 4
# The work of a few eigenpairs by LAPACK as a share of that of all.
FEW_PAIRS = 0.4


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dense(SolverParameters, Solver, rules=(("tol", TOLERANCE), ("full_spectrum", FLAG))):
    """Full eigensolver: forms the matrix and calls LAPACK (cuSOLVER on a GPU).

    Parameters
    ----------
    tol : float
        The largest residual that counts as converged, relative to the largest eigenvalue; 0 is the default of the
        dtype (1e-8 in float64, 1e-5 in float32). The accuracy itself does not depend on it.
    full_spectrum : bool
        Also return all eigenvalues (`EigenResult.spectrum`).

    See Also
    --------
    BlockKrylov : A few of the largest eigenpairs, from products alone.
    top_eigh : Run a solver.

    Notes
    -----
    On a device the answer is verified (order, trace, orthonormality, residuals). Where it is wrong, or the solver fails
    or rejects n, block Krylov is next, then LAPACK on the host; `EigenResult.fallbacks` lists the failures.

    Work O(n³) for any p, most of it in the reduction to tridiagonal form, whose eigenvalues are all computed. Memory:
    the matrix and LAPACK's workspace, about 1.2 n² items for few pairs and 3 n² for many on a CPU, in addition to the
    operator's.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import Dense, top_eigh
    >>> from gpukpca.gram import DenseGram
    >>> result = top_eigh(DenseGram(np.diag([3.0, 1.0, 2.0])), 1, Dense(full_spectrum=True))
    >>> result.eigenvalues, result.spectrum
    (array([3.]), array([1., 2., 3.]))
    """

    name = "dense"
    tol: float = 0.0
    full_spectrum: bool = False

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        if on_gpu:  # cuSOLVER's own, vectors with their moduli and signs, and panels of these in float64
            return (6 * n * n + 4 * n * p) * item_size + 16 * p * min(n, blocking.GPU_INNER_PANEL)
        # Centering works by blocks of rows, before LAPACK needs its own.
        return (n + max(4 * p + 40, 2 * n if are_divided(n, p) else 0, blocking.CENTERING_ROWS)) * n * item_size

    def work(self, n: int, p: int, one_pass: Work, item_size: int, on_gpu: bool) -> Work:
        share = 1.0 if on_gpu or 2 * p > n else FEW_PAIRS
        return one_pass + Work(eigenproblems=share * n**3, bytes=6 * n * n * item_size)

    def solve(
        self, op: SymmetricOperator, p: int, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        return self.solve_request(op, PairRequest.of_count(p), rng, report)

    def solve_request(
        self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator, report: PassReport | None = None
    ) -> EigenResult:
        if is_on_gpu(op.like):
            return self._on_device(op, request, rng)
        # On small matrices one BLAS thread is as fast, and the digits then do not depend on other threads.
        with single_threaded_blas(op.shape[0] <= blocking.EIGH_ONE_THREAD_UP_TO):
            return self._result(op, request, *_pairs_on_host(op, op.to_dense(), request))

    def _result(self, op: SymmetricOperator, request: PairRequest, values: np.ndarray, vectors: Array) -> EigenResult:
        """Return the result of all eigenvalues (host, descending) and the vectors (n, p) of the largest ones."""
        p, n = int(vectors.shape[1]), len(values)
        U = namespace_of(vectors).asarray(vectors, copy=True)  # every product would copy a slice
        with overflow_allowed():  # `EigenResult.of` checks the residuals
            W = op @ U
        return EigenResult.of(
            op,
            values[:p],
            U,
            W,
            tolerance=self.tol,
            next_eigenvalue=float(values[p]) if p < n else None,
            n_passes=1,
            n_products=p,
            solver="dense",
            smallest_seen=float(values[-1]),
            spectrum=values[::-1] if self.full_spectrum or p == n or request.is_share else None,
        )

    def _on_device(self, op: SymmetricOperator, request: PairRequest, rng: np.random.Generator) -> EigenResult:
        """Return the first right answer of cuSOLVER, block Krylov and LAPACK on the host."""
        from gpukpca.eigen.block_krylov import BlockKrylov

        ways: list[tuple[str, Callable[[], EigenResult]]]
        ways = [("the device's dense solver", lambda: self._by_library(op, request))]
        krylov = BlockKrylov(tol=self.tol)
        if krylov.iterates(op.shape[0], request.max_count) and not self.full_spectrum:
            ways.append(("block Krylov", lambda: krylov.solve_request(op, request, rng)))
        ways.append(("LAPACK on the host", lambda: self._by_host(op, request)))
        fallbacks: list[str] = []
        for name, way in ways:
            try:
                return replace(way(), fallbacks=tuple(fallbacks))
            except (np.linalg.LinAlgError, ConvergenceError) as error:
                fallbacks.append(f"{name}: {error}")
        raise ConvergenceError(f"no dense solution: {'; '.join(fallbacks)}")

    def _by_library(self, op: SymmetricOperator, request: PairRequest) -> EigenResult:
        """Compute all eigenpairs by the library of the array, and verify them."""
        A, exponent = scaled_to_unit(op.to_dense())
        values, vectors = all_eigenpairs(A)
        values = np.ldexp(values[::-1], exponent)
        descending = namespace_of(vectors).flip(vectors, axis=1)
        result = self._result(op, request, values, descending[:, : request.count_at_most(op, values)])
        _check_vectors(result)
        return result

    def _by_host(self, op: SymmetricOperator, request: PairRequest) -> EigenResult:
        """Call LAPACK on a copy of the matrix; copy only the vectors back."""
        n = op.shape[0]
        if HOST_SQUARES * n * n * item_size(op.dtype) > host_free_bytes():
            raise np.linalg.LinAlgError("the host has not enough memory for it")
        values, vectors = _pairs_on_host(op, to_host(op.to_dense()), request)
        return replace(self._result(op, request, values, from_host(vectors, op.like)), solver="dense (on the host)")


def _pairs_on_host(op: SymmetricOperator, A: Array, request: PairRequest) -> tuple[np.ndarray, Array]:
    """Return all eigenvalues (host, descending) and the vectors of a request, by LAPACK.

    A is the matrix of the operator, and may be overwritten.
    """
    A, exponent = scaled_to_unit(A)
    try:
        values, vectors = largest_eigenpairs(A, lambda values: request.count_at_most(op, np.ldexp(values, exponent)))
    except np.linalg.LinAlgError as error:
        raise ConvergenceError(f"the dense eigensolver failed, as it does on NaN and infinity: {error}") from error
    if not np.all(np.isfinite(values)):
        raise ConvergenceError("the dense eigensolver returned NaN or infinity on a finite matrix")
    return np.ldexp(values, exponent), vectors


def _check_vectors(result: EigenResult) -> None:
    """Raise where vectors are not orthonormal, or residuals larger than rounding explains."""
    U = result.eigenvectors
    allowed = WRONG * U.shape[0] ** 0.5 * epsilon(U)
    skew = float(np.max(np.abs(inner_products(U, U) - np.eye(U.shape[1]))))
    if not skew <= allowed:
        raise np.linalg.LinAlgError(f"the eigenvectors are not orthonormal: off by {skew:.1e}")
    size = max(float(np.max(np.abs(to_host(result.eigenvalues)))), result.null_threshold)
    worst = float(to_host(result.residual_norms).max())
    if not (worst <= allowed * size or bool(result.converged.all())):
        raise np.linalg.LinAlgError(f"the residuals reach {worst:.3g}, the largest eigenvalue is {size:.3g}")


def scaled_to_unit(A: Array) -> tuple[Array, int]:
    """Return A divided by a power of two so that its largest modulus is about 1, and the exponent (0 for zeros).

    In place where the library can: a copy would be one more matrix beside those of the operator and of LAPACK. LAPACK
    rescales, cuSOLVER fails on huge entries. A power of two costs no digit.
    """
    exponent = math.frexp(largest_modulus(A))[1]
    if -8 <= exponent <= 16:  # ordinary numbers: spare the pass
        return A, 0
    return ldexp(A, -exponent, multiply), exponent
