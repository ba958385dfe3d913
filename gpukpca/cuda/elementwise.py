"""Fused epilogues: from inner products or squared distances to kernel values in one launch, in place where types allow.

Each has a generic twin of its name in `gpukpca.backend.elementwise`; a test compares the two. `W` is the type of the
argument, `T` that of the answer: a tile whose products were formed in float64 is read once and written as float32.
Comparisons are written so that NaN stays NaN, as in NumPy's `minimum`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# Rounding alone leaves -gamma ‖x - y‖² above 0. r is bounded where exp(-r) is 0 already: infinity times 0 is no number.
CLAMPED = "T s = T(t) > T(0) ? T(0) : T(t);"
RADIUS = f"{CLAMPED} T r = sqrt(-four_nu * s); r = r > T(800) ? T(800) : r;"
# name -> (parameters other than the tile, at least one, operation on its entry t). CuPy's `i` has 64 bits.
OPERATIONS: dict[str, tuple[str, str]] = {
    "gaussian": ("T scale", "T s = T(t) * scale; y = exp(s > T(0) ? T(0) : s)"),
    "gaussian_flat": ("T scale", "T s = T(t) * scale; y = expm1(s > T(0) ? T(0) : s)"),
    "rational_quadratic": ("T alpha", f"{CLAMPED} y = exp(-alpha * log1p(-s / alpha))"),
    "rational_quadratic_flat": ("T alpha", f"{CLAMPED} y = expm1(-alpha * log1p(-s / alpha))"),
    "matern_1": ("T four_nu", f"{RADIUS} y = exp(-r)"),
    "matern_3": ("T four_nu", f"{RADIUS} y = (T(1) + r) * exp(-r)"),
    "matern_5": ("T four_nu", f"{RADIUS} y = (T(1) + r + r * r / T(3)) * exp(-r)"),
    "polynomial": (
        "T constant, int64 degree",
        "T base = T(t) + constant; T power = T(1);"
        " for (long long k = degree; k > 0; k >>= 1) { if (k & 1) { power *= base; } base *= base; } y = power",
    ),
    "sigmoid": ("T constant", "y = tanh(T(t) + constant)"),
}
# Types of the tile and of its answer; only tiles of distances are narrowed.
TYPES = (("float32", "float32"), ("float64", "float64"), ("float64", "float32"))
KERNELS = {
    f"gpukpca_{name}": tuple(
        {"t": wide, "y": narrow} for wide, narrow in (TYPES[:2] if name in ("polynomial", "sigmoid") else TYPES)
    )
    for name in OPERATIONS
}


def apply(name: str, T: Any, dtype: Any, *parameters: float, out: Any = None) -> Any:
    """Apply an operation in one launch, into `out` or T where that has the type of the answer (None: that of T)."""
    dtype = dtype or T.dtype
    answer = T if out is None or out.dtype != dtype else out
    if answer.dtype != dtype:
        import cupy

        answer = cupy.empty(T.shape, dtype)
    return _kernel(f"gpukpca_{name}")(T, *parameters, answer)


@cache
def _kernel(name: str) -> Any:
    import cupy

    parameters, operation = OPERATIONS[name.removeprefix("gpukpca_")]
    return cupy.ElementwiseKernel(f"W t, {parameters}", "T y", operation, name)
