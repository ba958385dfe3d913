"""LAPACK on NumPy arrays while other threads of Python run: SciPy's own wrappers hold the interpreter's lock.

The routines are those that SciPy offers to Cython, so library and digits are SciPy's. `ctypes` lets go of the lock for
the length of a call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

LETTERS = {"float32": "s", "float64": "d"}


@cache
def _routine(name: str) -> tuple[Callable[..., None], Any]:
    """The routine, all of whose arguments are addresses, and the type of its integers."""
    signature_of, address_of = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    signature_of.restype, signature_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = cython_lapack.__pyx_capi__[name]
    signature = signature_of(capsule)
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * signature.count(b"*"))
    # A SciPy built for matrices beyond 2**31 entries a side has a name of its own for them.
    integer = ctypes.c_int if b" int *" in signature else ctypes.c_int64
    return prototype(address_of(capsule, signature)), integer


class _Call:
    """A routine in the precision of an array; Python numbers and letters are passed by address."""

    def __init__(self, name: str, like: np.ndarray) -> None:
        self._call, self.integer = _routine(LETTERS[like.dtype.name] + name)
        self._real = ctypes.c_double if like.dtype == np.float64 else ctypes.c_float

    def __call__(self, *arguments: Any) -> int:
        """Call with these arguments and the one that LAPACK reports in; returns what it reports."""
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
    """Eigenvalues number `low` to `high` of a symmetric A (n, n), ascending, and vectors (n, m), by ?syevr.

    A is overwritten where it is stored by rows. m is less than was asked for where LAPACK's bisection loses members of
    a cluster.

    Raises
    ------
    numpy.linalg.LinAlgError
        LAPACK reports a failure.
    """
    A = np.require(A, requirements=["C", "W"])
    n, call = len(A), _Call("syevr", A)
    values, vectors = np.empty(n, A.dtype), np.empty((high - low + 1, n), A.dtype)
    found, support = call.integer(0), np.empty(2 * len(vectors), np.int64)

    def run(work: np.ndarray, lwork: int, iwork: np.ndarray, liwork: int) -> int:
        # A and its transpose are one matrix, so rows are LAPACK's columns.
        task = ("V", "I", "L", n, A, n, 0.0, 0.0, low + 1, high + 1, 0.0, found, values, vectors, n, support)
        return call(*task, work, lwork, iwork, liwork)

    size = np.empty(1, A.dtype)
    run(size, -1, np.empty(1, np.int64), -1)
    lwork, liwork = int(size[0]), 10 * n
    info = run(np.empty(lwork, A.dtype), lwork, np.empty(liwork, np.int64), liwork)
    if info:
        raise np.linalg.LinAlgError(f"LAPACK's syevr failed with {info}")
    return values[: found.value], vectors[: found.value, :].T


def cholesky_solution(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """``A⁻¹ B`` for symmetric positive definite A (n, n) and B (n, k), by ?potrf and ?potrs.

    A is overwritten where it is stored by rows and in the type of the result.

    Raises
    ------
    numpy.linalg.LinAlgError
        A is not positive definite to working precision.
    """
    dtype = np.result_type(A, B)
    A = np.require(A, dtype, ["C", "W"])
    solution = np.array(B.T, dtype, order="C")
    n, k = len(A), len(solution)
    minor = _Call("potrf", A)("U", n, A, n)
    if minor:
        raise np.linalg.LinAlgError(f"the leading minor of order {minor} is not positive definite")
    _Call("potrs", A)("U", n, k, A, n, solution, n)
    return solution.T
