"""`cupy.linalg`, cuSOLVER's syevd and cuBLAS's batched product, which work on raw addresses.

cuSOLVER reports trouble in a number that CuPy does not look at by default, so nothing here raises LinAlgError for a
singular or indefinite matrix: the answer is NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.linalg
from numpy.linalg import LinAlgError

from . import state as device
from .array import created, ndarray, operand
from .functions import empty, named, wrapped
from .memory import bytes_at
from .state import CUBLASError, CUSOLVERError, launch_in_library, lose_context, state

CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER = 1, 0
CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
REAL = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
# What `cupyx.errstate(linalg=...)` sets: "raise" turns cuSOLVER's report into an error.
settings = {"linalg": "ignore"}
_open_params: set[int] = set()


@contextmanager
def errstate(*, linalg: str) -> Any:
    """`cupyx.errstate`."""
    before, settings["linalg"] = settings["linalg"], linalg
    try:
        yield
    finally:
        settings["linalg"] = before


def to_cuda_dtype(dtype: Any) -> int:
    return next(kind for kind, real in REAL.items() if real == dtype)


# -- cuSOLVER ----------------------------------------------------------------------------------------------------------


def createParams() -> int:
    device.check_alive()
    number = max(_open_params, default=0) + 1
    _open_params.add(number)
    return number


def destroyParams(params: int) -> None:
    _open_params.remove(params)


def xsyevd_bufferSize(
    handle: int, params: int, jobz: int, uplo: int, n: int, type_a: int, a: int, lda: int, type_w: int, w: int,
    kind: int,
) -> tuple[int, int]:  # fmt: skip
    """Return the bytes of workspace on the device and on the host."""
    device.check_alive()
    if handle != 1000 + device.current_device() or params not in _open_params or lda < max(1, n):
        raise CUSOLVERError(3)
    if state.eigh_largest is not None and n > state.eigh_largest:
        raise CUSOLVERError(3)
    return (2 * n * n + 6 * n + 1) * REAL[kind].itemsize, 0


def xsyevd(
    handle: int, params: int, jobz: int, uplo: int, n: int, type_a: int, a: int, lda: int, type_w: int, w: int,
    kind: int, work: int, work_size: int, host_work: int, host_work_size: int, info: int,
) -> None:  # fmt: skip
    """Write eigenvalues into `w`, ascending, and eigenvectors over the matrix at `a`, which is Fortran-ordered."""
    if work_size < xsyevd_bufferSize(handle, params, jobz, uplo, n, type_a, a, lda, type_w, w, kind)[0]:
        raise CUSOLVERError(3)
    launch_in_library("xsyevd", CUSOLVERError(7))
    dtype = REAL[type_a]
    bytes_at(work, work_size)
    matrix = bytes_at(a, lda * n * dtype.itemsize).view(dtype).reshape((lda, n), order="F")[:n]
    if dtype == np.float32 and np.abs(matrix).max(initial=0.0) > state.eigh_largest_float32:
        lose_context()
    bytes_at(info, 4).view(np.int32)[0] = state.eigh_info
    found, vectors = _decomposed(matrix, uplo)
    if state.eigh_answer is not None:
        found, vectors = state.eigh_answer(found, vectors)
    bytes_at(w, n * dtype.itemsize).view(dtype)[...] = found
    matrix[...] = vectors


def _decomposed(matrix: np.ndarray, uplo: int) -> tuple[np.ndarray, np.ndarray]:
    """Return LAPACK's answer in the matrix's precision; NaN where cuSOLVER gives NaN without a report."""
    if not np.isfinite(matrix).all() or (matrix.size and not matrix.any()):
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    return scipy.linalg.eigh(matrix, lower=uplo == CUBLAS_FILL_MODE_LOWER, driver="evd", check_finite=False)


# -- cupy.linalg -------------------------------------------------------------------------------------------------------


def _checked(*arrays: Any) -> np.dtype:
    """Return the dtype to compute in."""
    if not all(isinstance(a, ndarray) for a in arrays):
        raise LinAlgError("cupy.linalg only supports cupy.ndarray")
    return np.result_type(*(a.dtype if a.dtype.kind in "fc" else np.float64 for a in arrays))


def eigh(a: ndarray, UPLO: str = "L") -> tuple[ndarray, ndarray]:
    """As CuPy does it: a Fortran-ordered copy, the workspace that cuSOLVER asks for, and no look at its report."""
    dtype = _checked(a)
    operand(a)
    if a.ndim > 2:
        return _stacked_eigh(a, UPLO)
    v, n, kind = a.astype(dtype, order="F"), a.shape[0], to_cuda_dtype(dtype)
    w, info = empty(n, dtype), empty((), np.int32)
    handle, params = 1000 + device.current_device(), createParams()
    try:
        arguments = (handle, params, 1, "LU".index(UPLO), n, kind, v.data.ptr, n, kind, w.data.ptr, kind)
        size, _ = xsyevd_bufferSize(*arguments)
        work = empty(size, np.int8)
        xsyevd(*arguments, work.data.ptr, size, 0, 0, info.data.ptr)
    finally:
        destroyParams(params)
    return w, v


def _silent(name: str, failed: Callable, fortran: bool = False) -> Callable:
    """Return NumPy's function. Where it raises LinAlgError, the answer is that of `failed`.

    With `fortran` the first answer, a matrix, has the order that cuSOLVER leaves it in.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        arrays = [x for x in args if isinstance(x, ndarray)]
        dtype = _checked(*arrays)
        hosts = [operand(x).astype(dtype, copy=False) if isinstance(x, ndarray) else x for x in args]
        device.launch(name)
        with np.errstate(all="ignore"):
            try:
                answer = getattr(np.linalg, name)(*hosts, **kwargs)
            except LinAlgError:
                answer = failed(*hosts)
        parts = list(answer) if isinstance(answer, tuple) else [answer]
        order = ["F" if fortran and k == 0 else "C" for k in range(len(parts))]
        found = [created(np.asarray(part, order=o)) for part, o in zip(parts, order, strict=True)]
        return tuple(found) if isinstance(answer, tuple) else found[0]

    return named(call, name, "cupy.linalg")


def _nan(x: np.ndarray, *args: Any) -> np.ndarray:
    return np.full(x.shape, np.nan, x.dtype)


# What potrf leaves after a failed minor is anything; finite here, so that nobody takes NaN for a test.
cholesky = _silent("cholesky", lambda a: np.tril(a))
inv = _silent("inv", _nan)
solve = _silent("solve", lambda a, b: np.full(b.shape, np.nan, a.dtype), fortran=True)
svd = _silent("svd", lambda a, *rest: (_nan(a), np.full(min(a.shape), np.nan), _nan(a)))
qr = _silent("qr", lambda a, *rest: (_nan(a), _nan(a)), fortran=True)
norm = _silent("norm", _nan)
lstsq = _silent("lstsq", _nan)
_stacked_eigh = _silent("eigh", lambda a, *rest: (np.full(a.shape[:-1], np.nan), _nan(a)))


def posv(a: ndarray, b: ndarray) -> ndarray:
    """`cupyx.lapack.posv`: one factor of the lower triangle, and the solution; a failure is silent by default."""
    dtype = _checked(a, b)
    operand(a), operand(b)
    a, b = a.astype(dtype, order="F"), b.astype(dtype, order="F")
    device.launch("posv")
    try:
        factor = scipy.linalg.cho_factor(a._host, lower=True)
    except LinAlgError:
        if settings["linalg"] == "raise":
            raise
        return wrapped(b._host)
    return wrapped(scipy.linalg.cho_solve(factor, b._host).astype(dtype))


# -- cuBLAS ------------------------------------------------------------------------------------------------------------


def dgemmStridedBatched(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, lda: int, strideA: int, B: int,
    ldb: int, strideB: int, beta: int, C: int, ldc: int, strideC: int, batchCount: int,
) -> None:  # fmt: skip
    """Compute C = op(A) op(B) of every matrix of a batch in Fortran's order, by addresses; alpha is 1 and beta 0."""
    factors = [np.frombuffer((ctypes.c_uint8 * 8).from_address(x), np.float64)[0] for x in (alpha, beta)]
    if handle != 1000 + device.current_device() or lda < (k if transa else m) or ldb < (n if transb else k) or ldc < m:
        raise CUBLASError(3)
    if factors != [1.0, 0.0]:
        raise NotImplementedError("the imitation has no other factors")
    launch_in_library("dgemmStridedBatched", CUBLASError(13))
    for i in range(batchCount):
        left = _matrix_at(A + 8 * i * strideA, *((k, m) if transa else (m, k)), lda)
        right = _matrix_at(B + 8 * i * strideB, *((n, k) if transb else (k, n)), ldb)
        with np.errstate(all="ignore"):
            answer = (left.T if transa else left) @ (right.T if transb else right)
        _matrix_at(C + 8 * i * strideC, m, n, ldc)[...] = answer


def _matrix_at(pointer: int, rows: int, columns: int, ld: int) -> np.ndarray:
    entries = max(0, (columns - 1) * ld + rows) if rows and columns else 0
    flat = bytes_at(pointer, entries * 8).view(np.float64)
    return np.ndarray((rows, columns), np.float64, flat, strides=(8, ld * 8))
