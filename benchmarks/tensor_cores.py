"""Products of the shapes of a fit by tensor cores, most of which round their operands, beside plain float32.

Times alone: they say what a pass on rounded tiles would cost. No fit of the library computes with them yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

# The edge of a tile on a large card, and its share of the rows of a small run.
EDGE, EDGES_OF_ROWS = 8192, 12
# Rows of so many items begin at 16 bytes in float16 too: other strides keep cuBLAS from its fast kernels.
ITEMS = 8
# name -> type of the operands and of what cuBLAS computes in; sums and answers are float64, or float32.
PRECISIONS = {
    "float64": ("float64", "CUBLAS_COMPUTE_64F"),
    "float32": ("float32", "CUBLAS_COMPUTE_32F"),
    "TF32": ("float32", "CUBLAS_COMPUTE_32F_FAST_TF32"),
    "float16": ("float16", "CUBLAS_COMPUTE_32F"),
}


def products(n: int, d: int, block: int) -> dict[str, Callable[[], Any]]:
    """Return the timed products by name, for a run of n rows: X Yᵀ, and tile and tileᵀ times block."""
    import cupy

    edge, d = min(EDGE, n // EDGES_OF_ROWS) // ITEMS * ITEMS, -(-d // ITEMS) * ITEMS
    rng = np.random.default_rng(0)
    runs: dict[str, Callable[[], Any]] = {}
    for name, (dtype, compute_type) in PRECISIONS.items():
        X, Y, T, V = (
            cupy.asarray(rng.random(shape, dtype=np.float32).astype(dtype))
            for shape in ((edge, d), (edge, d), (edge, edge), (edge, block))
        )
        shapes = {
            f"tile X Yᵀ, {edge} × {d} × {edge}": (X, Y.T),
            f"tile times block, {edge} × {edge} × {block}": (T, V),
            f"tileᵀ times block, {edge} × {edge} × {block}": (T.T, V),
        }
        for what, (A, B) in shapes.items():
            out = cupy.empty((A.shape[0], B.shape[1]), np.promote_types(dtype, np.float32))
            runs[f"{what}, {name}"] = partial(product, A, B, out, compute_type)
    return runs


def product(A: Any, B: Any, out: Any, compute_type: str) -> Any:
    """Return ``out = A @ B`` by cuBLAS's gemmEx; A and B are contiguous or transposed, `out` is in C order."""
    import cupy
    from cupy._core._dtype import to_cuda_dtype
    from cupy_backends.cuda.libs import cublas

    (m, k), n = A.shape, B.shape[1]
    one, zero = np.ones(1, out.dtype), np.zeros(1, out.dtype)

    # In Fortran's order, cuBLAS's, the answer is Bᵀ Aᵀ.
    (left, first), (right, second) = _operand(B), _operand(A)
    operations = (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T)
    cublas.gemmEx(
        cupy.cuda.device.get_cublas_handle(),
        *(operations[left], operations[right], n, m, k),
        *(one.ctypes.data, *first, *second),
        *(zero.ctypes.data, out.data.ptr, to_cuda_dtype(out.dtype), n),
        getattr(cublas, compute_type),
        cublas.CUBLAS_GEMM_DEFAULT_TENSOR_OP,
    )
    return out


def _operand(M: Any) -> tuple[bool, tuple[int, int, int]]:
    """Return whether M is a transposed matrix, and its address, its type for cuBLAS and the length of its rows."""
    from cupy._core._dtype import to_cuda_dtype

    is_transposed = not M.flags.c_contiguous
    return is_transposed, (M.data.ptr, to_cuda_dtype(M.dtype, True), M.shape[0] if is_transposed else M.shape[1])
