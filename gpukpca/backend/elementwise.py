"""Elementwise functions that may write into their argument: the standard has no ``out=``.

Every function may overwrite its first argument; use the returned array. The epilogues that make a kernel tile out
of one matrix product live here as well, because each is worth one fused pass on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import cast, is_cupy, is_numpy, item_size, namespace_of, writable, writes_in_place


def _apply(name: str, T: Array, *operands: Any) -> Array:
    """``xp.name(T, *operands)``, into T where the library can."""
    function = getattr(namespace_of(T), name)
    if writes_in_place(T):
        return function(T, *operands, out=T)
    return function(T, *operands)


def in_strips(T: Array, function: Callable[[Array, Array | None], Array], out: Array | None = None) -> Array:
    """``function(T, out)`` for an elementwise function that may write into `out`, where T itself is not there.

    On NumPy a strip of rows at a time, in T: passes and temporaries stay in cache.
    """
    if not is_numpy(T):
        return function(T, out)
    for start, stop in _strips(T.shape, item_size(T.dtype), blocking.STRIP_BYTES):
        strip = T[start:stop, :]
        put(strip, function(strip, None))
    return T


def from_strips(
    shape: tuple[int, int], like: Array, make: Callable[[int, int, Array | None], Array], out: Any = None
) -> Array:
    """Return the array whose rows from start to stop are ``make(start, stop, strip)``, as `like`; `out` may be used.

    `strip` is where they belong, for `make` to write to, or None where the library cannot. For tiles that begin in a
    wider dtype: the wide numbers exist for one strip only.
    """
    if not writes_in_place(like):
        return cast(make(0, shape[0], None), like.dtype)
    if out is None or out.dtype != like.dtype:
        out = writable(shape, like)
    for start, stop in _strips(shape, 8, blocking.STRIP_BYTES if is_numpy(like) else blocking.GPU_STRIP_BYTES):
        strip = out[start:stop, :]
        put(strip, make(start, stop, strip))
    return out


def place_for(part: Array) -> Array | None:
    """Return where the values of a block of a larger matrix are made: in place on a device, None for new memory.

    On the host strided rows cost up to a fifth of the time (n = 4000, d = 50), more than a copy of finished values.
    """
    return None if is_numpy(part) else part


def put(part: Array, values: Array) -> None:
    """Write values into part of an array, unless they were made there (NumPy and CuPy)."""
    if values is not part:
        part[...] = values


def convert(T: Array, dtype: Any = None, out: Array | None = None) -> Array:
    """Return T as `dtype` (default: its own), written into `out` where the type changes and `out` is given."""
    if out is None or dtype is None or T.dtype == dtype:
        return cast(T, dtype or T.dtype)
    out[...] = T
    return out


def _strips(shape: tuple[int, ...], size: int, strip_bytes: int) -> list[tuple[int, int]]:
    rows = max(8, strip_bytes // max(1, shape[1] * size))
    return [(start, min(start + rows, shape[0])) for start in range(0, shape[0], rows)]


def add(T: Array, other: Any) -> Array:
    """T + other, other an array that broadcasts or a number."""
    return T if isinstance(other, (int, float)) and other == 0 else _apply("add", T, other)


def multiply(T: Array, other: Any) -> Array:
    """T * other."""
    return T if isinstance(other, (int, float)) and other == 1 else _apply("multiply", T, other)


def exp(T: Array) -> Array:
    """exp(T)."""
    return _apply("exp", T)


def expm1(T: Array) -> Array:
    """exp(T) - 1 without cancellation."""
    return _apply("expm1", T)


def tanh(T: Array) -> Array:
    """tanh(T)."""
    return _apply("tanh", T)


def sqrt(T: Array) -> Array:
    """sqrt(T)."""
    return _apply("sqrt", T)


def power(T: Array, exponent: float) -> Array:
    """T ** exponent, T >= 0."""
    if writes_in_place(T):
        T **= exponent
        return T
    return T**exponent


def clip_above(T: Array, bound: float) -> Array:
    """min(T, bound)."""
    xp = namespace_of(T)
    if writes_in_place(T):
        return xp.minimum(T, T.dtype.type(bound), out=T)
    return xp.clip(T, None, bound)


def integer_power(T: Array, exponent: int) -> Array:
    """T ** exponent, exponent >= 0, by repeated squaring: `power` takes 110 ns an element on negative bases."""
    xp = namespace_of(T)
    if exponent == 0:
        return xp.ones_like(T)
    result: Array = None
    while True:
        if exponent & 1:
            result = T if result is None else result * T
        exponent >>= 1
        if not exponent:
            return result
        # `result` may be T itself: square into T only when nobody else holds it.
        T = T * T if result is T else multiply(T, T)


def gaussian(T: Array, flat: bool, scale: float = 1.0, dtype: Any = None, out: Array | None = None) -> Array:
    """exp(min(scale T, 0)), or that minus 1 for a flat kernel, as `dtype`; scale T is -gamma ||x - y||² or alike.

    Here and below `out` is an array of type `dtype` that may be written to.
    """
    if is_cupy(T):
        from gpukpca.cuda.elementwise import gaussian as fused

        return fused(T, flat, scale, dtype or T.dtype, out)
    T = clip_above(multiply(convert(T, dtype, out), scale), 0.0)
    return expm1(T) if flat else exp(T)


def rational_quadratic(T: Array, alpha: float, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
    """(1 - min(T, 0) / alpha)^(-alpha), or that minus 1, as `dtype`; T holds -gamma ||x - y||²."""
    if is_cupy(T):
        from gpukpca.cuda.elementwise import rational_quadratic as fused

        return fused(T, alpha, flat, dtype or T.dtype, out)
    T = _apply("log1p", multiply(clip_above(convert(T, dtype, out), 0.0), -1.0 / alpha))
    T = multiply(T, -alpha)
    return expm1(T) if flat else exp(T)


def matern(T: Array, nu: float, dtype: Any = None, out: Array | None = None) -> Array:
    """Matérn correlation of smoothness 1/2, 3/2 or 5/2 as `dtype`; T holds -||x - y||² / (2 l²), rounding above 0.

    Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), eqs. 4.16 and 4.17.
    """
    if is_cupy(T):
        from gpukpca.cuda.elementwise import matern as fused

        return fused(T, nu, dtype or T.dtype, out)
    # sqrt(2 nu) ||x - y|| / l, held where exp(-r) is 0 already: infinity times 0 is not a number.
    squares = multiply(clip_above(convert(T, dtype, out), 0.0), -4.0 * nu)
    r = clip_above(sqrt(squares), 800.0)
    if nu == 0.5:
        return exp(multiply(r, -1.0))
    polynomial = 1.0 + r if nu == 1.5 else 1.0 + r + r * r * (1.0 / 3.0)
    return multiply(polynomial, exp(multiply(r, -1.0)))


def polynomial(T: Array, constant: float, degree: int, out: Array | None = None) -> Array:
    """(T + constant) ** degree, degree an integer >= 0."""
    if is_cupy(T):
        from gpukpca.cuda.elementwise import polynomial as fused

        return fused(T, constant, degree, out)
    return integer_power(add(T, constant), degree)


def sigmoid(T: Array, constant: float, out: Array | None = None) -> Array:
    """tanh(T + constant)."""
    if is_cupy(T):
        from gpukpca.cuda.elementwise import sigmoid as fused

        return fused(T, constant, out)
    return tanh(add(T, constant))
