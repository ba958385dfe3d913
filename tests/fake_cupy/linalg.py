"""`cupy.linalg`, and cuSOLVER's syevd beneath it, which works on raw addresses and has the faults that a test asks for.

cuSOLVER reports trouble in a number that CuPy does not look at unless told to, so nothing here raises LinAlgError
for a singular or indefinite matrix: the answer is NaN.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.linalg import LinAlgError

from . import state as device
from .array import ndarray, operand
from .functions import _named, as_cublas_reads, created, empty, matmul, rounded_to_tf32, wrapped
from .memory import bytes_at
from .state import CUBLASError, CUSOLVERError, launch_in_library, lose_context, state

CUSOLVER_EIG_MODE_NOVECTOR, CUSOLVER_EIG_MODE_VECTOR = 0, 1
CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER = 0, 1
CUDA_TYPES = {"e": 2, "f": 0, "d": 1, "F": 4, "D": 5}
REAL = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}


# cupyx.errstate(linalg=...) turns cuSOLVER's report into an error.
settings = {"linalg": "ignore"}
_open_params: set[int] = set()


def to_cuda_dtype(dtype: Any, is_half_allowed: bool = False) -> int:
    char = np.dtype(dtype).char
    if char not in CUDA_TYPES or (char == "e" and not is_half_allowed):
        raise TypeError(f"dtype is not supported: {dtype}")
    return CUDA_TYPES[char]


def createParams() -> int:
    device.check_alive()
    number = max(_open_params, default=0) + 1
    _open_params.add(number)
    return number


def destroyParams(params: int) -> None:
    _open_params.remove(params)


def xsyevd_bufferSize(
    handle: int,
    params: int,
    jobz: int,
    uplo: int,
    n: int,
    type_a: int,
    a: int,
    lda: int,
    type_w: int,
    w: int,
    kind: int,
) -> tuple[int, int]:
    """Bytes of workspace on the device and on the host."""
    device.check_alive()
    _check_arguments(handle, params, n, lda)
    if state.eigh_largest is not None and n > state.eigh_largest:
        raise CUSOLVERError(3)
    entries = 2 * n * n + 6 * n + 1 if jobz == CUSOLVER_EIG_MODE_VECTOR else 34 * n + 1
    return max(1, entries) * REAL[kind].itemsize, 0


def xsyevd(
    handle: int, params: int, jobz: int, uplo: int, n: int, type_a: int, a: int, lda: int, type_w: int, w: int,
    kind: int, work: int, work_size: int, host_work: int, host_work_size: int, info: int,
) -> None:  # fmt: skip
    """Eigenvalues into `w`, ascending; eigenvectors over the matrix at `a`, which is Fortran-ordered."""
    _check_arguments(handle, params, n, lda)
    if work_size < xsyevd_bufferSize(handle, params, jobz, uplo, n, type_a, a, lda, type_w, w, kind)[0]:
        raise CUSOLVERError(3)
    launch_in_library("xsyevd", CUSOLVERError(7))
    dtype = REAL[type_a]
    bytes_at(work, work_size)
    matrix = bytes_at(a, lda * n * dtype.itemsize).view(dtype).reshape((lda, n), order="F")[:n]
    values = bytes_at(w, n * dtype.itemsize).view(dtype)
    report = bytes_at(info, 4).view(np.int32)
    limit = state.eigh_largest_float32
    if dtype == np.float32 and limit is not None and np.abs(matrix).max(initial=0.0) > limit:
        lose_context()
    report[0] = state.eigh_info
    found, vectors = _decomposed(matrix, uplo)
    if state.eigh_answer is not None:
        found, vectors = state.eigh_answer(found, vectors)
    values[...] = found
    if jobz == CUSOLVER_EIG_MODE_VECTOR:
        matrix[...] = vectors


def _check_arguments(handle: int, params: int, n: int, lda: int) -> None:
    if handle != 1000 + device.current_device() or params not in _open_params or lda < max(1, n):
        raise CUSOLVERError(3)


def _decomposed(matrix: np.ndarray, uplo: int) -> tuple[np.ndarray, np.ndarray]:
    """LAPACK's divide and conquer in the matrix's precision; NaN where cuSOLVER gives NaN without a word."""
    if not np.isfinite(matrix).all() or (state.eigh_zero_is_nan and matrix.size and not matrix.any()):
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    lower = uplo == CUBLAS_FILL_MODE_LOWER
    return scipy.linalg.eigh(matrix, lower=lower, driver="evd", check_finite=False)


# cupy.linalg


def _checked(*arrays: Any, square: bool = False) -> np.dtype:
    """The dtype to compute in."""
    for a in arrays:
        if not isinstance(a, ndarray):
            raise LinAlgError("cupy.linalg only supports cupy.ndarray")
        if a.dtype == np.float16:
            raise TypeError("float16 is unsupported in linalg")
    first = arrays[0]
    if first.ndim < 2:
        raise LinAlgError(f"{first.ndim}-dimensional array given. Array must be at least two-dimensional")
    if square and first.shape[-1] != first.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return np.result_type(*(a.dtype if a.dtype.kind in "fc" else np.float64 for a in arrays))


def _syevd(a: ndarray, UPLO: str, vectors: bool) -> tuple[ndarray, ndarray]:
    """As CuPy does it: a Fortran-ordered copy, the workspace that cuSOLVER asks for, and no look at its report."""
    if UPLO not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    dtype = _checked(a, square=True)
    operand(a)
    v, n, kind = a.astype(dtype, order="F"), a.shape[0], to_cuda_dtype(dtype)
    w, info = empty(n, dtype), empty((), np.int32)
    if n == 0:
        return w, v
    job, uplo = int(vectors), "LU".index(UPLO)
    handle, params = 1000 + device.current_device(), createParams()
    try:
        arguments = (handle, params, job, uplo, n, kind, v.data.ptr, n, kind, w.data.ptr, kind)
        size, _ = xsyevd_bufferSize(*arguments)
        work = empty(size, np.int8)
        xsyevd(*arguments, work.data.ptr, size, 0, 0, info.data.ptr)
    finally:
        destroyParams(params)
    if settings["linalg"] == "raise" and int(info):
        raise LinAlgError(f"Error reported by xsyevd in cuSOLVER. devInfo = {int(info)}.")
    return w, v


def eigh(a: ndarray, UPLO: str = "L") -> tuple[ndarray, ndarray]:
    return _syevd(a, UPLO, True) if a.ndim == 2 and a.dtype.kind != "c" else _stacked_eigh(a, UPLO)


def eigvalsh(a: ndarray, UPLO: str = "L") -> ndarray:
    return _syevd(a, UPLO, False)[0] if a.ndim == 2 and a.dtype.kind != "c" else _stacked_eigh(a, UPLO)[0]


def _silent(name: str, *, square: bool = False, shapes: Callable, fortran: bool = False) -> Callable:
    """NumPy's function; where it raises LinAlgError, NaN in the shapes of the answer.

    With `fortran` the first answer, a matrix, has the order that cuSOLVER leaves it in.
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        arrays = [x for x in args if not isinstance(x, (int, float, str, bool, type(None)))]
        dtype = _checked(*arrays, square=square)
        hosts = [operand(x).astype(dtype, copy=False) if isinstance(x, ndarray) else x for x in args]
        device.launch(name)
        with np.errstate(all="ignore"):
            try:
                answer = getattr(np.linalg, name)(*hosts, **kwargs)
            except LinAlgError:
                if settings["linalg"] == "raise":
                    raise
                answer = shapes(*hosts, **kwargs)
        return _with_fortran_order(answer) if fortran else wrapped(answer)

    return _named(function, name, "cupy.linalg")


def _with_fortran_order(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return (_with_fortran_order(answer[0]), *wrapped(tuple(answer[1:])))
    return created(np.asarray(answer, order="F"))


def _nan_like(x: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
    return np.full(x.shape, np.nan, x.dtype)


def _nan_svd(x: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    m, n = x.shape[-2:]
    k, stack = min(m, n), x.shape[:-2]
    values = np.full((*stack, k), np.nan, x.dtype)
    if not compute_uv:
        return values
    u, vh = (m, m if full_matrices else k), (n if full_matrices else k, n)
    return np.full((*stack, *u), np.nan, x.dtype), values, np.full((*stack, *vh), np.nan, x.dtype)


# What potrf leaves after a failed minor is anything; finite here, so that nobody takes NaN for a test.
cholesky = _silent("cholesky", square=True, shapes=lambda a: np.tril(a))
inv = _silent("inv", square=True, shapes=_nan_like)
solve = _silent("solve", square=True, shapes=lambda a, b: np.full(b.shape, np.nan, a.dtype), fortran=True)
svd = _silent("svd", shapes=_nan_svd)
qr = _silent("qr", shapes=_nan_like, fortran=True)
pinv = _silent("pinv", shapes=lambda a, *rest: np.full(a.T.shape, np.nan, a.dtype))
det = _silent("det", square=True, shapes=_nan_like)
slogdet = _silent("slogdet", square=True, shapes=_nan_like)
eig = _silent("eig", square=True, shapes=_nan_like)
eigvals = _silent("eigvals", square=True, shapes=_nan_like)
lstsq = _silent("lstsq", shapes=_nan_like)
matrix_rank = _silent("matrix_rank", shapes=_nan_like)
cond = _silent("cond", shapes=_nan_like)
matrix_power = _silent("matrix_power", square=True, shapes=_nan_like)
tensorsolve = _silent("tensorsolve", shapes=_nan_like)
tensorinv = _silent("tensorinv", shapes=_nan_like)
cross = _silent("cross", shapes=_nan_like)
_stacked_eigh = _silent("eigh", square=True, shapes=lambda a, *rest: (np.full(a.shape[:-1], np.nan), _nan_like(a)))


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


def norm(x: ndarray, ord: Any = None, axis: Any = None, keepdims: bool = False) -> ndarray:
    if not isinstance(x, ndarray):
        raise LinAlgError("cupy.linalg only supports cupy.ndarray")
    device.launch("norm")
    with np.errstate(all="ignore"):
        return wrapped(np.linalg.norm(operand(x), ord, axis, keepdims))


# cuBLAS itself

CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C = 0, 1, 2
CUBLAS_GEMM_DEFAULT, CUBLAS_GEMM_DEFAULT_TENSOR_OP = -1, 99
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 69, 77
CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC = 70, 71
NOT_SUPPORTED, INVALID_VALUE, EXECUTION_FAILED = 15, 7, 13
_NUMBERS = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16)}
# Types of A and B and of C for which cuBLAS has a product with sums in a type.
_SUMS_IN_FLOAT32 = {(2, 2), (2, 0), (0, 0)}


def gemmEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int, B: int,
    Btype: int, ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    """Compute C = alpha op(A) op(B) + beta C in Fortran's order, by addresses; alpha and beta lie on the host.

    Operands of float16, and of float32 rounded to TF32 where the type of the computation says so, have exact products
    in float32, where they are added up.
    """
    wide = computeType in (CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC)
    narrow = computeType in (CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_FAST_TF32)
    types = (Atype, Ctype)
    if Atype != Btype or not (types in _SUMS_IN_FLOAT32 if narrow else wide and types == (1, 1)):
        raise CUBLASError(NOT_SUPPORTED)
    _check_leading(handle, (k if transa else m, n if transb else k, m), (lda, ldb, ldc))
    launch_in_library("gemmEx", CUBLASError(EXECUTION_FAILED))
    _multiply(transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype, ldc, computeType)


def _multiply(
    transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int, lda: int, B: int, Btype: int,
    ldb: int, beta: int, C: int, Ctype: int, ldc: int, computeType: int,
) -> None:  # fmt: skip
    sums = np.dtype(np.float64 if computeType in (CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC) else np.float32)
    factors = [np.frombuffer((ctypes.c_uint8 * sums.itemsize).from_address(x), sums)[0] for x in (alpha, beta)]
    left = _matrix_at(A, Atype, k if transa else m, m if transa else k, lda)
    right = _matrix_at(B, Btype, n if transb else k, k if transb else n, ldb)
    answer = _matrix_at(C, Ctype, m, n, ldc)
    operands = [_as_summed(x, sums, computeType) for x in (left.T if transa else left, right.T if transb else right)]
    with np.errstate(all="ignore"):
        product = factors[0] * (operands[0] @ operands[1])
        answer[...] = product + factors[1] * answer.astype(sums) if factors[1] else product


def dgemmStridedBatched(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, lda: int, strideA: int, B: int,
    ldb: int, strideB: int, beta: int, C: int, ldc: int, strideC: int, batchCount: int,
) -> None:  # fmt: skip
    """`gemmEx` in float64 of every matrix of a batch, each so many numbers after the one before."""
    wide = CUBLAS_COMPUTE_64F
    _check_leading(handle, (k if transa else m, n if transb else k, m), (lda, ldb, ldc))
    launch_in_library("dgemmStridedBatched", CUBLASError(EXECUTION_FAILED))
    for i in range(batchCount):
        a, b, c = (p + 8 * i * stride for p, stride in ((A, strideA), (B, strideB), (C, strideC)))
        _multiply(transa, transb, m, n, k, alpha, a, 1, lda, b, 1, ldb, beta, c, 1, ldc, wide)


def _check_leading(handle: int, rows: tuple[int, ...], leading: tuple[int, ...]) -> None:
    if handle != 1000 + device.current_device() or any(ld < max(1, r) for ld, r in zip(leading, rows, strict=True)):
        raise CUBLASError(INVALID_VALUE)


def _matrix_at(pointer: int, kind: int, rows: int, columns: int, ld: int) -> np.ndarray:
    dtype = _NUMBERS[kind]
    entries = max(0, (columns - 1) * ld + rows) if rows and columns else 0
    flat = bytes_at(pointer, entries * dtype.itemsize).view(dtype)
    return np.ndarray((rows, columns), dtype, flat, strides=(dtype.itemsize, ld * dtype.itemsize))


def _as_summed(x: np.ndarray, sums: np.dtype, compute_type: int) -> np.ndarray:
    """Return an operand as the products read it."""
    if x.dtype == np.float32 and compute_type == CUBLAS_COMPUTE_32F_FAST_TF32:
        return rounded_to_tf32(x)
    return (as_cublas_reads(x) if compute_type == CUBLAS_COMPUTE_32F else x).astype(sums)


# cupy.cublas: the two that are products of whole matrices


def _transposed(x: ndarray, trans: Any) -> ndarray:
    return x if trans in ("N", 0) else x.T


def gemm(
    transa: Any, transb: Any, a: ndarray, b: ndarray, out: Any = None, alpha: Any = 1.0, beta: Any = 0.0
) -> ndarray:
    """alpha op(a) op(b) + beta out."""
    product = matmul(_transposed(a, transa), _transposed(b, transb))
    if out is None:
        return created(np.asfortranarray(operand(product) * alpha))
    out._host[...] = operand(product) * alpha + (out._host * beta if beta else 0)
    return out


def syrk(trans: Any, a: ndarray, out: Any = None, alpha: Any = 1.0, beta: Any = 0.0, lower: bool = False) -> ndarray:
    """One triangle of alpha op(a) op(a)' + beta out; the other is left as it was."""
    wide = _transposed(a, trans)
    product = operand(matmul(wide, wide.T.copy())) * alpha
    if out is None:
        out, beta = created(np.zeros(product.shape, a.dtype, "F")), 0.0
    triangle = np.tri(*product.shape, dtype=bool) if lower else np.tri(*product.shape, dtype=bool).T
    out._host[triangle] = product[triangle] + (out._host[triangle] * beta if beta else 0)
    return out


__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_power", "matrix_rank", "norm", "pinv", "qr", "slogdet", "solve", "svd", "tensorinv", "tensorsolve",
]  # fmt: skip
