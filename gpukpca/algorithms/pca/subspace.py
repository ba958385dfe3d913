"""Points and the subspace of a fitted PCA: angles, projections and distances, panel by panel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.namespace import accumulation_dtype, cast, epsilon, move, namespace_of
from gpukpca.data.place import rows_at
from gpukpca.data.slicing import by_panels, dense_rows

# Up to this many eps of the largest entry of a row a centered value is rounding of the mean, and counts as 0.
ROUNDING = 4.0


@dataclass(frozen=True, eq=False)
class Subspace:
    """The points mean + Σ z_k v_k.

    Attributes
    ----------
    mean : array, shape (d,)
    axes : array, shape (p, d)
        Unit rows v_k.
    scale : array, shape (d,), or None
        Divisors of x - mean; lengths are those of rows that are divided by them.
    """

    mean: Array
    axes: Array
    scale: Array | None = None

    def moved(self, like: Array) -> Subspace:
        """Return the subspace where `like` lives."""
        return Subspace(*(None if a is None else move(a, like) for a in (self.mean, self.axes, self.scale)))

    def centered(self, rows: Array) -> Array:
        """Return (x - mean) / scale of dense rows, in the widest type."""
        return self._scaled(cast(rows, accumulation_dtype(rows)) - self._wide(self.mean)[None, :])

    def sizes(self, rows: Array) -> Array:
        """Return the largest entry of every row and of the mean, in the units of centered rows."""
        xp, wide = namespace_of(rows), accumulation_dtype(rows)
        return xp.max(self._scaled(xp.abs(cast(rows, wide)) + xp.abs(self._wide(self.mean))[None, :]), axis=1)

    def projected(self, centered: Array) -> Array:
        """Return the nearest points of the span of the axes to centered rows."""
        V = self._wide(self.axes)
        return (centered @ V.T) @ V

    def _scaled(self, rows: Array) -> Array:
        return rows if self.scale is None else rows / self._wide(self.scale)[None, :]

    def _wide(self, a: Array) -> Array:
        return cast(a, accumulation_dtype(a))


def of_rows_at(panel: Any, function: Callable[..., Array], space: Subspace, *arguments: Any) -> Array:
    """Return ``function(rows, space, *arguments)`` of a panel of rows, dense or CSR, where the subspace is."""
    return by_panels(rows_at(panel, space.axes), lambda rows, *_: function(dense_rows(rows), space, *arguments))


def squared_distances(rows: Array, space: Subspace) -> Array:
    """Return the squared distances of rows from the subspace, shape (n,)."""
    centered = space.centered(rows)
    left = centered - space.projected(centered)
    return namespace_of(left).sum(left * left, axis=1)


def nearest_points(rows: Array, space: Subspace) -> Array:
    """Return the nearest points of the subspace, in the units of the rows, shape (n, d)."""
    points = space.projected(space.centered(rows))
    points = points if space.scale is None else points * cast(space.scale, points.dtype)[None, :]
    return points + cast(space.mean, points.dtype)[None, :]


def cosines(rows: Array, space: Subspace, residual: bool) -> Array:
    """Return cos² of the angles between x - mean and the axes, and with `residual` the share outside of all."""
    xp, centered = namespace_of(rows), space.centered(rows)
    largest = xp.max(xp.abs(centered), axis=1)
    at_mean = largest <= ROUNDING * epsilon(space.axes) * space.sizes(rows)
    # Unit largest entries: no square overflows or vanishes.
    unit = centered / xp.where(at_mean, xp.ones_like(largest), largest)[:, None]
    scores = unit @ cast(space.axes, unit.dtype).T
    columns = [scores * scores]
    if residual:
        outside = unit - space.projected(unit)
        columns.append(xp.sum(outside * outside, axis=1)[:, None])
    norms = xp.sum(unit * unit, axis=1)
    norms = xp.where(at_mean, xp.ones_like(norms), norms)
    kept = xp.astype(xp.logical_not(at_mean), unit.dtype)
    return xp.concat(columns, axis=1) * (kept / norms)[:, None]
