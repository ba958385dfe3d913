"""The affine map of new points onto principal axes, where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.placement import panels_of
from gpukpca.backend import blocking
from gpukpca.backend.linalg import reciprocals
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    from_host,
    is_sparse,
    move,
    namespace_of,
    same_place,
    to_host,
)
from gpukpca.backend.rows import less_full_columns, take_rows
from gpukpca.covariance.dense import projected_rows


@dataclass(frozen=True)
class LinearMap:
    """scores(x) = (x - shift) A - b.

    Attributes
    ----------
    shift : array, shape (d,)
        The mean in the dtype of the data.
    axes : array, shape (d, p)
        A: components in units of the scale.
    offset : host array, shape (p,)
        b: what the shift lacks of the mean, projected.
    weights : array, shape (d,), or None
        1 / scale.
    inverse_roots : host array, shape (p,)
        1 / standard deviation of the scores, 0 where that is 0.
    """

    shift: Array
    axes: Array
    offset: np.ndarray
    weights: Array | None
    inverse_roots: np.ndarray

    @classmethod
    def of(cls, Z: Any, V: Array, deviations: np.ndarray) -> LinearMap:
        """Return the map of a fit of centered rows with the axes V (d, p) and the standard deviations of the scores."""
        xp = namespace_of(V)
        weights = None if Z.scale is None else from_host(1.0 / Z.scale, V)
        axes = V if weights is None else V * weights[:, None]
        shift = cast(Z.mean, V.dtype)
        # Not the mean less the shift: the mean of data with a large offset is rounded itself.
        rest = (cast(Z.shift, Z.wide) - cast(shift, Z.wide)) + Z.rest
        offset = xp.sum(rest[:, None] * cast(axes, Z.wide), axis=0)
        return cls(shift, xp.asarray(axes, copy=True), to_host(offset), weights, reciprocals(deviations))

    def scores(self, Y: Any, n_jobs: int | None) -> Array:
        """Scores of new rows, where the map is computed; host rows go there panel by panel."""
        if is_sparse(Y):
            axes, shift = cast(self.axes, np.float64), cast(self.shift, np.float64)
            deviations, subtracted = less_full_columns(Y, shift)
            constant = (shift - subtracted) @ axes + self.offset
            return cast(deviations @ axes - constant[None, :], self.axes.dtype)
        offset = from_host(self.offset, self.axes)
        if same_place(Y, self.axes):
            return projected_rows(Y, self.shift, self.axes, offset, n_jobs)
        parts = [
            projected_rows(move(take_rows(Y, *bounds), self.axes), self.shift, self.axes, offset, n_jobs)
            for bounds in panels_of(Y, blocking.PROJECTED_ROWS)
        ]
        return parts[0] if len(parts) == 1 else namespace_of(self.axes).concat(parts, axis=0)

    def whitened(self, scores: Array) -> Array:
        """Scores in units of their standard deviation; exactly 0 where that is 0."""
        return scores * from_host(self.inverse_roots, scores)[None, :]

    def scores_and_distances(self, Y: Any, components: Array, n_jobs: int | None) -> tuple[Array, Array]:
        """Return scores of new rows, and their squared distances from the space of the components: (m, p) and (m,).

        `components` are orthonormal rows (p, d). The distances are in the widest type.
        """
        xp, wide, distances = namespace_of(self.axes), accumulation_dtype(self.axes), []
        scores = self.scores(Y, n_jobs)
        for start, stop in panels_of(Y, blocking.WIDE_PROJECTED_ROWS):
            rows = take_rows(Y, start, stop)
            rows = rows.toarray() if is_sparse(rows) else move(rows, self.axes)
            centered = cast(rows, self.axes.dtype) - self.shift[None, :]
            centered = centered if self.weights is None else centered * self.weights[None, :]
            off = centered - scores[start:stop, :] @ components
            off = cast(off, wide)
            distances.append(xp.sum(off * off, axis=1))
        return scores, xp.concat(distances, axis=0)


def scores_of_panel(panel: Array, mapping: LinearMap) -> np.ndarray:
    """Scores of rows on a worker of a cluster, on the host."""
    return to_host(mapping.scores(panel, 1))
