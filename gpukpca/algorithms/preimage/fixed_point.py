"""Pre-images by fixed-point iteration (Mika et al., NIPS 11 (1999)), for every radial kernel with a slope.

For k(x, y) = f(‖x - y‖²) and the point P = Σ γ_j φ(b_j) of feature space, ‖φ(x) - P‖² is smallest where
g(x) = Σ γ_j k(x, b_j) is largest. Its gradient 2 Σ γ_j h_j (b_j - x), h = -f', vanishes where
x = Σ γ_j h_j b_j / Σ γ_j h_j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.settings import PreimageMethod
from gpukpca.algorithms.preimage.result import Preimage, PreimageInfo, Preimages, in_panels
from gpukpca.backend.elementwise import multiply
from gpukpca.backend.linalg import row_products
from gpukpca.backend.namespace import cast, concat, epsilon, full, namespace_of, to_host
from gpukpca.data.slicing import by_panels, gather_rows, shifted_rows
from gpukpca.data.statistics import feature_means, square_sums
from gpukpca.kernels import Kernel
from gpukpca.kernels.algebra import Scale
from gpukpca.kernels.prepared import PreparedRows

# Where weights cancel to less than this share of their size, their weighted mean is no useful step.
CANCELLED = 0.01
# Steps shorter than this share of the spread of the data are rounding, in eps.
SHORTEST = 20.0
# Halvings of a step after which no improvement is possible.
HALVINGS = 40

# A kernel with the basis prepared for it.
_Prepared = tuple[Kernel, PreparedRows]


@record()
class FixedPoint(Preimage):
    """Maximizes g from a start, a panel of points at a time."""

    space: FeatureSpace = field_of("", "The feature space of the model.", "derived")
    points: Array = field_of("m d", "The basis less `mean`.", "derived")
    mean: Array = field_of("d", "In the widest type.")
    scores: Array = field_of(
        "m p", "Of the basis; without a start, a point starts at the basis point with the nearest scores."
    )
    spread: float = field_of("", "Root mean square of ‖b - mean‖.", "nonnegative")
    slope: Kernel = field_of("", "h, up to a factor.", "derived")
    max_iter: int = field_of("", "Iterations at most.", "positive")
    tol: float = field_of("", "Of the step, in units of `spread`.", "nonnegative")

    @classmethod
    def of(
        cls, space: FeatureSpace, mean: Array, scores: Array, spread: float, max_iter: int, tol: float
    ) -> FixedPoint:
        """Return the pre-image of these fields, with the points and the slope that follow from basis and kernel."""
        points = shifted_rows(space.map.basis, mean, 1.0, space.map.basis.dtype)
        unit = spread * spread
        slope: Any = space.kernel.slope(unit if 0.0 < unit < math.inf else 1.0)
        while isinstance(slope, Scale):  # a factor falls out
            slope = slope.k
        return cls(space, points, mean, scores, spread, slope, max_iter, tol)

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the pre-images of scores (rows, q). Cost an iteration and point: m kernel values, 4 m d operations."""
        search = _Search(self, *self._prepared)

        def panel(cut: slice) -> Preimages:
            begin = self._begin(Z[cut, :], None if start is None else start[cut, :])
            return search.run(self.space.weights(Z[cut, :]), begin)

        found = in_panels(panel, Z, int(self.points.shape[0]), self.space.n_jobs)
        points = concat([part for part, _ in found])
        wide = self.mean.dtype
        restored = by_panels(points, lambda part, *_: cast(cast(part, wide) + self.mean[None, :], part.dtype))
        return restored, PreimageInfo.concatenate([info for _, info in found])

    @cached_property
    def _prepared(self) -> tuple[_Prepared, _Prepared | None]:
        """Return the basis for h, and for k where it is not the same function."""
        slope, kernel = ((k, k.prepare(self.points)) for k in (self.slope, self.space.kernel))
        return slope, None if self.slope == self.space.kernel else kernel

    def _begin(self, Z: Array, start: Array | None) -> Array:
        if start is None:
            return gather_rows(self.points, _nearest(Z, self.scores[:, : Z.shape[1]]))
        return cast(cast(start, self.mean.dtype) - self.mean[None, :], self.points.dtype)


@dataclass(frozen=True)
class _State:
    """Unfinished points: arrays with one row for each. `value` is g, a sum of terms of the size `size`."""

    weights: Array
    x: Array
    value: Array
    size: Array
    direction: Array
    step: Array
    length: Array

    def taken(self, chosen: np.ndarray) -> _State:
        """Return the state of some points, by indices on the host."""
        return _State(*(gather_rows(part, chosen) for part in vars(self).values()))


@dataclass(frozen=True)
class _Search:
    """The iteration for one panel of points.

    A full step leads to the weighted mean of the basis. It is taken where g does not fall, else halved. The direction
    is that of the gradient of g, so a short enough step is always taken.
    """

    task: FixedPoint
    slope: _Prepared
    values: _Prepared | None

    def run(self, weights: Array, start: Array) -> Preimages:
        """Return all points: those that converge leave the iteration, the others stay until `max_iter`."""
        xp, task, count = namespace_of(weights), self.task, int(start.shape[0])
        state, vanishing = self._evaluate(weights, start)
        restarted = to_host(vanishing)
        if restarted.any():  # at the nearest point of the basis
            instead = gather_rows(task.points, _nearest(start, task.points))
            state, _ = self._evaluate(weights, xp.where(vanishing[:, None], instead, start))
        indices, n_iter = np.arange(count), np.full(count, task.max_iter)
        converged = np.zeros(count, dtype=bool)
        pieces, order = [], []
        for iteration in range(1, task.max_iter + 1):
            length, size, step = (to_host(part) for part in (state.length, state.size, state.step))
            # A point whose weights are all 0 has no step to make and has not converged.
            arrived = (length <= task.tol * task.spread) & (size > 0)
            done = arrived | (step < 2.0**-HALVINGS) | (size == 0) | (iteration == task.max_iter)
            converged[indices[arrived]] = True
            if done.any():
                n_iter[indices[done]] = iteration
                pieces.append(gather_rows(state.x, np.flatnonzero(done)))
                order.append(indices[done])
                indices = indices[~done]
                if not indices.size:
                    break
                state = state.taken(np.flatnonzero(~done))
            state = self._next(state)
        back = np.argsort(np.concatenate(order))
        return gather_rows(concat(pieces), back), PreimageInfo(converged, n_iter, restarted)

    def _evaluate(self, weights: Array, x: Array) -> tuple[_State, Array]:
        """Return g, its size and the full step at x, and which weights cancel or vanish."""
        xp, wide = namespace_of(weights), self.task.mean.dtype
        W = _weighted(self.slope, x, weights)
        total, size = xp.sum(W, axis=1, dtype=wide), xp.sum(xp.abs(W), axis=1, dtype=wide)
        least = CANCELLED * size
        there = size > float(xp.finfo(W.dtype).smallest_normal)
        below = xp.where(there, xp.where(total > least, total, least), xp.ones_like(size))
        up = cast(W @ self.task.points, wide) - total[:, None] * cast(x, wide)
        direction = xp.where(there[:, None], up / below[:, None], xp.zeros_like(up))
        value = total
        if self.values is not None:
            W = _weighted(self.values, x, weights)
            value, size = xp.sum(W, axis=1, dtype=wide), xp.sum(xp.abs(W), axis=1, dtype=wide)
        size = xp.where(there, size, xp.zeros_like(size))  # values may be there where the slope vanishes
        direction = cast(direction, x.dtype)
        length = square_sums(direction) ** 0.5
        step = full((int(x.shape[0]),), 1.0, x)
        return _State(weights, x, value, size, direction, step, length), xp.logical_or(~there, total <= least)

    def _next(self, state: _State) -> _State:
        """Return the state after a step; where g falls by more than rounding, the next step is half as long."""
        xp = namespace_of(state.x)
        ahead, _ = self._evaluate(state.weights, state.x + state.step[:, None] * state.direction)
        slack = 8.0 * epsilon(state.x) * (state.size + ahead.size)
        better = ahead.value >= state.value - slack
        halved = replace(state, step=0.5 * state.step)
        parts = {
            name: xp.where(better[:, None] if old.ndim == 2 else better, getattr(ahead, name), old)
            for name, old in vars(halved).items()
            if name != "weights"
        }
        return _State(state.weights, **parts)


def _weighted(prepared: _Prepared, x: Array, weights: Array) -> Array:
    """Return γ_j k(x, b_j), shape (rows, m)."""
    kernel, rows = prepared
    return multiply(kernel.tile(kernel.prepare(x, like=rows.template), rows), weights)


def _nearest(rows: Array, among: Array) -> np.ndarray:
    """Return the index of the nearest row of `among` for every row, on the host; the first of several."""
    # ‖r - a‖² less what does not depend on a, halved.
    distances = 0.5 * cast(square_sums(among), rows.dtype)[None, :] - row_products(rows, among)
    return to_host(namespace_of(rows).argmin(distances, axis=1))


@dataclass(frozen=True)
class FixedPointMethod(PreimageMethod):
    """The iteration with the options of `FixedPointPreimage`."""

    options = "FixedPointPreimage"
    needs = "the kernel must be a function of the Euclidean distance with a slope also at distance 0"
    takes_weights = True
    max_iter: int
    tol: float

    @staticmethod
    def suits(kernel: Kernel) -> bool:
        return kernel.slope() is not None

    def learn(self, X: Array, space: FeatureSpace, scores: Array, landmarks: int) -> FixedPoint:
        """Return the pre-image of the basis. Cost: one centered copy of it, no kernel value."""
        basis = space.map.basis
        mean, tol = feature_means(basis), max(self.tol, SHORTEST * epsilon(basis))
        squares = square_sums(shifted_rows(basis, mean, 1.0, basis.dtype))
        spread = float(namespace_of(squares).sum(squares) / squares.shape[0]) ** 0.5
        return FixedPoint.of(space, mean, space.basis_rows(scores), spread, self.max_iter, tol)
