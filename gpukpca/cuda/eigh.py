"""Eigenpairs by cuSOLVER's syevd in place: `cupy.linalg.eigh` copies its argument and ignores cuSOLVER's report.

Known faults: a zero matrix gives NaN (https://github.com/cupy/cupy/issues/6539), huge float32 entries end the context
(https://github.com/cupy/cupy/issues/6789), and older versions refuse n beyond about 23 000. Every answer is only a
proposal, which the caller verifies.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def syevd(A: Any) -> tuple[np.ndarray, Any]:
    """Return all eigenvalues of a symmetric A (n, n) on the host in float64, ascending, and the vectors as columns.

    A is a contiguous CuPy array of float32 or float64 with entries of moderate size. The vectors overwrite it. Raise
    LinAlgError where cuSOLVER refuses n, does not converge, or gives NaN or infinity.
    """
    import cupy

    n = int(A.shape[0])
    if float(A.max()) == 0.0 == float(A.min()):
        return np.zeros(n), cupy.eye(n, dtype=A.dtype)
    F = A.T if A.flags.c_contiguous else A if A.flags.f_contiguous else A.T.copy(order="F")
    values = cupy.empty(n, A.dtype)
    info = _solved_in_place(F, values)
    if info:
        raise np.linalg.LinAlgError(f"cuSOLVER syevd did not converge (info {info})")
    on_host = values.get().astype(np.float64)
    if not np.all(np.isfinite(on_host)) or not bool(cupy.isfinite(F).all()):
        raise np.linalg.LinAlgError("cuSOLVER syevd gave NaN or infinity without an error")
    return on_host, F


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
