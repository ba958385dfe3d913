"""Tall products by parts, because a small answer leaves a card idle, and systems by Cholesky with its report."""

from __future__ import annotations

from typing import Any

import numpy as np

# The factors 1 and 0 of cuBLAS, by the letter of a type: addresses in `FACTORS`.
FACTORS = np.array([1, 0], np.float32), np.array([1.0, 0.0])
ONE = {factors.dtype.char: factors.ctypes.data for factors in FACTORS}
ZERO = {factors.dtype.char: factors[1:].ctypes.data for factors in FACTORS}
# Rows of so many items begin at 16 bytes in float16 too: other strides keep cuBLAS from its fast kernels.
ITEMS = 8


def solve_positive_definite(A: Any, B: Any) -> Any:
    """Return ``A⁻¹ B``; raise LinAlgError where A is not positive definite, which `cupy.linalg` does not report.

    Twin of `gpukpca.backend.linalg.solve_positive_definite`.
    """
    import cupyx
    import cupyx.lapack

    with cupyx.errstate(linalg="raise"):  # of this thread, restored at the end
        return cupyx.lapack.posv(A, B)


def add_product(total: Any | None, T: Any, V: Any, transposed: bool) -> Any | None:
    """Return `total` with T @ V, or Tᵀ @ V, added in one launch; None where nothing is added.

    CuPy's product and sum take two launches, and five times the time of the host. Products in float16 have a total in
    float32, by default 0.
    """
    import cupy
    import cupy.cublas

    if T.dtype.char == "e":
        A = T.T if transposed else T
        return product(A, V, cupy.zeros((A.shape[0], V.shape[1]), np.float32) if total is None else total, add=True)
    if total is None or not V.size or T.dtype != V.dtype:
        return None
    return cupy.cublas.gemm("T" if transposed else "N", "N", T, V, out=total, alpha=1.0, beta=1.0)


def in_float16(A: Any, scale: float) -> Any:
    """Return A (m, k) times a power of two, rounded to float16, with columns of 0 up to a multiple of `ITEMS`."""
    import cupy

    m, k = A.shape
    rounded = cupy.zeros((m, -(-k // ITEMS) * ITEMS), np.float16)
    cupy.multiply(A, A.dtype.type(scale), out=rounded[:, :k])
    return rounded


def product(A: Any, B: Any, out: Any, compute_type: str = "CUBLAS_COMPUTE_32F", add: bool = False) -> Any:
    """Return ``out = A @ B`` by cuBLAS's gemmEx, or ``out + A @ B`` with `add`.

    A and B have rows, or transposed columns, without gaps between their items; `out` is in C order.
    """
    from cupy._core._dtype import to_cuda_dtype
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    (m, k), n, number = A.shape, B.shape[1], out.dtype.char
    # In Fortran's order, cuBLAS's, the answer is Bᵀ Aᵀ.
    (left, first), (right, second) = _operand(B), _operand(A)
    operations = (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T)
    cublas.gemmEx(
        get_cublas_handle(),
        *(operations[left], operations[right], n, m, k),
        *(ONE[number], *first, *second),
        *((ONE if add else ZERO)[number], out.data.ptr, to_cuda_dtype(out.dtype), n),
        getattr(cublas, compute_type),
        cublas.CUBLAS_GEMM_DEFAULT_TENSOR_OP,
    )
    return out


def _operand(M: Any) -> tuple[bool, tuple[int, int, int]]:
    """Return whether M is a transposed matrix, and its address, its type for cuBLAS and the distance of its rows."""
    from cupy._core._dtype import to_cuda_dtype

    step = M.strides[1] if (is_transposed := M.strides[1] > M.itemsize) else M.strides[0]
    return is_transposed, (M.data.ptr, to_cuda_dtype(M.dtype, True), step // M.itemsize)


def product_by_parts(A: Any, B: Any, parts: int) -> Any:
    """Return ``A.T @ B`` of float64 A (n, a) and B (n, b), summed over row slices in order.

    Both are contiguous in C or Fortran order. One batched product makes no copy: a part of the rows of a contiguous
    block is a matrix of cuBLAS. CuPy's own `matmul` copies operands of a batch.
    """
    import cupy
    from cupy_backends.cuda.libs import cublas

    with A.device:
        (n, a), b = A.shape, B.shape[1]
        rows = n // parts
        partial = cupy.empty((parts, a, b), np.float64)
        # In Fortran's order, cuBLAS's, the answer is B.T @ A.
        left = (B.data.ptr, b, b * rows) if B.flags.c_contiguous else (B.data.ptr, n, rows)
        right = (A.data.ptr, a, a * rows) if A.flags.c_contiguous else (A.data.ptr, n, rows)
        cublas.dgemmStridedBatched(
            cupy.cuda.device.get_cublas_handle(),
            cublas.CUBLAS_OP_N if B.flags.c_contiguous else cublas.CUBLAS_OP_T,
            cublas.CUBLAS_OP_T if A.flags.c_contiguous else cublas.CUBLAS_OP_N,
            *(b, a, rows),
            *(ONE["d"], *left, *right),
            *(ZERO["d"], partial.data.ptr, b, a * b),
            parts,
        )
        total = partial.sum(axis=0)
        return total + A[parts * rows :].T @ B[parts * rows :] if parts * rows < n else total
