"""Kernels made from kernels: sum, product, positive scale, integer power, exponential, modulation.

Each of the first five keeps positive semidefiniteness (Shawe-Taylor & Cristianini, Kernel Methods for Pattern
Analysis (2004), proposition 3.22); so does modulation by any function.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gpukpca._rules import CALLABLE, Rule
from gpukpca._typing import Array
from gpukpca.backend import elementwise
from gpukpca.backend.elementwise import repeated_product
from gpukpca.backend.namespace import cast, from_host, namespace_of, real_floating
from gpukpca.data.rows import fold
from gpukpca.data.slicing import gather_rows, place_of, row_panels, take_rows
from gpukpca.exceptions import InvalidParameterError, RankWarning, held_warnings
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.validation import EXPONENT, POSITIVE

# Levels of nested kernels. `repr`, `clone` and pickle recurse on Python's stack of 1000 calls.
DEEPEST = 100
# The header of a model file has room for 64 levels, of which a level of kernels takes three.
BALANCED_FROM = 15
# The largest exponent of e in float64.
LARGEST_EXPONENT = 709.0
KERNEL = Rule("a kernel object", lambda value: isinstance(value, Kernel))


def _of_parts(name: str, fold: Callable[[Iterable[Any]], Any]) -> Any:
    """Return a property that folds the attributes of all parts."""
    return property(lambda self: fold(getattr(part, name) for part in self.parts))


class CombinedRows(PreparedRows):
    """The rows prepared for each part of a combined kernel, and factors g(x) of the rows.

    A template for an exponential has the `largest` value k(x, x) of its part over the training rows.
    """

    shifted: Any = _of_parts("shifted", any)
    wide: Any = _of_parts("wide", any)
    row_bytes: Any = _of_parts("row_bytes", sum)

    def __init__(self, parts: list[Any], factors: Array | None = None, largest: float = 0.0) -> None:
        self.parts = parts
        self.factors = factors
        self.largest = largest
        self.n_rows: int = parts[0].n_rows

    def slice(self, start: int, stop: int) -> CombinedRows:
        factors = None if self.factors is None else self.factors[start:stop]
        return CombinedRows([part.slice(start, stop) for part in self.parts], factors)

    def take(self, indices: Any) -> CombinedRows:
        factors = None if self.factors is None else gather_rows(self.factors, indices)
        return CombinedRows([part.take(indices) for part in self.parts], factors)


class _Combined(Kernel):
    """A kernel whose tile is a function of the tiles of its parts."""

    # Whether a term of one argument alone in a part remains such a term in the whole.
    keeps_centering = False
    # Whether the tile of k - c follows from tiles of the parts that lack a constant.
    keeps_constants = False
    stored_only: Any = _of_parts("stored_only", any)
    densifies: Any = _of_parts("densifies", any)
    exponentials: Any = _of_parts("exponentials", sum)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a parameter; raise `InvalidParameterError` above `DEEPEST` levels of nested kernels."""
        inside = (one for one in {**vars(self), name: value}.values() if isinstance(one, Kernel))
        levels = 1 + max((one._levels for one in inside), default=0)
        if levels > DEEPEST:
            raise InvalidParameterError(
                f"{type(self).__name__}: the kernel would have {levels} levels of nested kernels; at most {DEEPEST} "
                "are allowed. Write sums and products with + and *, which keep long ones flat."
            )
        vars(self).update({name: value, "_levels": levels})

    @property
    def parts(self) -> list[Kernel]:
        """Return the kernels inside, in order."""
        return [value for value in self.get_params(deep=False).values() if isinstance(value, Kernel)]

    @property
    def leaves_out_constants(self) -> bool:  # type: ignore[override]
        known = self.keeps_centering or self.keeps_constants
        return known and all(part.leaves_out_constants for part in self.parts)

    @property
    def moves_rows(self) -> str | None:  # type: ignore[override]
        ways = {part.moves_rows for part in self.parts}
        if None in ways or ways == {"always"}:
            return None if None in ways else "always"
        return "centered" if self.keeps_centering and "never" not in ways else "never"

    @property
    def positive_definite(self) -> bool | None:  # type: ignore[override]
        return True if all(part.positive_definite for part in self.parts) else None

    @property
    def scratch_tiles(self) -> int:  # type: ignore[override]
        return max(part.scratch_tiles for part in self.parts) + len(self.parts) - 1 + self.keeps_constants

    def template(self, X: Array, centered: bool = False) -> CombinedRows:
        if centered and self.keeps_constants and self.leaves_out_constants:
            shifted = CombinedRows([part.template(X, True) for part in self.parts])
            if 0.0 < self.offset(shifted) < math.inf:
                return shifted
        keep = centered and self.keeps_centering
        return CombinedRows([part.template(X, keep) for part in self.parts])

    def prepare_rows(self, X: Array, like: CombinedRows | None, centered: bool) -> CombinedRows:
        if like is None and centered:
            like = self.template(X, centered)
        likes = like.parts if like is not None else [None] * len(self.parts)
        prepared = [part.prepare(X, one) for part, one in zip(self.parts, likes, strict=True)]
        return CombinedRows(prepared, self.row_factors(X))

    def offsets(self, rows: CombinedRows) -> list[float]:
        """Return the constants that the tiles of the parts lack."""
        return [part.offset(one) for part, one in zip(self.parts, rows.parts, strict=True)]

    def rounding(self, template: CombinedRows) -> float:
        return max(part.rounding(one) for part, one in zip(self.parts, template.parts, strict=True))

    def row_factors(self, X: Array) -> Array | None:
        """Return g(x) of every row, for kernels that have such factors."""
        return None

    def tile(self, a: CombinedRows, b: CombinedRows, out: Array | None = None) -> Array:
        outs = [out] + [None] * (len(a.parts) - 1)
        tiles = [part.tile(x, y, o) for part, x, y, o in zip(self.parts, a.parts, b.parts, outs, strict=True)]
        return self.combine(tiles, a, b)

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        """Return the tile of the whole from the tiles of the parts; may overwrite the first."""
        raise NotImplementedError

    def tile_diagonal(self, a: CombinedRows) -> Array:
        diagonals = [part.tile_diagonal(x)[:, None] for part, x in zip(self.parts, a.parts, strict=True)]
        factors = None if a.factors is None else a.factors * a.factors
        return self.combine(diagonals, CombinedRows(a.parts, factors), CombinedRows(a.parts))[:, 0]


class _OfValues(_Combined):
    """A function of the values of its parts alone; of the distance where all parts are."""

    depends_on_distance: Any = _of_parts("depends_on_distance", all)


def _product(S: Array, T: Array, s: float, t: float) -> Array:
    """Return (S + s)(T + t) - s t without the cancellation of s t; may overwrite S."""
    if not s and not t:
        return elementwise.multiply(S, T)
    rest = S * t
    return elementwise.add(elementwise.multiply(elementwise.add(S, s), T), rest)


def _power(T: Array, t: float, exponent: int) -> Array:
    """Return (T + t)^exponent - t^exponent without the cancellation of the latter."""
    if not t or not exponent:
        return elementwise.integer_power(T, exponent)

    def multiplied(one: tuple[Array, float], other: tuple[Array, float]) -> tuple[Array, float]:
        (A, a), (B, b) = one, other
        return (A + a) * B + A * b, a * b

    return elementwise.in_strips(T, lambda strip, _: repeated_product(multiplied, (strip, t), exponent)[0])


class _OfTwo(_OfValues, rules=(("k1", KERNEL), ("k2", KERNEL))):
    """A function of the values of two kernels."""

    def __init__(self, k1: Kernel, k2: Kernel) -> None:
        self.k1: Kernel = k1
        self.k2: Kernel = k2


class Sum(_OfTwo):
    """The kernel k1(x, y) + k2(x, y), written ``k1 + k2``."""

    keeps_centering = True

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        return elementwise.add(tiles[0], tiles[1])

    def offset(self, rows: CombinedRows) -> float:
        return sum(self.offsets(rows))

    def slope(self, unit: float = 1.0) -> Kernel | None:
        first, second = self.k1.slope(unit), self.k2.slope(unit)
        return None if first is None or second is None else first + second


class Product(_OfTwo):
    """The kernel k1(x, y) · k2(x, y), written ``k1 * k2``."""

    keeps_constants = True

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        return _product(tiles[0], tiles[1], *self.offsets(a))

    def offset(self, rows: CombinedRows) -> float:
        return math.prod(self.offsets(rows))

    def rounding(self, template: CombinedRows) -> float:
        return sum(part.rounding(one) for part, one in zip(self.parts, template.parts, strict=True))

    def slope(self, unit: float = 1.0) -> Kernel | None:
        first, second = self.k1.slope(unit), self.k2.slope(unit)
        return None if first is None or second is None else first * self.k2 + self.k1 * second


class Scale(_OfValues, rules=(("k", KERNEL), ("factor", POSITIVE))):
    """The kernel factor · k(x, y) for a factor > 0, written ``factor * k``."""

    keeps_centering = True

    def __init__(self, k: Kernel, factor: float = 1.0) -> None:
        POSITIVE.check("Scale", "factor", factor)
        self.k = k
        self.factor: float = float(factor)

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        return elementwise.multiply(tiles[0], self.factor)

    def offset(self, rows: CombinedRows) -> float:
        return float(self.factor) * self.offsets(rows)[0]

    @property
    def inverts_to(self) -> str | None:  # type: ignore[override]
        return self.k.inverts_to

    def slope(self, unit: float = 1.0) -> Kernel | None:
        inner = self.k.slope(unit)
        return None if inner is None else self.factor * inner

    def square_distances(self, drops: np.ndarray) -> np.ndarray:
        return self.k.square_distances(drops / self.factor)

    def inner_products(self, values: np.ndarray) -> np.ndarray:
        return self.k.inner_products(values / self.factor)


class Power(_OfValues, rules=(("k", KERNEL), ("exponent", EXPONENT))):
    """The kernel k(x, y)^exponent for an integer >= 0, written ``k ** exponent``."""

    keeps_constants = True

    def __init__(self, k: Kernel, exponent: int = 2) -> None:
        self.k = k
        self.exponent = exponent

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        return _power(tiles[0], self.offsets(a)[0], int(self.exponent))

    def offset(self, rows: CombinedRows) -> float:
        constant = self.offsets(rows)[0]
        return repeated_product(operator.mul, constant, int(self.exponent)) if constant and self.exponent else 0.0

    def rounding(self, template: CombinedRows) -> float:
        return max(int(self.exponent), 1) * super().rounding(template)

    def slope(self, unit: float = 1.0) -> Kernel | None:
        inner, exponent = self.k.slope(unit), int(self.exponent)
        if inner is None or exponent <= 1:
            return inner if exponent else None
        return float(exponent) * (Power(self.k, exponent - 1) * inner)


class Exp(_OfValues, rules=(("k", KERNEL),)):
    """The kernel exp(k(x, y)); see `exp`."""

    keeps_constants = True

    def __init__(self, k: Kernel) -> None:
        self.k = k

    def template(self, X: Array, centered: bool = False) -> CombinedRows:
        template = super().template(X, centered)
        largest = 0.0 if self.stored_only else fold(X, _largest_diagonal, self.k, template.parts[0], merge=max)
        return CombinedRows(template.parts, largest=largest if math.isfinite(largest) else 0.0)

    def rounding(self, template: CombinedRows) -> float:
        """Return that of the exponential, plus that of k times its largest value: d exp(k) = exp(k) k (dk / k).

        Twice that, because the largest values are few and their errors have no random signs that cancel.
        """
        return 1.0 + 2.0 * super().rounding(template) * max(1.0, abs(template.largest))

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        constant = self.offset(a)
        return elementwise.multiply(elementwise.expm1(tiles[0]), constant) if constant else elementwise.exp(tiles[0])

    def offset(self, rows: CombinedRows) -> float:
        constant = self.offsets(rows)[0]
        return (math.exp(constant) if constant < LARGEST_EXPONENT else math.inf) if constant else 0.0

    def slope(self, unit: float = 1.0) -> Kernel | None:
        inner = self.k.slope(unit)
        return None if inner is None else self * inner


def _largest_diagonal(X: Array, kernel: Kernel, template: PreparedRows) -> float:
    """Return the largest k(x, x) of rows of X, less what tiles lack; for most kernels no k(x, y) exceeds it."""
    largest = -math.inf
    with held_warnings(RankWarning):  # those of zero rows, which the preparation of all rows repeats
        for start, stop in row_panels(X):
            if start < stop:
                diagonal = kernel.tile_diagonal(kernel.prepare(take_rows(X, start, stop), like=template))
                largest = max(largest, float(namespace_of(diagonal).max(diagonal)))
    return largest


class Modulated(_Combined, rules=(("k", KERNEL), ("g", CALLABLE))):
    """The kernel g(x) g(y) k(x, y); see `modulate`."""

    moves_rows: str | None = None  # g sees the rows as they are

    def __init__(self, k: Kernel, g: Callable[[Array], Array]) -> None:
        self.k = k
        self.g = g

    def row_factors(self, X: Array) -> Array:
        factors = self.g(X)
        like = place_of(X)
        if (shape := getattr(factors, "shape", None)) != (X.shape[0],):
            raise InvalidParameterError(
                f"Modulated: g must return an array of shape ({X.shape[0]},), one factor a row; it returned "
                f"{type(factors).__name__} of shape {shape}."
            )
        namespace_of(factors, like)  # raises where g answers in another library or on another device
        return cast(factors, like.dtype) if real_floating(factors) else from_host(factors, like)

    def combine(self, tiles: list[Array], a: CombinedRows, b: CombinedRows) -> Array:
        T = tiles[0] if a.factors is None else elementwise.multiply(tiles[0], a.factors[:, None])
        return T if b.factors is None else elementwise.multiply(T, b.factors[None, :])


def chained(cls: type[Sum] | type[Product], first: Kernel, second: Kernel) -> Kernel:
    """Return the sum or the product of two kernels; many terms make a balanced tree."""
    if max(first._levels, second._levels) < BALANCED_FROM:
        return cls(first, second)
    terms, left = [], [second, first]
    while left:
        one = left.pop()
        if isinstance(one, cls):
            left += [one.k2, one.k1]
        else:
            terms.append(one)
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [cls(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return terms[0]


def exp(k: Kernel) -> Exp:
    """Return the kernel exp(k(x, y)): the limit of sums of powers, positive semidefinite if k is.

    Parameters
    ----------
    k : Kernel

    Returns
    -------
    Kernel
        With the parameter `k`.

    See Also
    --------
    modulate : Multiply by a function of each argument.

    Examples
    --------
    The Gaussian kernel is an exponential of inner products, modulated by the norms of the rows.

    >>> import numpy as np
    >>> from gpukpca.kernels import RBF, Linear, exp, modulate
    >>> X = np.array([[1.0, 0.0], [0.5, 2.0]])
    >>> k = modulate(exp(2.0 * Linear()), lambda X: np.exp(-np.sum(X * X, axis=1)))
    >>> bool(np.allclose(k(X), RBF(gamma=1.0)(X)))
    True
    """
    return Exp(k)


def modulate(k: Kernel, g: Callable[[Array], Array]) -> Modulated:
    """Return the kernel g(x) g(y) k(x, y) for any real function g of the rows.

    Parameters
    ----------
    k : Kernel
    g : callable
        Takes the rows X, shape (n, d), and returns an array of shape (n,) of the same library.

    Returns
    -------
    Kernel
        With the parameters `k` and `g`.

    See Also
    --------
    exp : The exponential of a kernel.

    Examples
    --------
    A kernel divided by the roots of its diagonal has k(x, x) = 1.

    >>> import numpy as np
    >>> from gpukpca.kernels import Polynomial, modulate
    >>> k = Polynomial(degree=2, gamma=1.0, coef0=1.0)
    >>> unit = modulate(k, lambda X: k.diagonal(X) ** -0.5)
    >>> unit(np.array([[1.0], [2.0]])).round(3)
    array([[1. , 0.9],
           [0.9, 1. ]])
    """
    return Modulated(k, g)
