"""Elementwise functions that may overwrite their first argument; use the returned array.

Functions that make a kernel tile out of one matrix product are here as well: on a device each is one fused pass.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import cast, is_cupy, is_numpy, item_size, namespace_of, writable, writes_in_place
from gpukpca.cuda import elementwise as fused


def _apply(name: str, T: Array, *operands: Any) -> Array:
    """Return ``xp.name(T, *operands)``, written into T where the library can."""
    function = getattr(namespace_of(T), name)
    if writes_in_place(T):
        return function(T, *operands, out=T)
    return function(T, *operands)


def in_strips(T: Array, function: Callable[[Array, Array | None], Array], out: Array | None = None) -> Array:
    """Return ``function(T, out)`` for an elementwise function that may write into `out` where T is not in place.

    NumPy works in T by strips of rows, so that passes and temporaries stay in cache.
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
    """Return the array, of the type of `like`, whose rows from start to stop are ``make(start, stop, strip)``.

    `strip` is the memory of these rows, which `make` may use, or None where the library cannot write to it. Tiles that
    begin in a wider dtype exist in it for one strip only. `out` may be used for the array.
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
    """Return the memory in which a part of a matrix is computed: the part itself on a device, None for new memory.

    On the host strided rows cost up to a fifth of the time (n = 4000, d = 50), more than a copy of finished values.
    """
    return None if is_numpy(part) else part


def put(part: Array, values: Array) -> None:
    """Write values into part of an array, unless they are there already (NumPy and CuPy)."""
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


class Scratch:
    """Memory of one worker for results that end with the next one of their name."""

    def __init__(self, like: Array) -> None:
        self._dtype = like.dtype if is_numpy(like) else None
        self._memory: dict[str, Array] = {}

    def place(self, name: str, shape: tuple[int, int]) -> Array | None:
        """Return memory like `like` for a result of this shape; None outside NumPy, for new memory."""
        if self._dtype is None:
            return None
        held, size = self._memory.get(name), math.prod(shape)
        if held is None or held.size < size:
            held = self._memory[name] = np.empty(size, self._dtype)
        return held[:size].reshape(shape)


def difference(a: Array, b: Array, place: Array | None = None) -> Array:
    """Return a - b, written to `place` if given (NumPy)."""
    return a - b if place is None else namespace_of(place).subtract(a, b, out=place)


def add(T: Array, other: Any) -> Array:
    """Return T + other, an array that broadcasts or a number."""
    return T if isinstance(other, (int, float)) and other == 0 else _apply("add", T, other)


def multiply(T: Array, other: Any) -> Array:
    """Return T * other, an array that broadcasts or a number."""
    return T if isinstance(other, (int, float)) and other == 1 else _apply("multiply", T, other)


exp: partial[Array] = partial(_apply, "exp")
expm1: partial[Array] = partial(_apply, "expm1")
tanh: partial[Array] = partial(_apply, "tanh")
sqrt: partial[Array] = partial(_apply, "sqrt")


def power(T: Array, exponent: float) -> Array:
    """Return T ** exponent, T >= 0."""
    if writes_in_place(T):
        T **= exponent
        return T
    return T**exponent


def clip_above(T: Array, bound: float) -> Array:
    """Return min(T, bound)."""
    # NumPy's minimum of an array and a number takes 0.52 ns an entry (0.34 in float32), its maximum of all 0.07 (0.04).
    if is_numpy(T) and T.max(initial=bound) == bound:
        return T
    xp = namespace_of(T)
    if writes_in_place(T):
        return xp.minimum(T, T.dtype.type(bound), out=T)
    return xp.clip(T, None, bound)


def integer_power(T: Array, exponent: int) -> Array:
    """Return T ** exponent, exponent >= 0: `power` takes 110 ns an element on negative bases."""
    return repeated_product(operator.mul, T, exponent) if exponent else namespace_of(T).ones_like(T)


def repeated_product(product: Callable[[Any, Any], Any], base: Any, exponent: int) -> Any:
    """Return the product of `exponent` factors `base`, exponent >= 1, by repeated squaring."""
    result: Any = None
    while True:
        if exponent & 1:
            result = base if result is None else product(result, base)
        exponent >>= 1
        if not exponent:
            return result
        base = product(base, base)


def gaussian(T: Array, flat: bool, scale: float = 1.0, dtype: Any = None, out: Array | None = None) -> Array:
    """Return exp(min(scale T, 0)), or that minus 1 for a flat kernel, as `dtype`; scale T is -gamma ||x - y||².

    `out`, here and below, is an array of type `dtype` that may be overwritten.
    """
    if is_cupy(T):
        return fused.apply("gaussian_flat" if flat else "gaussian", T, dtype, scale, out=out)
    T = clip_above(multiply(convert(T, dtype, out), scale), 0.0)
    return expm1(T) if flat else exp(T)


def rational_quadratic(T: Array, alpha: float, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
    """Return (1 - min(T, 0) / alpha)^(-alpha), or that minus 1, as `dtype`; T holds -gamma ||x - y||²."""
    if is_cupy(T):
        return fused.apply("rational_quadratic_flat" if flat else "rational_quadratic", T, dtype, alpha, out=out)
    T = _apply("log1p", multiply(clip_above(convert(T, dtype, out), 0.0), -1.0 / alpha))
    T = multiply(T, -alpha)
    return expm1(T) if flat else exp(T)


def matern(T: Array, nu: float, dtype: Any = None, out: Array | None = None) -> Array:
    """Return the Matérn correlation of smoothness 1/2, 3/2 or 5/2 as `dtype`; T holds -||x - y||² / (2 l²).

    Rounding may bring T above 0. Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), eqs. 4.16, 4.17.
    """
    if is_cupy(T):
        return fused.apply(f"matern_{int(2 * nu)}", T, dtype, 4.0 * nu, out=out)
    # r = sqrt(2 nu) ||x - y|| / l, bounded where exp(-r) is 0 already: infinity times 0 is not a number.
    squares = multiply(clip_above(convert(T, dtype, out), 0.0), -4.0 * nu)
    r = clip_above(sqrt(squares), 800.0)
    if nu == 0.5:
        return exp(multiply(r, -1.0))
    polynomial = 1.0 + r if nu == 1.5 else 1.0 + r + r * r * (1.0 / 3.0)
    return multiply(polynomial, exp(multiply(r, -1.0)))


def polynomial(T: Array, constant: float, degree: int, out: Array | None = None) -> Array:
    """Return (T + constant) ** degree, degree an integer >= 0."""
    if is_cupy(T):
        return fused.apply("polynomial", T, None, constant, degree, out=out)
    return integer_power(add(T, constant), degree)


def sigmoid(T: Array, constant: float, out: Array | None = None) -> Array:
    """Return tanh(T + constant)."""
    if is_cupy(T):
        return fused.apply("sigmoid", T, None, constant, out=out)
    return tanh(add(T, constant))
