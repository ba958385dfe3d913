"""Products of the shapes of a fit by tensor cores, most of which round their operands, beside plain float32.

Times alone: they say what a pass on rounded tiles would cost. A fit may compute with float16 ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpukpca.cuda.linalg import ITEMS, product

# The edge of a tile on a large card, and its share of the rows of a small run.
EDGE, EDGES_OF_ROWS = 8192, 12
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
