"""Rows in the units of a fit: less their mean, times a power of two, in the widest type, by panels.

A large offset costs no digits, squares neither overflow nor underflow, and no wide copy of all rows is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from functools import reduce
from typing import TypeVar

import numpy as np

from gpukpca._typing import Array, Indices
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import Scratch
from gpukpca.backend.namespace import accumulation_dtype, cast, concat, from_host, full, move, to_host
from gpukpca.backend.orthogonalization import orthonormal_factors
from gpukpca.backend.parallel import map_in_order, row_slices, sum_over, worker_count
from gpukpca.covariance.moments import Moments, moments_and_rows
from gpukpca.data.frequencies import Frequencies, number_of
from gpukpca.data.scale import check_entries, power_of_two_scale, row_bounds
from gpukpca.data.slicing import gather_rows, take_rows
from gpukpca.data.statistics import half_range

Result = TypeVar("Result")


@record(eq=False)
class RowScaling:
    """The units of a fit: a row x becomes ``factor x - shift``."""

    shift: Array = field_of("d", "in the widest type, where it is computed")
    factor: float = field_of("", "a power of two", "positive")
    variance: float = field_of(
        "", "mean variance of a feature over n, in these units; 0 where all rows are equal", "nonnegative"
    )

    @classmethod
    def of(cls, X: Array, like: Array, often: np.ndarray | None = None) -> RowScaling:
        """Return the scaling of the rows X, each `often` (n,) times there, for work where `like` is."""
        wide, (n, d) = accumulation_dtype(X), map(int, X.shape)
        panels = row_slices(n, mixture_panel_rows(d, 1, is_on_gpu(X)))
        low, high = row_bounds(take_rows(X, *panel) for panel in panels)
        factor = power_of_two_scale(half_range(low, high), wide)
        check_entries(low, high, factor, wide)

        def moments_of(panel: tuple[int, int]) -> Moments:
            own = None if often is None else Frequencies.of(often[slice(*panel)], X)
            return moments_and_rows(cast(take_rows(X, *panel), wide) * factor, frequencies=own)[0]

        moments = reduce(Moments.merged, map(moments_of, panels))
        variance = float(np.sum(to_host(moments.squares).astype(np.float64))) / (moments.count * d)
        return cls(move(moments.mean, like), factor, variance)

    def rows(self, X: Array) -> Array:
        """Return rows (m, d) of data in these units, where it is computed."""
        rows = cast(move(X, self.shift), self.shift.dtype)
        return rows * self.factor - self.shift[None, :]

    def in_data_units(self, rows: Array) -> Array:
        """Return rows of these units in those of the data."""
        return (rows + self.shift[None, :]) / self.factor


def mixture_panel_rows(width: int, least: int, on_gpu: bool) -> int:
    """Return the rows of a panel of so many columns."""
    entries = blocking.MIXTURE_ENTRIES.on(on_gpu)
    return max(blocking.SMALLEST_MIXTURE_PANEL, least, entries // max(1, width))


def workers_for(shape: tuple[int, int], like: Array, n_jobs: int | None) -> int:
    """Return the workers for rows (n, d) that are computed where `like` is."""
    n, d = shape
    return worker_count(like, n_jobs, n * d * (d + blocking.ENTRY_PASS))


@dataclass(eq=False)
class ScaledRows:
    """Rows X (n, d) in the units of a scaling, computed panel by panel with threads; X is not copied.

    The data have `missing` directions beyond the d of X, in which all rows are 0. Each row is `often` (n,) times there.

    Attributes
    ----------
    count : float
        The number of rows that these stand for.
    """

    X: Array
    frame: RowScaling
    n_jobs: InitVar[int | None] = None
    missing: int = 0
    often: np.ndarray | None = None

    def __post_init__(self, n_jobs: int | None) -> None:
        often = self.often
        self._weights: Array | None = None if often is None else from_host(often, self.like)
        self.shape: tuple[int, int] = (int(self.X.shape[0]), int(self.X.shape[1]))
        self.count: float = self.shape[0] if often is None else number_of(float(np.sum(often)))
        self.workers: int = workers_for(self.shape, self.like, n_jobs)

    @property
    def like(self) -> Array:
        """Return an array in the library, dtype and device of the work."""
        return self.frame.shift

    @property
    def true_width(self) -> int:
        """Return the number of features of the data."""
        return self.shape[1] + self.missing

    def times(self, values: Array, start: int = 0) -> Array:
        """Return numbers (b,) or (b, k) of the rows from `start`, times how often each is there."""
        if self._weights is None:
            return values
        often = self._weights[start : start + int(values.shape[0])]
        return values * (often if values.ndim == 1 else often[:, None])

    def take(self, chosen: Indices) -> Array:
        """Return the rows at positions."""
        return self.frame.rows(gather_rows(self.X, chosen))

    def map_panels(self, work: Callable[[Array, int], Result]) -> list[Result]:
        """Return ``work(rows, start)`` of every panel of rows, in their order."""
        bounds = row_slices(self.shape[0], self._panel(1)) or [(0, 0)]
        return map_in_order(lambda b: work(self.frame.rows(take_rows(self.X, *b)), b[0]), bounds, self.workers)

    def concatenate(self, work: Callable[[Array], Array]) -> Array:
        """Return ``work(rows)`` of all panels, one below the other."""
        parts = self.map_panels(lambda rows, _: work(rows))
        return concat(parts)

    def sum_panels(self, work: Callable[[Array, int, int], Array], chosen: Array, workers: int) -> Array:
        """Return the sum of ``work(rows, start, stop)`` over panels of chosen rows; start and stop count among these.

        Every worker has one sum. A panel has so many rows that adding d x d matrices costs less than computing them.
        """
        count = int(chosen.shape[0])

        def part(start: int, stop: int, _: Scratch) -> Array:
            every = count == self.shape[0]
            X = take_rows(self.X, start, stop) if every else gather_rows(self.X, chosen[start:stop])
            return work(self.frame.rows(X), start, stop)

        return sum_over(part, row_slices(count, self._panel(3 * self.shape[1])), workers, self.like)

    def _panel(self, least: int) -> int:
        """Return the rows of a panel."""
        return mixture_panel_rows(self.shape[1], least, is_on_gpu(self.like))


def rotate_into_span(points: ScaledRows, p: int) -> tuple[ScaledRows, Array]:
    """Return the rows in an orthonormal basis Q (d, r) of their span, p <= r <= n < d, and Q.

    QR of the rows keeps small directions, which a Gram matrix would square and lose.
    """
    like = points.like
    columns = points.concatenate(lambda rows: rows).T
    Q, R = orthonormal_factors(columns, least=p)
    coordinates = from_host(np.ascontiguousarray(R.T), like)
    r = len(R)
    frame = RowScaling(full((r,), 0.0, like), 1.0, points.frame.variance)
    spanned = ScaledRows(coordinates, frame, None, points.shape[1] - r, points.often)
    spanned.workers = points.workers
    return spanned, Q
