"""LAPACK on NumPy arrays without the interpreter's lock, which SciPy's own wrappers hold.

The routines are those that SciPy offers to Cython, so library and digits are SciPy's. `ctypes` releases the lock
during a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from gpukpca.backend import blocking

LETTERS = {"float32": "s", "float64": "d"}


@cache
def _routine(name: str) -> tuple[Callable[..., None], Any]:
    """Return the routine, whose arguments are all addresses, and the type of its integers."""
    signature_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    signature_of.restype, signature_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = cython_lapack.__pyx_capi__[name]
    signature = signature_of(capsule)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * signature.count(b"*"))
    # SciPy builds for more than 2**31 rows name another integer type.
    integer = ctypes.c_int if b" int *" in signature else ctypes.c_int64
    return prototype(address_of(capsule, signature)), integer


class _Call:
    """A routine in the precision of an array; Python numbers and letters are passed by address."""

    def __init__(self, name: str, like: np.ndarray) -> None:
        self._call, self.integer = _routine(LETTERS[like.dtype.name] + name)
        self._real = ctypes.c_double if like.dtype == np.float64 else ctypes.c_float

    def __call__(self, *arguments: Any) -> int:
        """Call with these arguments and that of the report; return the report."""
        info = self.integer(0)
        self._call(*map(self._address, arguments), ctypes.byref(info))
        return int(info.value)

    def _address(self, argument: Any) -> Any:
        if isinstance(argument, np.ndarray):
            return argument.ctypes.data
        if isinstance(argument, str):
            return argument.encode()
        if isinstance(argument, float):
            return ctypes.byref(self._real(argument))
        return ctypes.byref(self.integer(argument) if isinstance(argument, int) else argument)


def some_eigenpairs(A: np.ndarray, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues number `low` to `high` of a symmetric A (n, n), ascending, and vectors (n, m).

    The steps are those of ?syevr for a part of the spectrum (?sytrd, ?stein, ?ormtr), but ?sterf computes all
    eigenvalues: bisection for a sixth of them takes four times as long. A is overwritten where it is stored by rows.
    m is 0 where LAPACK fails, as inverse iteration may in a cluster and does on the zero matrix.
    """
    A = np.require(A, requirements=["C", "W"])
    n = len(A)
    diagonal, off_diagonal, factors = (np.zeros(n, A.dtype) for _ in range(3))
    work = np.empty(blocking.LAPACK_BLOCK * n, A.dtype)
    # A and its transpose are one matrix, so rows are LAPACK's columns.
    _Call("sytrd", A)("L", n, A, n, diagonal, off_diagonal, factors, work, len(work))
    values, rows = _pairs_of_tridiagonal(diagonal.astype(np.float64), off_diagonal.astype(np.float64), low, high)
    vectors = rows.astype(A.dtype, copy=False)
    _Call("ormtr", A)("L", "L", "N", n, len(vectors), A, n, factors, vectors, n, work, len(work))
    return values.astype(A.dtype, copy=False), vectors.T


def _pairs_of_tridiagonal(
    diagonal: np.ndarray, off_diagonal: np.ndarray, low: int, high: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same of a tridiagonal matrix in float64, with vectors as rows; both arrays have n entries."""
    n, stein = len(diagonal), _Call("stein", diagonal)
    _, exponent = np.frexp(max(np.abs(diagonal).max(), np.abs(off_diagonal).max()))  # ?stein forms squares
    diagonal, off_diagonal = np.ldexp(diagonal, -exponent), np.ldexp(off_diagonal, -exponent)
    values = diagonal.copy()
    failure = _Call("sterf", values)(n, values, off_diagonal.copy())
    values, vectors = values[low : high + 1], np.empty((high - low + 1, n))
    # The whole matrix as one block: ?stein then orthogonalizes all vectors, also where the matrix is block diagonal.
    block, ends, failed = (np.full(n, value, stein.integer) for value in (1, n, 0))
    work, iwork = np.empty(5 * n), np.empty(n, stein.integer)
    task = (n, diagonal, off_diagonal, len(values), values, block, ends, vectors, n, work, iwork, failed)
    failure = failure or stein(*task)
    count = 0 if failure or not np.all(np.isfinite(vectors)) else len(values)
    return np.ldexp(values[:count], exponent), vectors[:count, :]


def cholesky_solution(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return ``A⁻¹ B`` for symmetric positive definite A (n, n) and B (n, k), by ?potrf and ?potrs.

    Only the upper triangle of A is read. A is overwritten where it is stored by rows and in the type of the result.
    Raise LinAlgError where A is not positive definite to working precision.
    """
    dtype = np.result_type(A, B)
    A = np.require(A, dtype, ["C", "W"])
    solution = np.array(B.T, dtype, order="C")
    n, k = len(A), len(solution)
    minor = _Call("potrf", A)("L", n, A, n)
    if minor:
        raise np.linalg.LinAlgError(f"the leading minor of order {minor} is not positive definite")
    _Call("potrs", A)("L", n, k, A, n, solution, n)
    return solution.T
