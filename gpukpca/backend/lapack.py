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
from gpukpca.backend.namespace import SAFE_NORMS

# The letters of a precision in names of LAPACK, by those of NumPy.
LETTERS = {"f": "s", "d": "d"}
# The memory of an array, in a fifth of the time that NumPy takes for its address.
_Memory = ctypes.c_char * 0
INTEGERS = {integer: np.dtype(integer) for integer in (ctypes.c_int, ctypes.c_int64)}
# Divide and conquer is faster for more than one vector in so many: measured for n from 400 to 2000, inverse iteration
# in a cluster takes as long for a quarter of them.
MANY = 4
# Entries of vectors whose products leave the normal numbers: with them ?ormtr takes twice as long in float32.
SMALLEST = {letter: float(np.sqrt(np.finfo(letter).tiny)) for letter in LETTERS}


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
    """A routine in the precision of an array; Python numbers and letters are passed by address.

    Arrays are stored by rows and can be written to.
    """

    def __init__(self, name: str, like: np.ndarray) -> None:
        self._call, self._integer = _routine(LETTERS[like.dtype.char] + name)
        self._real = ctypes.c_double if like.dtype.char == "d" else ctypes.c_float

    @property
    def integers(self) -> np.dtype[Any]:
        """Return the type of arrays of integers."""
        return INTEGERS[self._integer]

    def __call__(self, *arguments: Any) -> int:
        """Call with these arguments and that of the report; return the report."""
        info = self._integer(0)
        addresses: list[Any] = []
        for argument in arguments:
            if isinstance(argument, (int, float)):
                kind = self._integer if isinstance(argument, int) else self._real
                addresses.append(ctypes.byref(kind(argument)))
            else:
                addresses.append(argument.encode() if isinstance(argument, str) else _Memory.from_buffer(argument))
        self._call(*addresses, ctypes.byref(info))
        return int(info.value)


def are_divided(n: int, p: int) -> bool:
    """Return whether divide and conquer computes p of n vectors, which takes memory for 2 n² items."""
    return MANY * p > n


def leading_eigenpairs(A: np.ndarray, count: Callable[[np.ndarray], int]) -> tuple[np.ndarray, np.ndarray]:
    """Return all eigenvalues of a symmetric A (n, n), descending, and vectors (n, p) of the largest ones.

    ``p = count(values)`` is decided once all eigenvalues are known. The steps are those of ?syevr for a part of the
    spectrum (?sytrd, ?stein, ?ormtr), but ?sterf computes all eigenvalues: bisection for a sixth of them takes four
    times as long. Divide and conquer (?stedc) computes many vectors, and those of a cluster in which inverse iteration
    fails. A is overwritten where it is stored by rows. Raise LinAlgError where LAPACK fails.
    """
    A = np.require(A, requirements=["C", "W"])
    n = len(A)
    diagonal, off_diagonal, factors = (np.zeros(n, A.dtype) for _ in range(3))
    work = np.empty(blocking.LAPACK_BLOCK * n, A.dtype)
    # A and its transpose are one matrix, so rows are LAPACK's columns.
    _Call("sytrd", A)("L", n, A, n, diagonal, off_diagonal, factors, work, len(work))
    values = _values_of_tridiagonal(diagonal, off_diagonal)
    p = count(values[::-1])
    rows = _rows_by_inverse_iteration(diagonal, off_diagonal, values[n - p :]) if not are_divided(n, p) else None
    if rows is None:
        values, rows = _pairs_by_divide_and_conquer(diagonal, off_diagonal)
        rows = rows[n - p :, :]
    rows[np.abs(rows) < SMALLEST[A.dtype.char]] = 0.0
    vectors = np.ascontiguousarray(rows[::-1, :], A.dtype)
    del rows
    _Call("ormtr", A)("L", "L", "N", n, p, A, n, factors, vectors, n, work, len(work))
    return values[::-1].astype(A.dtype, copy=False), vectors.T


def _values_of_tridiagonal(diagonal: np.ndarray, off_diagonal: np.ndarray) -> np.ndarray:
    """Return all eigenvalues, ascending, in float64; both arrays have n entries."""
    values, off = diagonal.astype(np.float64), off_diagonal.astype(np.float64)
    if _Call("sterf", values)(len(values), values, off):
        raise np.linalg.LinAlgError("the eigenvalues of a tridiagonal matrix did not converge")
    return values


def _rows_by_inverse_iteration(diagonal: np.ndarray, off_diagonal: np.ndarray, values: np.ndarray) -> np.ndarray | None:
    """Return the vectors of some eigenvalues as rows in float64; None where inverse iteration fails.

    It may fail in a cluster, and does on the zero matrix.
    """
    n, count = len(diagonal), len(values)
    diagonal, off_diagonal = diagonal.astype(np.float64), off_diagonal.astype(np.float64)
    largest = max(np.abs(diagonal).max(), np.abs(off_diagonal).max())
    low, high = SAFE_NORMS["float64"]
    if not low < largest < high:  # ?stein forms squares
        _, exponent = np.frexp(largest)
        diagonal, off_diagonal, values = (np.ldexp(part, -exponent) for part in (diagonal, off_diagonal, values))
    stein, rows = _Call("stein", diagonal), np.empty((count, n))
    # The whole matrix as one block: ?stein then orthogonalizes all vectors, also where the matrix is block diagonal.
    blocks, end = np.ones(count, stein.integers), np.array([n], stein.integers)
    work, iwork, failed = np.empty(5 * n), np.empty(n, stein.integers), np.empty(count, stein.integers)
    failure = stein(n, diagonal, off_diagonal, count, values, blocks, end, rows, n, work, iwork, failed)
    return None if failure or not np.all(np.isfinite(rows)) else rows


def _pairs_by_divide_and_conquer(diagonal: np.ndarray, off_diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return all eigenvalues, ascending, in float64, and vectors as rows."""
    n, stedc = len(diagonal), _Call("stedc", diagonal)
    values, off, rows = diagonal.copy(), off_diagonal.copy(), np.empty((n, n), diagonal.dtype)
    work, iwork = np.empty(1 + 4 * n + n * n, diagonal.dtype), np.empty(3 + 5 * n, stedc.integers)
    if stedc("I", n, values, off, rows, n, work, len(work), iwork, len(iwork)):
        raise np.linalg.LinAlgError("divide and conquer of a tridiagonal matrix did not converge")
    return values.astype(np.float64), rows


def graded_svd(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the singular values of A (m, p), m >= p, descending, and V (p, p) with orthogonal columns of A V.

    Jacobi's method keeps the digits of values of any size where the columns of A are nearly orthogonal (?gesvj; Demmel
    & Veselić, SIAM J. Matrix Anal. Appl. 13 (1992) 1204). It takes some ten times as long as `thin_svd`. Raise
    LinAlgError where LAPACK fails.
    """
    m, p = A.shape
    columns = np.array(A.T, np.float64, order="C")
    values, rows, work = np.empty(p), np.empty((p, p)), np.empty(max(6, m + p))
    _Call("gesvj", columns)("G", "N", "V", m, p, columns, m, values, 0, rows, p, work, len(work))
    # Of columns that depend on each other exactly it says that it did not converge, though all digits are there.
    if not (np.isfinite(values).all() and np.isfinite(rows).all()):
        raise np.linalg.LinAlgError("Jacobi's method failed")
    return work[0] * values, rows.T


def failing_minor(A: np.ndarray) -> int:
    """Return the order of a leading minor of A (n, n) that is not positive to working precision; 0 where none is.

    A is stored by rows; its upper triangle becomes the factor R of A = RᵀR, by ?potrf, where the answer is 0.
    """
    return _Call("potrf", A)("L", len(A), A, len(A))


def cholesky_solution(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return ``A⁻¹ B`` for symmetric positive definite A (n, n) and B (n, k), by ?potrf and ?potrs.

    Only the upper triangle of A is read. A is overwritten where it is stored by rows and in the type of the result.
    Raise LinAlgError where A is not positive definite to working precision.
    """
    dtype = np.result_type(A, B)
    A = np.require(A, dtype, ["C", "W"])
    solution = np.array(B.T, dtype, order="C")
    n, k = len(A), len(solution)
    if minor := failing_minor(A):
        raise np.linalg.LinAlgError(f"the leading minor of order {minor} is not positive definite")
    _Call("potrs", A)("L", n, k, A, n, solution, n)
    return solution.T
