"""Distances by differences: no matrix product says them, and a loop of array expressions moves each tile d times.

Twins of the generic loops in `gpukpca.backend.linalg`. One thread makes four entries of a row, so that a number of the
left operand is read once for them; neighbours in a warp read neighbouring columns of the transposed right operand.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# name -> what one feature adds, for the difference `r` in float64
TERMS = {"cityblock": "fabs(r)", "sqeuclidean": "r * r"}
TYPES = tuple({"a": dtype, "bt": dtype, "out": "float64"} for dtype in ("float32", "float64"))
KERNELS = {f"gpukpca_{name}": TYPES for name in TERMS}
SUM = """
    long long quarter = (m + 3) / 4, row = i / quarter;
    long long column[4];
    double total[4] = {{0.0, 0.0, 0.0, 0.0}};
    for (int c = 0; c < 4; ++c) {{
        column[c] = i % quarter + c * quarter;
    }}
    for (long long k = 0; k < d; ++k) {{
        double x = double(a[row * d + k]);
        for (int c = 0; c < 4; ++c) {{
            double r = x - double(bt[k * m + (column[c] < m ? column[c] : m - 1)]);
            total[c] += {term};
        }}
    }}
    for (int c = 0; c < 4; ++c) {{
        if (column[c] < m) {{
            out[row * m + column[c]] = total[c];
        }}
    }}
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
        operands = (cupy.ascontiguousarray(a), cupy.ascontiguousarray(b.T))
        _kernel(f"gpukpca_{name}")(*operands, d, m, out, size=n * -(-m // 4))
    return out


@cache
def _kernel(name: str) -> Any:
    import cupy

    inputs, operation = "raw T a, raw T bt, int64 d, int64 m", SUM.format(term=TERMS[name.removeprefix("gpukpca_")])
    return cupy.ElementwiseKernel(inputs, "raw float64 out", operation, name)
