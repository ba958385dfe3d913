"""Distances by differences: no matrix product says them, and a loop of array expressions moves each tile d times.

Twins of the generic loops in `gpukpca.backend.linalg`. One thread makes one entry; neighbours in a warp read
neighbouring columns of the transposed right operand and one number of the left, which the caches serve.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# name -> what one feature adds, for the difference `r` in float64
TERMS = {"cityblock": "fabs(r)", "sqeuclidean": "r * r"}
SUM = """
    long long row = i / m, column = i % m;
    double total = 0.0;
    for (long long k = 0; k < d; ++k) {{
        double r = double(a[row * d + k]) - double(bt[k * m + column]);
        total += {term};
    }}
    out = total
"""


def cityblock(a: Any, b: Any) -> Any:
    """Sums of absolute differences between the rows of a (n, d) and b (m, d), float64, shape (n, m)."""
    return _summed("cityblock", a, b)


def sqeuclidean(a: Any, b: Any) -> Any:
    """Sums of squared differences between the rows of a (n, d) and b (m, d), float64, shape (n, m)."""
    return _summed("sqeuclidean", a, b)


def _summed(name: str, a: Any, b: Any) -> Any:
    import cupy

    (n, d), m = a.shape, b.shape[0]
    out = cupy.empty((n, m), cupy.float64)
    if out.size:
        _kernel(name)(cupy.ascontiguousarray(a), cupy.ascontiguousarray(b.T), d, m, out)
    return out


@cache
def _kernel(name: str) -> Any:
    import cupy

    operation = SUM.format(term=TERMS[name])
    return cupy.ElementwiseKernel("raw T a, raw T bt, int64 d, int64 m", "float64 out", operation, f"gpukpca_{name}")
