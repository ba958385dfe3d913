"""Tall products by parts, because a small answer leaves a card idle, and systems by Cholesky with its report."""

from __future__ import annotations

from typing import Any

import numpy as np


def solve_positive_definite(A: Any, B: Any) -> Any:
    """Return ``A⁻¹ B``; raise LinAlgError where A is not positive definite, which `cupy.linalg` does not report.

    Twin of `gpukpca.backend.linalg.solve_positive_definite`.
    """
    import cupyx
    import cupyx.lapack

    with cupyx.errstate(linalg="raise"):  # of this thread, restored at the end
        return cupyx.lapack.posv(A, B)


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
