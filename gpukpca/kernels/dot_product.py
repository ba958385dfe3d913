"""Kernels of the inner product: linear, polynomial, sigmoid, cosine."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, ClassVar

import numpy as np

from gpukpca._rules import FINITE
from gpukpca._typing import Array
from gpukpca.backend import elementwise, linalg
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    from_host,
    is_sparse,
    item_size,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.data.csr import as_csr, stored_means
from gpukpca.data.slicing import (
    by_panels,
    dense_rows,
    divided_rows,
    place_of,
    sampled_panels,
    shifted_rows,
    take_columns,
    take_rows,
)
from gpukpca.data.statistics import exact_means, feature_means, row_norms, row_square_sums, square_norm_sizes
from gpukpca.exceptions import InvalidParameterError, RankWarning, warn_user
from gpukpca.kernels.bandwidth import Gamma
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import DataRows, PreparedRows
from gpukpca.kernels.validation import NOT_NEGATIVE

# The largest degree of explicit monomials: the factorials stay within the range of numbers.
LARGEST_DEGREE = 20
# A sum of d products errs by about eps sqrt(d) / TERMS of the product of the norms: BLAS has several running sums.
TERMS = 8.0
# Where less than this share is left of the numbers that cancel in gamma x·y + coef0, rows are shifted to their mean.
CANCELLED = 0.25
# Rows whose pairs show how much cancels in gamma x·y + coef0.
SAMPLED_ROWS = 500


class DotRows(DataRows):
    """Rows whose inner products, times `factor`, make the tile.

    `mean` (d,) was subtracted from them. `copied` rows take memory in addition to the data. A template has the number
    of `terms` of a sum: features, or the most entries that a CSR row of the training set stores. It has the size of
    the numbers that cancel in T relative to T, `cancelled` >= 1.
    """

    terms: int = 1
    cancelled: float = 1.0

    def __init__(self, data: Any, factor: float, mean: Array | None = None, copied: bool = False) -> None:
        super().__init__(data)
        self.factor = factor
        self.mean = mean
        self.copied = copied

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return int(self.data.shape[1]) * item_size(self.data.dtype) if self.copied else 0

    @cached_property
    def right(self) -> Any:
        """Return the rows times `factor` as a copy, so that no block is multiplied by its own buffer."""
        # CSR rows in float64: SciPy sums their products term by term.
        return (self.data.astype(np.float64) if is_sparse(self.data) else self.data) * self.factor


class ShiftedDotRows(DotRows):
    """Rows s = x - mean of T = `factor` x·y + coef0 = `factor` s·t + a(x) + a(y) + `constant`.

    With m the mean, a(x) = `factor` m·s, shape (n_rows,), and the constant is `factor` ‖m‖² + coef0: what cancels in T
    cancels in it, once for all pairs.
    """

    by_row: ClassVar[tuple[str, ...]] = ("data", "along")

    def __init__(self, data: Any, factor: float, mean: Array, constant: float) -> None:
        super().__init__(data, factor, mean, copied=not is_sparse(data))
        self.constant = constant
        self.along: Array = _along(data, factor, mean)


def _rounded_once(mean: np.ndarray, factor: float, coef0: float) -> float:
    """Return factor ‖m‖² + coef0, rounded once: halves of 26 bits have exact products (Dekker 1971)."""
    m = mean.astype(np.float64)
    high = m * (2.0**27 + 1.0)
    high = high - (high - m)
    low = m - high
    terms = np.concatenate([high * high, 2.0 * high * low, low * low]).tolist()
    square = math.fsum(terms)
    exact = Fraction(square) + Fraction(math.fsum([*terms, -square]))
    return float(Fraction(factor) * exact + Fraction(coef0))


def _along(s: Any, factor: float, mean: Array) -> Array:
    """Return factor m·s of rows s, shape (n_rows,), in their dtype."""
    if is_sparse(s):
        return factor * (s @ mean)
    return by_panels(s, lambda panel, *_: cast(factor * (cast(panel, mean.dtype) @ mean), s.dtype))


class _DotKernel(Kernel):
    """A function of T = gamma x·y + coef0."""

    scratch_tiles = 0
    moves_rows: str | None = "never"
    coef0: float = 0.0
    # The relative error of the function, in units of that of T.
    steepness: float = 1.0

    def _factor(self) -> float:
        return float(self.gamma)  # type: ignore[attr-defined]  # the kernels without gamma prepare rows otherwise

    def template(self, X: Array, centered: bool = False) -> DotRows:
        rows = self._template(X, centered)
        rows.terms = int(np.diff(X.indptr).max(initial=0)) if is_sparse(X) else int(X.shape[1])
        rows.cancelled = 1.0 if isinstance(rows, ShiftedDotRows) else self._cancelled(X)
        return rows

    def _cancelled(self, X: Any) -> float:
        """Return |gamma x·y| + |coef0| over |T|, both as root mean squares over pairs of sampled rows."""
        if not self.coef0 < 0:  # the mean of gamma x·y is never negative, so that hardly anything cancels
            return 1.0
        with overflow_allowed():
            products = self._factor() * sum(rows @ rows.T for rows in sampled_panels(X, SAMPLED_ROWS))
            sizes = np.linalg.norm(np.abs(products) - self.coef0)
            cancelled = sizes / (np.linalg.norm(products + self.coef0) + np.finfo(np.float64).eps * sizes)
        return float(cancelled) if np.isfinite(cancelled) else 1.0

    def _template(self, X: Array, centered: bool) -> DotRows:
        return self._shifted_template(X) or self._rows(take_rows(X, 0, 0))

    def prepare_rows(self, X: Array, like: Any, centered: bool) -> DotRows:
        like = like or self._shifted_template(X)
        if not isinstance(like, ShiftedDotRows):
            return self._rows(X)
        rows = as_csr(X) if is_sparse(like.data) else dense_rows(X)
        return ShiftedDotRows(shifted_rows(rows, like.mean, 1.0, X.dtype), like.factor, like.mean, like.constant)

    def rounding(self, template: Any) -> float:
        """Return the error of a sum of products, and of the number that it is added to, times the steepness.

        It is that of the numbers that cancel in T.
        """
        data = template.data
        share = float(np.finfo(np.float64).eps / np.finfo(dtype_name(data.dtype)).eps) if is_sparse(data) else 1.0
        return self.steepness * template.cancelled * (1.0 + share * math.sqrt(template.terms) / TERMS)

    def _shifted_template(self, X: Array) -> ShiftedDotRows | None:
        """Return the template of rows so near to their mean that nearly all of T cancels; None for other rows."""
        factor = self._factor()
        if not self.coef0 < 0 or factor == 0 or not X.shape[0] or not self._is_moderate(X):
            return None
        mean = exact_means(X)
        xp = namespace_of(mean)
        square = float(xp.sum(mean * mean))
        radius = math.sqrt(square_norm_sizes(X, mean, 1.0)[0])
        constant = factor * square + float(self.coef0)
        left = abs(constant) + factor * radius * (2.0 * math.sqrt(square) + radius)
        if not left < CANCELLED * (factor * square - float(self.coef0)):
            return None
        rows = shifted_rows(take_rows(X, 0, 0), mean, 1.0, X.dtype)
        return ShiftedDotRows(rows, factor, mean, _rounded_once(to_host(mean), factor, float(self.coef0)))

    def _is_moderate(self, X: Any) -> bool:
        """Return whether the factor can be applied to a product of rows."""
        root = math.sqrt(self._factor())
        return _smallest(X) <= root <= 1.0 / _smallest(X)

    def _rows(self, X: Any) -> DotRows:
        """Return the rows and the factor; rows times its root where the factor, or squares without it, may overflow."""
        factor = self._factor()
        if factor == 0.0 or self._is_moderate(X):
            return DotRows(X, factor)
        return DotRows(X * math.sqrt(factor), 1.0, copied=True)

    def tile(self, a: DotRows, b: DotRows, out: Array | None = None) -> Array:
        T, constant = linalg.row_products(a.data, b.right, out), float(self.coef0)
        if isinstance(a, ShiftedDotRows) and isinstance(b, ShiftedDotRows):
            T, constant = elementwise.add(T, a.along[:, None] + b.along[None, :]), b.constant
        T = elementwise.in_strips(T, lambda strip, place: self._function(strip, constant, place), out)
        return cast(T, b.data.dtype)

    def tile_diagonal(self, a: DotRows) -> Array:
        T = row_square_sums(a.data) * a.factor
        if isinstance(a, ShiftedDotRows):
            return self._function(T + (a.along + a.along), a.constant)
        return self._function(T, float(self.coef0))

    def _function(self, T: Array, constant: float, out: Array | None = None) -> Array:
        """Return kernel values from gamma x·y, which may be overwritten, and the constant to add to it."""
        return T


def _smallest(X: Any) -> float:
    """Return the fourth root of the smallest normal number in the dtype of X."""
    values = place_of(X)
    return float(namespace_of(values).finfo(values.dtype).smallest_normal) ** 0.25


class Linear(_DotKernel):
    """Linear kernel k(x, y) = x·y: kernel PCA with it is PCA.

    See Also
    --------
    gpukpca.PCA : PCA itself.

    Notes
    -----
    Before double centering the features are centered in float64, so an offset of the data costs no digits.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Linear
    >>> Linear()(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([[5., 6.],
           [6., 9.]])
    """

    positive_definite: bool = True
    exponentials = 0
    moves_rows: str | None = "centered"

    def _template(self, X: Array, centered: bool) -> DotRows:
        mean = (stored_means(X) if is_sparse(X) else feature_means(X)) if centered else None
        if mean is not None and is_sparse(X) and not np.any(mean):
            mean = None
        return DotRows(take_rows(X, 0, 0), 1.0, mean, copied=mean is not None and not is_sparse(X))

    def prepare_rows(self, X: Array, like: DotRows | None, centered: bool) -> DotRows:
        like = like or self._template(X, centered)
        if like.mean is None:
            return DotRows(X, 1.0)
        rows = X if is_sparse(like.data) else dense_rows(X)
        return DotRows(shifted_rows(rows, like.mean, 1.0, X.dtype), 1.0, like.mean, like.copied)

    def feature_count(self, d: int) -> int:
        return d

    def features(self, X: Array, template: PreparedRows) -> Array:
        """Return the rows themselves, centered where the template is."""
        return self.prepare(X, like=template).data  # type: ignore[attr-defined]


class Polynomial(_DotKernel, rules=(("degree", NOT_NEGATIVE), ("coef0", FINITE), ("gamma", NOT_NEGATIVE))):
    """Polynomial kernel k(x, y) = (gamma x·y + coef0)^degree.

    Parameters
    ----------
    degree : float, >= 0
        An integer is computed by multiplication. Any other exponent needs gamma x·y + coef0 >= 0 for all pairs.
    gamma : float > 0, None, "scale" or "median"
        None is 1 / d. The rules are those of `RBF`.
    coef0 : float

    See Also
    --------
    Linear : Degree 1 with coef0 = 0, up to the factor gamma.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0, coef0=1.0)(np.array([[1.0, 2.0], [0.0, 3.0]]))
    array([[ 36.,  49.],
           [ 49., 100.]])
    """

    def __init__(self, degree: float = 3, gamma: Gamma = None, coef0: float = 1.0) -> None:
        self.gamma: Any = gamma
        self.degree = degree
        self.coef0 = coef0

    @property
    def positive_definite(self) -> bool | None:  # type: ignore[override]
        return True if self.coef0 >= 0 and float(self.degree).is_integer() else None

    @property
    def inverts_to(self) -> str | None:  # type: ignore[override]
        return "products" if self.degree > 0 and self.gamma != 0 else None

    def inner_products(self, values: np.ndarray) -> np.ndarray:
        """Return the x·y of these values; for an even degree that with gamma x·y + coef0 >= 0."""
        signs = np.sign(values) if self.degree % 2 == 1 else values > 0
        return (signs * np.abs(values) ** (1.0 / self.degree) - self.coef0) / self.gamma

    def feature_count(self, d: int) -> int | None:
        """Return the number of monomials of degree up to `degree`; of that degree alone where coef0 is 0."""
        if not float(self.degree).is_integer() or self.coef0 < 0 or self.degree > LARGEST_DEGREE:
            return None
        variables = d if self.coef0 == 0 else d + 1
        return math.comb(variables - 1 + int(self.degree), int(self.degree))

    def features(self, X: Array, template: PreparedRows) -> Array:
        """Return every monomial, times the root of its share of (gamma x·y + coef0)^degree (multinomial theorem)."""
        return by_panels(X, lambda panel, *_: self._monomials(panel))

    def _monomials(self, X: Array) -> Array:
        """Return sqrt(multinomial) times the products of `degree` of the variables sqrt(gamma) x and sqrt(coef0)."""
        xp, degree = namespace_of(X), int(self.degree)
        wide = accumulation_dtype(X)
        variables = cast(X, wide) * math.sqrt(float(self.gamma))
        if self.coef0 > 0:
            constant = xp.zeros_like(variables[:, :1]) + math.sqrt(float(self.coef0))
            variables = xp.concat([variables, constant], axis=1)
        chosen = list(combinations_with_replacement(range(variables.shape[1]), degree))
        repeats = [math.prod(map(math.factorial, Counter(one).values())) for one in chosen]
        roots = from_host(np.sqrt(math.factorial(degree) / np.array(repeats)), X, wide)
        monomials = xp.zeros_like(variables[:, :1]) + roots[None, :]
        for factors in np.array(chosen, dtype=np.int64).T:
            monomials = elementwise.multiply(monomials, take_columns(variables, factors))
        return cast(monomials, X.dtype)

    @property
    def steepness(self) -> float:  # type: ignore[override]
        return max(float(self.degree), 1.0)

    def _function(self, T: Array, constant: float, out: Array | None = None) -> Array:
        if float(self.degree).is_integer():
            return elementwise.polynomial(T, constant, int(self.degree), out)
        base = elementwise.add(T, constant)
        xp = namespace_of(base)
        if bool(xp.any(base < 0)):
            raise InvalidParameterError(
                f"Polynomial: NaN from power: degree={self.degree!r} is not an integer and gamma x·y + coef0 is "
                "negative for some pair of rows. Use an integer degree, or a larger coef0."
            )
        return elementwise.power(base, float(self.degree))


class Sigmoid(_DotKernel, rules=(("coef0", FINITE), ("gamma", NOT_NEGATIVE))):
    """Sigmoid kernel k(x, y) = tanh(gamma x·y + coef0). Not positive semidefinite in general.

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d. The rules are those of `RBF`.
    coef0 : float

    See Also
    --------
    is_psd : Whether K of given rows has a negative eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Sigmoid, is_psd
    >>> k = Sigmoid(gamma=1.0, coef0=-1.0)
    >>> is_psd(k, np.array([[0.5], [1.0], [1.5]]))
    False
    """

    exponentials = 2

    def __init__(self, gamma: Gamma = None, coef0: float = 1.0) -> None:
        self.gamma: Any = gamma
        self.coef0 = coef0

    def _function(self, T: Array, constant: float, out: Array | None = None) -> Array:
        return elementwise.sigmoid(T, constant, out)


class Cosine(_DotKernel):
    """Cosine kernel k(x, y) = x·y / (‖x‖ ‖y‖), 0 where a row is zero.

    Warns
    -----
    RankWarning
        If a row is zero: its direction is not defined.

    See Also
    --------
    Linear : The inner product of rows as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Cosine
    >>> Cosine()(np.array([[3.0, 4.0], [1.0, 0.0]])).round(3)
    array([[1. , 0.6],
           [0.6, 1. ]])
    """

    positive_definite: bool = True
    exponentials = 0

    def _template(self, X: Array, centered: bool) -> DotRows:
        return DotRows(take_rows(X, 0, 0), 1.0, copied=True)

    def prepare_rows(self, X: Array, like: Any, centered: bool) -> DotRows:
        norms = row_norms(X)
        zeros = np.flatnonzero(norms == 0)
        if zeros.size:
            # New rows come in panels, whose row numbers the user does not know.
            known = {} if like is not None and like.n_rows else {"rows": zeros.tolist()}
            text = "Cosine: some rows are zero; their kernel values are set to 0."
            warn_user(text, RankWarning, n_zero=int(zeros.size), **known)
        return DotRows(divided_rows(X, np.where(norms > 0, norms, 1.0)), 1.0, copied=True)

    def tile_diagonal(self, a: DotRows) -> Array:
        squares = row_square_sums(a.data)
        return cast(squares > 0, squares.dtype)
