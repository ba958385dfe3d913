"""Fused epilogues: from inner products or squared distances to kernel values in one launch, in place where types allow.

Each names its generic twin in `gpukpca.backend.elementwise`; a test holds the two together. `W` is the type of the
argument, `T` that of the answer: a tile whose products were formed in float64 is read once and written as float32.
Comparisons are written so that NaN stays NaN, as NumPy's `minimum` has it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

# name -> (parameters beside the tile, operation on the tile's entry t). `i` is 64 bits wide in CuPy's kernels.
OPERATIONS: dict[str, tuple[str, str]] = {
    "gaussian": ("T scale", "T s = T(t) * scale; y = exp(s > T(0) ? T(0) : s)"),
    "gaussian_flat": ("T scale", "T s = T(t) * scale; y = expm1(s > T(0) ? T(0) : s)"),
    "rational_quadratic": (
        "T alpha",
        "T s = T(t) > T(0) ? T(0) : T(t); y = exp(-alpha * log1p(-s / alpha))",
    ),
    "rational_quadratic_flat": (
        "T alpha",
        "T s = T(t) > T(0) ? T(0) : T(t); y = expm1(-alpha * log1p(-s / alpha))",
    ),
    # r is held where exp(-r) is 0 already: infinity times 0 is not a number.
    "matern_1": (
        "T four_nu",
        "T s = T(t) > T(0) ? T(0) : T(t); T r = sqrt(-four_nu * s); r = r > T(800) ? T(800) : r; y = exp(-r)",
    ),
    "matern_3": (
        "T four_nu",
        "T s = T(t) > T(0) ? T(0) : T(t); T r = sqrt(-four_nu * s); r = r > T(800) ? T(800) : r;"
        " y = (T(1) + r) * exp(-r)",
    ),
    "matern_5": (
        "T four_nu",
        "T s = T(t) > T(0) ? T(0) : T(t); T r = sqrt(-four_nu * s); r = r > T(800) ? T(800) : r;"
        " y = (T(1) + r + r * r / T(3)) * exp(-r)",
    ),
    "polynomial": (
        "T constant, int64 degree",
        "T base = T(t) + constant; T power = T(1);"
        " for (long long k = degree; k > 0; k >>= 1) { if (k & 1) { power *= base; } base *= base; } y = power",
    ),
    "sigmoid": ("T constant", "y = tanh(T(t) + constant)"),
}


def gaussian(T: Any, flat: bool, scale: float, dtype: Any, out: Any = None) -> Any:
    """Twin of `gpukpca.backend.elementwise.gaussian`."""
    return _applied("gaussian_flat" if flat else "gaussian", T, dtype, scale, out=out)


def rational_quadratic(T: Any, alpha: float, flat: bool, dtype: Any, out: Any = None) -> Any:
    """Twin of `gpukpca.backend.elementwise.rational_quadratic`."""
    return _applied("rational_quadratic_flat" if flat else "rational_quadratic", T, dtype, alpha, out=out)


def matern(T: Any, nu: float, dtype: Any, out: Any = None) -> Any:
    """Twin of `gpukpca.backend.elementwise.matern`."""
    return _applied(f"matern_{int(2 * nu)}", T, dtype, 4.0 * nu, out=out)


def polynomial(T: Any, constant: float, degree: int, out: Any = None) -> Any:
    """Twin of `gpukpca.backend.elementwise.polynomial`."""
    return _applied("polynomial", T, T.dtype, constant, degree, out=out)


def sigmoid(T: Any, constant: float, out: Any = None) -> Any:
    """Twin of `gpukpca.backend.elementwise.sigmoid`."""
    return _applied("sigmoid", T, T.dtype, constant, out=out)


def _applied(name: str, T: Any, dtype: Any, *parameters: float, out: Any = None) -> Any:
    """One launch; into `out` or T where that has the type of the answer."""
    import cupy

    fitting = [array for array in (out, T) if array is not None and array.dtype == dtype]
    return _kernel(name)(T, *parameters, fitting[0] if fitting else cupy.empty(T.shape, dtype))


@cache
def _kernel(name: str) -> Any:
    import cupy

    parameters, operation = OPERATIONS[name]
    return cupy.ElementwiseKernel(f"W t, {parameters}", "T y", operation, f"gpukpca_{name}")
