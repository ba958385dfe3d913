"""Pre-images from distances to neighbors (Kwok & Tsang, IEEE Trans. Neural Networks 15 (2004) 1517).

Distances in feature space to the nearest points of the basis give distances in data space, and those the position in
the space that the neighbors span. No iteration, no start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.settings import PreimageMethod
from gpukpca.algorithms.preimage.result import Preimage, PreimageInfo, Preimages, in_panels
from gpukpca.backend.linalg import row_products, smallest_in_rows
from gpukpca.backend.namespace import cast, concat, epsilon, from_host, namespace_of, overflow_allowed, to_host
from gpukpca.data.slicing import gather_rows, shifted_rows
from gpukpca.data.statistics import feature_means, square_sums
from gpukpca.kernels import Kernel

# Directions among neighbors with less than this share of the largest squared singular value hold rounding only.
FLAT = 1e-10
# How many times as far from the neighbors' mean as their distances say, in the root mean square, a position may be.
BELIEVED = 2.0
# Newton's steps for a shift, and how much too far a position may be left.
SHIFT_STEPS, ENOUGH = 50, 1e-12


@record()
class DistanceConstraint(Preimage):
    """Position from the distances to the nearest points of the basis."""

    space: FeatureSpace = field_of("", "The feature space of the model.", "derived")
    points: Array = field_of("m d", "The basis, less `mean` where kernel values determine distances.", "derived")
    mean: Array | None = field_of("d", "None where they determine inner products.")
    scores: Array = field_of("m p", "Of the basis.")
    norms: Array = field_of("m", "‖φ(b) - m‖², in the widest type.")
    diagonal: Array = field_of("m", "k(b, b), in the widest type.")
    reach: float = field_of(
        "",
        "The square of twice the largest distance of the data from their mean, which bounds all distances.",
        "nonnegative",
    )
    n_neighbors: int = field_of("", "Points of the basis that each position comes from.", "positive")

    @classmethod
    def of(cls, space: FeatureSpace, mean: Array | None, **fields: Any) -> DistanceConstraint:
        """Return the pre-image of these fields, with the points that follow from the basis."""
        return cls(space, _points(space.map.basis, mean), mean, **fields)

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the pre-images of scores (rows, q). Cost: 2 m q operations a point, and k² d for k neighbors."""
        widest = max(int(self.points.shape[0]), self.n_neighbors * int(self.points.shape[1]))
        results = in_panels(lambda cut: self._panel(Z[cut, :]), Z, widest, self.space.n_jobs)
        return concat(results), PreimageInfo.direct(int(Z.shape[0]))

    def _panel(self, Z: Array) -> Array:
        distances, chosen = smallest_in_rows(self._distances(Z), self.n_neighbors)
        xp, wide = namespace_of(Z), self.norms.dtype
        shape = (*chosen.shape, int(self.points.shape[1]))
        around = cast(xp.reshape(gather_rows(self.points, chosen.reshape(-1)), shape), wide)
        center = xp.sum(around, axis=1) / chosen.shape[1]
        around = around - center[:, None, :]
        gram = to_host(around @ xp.matrix_transpose(around)).astype(np.float64)
        peaks = to_host(self.diagonal).astype(np.float64)[chosen]
        products, squares = self._products(Z, distances, peaks, gram, around, center)
        coordinates = from_host(_coordinates(gram, products, np.mean(squares, axis=1)), Z, wide)
        x = center + (coordinates[:, None, :] @ around)[:, 0, :]
        if self.mean is not None:
            nearest = chosen[np.arange(len(chosen)), np.argmin(squares, axis=1)]
            # Of the rows with a kernel value that lost half of its digits.
            is_lost = np.any(peaks - 0.5 * distances < np.sqrt(epsilon(self.scores)) * peaks, axis=1)
            limit = np.where(is_lost, BELIEVED * np.sqrt(squares.min(axis=1)), np.inf)
            x = _moved_into_reach(x, cast(gather_rows(self.points, nearest), wide), from_host(limit, Z, wide))
        return cast(x if self.mean is None else x + self.mean[None, :], Z.dtype)

    def _distances(self, Z: Array) -> Array:
        """Return ‖φ(b) - P‖², P = m + z V, from parts outside and inside the space."""
        xp, wide = namespace_of(Z), self.norms.dtype
        S = cast(self.scores[:, : Z.shape[1]], wide)
        Z = cast(Z, wide)
        inside = square_sums(Z)[:, None] + square_sums(S)[None, :] - 2.0 * row_products(Z, S)
        outside = self.norms - square_sums(S)
        return xp.clip(inside, 0.0, None) + xp.clip(outside, 0.0, None)[None, :]

    def _products(
        self, Z: Array, distances: np.ndarray, peaks: np.ndarray, gram: np.ndarray, around: Array, center: Array
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (x - center)·(b - center) for every neighbor b, up to a constant, and ‖x - b‖², both (rows, k).

        `peaks` are k(b, b). The distances are infinite for inner products: an offset leaves them no digits.
        """
        if self.mean is None:
            products = self._inner_products(Z, distances, peaks)
            across = namespace_of(center).matrix_transpose(around @ center[:, :, None])[:, 0, :]
            return products - to_host(across).astype(np.float64), np.full(products.shape, np.inf)
        own = np.einsum("ikk->ik", gram)
        squares = self._square_distances(distances, peaks)
        return 0.5 * (own - squares), squares

    def _square_distances(self, distances: np.ndarray, peaks: np.ndarray) -> np.ndarray:
        """Return ‖x - b‖² for k(x, b) = f(0) - ‖φ(b) - P‖²/2, as if P were φ(x); at most `reach`."""
        drops = np.minimum(0.5 * distances, peaks * (1.0 - np.finfo(np.float64).eps))
        with overflow_allowed():
            results = self.space.kernel.square_distances(drops)
        return np.asarray(np.minimum(np.nan_to_num(results, nan=self.reach), self.reach))

    def _inner_products(self, Z: Array, distances: np.ndarray, peaks: np.ndarray) -> np.ndarray:
        """Return x·b for k(x, b) = (‖P‖² + k(b, b) - ‖φ(b) - P‖²) / 2."""
        wide, m = self.norms.dtype, self.space.map
        along = cast(Z, wide) @ cast(m.offset[: Z.shape[1]], wide)[:, None]
        norms = to_host(square_sums(Z) + 2.0 * along[:, 0]).astype(np.float64) + m.mean_norm
        return self.space.kernel.inner_products(0.5 * (norms[:, None] + peaks - distances))


def _points(basis: Array, mean: Array | None) -> Array:
    return basis if mean is None else shifted_rows(basis, mean, 1.0, basis.dtype)


def _moved_into_reach(x: Array, b: Array, limit: Array) -> Array:
    """Return the rows x, moved towards b where they are further from it than `limit`.

    Distances to far neighbors, whose kernel values near 0 have few digits, could move a point away from the nearest.
    """
    xp = namespace_of(x)
    steps = x - b
    lengths = xp.sqrt(square_sums(steps))
    far = lengths > limit
    share = xp.where(far, limit, xp.ones_like(limit)) / xp.where(far, lengths, xp.ones_like(lengths))
    return xp.where(far[:, None], b + steps * share[:, None], x)


def _coordinates(gram: np.ndarray, products: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return u with x = center + Σ u_i (b_i - center): (G + μ)⁺ products, G the neighbors' centered Gram matrix.

    μ is 0 (the paper) unless ‖x - center‖ exceeds BELIEVED times the root of `limit`, which no point at these distances
    does: nearly flat neighbors amplify small errors. Then μ is the smallest with ‖x - center‖² <= most.
    """
    values, vectors = np.linalg.eigh(gram)
    largest = np.where(values[:, -1:] > 0.0, values[:, -1:], 1.0)
    values = values / largest
    values = np.where(values > FLAT, values, 0.0)
    # A constant in the products cancels. The rounding of the center, which an offset makes large, does not.
    along = np.einsum("ikj,ik->ij", vectors, (products - products.mean(axis=1, keepdims=True)) / largest)
    shift = _shift(values, along, np.maximum(limit / largest[:, 0], 0.0) + FLAT)
    results = np.divide(along, values + shift[:, None], out=np.zeros_like(values), where=values > 0.0)
    return np.asarray(np.einsum("ikj,ij->ik", vectors, results))


def _shift(values: np.ndarray, along: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Return μ for every row: 0, or the solution of Σ λ a² / (λ + μ)² = most, by Newton's method on 1 / its root.

    From 0 no step is too long (Moré & Sorensen, SIAM J. Sci. Stat. Comput. 4 (1983) 553).
    """
    shift = np.zeros(len(limit))
    held = _lengths(values, along, shift)[0] > BELIEVED * np.sqrt(limit)
    for _ in range(SHIFT_STEPS):
        length, slope = _lengths(values, along, shift)
        over = np.where(held, length / np.sqrt(limit) - 1.0, 0.0)
        if np.all(over <= ENOUGH):
            break
        shift = shift + np.divide(length**2 * over, slope, out=np.zeros_like(shift), where=held & (slope > 0.0))
    return shift


def _lengths(values: np.ndarray, along: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (Σ λ a² / (λ + μ)²)^½ and Σ λ a² / (λ + μ)³ by row."""
    shifted = np.where(values > 0.0, values + shift[:, None], 1.0)
    squares = values * (along / shifted) ** 2
    return np.sqrt(squares.sum(axis=1)), np.sum(squares / shifted, axis=1)


@dataclass(frozen=True)
class DistanceConstraintMethod(PreimageMethod):
    """The positions with the options of `DistanceConstraintPreimage`."""

    options = "DistanceConstraintPreimage"
    needs = "its values must determine the Euclidean distance or the inner product of two points"
    n_neighbors: int

    @staticmethod
    def suits(kernel: Kernel) -> bool:
        return kernel.inverts_to is not None

    def learn(self, X: Array, space: FeatureSpace, scores: Array, landmarks: int) -> DistanceConstraint:
        """Return the pre-image of the basis, m rows. Cost: m² kernel values."""
        basis, wide = space.map.basis, space.map.mean_weights.dtype
        by_distances = space.kernel.inverts_to == "distances"
        mean = feature_means(basis) if by_distances else None
        points = _points(basis, mean)
        norms = space.square_distances(basis, 0)
        diagonal = cast(space.kernel.diagonal(points), wide)
        squares = square_sums(points)
        reach = 4.0 * float(namespace_of(squares).max(squares))
        neighbors = min(self.n_neighbors, int(basis.shape[0]))
        scores = space.basis_rows(scores)
        return DistanceConstraint(space, points, mean, scores, norms, diagonal, reach, neighbors)
