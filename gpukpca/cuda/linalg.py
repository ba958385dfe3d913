"""Tall products by parts, because a small answer leaves a card idle, and systems by Cholesky with its report."""

from __future__ import annotations

from typing import Any

import numpy as np

# The factor 1 of cuBLAS, by the letter of a type: addresses in `ONES`.
ONES = np.ones(1, np.float32), np.ones(1)
ONE = {ones.dtype.char: ones.ctypes.data for ones in ONES}


def solve_positive_definite(A: Any, B: Any) -> Any:
    """Return ``A⁻¹ B``; raise LinAlgError where A is not positive definite, which `cupy.linalg` does not report.

    Twin of `gpukpca.backend.linalg.solve_positive_definite`.
    """
    import cupyx
    import cupyx.lapack

    with cupyx.errstate(linalg="raise"):  # of this thread, restored at the end
        return cupyx.lapack.posv(A, B)


def add_product(total: Any, T: Any, V: Any, transposed: bool) -> bool:
    """Add T @ V, or Tᵀ @ V, to `total` in one launch; return False, and add nothing, where cuBLAS needs a copy.

    CuPy's product and sum take two launches, and five times the time of the host.
    """
    from cupy.cuda.device import get_cublas_handle
    from cupy_backends.cuda.libs import cublas

    number, b, plain = T.dtype.char, V.shape[1], T.flags.c_contiguous and V.flags.c_contiguous
    if not (plain and total.flags.c_contiguous and V.size and T.dtype == V.dtype):
        return False
    gemm, one = cublas.sgemm if number == "f" else cublas.dgemm, ONE[number]
    # In Fortran's order, cuBLAS's, the sum is totalᵀ + Vᵀ Tᵀ.
    turned = cublas.CUBLAS_OP_T if transposed else cublas.CUBLAS_OP_N
    sizes, left, right = (b, *total.shape[:1], *V.shape[:1]), (V.data.ptr, b), (T.data.ptr, T.shape[1])
    gemm(get_cublas_handle(), cublas.CUBLAS_OP_N, turned, *sizes, one, *left, *right, one, total.data.ptr, b)
    return True


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
        one, zero = np.ones(1), np.zeros(1)
        # In Fortran's order, cuBLAS's, the answer is B.T @ A.
        left = (B.data.ptr, b, b * rows) if B.flags.c_contiguous else (B.data.ptr, n, rows)
        right = (A.data.ptr, a, a * rows) if A.flags.c_contiguous else (A.data.ptr, n, rows)
        cublas.dgemmStridedBatched(
            cupy.cuda.device.get_cublas_handle(),
            cublas.CUBLAS_OP_N if B.flags.c_contiguous else cublas.CUBLAS_OP_T,
            cublas.CUBLAS_OP_T if A.flags.c_contiguous else cublas.CUBLAS_OP_N,
            *(b, a, rows),
            *(one.ctypes.data, *left, *right),
            *(zero.ctypes.data, partial.data.ptr, b, a * b),
            parts,
        )
        total = partial.sum(axis=0)
        return total + A[parts * rows :].T @ B[parts * rows :] if parts * rows < n else total
