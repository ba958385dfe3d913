"""Eigenpairs by cuSOLVER's syevd in place: `cupy.linalg.eigh` copies its argument and ignores cuSOLVER's report.

Known faults: a zero matrix gives NaN (https://github.com/cupy/cupy/issues/6539), huge float32 entries end the context
(https://github.com/cupy/cupy/issues/6789), and CUDA 12 refuses n > 23 170. Eigenvalues are verified here; vectors are a
proposal, which the caller verifies.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# No correct answer errs by so many sqrt(n) eps.
_WRONG = 100.0


def leading_pairs(T: np.ndarray, keep: int, device: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return all eigenvalues, descending, of a symmetric float64 host matrix, and `keep` vectors on the host.

    Raise LinAlgError where cuSOLVER gives none, or vectors that are not orthonormal or have large residuals.
    """
    import cupy

    n, exponent = len(T), math.frexp(max(T.max(), -T.min()))[1]
    with device:
        A = cupy.asarray(np.ldexp(T, -exponent))
        values, vectors = syevd(A.copy())
        theta, V = values[::-1], vectors[:, ::-1][:, :keep]
        skew, residuals = V.T @ V - cupy.eye(keep), A @ V - V * cupy.asarray(theta[:keep])
        allowed = _WRONG * n**0.5 * float(np.finfo(np.float64).eps)
        if not (float(abs(skew).max()) <= allowed and float(abs(residuals).max()) <= allowed * np.abs(values).max()):
            raise np.linalg.LinAlgError("cuSOLVER syevd gave wrong vectors without an error")
        return np.ldexp(theta, exponent), V.get()


def syevd(A: Any) -> tuple[np.ndarray, Any]:
    """Return all eigenvalues of a symmetric A (n, n) on the host in float64, ascending, and the vectors as columns.

    A is a contiguous CuPy array of float32 or float64 with entries of moderate size. The vectors overwrite it. Raise
    LinAlgError where cuSOLVER refuses n, does not converge, or gives values that cannot be right.
    """
    import cupy

    n = int(A.shape[0])
    if float(A.max()) == 0.0 == float(A.min()):
        return np.zeros(n), cupy.eye(n, dtype=A.dtype)
    trace = float(A.trace(dtype=np.float64))
    F = A.T if A.flags.c_contiguous else A if A.flags.f_contiguous else A.T.copy(order="F")
    values = cupy.empty(n, A.dtype)
    info = _solved_in_place(F, values)
    if info:
        raise np.linalg.LinAlgError(f"cuSOLVER syevd did not converge (info {info})")
    on_host = values.get().astype(np.float64)
    if not np.all(np.isfinite(on_host)) or not bool(cupy.isfinite(F).all()):
        raise np.linalg.LinAlgError("cuSOLVER syevd gave NaN or infinity without an error")
    _check_values(on_host, trace, float(np.finfo(A.dtype).eps))
    return on_host, F


def _check_values(values: np.ndarray, trace: float, eps: float) -> None:
    """Raise where eigenvalues (ascending) of a matrix with this trace cannot be right.

    Errors of single values, some eps of the largest, sum like random numbers.
    """
    if np.any(np.diff(values) < 0):
        raise np.linalg.LinAlgError("the eigenvalues are not in order")
    size = float(np.abs(values).max(initial=0.0))
    if abs(float(values.sum()) - trace) > _WRONG * len(values) ** 0.5 * eps * size:
        raise np.linalg.LinAlgError(f"the eigenvalues sum to {float(values.sum()):.6g}, and the trace is {trace:.6g}")


def _solved_in_place(F: Any, values: Any) -> int:
    """Call cuSOLVER and return its report; 0 is success."""
    import cupy
    from cupy._core._dtype import to_cuda_dtype
    from cupy_backends.cuda.libs import cublas, cusolver

    n, kind = int(F.shape[0]), to_cuda_dtype(F.dtype)
    info = cupy.empty((), np.int32)
    handle = cupy.cuda.device.get_cusolver_handle()
    task = (cusolver.CUSOLVER_EIG_MODE_VECTOR, cublas.CUBLAS_FILL_MODE_LOWER, n)
    arrays = (kind, F.data.ptr, n, kind, values.data.ptr, kind)
    parameters = cusolver.createParams()
    try:
        on_device, on_host = cusolver.xsyevd_bufferSize(handle, parameters, *task, *arrays)
        work, host_work = cupy.empty(on_device, np.int8), np.empty(on_host, np.int8)
        sizes = (work.data.ptr, on_device, host_work.ctypes.data, on_host)
        cusolver.xsyevd(handle, parameters, *task, *arrays, *sizes, info.data.ptr)
    except cusolver.CUSOLVERError as error:
        raise np.linalg.LinAlgError(f"cuSOLVER syevd: {error}") from error
    finally:
        cusolver.destroyParams(parameters)
    return int(info)
