"""The affine map of new points onto principal axes, where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import cast, from_host, is_numpy, is_sparse, move, namespace_of, same_place, to_host
from gpukpca.backend.rows import take_rows
from gpukpca.decomposition.model import inverse_roots
from gpukpca.decomposition.placement import panels_of
from gpukpca.gram.feature_rows import projected_rows

# Rows of the host that go to a device together; rows whose square norms are made together.
HOST_PANEL = 65_536
WIDE_PANEL = 1024


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
    def of(cls, Z: Any, V: Array, variances: np.ndarray) -> LinearMap:
        """The map of a fit of centred rows with the axes V (d, p)."""
        xp = namespace_of(V)
        mean = from_host(Z.mean, Z.like, Z.wide) if is_numpy(Z.mean) else Z.mean
        weights = None if Z.weights is None else from_host(to_host(Z.weights), V)
        axes = V if weights is None else V * weights[:, None]
        shift = cast(mean, V.dtype)
        rest = cast(mean, Z.wide) - cast(shift, Z.wide)
        offset = xp.sum(rest[:, None] * cast(axes, Z.wide), axis=0)
        return cls(shift, xp.asarray(axes, copy=True), to_host(offset), weights, inverse_roots(variances))

    def scores(self, Y: Any, n_jobs: int | None) -> Array:
        """Scores of new rows, where the map is computed; host rows go there panel by panel."""
        if is_sparse(Y):
            wide = cast(self.axes, np.float64)
            constant = cast(self.shift, np.float64) @ wide + self.offset
            return cast(cast(Y, np.float64) @ wide - constant[None, :], self.axes.dtype)
        offset = from_host(self.offset, self.axes)
        if same_place(Y, self.axes):
            return projected_rows(Y, self.shift, self.axes, offset, n_jobs)
        parts = [
            projected_rows(move(take_rows(Y, *bounds), self.axes), self.shift, self.axes, offset, n_jobs)
            for bounds in panels_of(Y, HOST_PANEL)
        ]
        return parts[0] if len(parts) == 1 else namespace_of(self.axes).concat(parts, axis=0)

    def whitened(self, scores: Array) -> Array:
        """Scores in units of their standard deviation; exactly 0 where that is 0."""
        return scores * from_host(self.inverse_roots, scores)[None, :]

    def scores_and_distances(self, Y: Any, components: Array, n_jobs: int | None) -> tuple[Array, Array]:
        """Scores of new rows, and how far they are from the space of the components, squared: (m, p) and (m,).

        `components` are orthonormal rows (p, d).
        """
        xp, distances = namespace_of(self.axes), []
        scores = self.scores(Y, n_jobs)
        for start, stop in panels_of(Y, WIDE_PANEL):
            rows = take_rows(Y, start, stop)
            rows = rows.toarray() if is_sparse(rows) else move(rows, self.axes)
            centered = cast(rows, self.axes.dtype) - self.shift[None, :]
            centered = centered if self.weights is None else centered * self.weights[None, :]
            off = centered - scores[start:stop, :] @ components
            distances.append(xp.sum(off * off, axis=1))
        return scores, xp.concat(distances, axis=0)


def scores_of_panel(panel: Array, mapping: LinearMap) -> np.ndarray:
    """Scores of rows on a worker of a cluster, on the host."""
    return to_host(mapping.scores(panel, 1))
