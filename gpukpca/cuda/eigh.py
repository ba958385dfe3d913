"""cuSOLVER's syevd in place: `cupy.linalg.eigh` copies its argument and does not look at what cuSOLVER reports.

Known faults that the callers design around: a zero matrix gives NaN, huge float32 entries end the context, and before
cuSOLVER 12 the routine fails above n of about 23 000. Every answer is only a proposal: whoever calls verifies it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The cuSOLVER of CUDA 13. Above so many rows the 32-bit workspace of older ones overflows.
CUSOLVER_OF_CUDA_13 = 12
LARGEST_BEFORE_CUDA_13 = 23_000


def largest_n() -> int | None:
    """Return the largest matrix that the loaded cuSOLVER is offered; None: any that fits.

    Versions of the CUDA runtime say nothing about it: CuPy's is linked statically, another may be installed beside it.
    """
    from cupy_backends.cuda.libs import cusolver

    return LARGEST_BEFORE_CUDA_13 if cusolver._getVersion()[0] < CUSOLVER_OF_CUDA_13 else None


def syevd(A: Any) -> tuple[np.ndarray, Any]:
    """All eigenpairs of a symmetric A (n, n), which is overwritten.

    Parameters
    ----------
    A : CuPy array, float32 or float64, contiguous, entries of moderate size
        Its transpose is the same matrix, so either order is Fortran's for cuSOLVER.

    Returns
    -------
    values : host array, shape (n,), float64, ascending as cuSOLVER gives them
    vectors : CuPy array, shape (n, n), in the memory of A; column j belongs to values[j]

    Raises
    ------
    numpy.linalg.LinAlgError
        cuSOLVER refused n, did not converge, or gave NaN or infinity.
    MemoryError
        The workspace, which is asked for before it is taken, does not fit.
    """
    import cupy

    n = int(A.shape[0])
    limit = largest_n()
    if limit is not None and n > limit:
        raise np.linalg.LinAlgError(f"cuSOLVER before CUDA 13 takes matrices up to n = {limit}, not {n}")
    if float(A.max()) == 0.0 == float(A.min()):
        return np.zeros(n), cupy.eye(n, dtype=A.dtype)
    F = A.T if A.flags.c_contiguous else A if A.flags.f_contiguous else A.T.copy(order="F")
    values = cupy.empty(n, A.dtype)
    info = _solved_in_place(F, values)
    if info:
        raise np.linalg.LinAlgError(f"cuSOLVER syevd did not converge (info {info})")
    found = values.get().astype(np.float64)
    if not np.all(np.isfinite(found)) or not bool(cupy.isfinite(F).all()):
        raise np.linalg.LinAlgError("cuSOLVER syevd gave NaN or infinity without an error")
    return found, F


def _solved_in_place(F: Any, values: Any) -> int:
    """cuSOLVER's own report; 0 is success."""
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
