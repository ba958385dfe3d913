"""The map of new points, the axes of the linear kernel, and the affine space of a fit in feature space."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any, Self

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend import blocking
from gpukpca.backend.linalg import reciprocals, row_products
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    epsilon,
    from_host,
    full,
    is_numpy,
    is_sparse,
    move,
    namespace_of,
    same_place,
    to_host,
)
from gpukpca.data.finite import check_finite
from gpukpca.data.place import panels_of, rows_at
from gpukpca.data.slicing import by_panels, gather_rows, place_of, row_panels, take_columns, take_rows
from gpukpca.data.statistics import feature_means, square_sums
from gpukpca.eigen import EigenResult
from gpukpca.exceptions import PrecisionWarning, warn_user
from gpukpca.gram import CenteredGram
from gpukpca.gram.product import prepared_matmat
from gpukpca.kernels import Kernel, Precomputed
from gpukpca.kernels.prepared import PreparedRows


@record(eq=False)
class AffineProjection:
    """The map of new points, scores(x) = k(x, basis) A - b, where it is computed."""

    basis: Any = field_of(
        "m d",
        "The training rows, or the landmarks; an array or a CSR matrix. None of a precomputed kernel.",
        "or sparse",
        "or None",
    )
    projection: Array = field_of("m p", "A.")
    offset: Array = field_of("p", "b.")
    mean_weights: Array = field_of(
        "m",
        "c: Σ c_j φ(basis_j) is the mean of the features, or of their projections onto the landmarks', or 0 without "
        "centering. In the widest floating type.",
    )
    mean_norm: float = field_of("", "The squared norm of that mean.")
    template: PreparedRows | None = field_of("", "Learned by the kernel from the training set.", default=None)
    rows: PreparedRows | None = field_of(
        "", "The prepared basis, once it is computed.", "derived", default=None, repr=False
    )
    center: bool = field_of("", "Whether the mean of the features was subtracted; else c and b are 0.", default=True)

    @classmethod
    def of_eigenpairs(
        cls,
        op: CenteredGram,
        eigen: EigenResult,
        eigenvalues: np.ndarray,
        basis: Any,
        template: PreparedRows | None = None,
        rows: PreparedRows | None = None,
    ) -> tuple[AffineProjection, Array]:
        """Return the map over all training rows, and their scores (n, p); `eigenvalues` are those of `eigen`, checked.

        A = U λ^(-1/2), b = mᵀA with the column means m of K, which are 0 without centering. With frequencies w of the
        rows A = W^½ U λ^(-1/2).
        """
        scale = from_host(reciprocals(np.sqrt(eigenvalues)), op.like)[None, :]
        # LAPACK's vectors sum to zero up to rounding, which new points would multiply by the mean of K.
        projection = op.rooted(op.project(eigen.eigenvectors)) * scale
        means, scores = op.column_means, eigen.products * scale
        shares = full((op.shape[0],), 1.0 / op.count if op.center else 0.0, means)
        if op.frequencies is not None:
            scores, shares = op.frequencies.unrooted(scores), op.frequencies.times(shares)
        offset = (means[None, :] @ cast(projection, accumulation_dtype(op.like)))[0, :]
        affine = cls(
            basis,
            projection,
            cast(offset, op.dtype),
            mean_weights=shares,
            mean_norm=op.mean_norm,
            template=template,
            rows=rows if rows is not None and rows.is_local else None,
            center=op.center,
        )
        return affine, scores

    @property
    def like(self) -> Array:
        """Return a zero-size array where the map is computed."""
        return self.offset[:0]

    def prepared(self, kernel: Kernel) -> PreparedRows:
        """Return the basis prepared for the kernel, which is cached, and left out of pickles."""
        if (rows := self.rows) is None:
            # Landmarks alone do not determine the shift of all training rows: the template has it.
            rows = kernel.prepare(self.basis, like=self.template, centered=self.center)
            object.__setattr__(self, "rows", rows)
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"rows": None}


# The rest of the mean is kept where it exceeds so many eps of the deviation of the first scores.
VISIBLE = 16.0


@record(eq=False)
class LinearAxes:
    """The axes of the linear kernel: the space mean + z V of data space, with the scores z as coordinates."""

    components: Array = field_of("p d", "The rows of V.")
    mean: Array = field_of("d", "In the dtype of the data.")
    wide_mean: Array = field_of("d", "In the widest floating type.")
    rest: Array | None = field_of(
        "d", "The mean less `wide_mean`, in its type; None where that is below rounding of the scores.", default=None
    )

    @classmethod
    def of_rows(cls, X: Array, projection: Array, center: bool = True) -> Self:
        """Return the axes V = Aᵀ (X - mean) of training rows (n, d), A (n, p); without centering the mean is 0."""
        mean, n = feature_means(X), int(X.shape[0])
        if not center:
            mean = namespace_of(mean).zeros_like(mean)
            return cls(_weighted_sums(X, mean, projection), cast(mean, X.dtype), mean)
        rest = _weighted_sums(X, mean, full((n, 1), 1.0 / n, projection))[0, :]
        # The norm of a column of A is 1 / (sqrt(n) times the deviation of its scores).
        xp = namespace_of(projection)
        first = projection[:, : min(1, int(projection.shape[1]))]
        size = float(xp.max(xp.abs(rest))) * math.sqrt(n * float(xp.sum(first**2)))
        kept = cast(rest, mean.dtype) if size > VISIBLE * epsilon(projection) else None
        return cls(_weighted_sums(X, mean, projection), cast(mean, X.dtype), mean, kept)

    @classmethod
    def of_landmarks(cls, basis: Array, center: Array, projection: Array, mean_weights: Array) -> Self:
        """Return V = Aᵀ (b - center) and the mean center + Σ c_j (b_j - center) for landmarks b."""
        components = _weighted_sums(basis, center, projection)
        mean = center + _weighted_sums(cast(basis, center.dtype), center, mean_weights[:, None])[0, :]
        return cls(components, cast(mean, basis.dtype), mean)

    def points(self, Z: Array) -> Array:
        """Return mean + z V for scores Z (m, q) of the first q components."""
        return Z @ self.components[: Z.shape[1], :] + self.mean[None, :]

    def scores(self, Y: Array) -> Array:
        """Return the scores of new rows, (y - mean) Vᵀ, a panel at a time."""
        axes = self.components.T
        return by_panels(Y, lambda rows, *_: self._centered(rows) @ axes)

    def square_distances(self, Y: Array, Z: Array) -> Array:
        """Return ‖y - mean - z V‖² of every row, scores Z (m, q), in the widest type."""
        components = self.components[: Z.shape[1], :]

        def panel(rows: Array, start: int, stop: int) -> Array:
            off = cast(self._centered(rows) - Z[start:stop, :] @ components, self.wide_mean.dtype)
            return namespace_of(off).sum(off * off, axis=1)

        return by_panels(Y, panel)

    def _centered(self, rows: Any) -> Array:
        off = cast(rows, self.wide_mean.dtype) - self.wide_mean[None, :]
        return cast(off if self.rest is None else off - self.rest[None, :], self.components.dtype)


def _weighted_sums(X: Array, center: Array, weights: Array) -> Array:
    """Return weightsᵀ (X - center), a panel of rows at a time."""

    def sums(start: int, stop: int) -> Array:
        return weights[start:stop, :].T @ cast(cast(X[start:stop, :], center.dtype) - center[None, :], X.dtype)

    return reduce(operator.add, (sums(*bounds) for bounds in row_panels(X)))


# Squared distances below so many eps of the numbers that cancel in them are rounding.
ROUNDING = 1e3


@record(eq=False)
class FeatureSpace:
    """The points m + z V of feature space, with m = Σ c_j φ(b_j) and orthonormal axes V = Aᵀ Φ(b) over a basis b."""

    kernel: Kernel
    map: AffineProjection = field_of("", "Basis, A, c, ‖m‖² and Vᵀ m.")
    n_jobs: int | None = None
    landmarks: np.ndarray | None = field_of("m", "The training rows of the basis, on the host.", default=None)
    axes: LinearAxes | None = field_of("", "The axes V, where data space is the feature space.", default=None)
    holds_all: bool = field_of("", "Whether the basis is all training rows.", default=True)

    @classmethod
    def of(cls, fit: Any, n_jobs: int | None) -> FeatureSpace:
        """Return the space of a `KernelPCAFit`."""
        return cls(fit.kernel, fit.map, n_jobs, fit.landmarks, fit.axes, not fit.has_sampled_basis)

    def scores(self, Y: Any) -> Array:
        """Return k(y, basis) A - b of every row, shape (rows, p); rows of a precomputed kernel are K(Y, X)."""
        if self.axes is not None and not is_sparse(Y):
            return self.axes.scores(Y)
        return self._times(Y, self.map.projection) - self.map.offset[None, :]

    def _times(self, Y: Any, V: Array) -> Array:
        """Return k(y, basis) V of every row."""
        if isinstance(self.kernel, Precomputed):
            K = cast(Y, V.dtype)
            return (K if self.landmarks is None else take_columns(K, self.landmarks)) @ V
        rows = self.map.prepared(self.kernel)
        return prepared_matmat(self.kernel, Y, self.map.basis, rows, V, n_jobs=self.n_jobs)

    def checked_scores(self, Y: Any) -> Array:
        """Return the scores of rows of any library, finite."""
        scores = self.scores(rows_at(Y, self.map.like))
        check_finite(scores, "The kernel overflows on the new points.", "The array of scores")
        return scores

    def new_scores(self, Y: Any, out: Array | None = None) -> Array:
        """Return the scores of new rows, finite, and warn of far rows.

        Rows of another place are moved by panels. Their scores are in `out` (rows, p), by default on the host.
        """
        like = self.map.like
        if out is None and (same_place(place_of(Y), like) or not is_numpy(Y)):
            scores = self.checked_scores(Y)
            warn_of_far_rows(self.far_rows(Y, scores), int(Y.shape[0]))
            return scores
        if out is None:
            out = np.empty((int(Y.shape[0]), int(self.map.offset.shape[0])), dtype_name(like.dtype))
        far = []
        for start, stop in panels_of(Y, blocking.SCORES_PANEL):
            rows = take_rows(Y, start, stop)
            scores = self.checked_scores(rows)
            out[start:stop] = move(scores, out)
            far.append(start + self.far_rows(rows, scores))
        warn_of_far_rows(np.concatenate(far), len(out))
        return out

    def basis_rows(self, scores: Array) -> Array:
        """Return the scores of the basis, given those of the training rows (n, p)."""
        return scores if self.holds_all else self.scores(self.map.basis)

    def errors(self, Y: Any, q: int, diagonal: np.ndarray | None = None) -> Array:
        """Return squared distances from the first q axes, in the widest type, shape (rows,).

        `diagonal` is k(y, y), which the rows of a precomputed kernel do not hold.
        """
        if self.axes is not None and not is_sparse(Y):
            return self.axes.square_distances(Y, self.axes.scores(Y)[:, :q])
        own = None if diagonal is None else from_host(diagonal, Y, self.map.mean_weights.dtype)
        return self.square_distances(Y, q, own)

    def far_rows(self, Y: Any, scores: Array) -> np.ndarray:
        """Return which new rows have no kernel value above rounding, as indices.

        Their k(y, X) A is 0 to rounding. Only rows of which that holds are evaluated again. Landmarks are not all
        training rows, so they show nothing.
        """
        kernel, m = self.kernel, self.map
        shows = kernel.depends_on_distance and self.holds_all and int(scores.shape[1])
        if not shows or m.prepared(kernel).shifted:
            return np.zeros(0, dtype=np.int64)
        eps, xp = epsilon(scores), namespace_of(scores)
        offset = float(m.offset[0])
        size = float(xp.sum(xp.abs(m.projection[:, 0]))) + 8.0 * abs(offset)
        candidates = np.flatnonzero(to_host(xp.abs(scores[:, 0] + offset)) <= 2.0 * eps * size)
        if not candidates.size:
            return candidates
        Z = rows_at(gather_rows(Y, candidates), m.like)
        ones = xp.ones_like(m.projection[:, :1])
        sums = to_host(self._times(Z, ones))[:, 0]
        own = to_host(kernel.diagonal(cast(gather_rows(Z, [0]), m.projection.dtype)))[0]
        near: np.ndarray = candidates[sums <= eps * own]
        return near

    def weights(self, Z: Array) -> Array:
        """Return γ with m + z V = Σ γ_j φ(b_j) for every row z, shape (rows, m): A z + c."""
        A = self.map.projection[:, : Z.shape[1]]
        return row_products(Z, A) + cast(self.map.mean_weights, Z.dtype)[None, :]

    def square_distances(self, Y: Any, q: int, diagonal: Array | None = None) -> Array:
        """Return squared distances of φ(y) from the first q axes, in the widest type; `diagonal` is k(y, y) if known.

        ‖φ(y) - m‖² - ‖z‖² with ‖φ(y) - m‖² = k(y, y) - 2 Σ c_j k(y, b_j) + ‖m‖². One product has A and c as columns.
        """
        m = self.map
        xp = namespace_of(m.projection)
        column = cast(m.mean_weights, m.projection.dtype)[:, None]
        V = xp.concat([m.projection[:, :q], column], axis=1)
        products = self._times(Y, V)
        Z = products[:, :q] - m.offset[None, :q]
        return self.remaining(self._diagonal(Y) if diagonal is None else diagonal, products[:, q], Z)

    def remaining(self, diagonal: Array, means: Array, Z: Array) -> Array:
        """Return k(y, y) - 2 Σ c_j k(y, b_j) + ‖m‖² - ‖z‖², 0 for negative rounding."""
        xp, wide = namespace_of(Z), self.map.mean_weights.dtype
        diagonal, means = cast(diagonal, wide), cast(means, wide)
        distances = diagonal - 2.0 * means + self.map.mean_norm - square_sums(Z)
        is_rounding = distances < 0
        if self.kernel.positive_definite is not True:
            size = xp.abs(diagonal) + abs(self.map.mean_norm)
            is_rounding = xp.logical_and(is_rounding, distances > -ROUNDING * epsilon(Z) * size)
        return xp.where(is_rounding, xp.zeros_like(distances), distances)

    def _diagonal(self, Y: Any) -> Array:
        """Return k(y, y), a panel of rows at a time."""
        template, dtype = self.map.prepared(self.kernel).template, self.map.projection.dtype

        def panel(rows: Any, *_: int) -> Array:
            return self.kernel.tile_diagonal(self.kernel.prepare(cast(rows, dtype), like=template))

        return by_panels(Y, panel)


def warn_of_far_rows(far: np.ndarray, n_rows: int) -> None:
    """Warn once of all new rows that are far from all training rows."""
    if far.size:
        warn_user(
            "some rows are so far from all training rows that every kernel value is below rounding, and their scores "
            "are all the same. Check their units, or fit with a smaller gamma.",
            PrecisionWarning,
            rows=far.tolist(),
            n_rows=n_rows,
        )
