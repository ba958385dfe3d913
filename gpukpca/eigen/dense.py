"""The whole matrix to LAPACK or cuSOLVER."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.linalg import all_eigenvalues, largest_eigenpairs
from gpukpca.backend.namespace import namespace_of, overflow_allowed
from gpukpca.backend.tiles import single_threaded_blas
from gpukpca.eigen.finish import default_tolerance, finished
from gpukpca.eigen.result import EigenResult
from gpukpca.exceptions import ConvergenceError, InvalidParameterError

ONE_THREAD_UP_TO = 400
CENTRING_ROWS = 256


@dataclass(frozen=True)
class Dense:
    """Full eigensolver: forms the matrix and calls LAPACK (cuSOLVER on a GPU).

    Parameters
    ----------
    tol : float
        What residuals are judged by, relative to the largest eigenvalue; 0 is the default of the dtype (1e-8 in
        float64, 1e-5 in float32). The accuracy itself does not depend on it.
    full_spectrum : bool
        Also compute all eigenvalues (`EigenResult.spectrum`), at about the cost of the solution again.

    Notes
    -----
    Work O(n³) whatever p is. Memory: the matrix and LAPACK's workspace, about 1.2 n² items for p < n and 3 n² for
    p = n on a CPU, beside what the operator holds.
    """

    tol: float = 0.0
    full_spectrum: bool = False

    def __post_init__(self) -> None:
        check_tolerance(self.tol)

    def workspace_items(self, n: int, p: int, on_gpu: bool) -> int:
        """Items beside what the operator itself holds."""
        if on_gpu:
            return 6 * n * n
        squares = 2 if self.full_spectrum else 1
        # Centring works by blocks of rows, before LAPACK needs its own.
        return squares * n * n + max(4 * p + 40, CENTRING_ROWS) * n

    def solve(self, op: SymmetricOperator, p: int, rng: np.random.Generator, report: Any = None) -> EigenResult:
        """See `gpukpca.eigen.top_eigh`."""
        # On small matrices a second BLAS thread gains nothing, and with one the digits do not depend on other threads.
        with single_threaded_blas() if op.shape[0] <= ONE_THREAD_UP_TO else nullcontext():
            return self._solve(op, p)

    def _solve(self, op: SymmetricOperator, p: int) -> EigenResult:
        n = op.shape[0]
        A, exponent = scaled_to_unit(op.to_dense())
        spectrum = None
        if self.full_spectrum and p < n:
            spectrum = all_eigenvalues(namespace_of(A).asarray(A, copy=True))
        values, vectors = largest_eigenpairs(A, min(p + 1, n))
        if len(values) < min(p + 1, n):
            # LAPACK's bisection can lose members of a cluster of equal eigenvalues, silently; divide and conquer
            # cannot. The first call has overwritten the matrix.
            values, vectors = largest_eigenpairs(scaled_to_unit(op.to_dense())[0], n)
        del A
        if not np.all(np.isfinite(values)):
            raise ConvergenceError("the dense eigensolver returned NaN or infinity on a finite matrix")
        values = np.ldexp(values, exponent)
        if spectrum is not None:
            spectrum = np.ldexp(spectrum, exponent)
        elif p == n:
            spectrum = values[::-1]
        following = float(values[p]) if p < n else None
        U = namespace_of(vectors).asarray(vectors[:, :p], copy=True)  # a slice would be copied by every product
        return finished(
            op,
            values[:p],
            U,
            _product(op, U),
            tolerance=self.tol or default_tolerance(op.dtype),
            next_eigenvalue=following,
            n_passes=1,
            n_products=p,
            solver="dense",
            smallest_seen=float(spectrum[0] if spectrum is not None else values[-1]),
            spectrum=spectrum,
        )


def _product(op: SymmetricOperator, U: Array) -> Array:
    with overflow_allowed():  # looked for afterwards
        return op @ U


def check_tolerance(tol: float) -> None:
    """Raise `InvalidParameterError` for a tolerance outside [0, 1)."""
    if not 0 <= tol < 1:
        raise InvalidParameterError(f"tol={tol!r} is not allowed; it must be a number in [0, 1) (0: the default).")


def scaled_to_unit(A: Array) -> tuple[Array, int]:
    """A divided by a power of two so that its largest modulus is about 1, and the exponent (0 for a zero matrix).

    LAPACK rescales by itself, cuSOLVER fails on huge entries; a power of two costs no digit either way.
    """
    xp = namespace_of(A)
    largest = max(abs(float(xp.max(A))), abs(float(xp.min(A))))
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) and largest > 0 else 0
    if -8 <= exponent <= 16:  # ordinary numbers: spare the pass
        return A, 0
    # Two factors: one alone may underflow.
    first = exponent // 2
    return A * 2.0**-first * 2.0 ** -(exponent - first), exponent
