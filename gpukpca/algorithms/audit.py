"""The audit of eigenpairs: what one product with the matrix says about vectors from anywhere."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, SymmetricOperator
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend.linalg import column_norms, inner_products, times_small
from gpukpca.backend.namespace import dtype_name, epsilon, from_host
from gpukpca.backend.orthogonalization import orthonormal_columns
from gpukpca.eigen.angles import eigenvalue_bounds, sines_of_angles
from gpukpca.eigen.partial_cholesky import ROUNDING
from gpukpca.eigen.residuals import NULL_FACTOR, entry_rounding, operator_size, residual_lengths
from gpukpca.exceptions import InvalidParameterError

# Cosines of two vectors that a table mentions.
SKEWED = 1e-3
# Singular values of unit columns up to so many eps of the largest are rounding.
DEPENDENT = 10.0


@record(kw_only=True, eq=False)
class Residuals:
    """Eigenpairs of a matrix A against one product with it: A is K, centered as the fit, or a covariance matrix.

    All arrays are on the host in float64. A vector u has length 1. Residuals include the rounding of the entries of K.

    See Also
    --------
    gpukpca.residuals : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA, residuals
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> audit = residuals(KernelPCA(2, kernel="rbf", gamma=0.1).fit(X), X)
    >>> audit.n_passes, bool(audit.residual_norms.max() < 1e-6)
    (1, True)
    >>> bool(np.all(audit.intervals[:, 0] <= audit.eigenvalues))
    True
    """

    matrix: str = field_of("", 'the name of A: "centered kernel matrix", "kernel matrix" or "covariance matrix"')
    n_samples: int = field_of("", "rows of the data")
    eigenvalues: np.ndarray = field_of(
        "p", "as the model states them, in the units of A; of scores the squared norms of their columns"
    )
    rayleigh_quotients: np.ndarray = field_of("p", "θ = uᵀA u, for each vector by itself")
    residual_norms: np.ndarray = field_of(
        "p", "r = ‖A u - θ u‖: an eigenvalue of A lies within r of θ, see `intervals`; infinite for a vector of zeros"
    )
    ritz_values: np.ndarray = field_of(
        "p",
        "the eigenvalues of A on the span of all vectors, descending; A has i eigenvalues that are at least the i-th "
        "one less `rounding`. -inf beyond the dimension of the span",
    )
    angles: np.ndarray = field_of(
        "p",
        "a bound on the sine of the angle between vector i, or its scores of these rows, and eigenvector i of A; of a "
        "group between their spans. NaN where nothing is known. Of Nyström as certain as `bound`",
    )
    groups: np.ndarray = field_of(
        "p",
        "the group of every vector, from 0: no gap is known within one, nor after the last vectors, which have -1",
    )
    skew: float = field_of("", "the largest modulus of uᵢᵀuⱼ for two vectors: 0 where they are orthogonal")
    trace: float = field_of("", "the sum of all eigenvalues of A; NaN: unknown")
    rounding: float = field_of("", "the allowance for the rounding of products and entries in `intervals` and `bounds`")
    n_passes: int = field_of("", "products of A with a block")
    n_products: int = field_of("", "columns multiplied in all passes")
    seconds: float = field_of("", "wall time, including everything that is computed from X")
    landmark_eigenvalues: np.ndarray | None = field_of(
        "p", "of Nyström, the largest eigenvalues θ of F Fᵀ, centered as A: the approximation itself", default=None
    )
    trace_bound: float | None = field_of(
        "",
        "of Nyström, the trace that F Fᵀ leaves: Σ (λ - θ) is at most this, and so is every term. Certain; None where "
        "the kernel is not known to be positive semidefinite, and for features of another library, whose F Fᵀ may "
        "exceed K",
        default=None,
    )
    norm_bound: float | None = field_of(
        "",
        "of Nyström, a bound on ‖E‖₂ with E = A - F Fᵀ, from random vectors or from the rows that the fit drew: every "
        "λ - θ is at most this",
        default=None,
    )
    failure_probability: float | None = field_of("", "that `norm_bound` is below ‖E‖₂, at most", default=None)

    @property
    def intervals(self) -> np.ndarray:
        """Return θ - r and θ + r of every vector, each with `rounding`, shape (p, 2): an eigenvalue of A lies between.

        Which one it is they do not say.
        """
        theta, r = self.rayleigh_quotients, self.residual_norms + self.rounding
        return np.stack([theta - r, theta + r], axis=1)

    @property
    def bound(self) -> float | None:
        """Return the smaller one of the bounds of Nyström; None where there is no approximation."""
        known = [bound for bound in (self.trace_bound, self.norm_bound) if bound is not None]
        return min(known, default=None)

    @property
    def bounds(self) -> np.ndarray | None:
        """Return bounds on eigenvalue i of A, index for index, shape (p, 2); None where there is no approximation.

        From the i-th Ritz value less `rounding` to the i-th landmark eigenvalue plus `bound`.
        """
        if self.landmark_eigenvalues is None or self.bound is None:
            return None
        return np.stack([self.ritz_values - self.rounding, self.landmark_eigenvalues + self.bound], axis=1)

    def __str__(self) -> str:
        """Return a table of the pairs, and the bounds with what they mean."""
        passes = "1 pass" if self.n_passes == 1 else f"{self.n_passes} passes"
        lines = [
            f"{pluralize(len(self.eigenvalues), 'eigenpair')} of the {self.matrix} of {self.n_samples} rows: {passes}, "
            f"{self.seconds:.2g} s",
            "   i     stated   quotient   residual       Ritz  sin angle",
        ]
        columns = self.eigenvalues, self.rayleigh_quotients, self.residual_norms, self.ritz_values
        lines += [
            f"{i:4d} {stated:10.5g} {quotient:10.5g} {residual:10.2e} {ritz:10.5g} {self._angle_text(i - 1)}"
            for i, (stated, quotient, residual, ritz) in enumerate(zip(*columns, strict=True), 1)
        ]
        spans = "; of a group, between the spans" * any(" of " in line for line in lines[2:])
        lines.append("An eigenvalue lies within each residual of its quotient.")
        if not np.all(np.isnan(self.angles)):
            lines.append(f"The angle from vector i, and from its scores, to eigenvector i is at most that{spans}.")
        if self.skew > SKEWED:
            lines.append(
                f"The vectors are not orthogonal, cosines up to {self.skew:.1e}; the Ritz values are of their span."
            )
        return "\n".join(lines + self._bound_lines())

    def _angle_text(self, i: int) -> str:
        """Return the angle of a vector in a table, with the numbers of its group."""
        if math.isnan(self.angles[i]):
            return " not known"
        group = np.flatnonzero(self.groups == self.groups[i]) + 1
        return f"{self.angles[i]:10.1e}" + f" of {group[0]}-{group[-1]}" * (len(group) > 1)

    def _bound_lines(self) -> list[str]:
        """Return what is known of the error of Nyström."""
        if self.landmark_eigenvalues is None:
            return []
        lines = ["Eigenvalue i is at least Ritz value i, and exceeds that of the landmarks by at most"]
        if self.trace_bound is not None:
            lines.append(f"{self.trace_bound:10.3g}  for certain, all i together: the trace that is left")
        if self.norm_bound is not None:
            lines.append(f"{self.norm_bound:10.3g}  except with probability {self.failure_probability:.0e}")
        return lines


class UnitVectors(NamedTuple):
    """Vectors Q R of length 1 (n, p), or of zeros, with orthonormal Q (n, r), and the lengths that they had (p,).

    A product with Q gives that of the vectors: eigenvalues of A on their span err by rounding, however near they are to
    each other.
    """

    Q: Array
    R: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, V: Array) -> Self:
        """Return the columns of V (n, p), each divided by its length; r is at least 1."""
        lengths = column_norms(V)
        if not np.all(np.isfinite(lengths)):
            raise InvalidParameterError(
                "the vectors overflow: their lengths are infinite, or NaN. Divide them by a constant."
            )
        U = V / from_host(np.where(lengths > 0, lengths, 1.0), V)[None, :]
        if (Q := orthonormal_columns(U)) is U:
            return cls(U, np.eye(len(lengths)), lengths)
        left, sizes, _ = np.linalg.svd(inner_products(Q, U))
        rank = max(1, int(np.sum(sizes > DEPENDENT * epsilon(U) * sizes[0])))
        Q = orthonormal_columns(times_small(Q, left[:, :rank]))
        return cls(Q, inner_products(Q, U), lengths)


class MeasuredPairs(NamedTuple):
    """Hold what A says of vectors: quotients, residuals with the rounding of A and Ritz values (p,), and the skew.

    With R = AQ - QT for their basis Q, the others are T = QᵀAQ, its `size`, and RᵀR / size².
    """

    quotients: np.ndarray
    residuals: np.ndarray
    ritz_values: np.ndarray
    skew: float
    T: np.ndarray
    size: float
    S: np.ndarray


def measured_pairs(op: SymmetricOperator, vectors: UnitVectors, W: Array) -> MeasuredPairs:
    """Return what the products W = A Q with the basis of some vectors say; a vector of zeros says nothing.

    The i-th Ritz value is at most eigenvalue i of A: Cauchy's interlacing for an orthonormal basis.
    """
    Q, R, _ = vectors
    T, G = inner_products(Q, W), R.T @ R
    squares = np.diagonal(G)
    exists = squares > 0
    quotients = np.divide(np.sum(R * (T @ R), axis=0), squares, out=np.zeros(len(G)), where=exists)
    norms = residual_lengths(times_small(Q, R), times_small(W, R), quotients)
    if not np.all(np.isfinite(norms)):
        raise InvalidParameterError(
            "overflow: products of the matrix with the vectors are infinite. Divide the data by a constant, or pass "
            "float64."
        )
    rounding = entry_rounding(op, float(np.max(np.abs(quotients), initial=0.0)))
    norms = np.where(exists, norms / np.sqrt(np.where(exists, squares, 1.0)) + rounding, math.inf)
    skew = float(np.max(np.abs(G - np.diag(squares)), initial=0.0))
    ritz = np.full(len(G), -math.inf)
    T = (T + T.T) / 2.0
    if exists.any():
        ritz[: len(T)] = np.linalg.eigvalsh(T)[::-1]
    size = float(np.max(np.abs(T), initial=0.0)) or 1.0
    rest = W / size - times_small(Q, T / size)
    return MeasuredPairs(quotients, norms, ritz, skew, T, size, inner_products(rest, rest))


def angles_of(
    op: SymmetricOperator, vectors: UnitVectors, pairs: MeasuredPairs, rounding: float, missed: float, known: np.ndarray
) -> dict[str, Any]:
    """Return the angles and groups of an audit; `eigenvalue_bounds` explains the last two arguments."""
    small, size = (pairs.T / pairs.size, pairs.S), pairs.size
    missed = -math.inf if vectors.Q.shape[1] == op.shape[0] else missed / size  # a full basis has no complement
    bounds = eigenvalue_bounds(*small, missed, known / size, rounding / size)
    angles, groups = sines_of_angles(*small, vectors.R, bounds, rounding / size, epsilon(op.like))
    return {"angles": angles, "groups": groups}


def trace_left(op: SymmetricOperator, terms: float, values: np.ndarray) -> tuple[float, float]:
    """Return what values leave of the trace of an operator, plus its rounding; and this rounding.

    `terms` is the trace before centering. Where no eigenvalue is negative, and the values are at most the first ones,
    every other eigenvalue is at most the first number.
    """
    rounding = max(ROUNDING[dtype_name(op.dtype)], op.rounding * epsilon(op.like)) * max(terms, op.noise_scale)
    return max(float(op.trace or 0.0) - float(np.sum(values)), 0.0) + rounding, rounding


def product_rounding(op: SymmetricOperator, values: np.ndarray) -> float:
    """Return what eigenvalues of an operator, from products, may err by, given the size of the largest."""
    size = operator_size(op, values)
    return entry_rounding(op, float(np.max(np.abs(values), initial=0.0))) + NULL_FACTOR * epsilon(op.like) * size
