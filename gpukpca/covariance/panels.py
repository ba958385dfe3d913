"""The centered matrix of rows in panels: each panel is a `DenseCenteredMatrix` about one shift, a product a fold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import cast, empty_like, move, namespace_of, overflow_allowed, to_host
from gpukpca.backend.orthogonalization import joined_triangle
from gpukpca.covariance.centered_matrix import OF_MISSING, CenteredMatrix, mean_of_sample
from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.rows import Merge, Rows, gathered
from gpukpca.data.statistics import outer_bounds


@dataclass(frozen=True)
class CenteringSpec:
    """The shift, mean and multipliers that all panels share; see `CenteredMatrix`."""

    by_rows: bool
    n_jobs: int | None
    shift: Array
    rest: Array | None
    multipliers: Array | None
    center: bool
    count: float

    def rows(self, panel: Array, roots: Array | None = None) -> DenseCenteredMatrix:
        """Return the centered matrix of a panel, where that is; `roots` are those of the frequencies of its rows."""
        frequencies = None if roots is None else Frequencies(move(roots, panel), self.count)
        shift = move(self.shift, panel)
        rows = DenseCenteredMatrix(panel, self.by_rows, self.n_jobs, shift, self.center, frequencies)
        rows.rest = None if self.rest is None else cast(move(self.rest, panel), rows.wide)
        rows.multipliers = None if self.multipliers is None else cast(move(self.multipliers, panel), rows.wide)
        return rows


class PanelCenteredMatrix(CenteredMatrix):
    """Rows in panels less their mean, in units of a scale; see `CenteredMatrix`.

    Parameters
    ----------
    rows : Rows
    by_rows : bool
        Whether panels are read in blocks of rows, else of columns.
    shift : array, shape (d,), optional
        The mean of some rows, in their dtype.
    n_jobs : int, optional
        Threads of a panel; one where `rows.threads` work on panels.
    center : bool
        False: the mean, and the shift, are 0.
    frequencies : Frequencies, optional
        Of the rows.

    Notes
    -----
    Sums are made in the widest type, in the fixed order of `Rows.fold`. Every product reads all panels once. Results
    are where `rows.like` is.
    """

    def __init__(
        self,
        rows: Rows,
        by_rows: bool,
        shift: Array | None = None,
        n_jobs: int | None = None,
        center: bool = True,
        frequencies: Frequencies | None = None,
    ) -> None:
        self.source = rows
        self._roots = None if frequencies is None else rows.split(frequencies.roots)
        self.by_rows = by_rows
        # One thread where a panel has one of many: there are more panels than threads.
        self.n_jobs: int | None = n_jobs if rows.threads is None else 1
        self._set_rows(rows.shape, empty_like(rows.like), center, frequencies)
        if shift is None:
            shift = cast(mean_of_sample(rows.sample(), self.wide), self.dtype)
        is_of_all = center and not (frequencies is not None and frequencies.skips_rows)
        self.shift: Array = shift if is_of_all else namespace_of(shift).zeros_like(shift)

    def check_entries(self) -> None:
        """Raise where an entry is not finite, unless panels were checked as they came."""
        if not self.source.is_checked:
            check_finite(self.source, FINITE, of_missing=OF_MISSING)

    def bounds(self) -> tuple[Array, Array]:
        bounds: tuple[Array, Array] = self._sum("bounds", merge=outer_bounds)
        return bounds

    @property
    def _spec(self) -> CenteringSpec:
        shift, rest, multipliers = self.shift, self.rest, self.multipliers
        return CenteringSpec(self.by_rows, self.n_jobs, shift, rest, multipliers, self.center, self.count)

    def _sum(self, method: str, *blocks: Array, merge: Merge | None = None) -> Any:
        """Return the merged results of a method of all panels."""
        merge = merge or partial(sum_of_results, plus=self.source.plus)
        return self.source.fold(method_of_panel, self._roots, self._spec, method, *blocks, merge=merge)

    # -- products ------------------------------------------------------------------------------------------------------

    def times(self, V: Array) -> Array:
        self.measure()
        return self.source.joined(method_of_panel, self._roots, self._spec, "times", V)

    def adjoint(self, U: Array) -> Array:
        self.measure()
        return cast(self.source.fold(adjoint_of_panel, self.source.split(U), self._roots, self._spec), self.dtype)

    def scatter_times(self, V: Array) -> Array:
        self.measure()
        return cast(self._sum("wide_scatter_times", V), self.dtype) if self.by_rows else self.adjoint(self.times(V))

    def triangle(self, V: Array) -> np.ndarray:
        """Return R of Z V = Q R, by QR of the panels and of their R; Z V is never stored."""
        self.measure()
        R: np.ndarray = self._sum("triangle", V, merge=joined_triangle)
        return R

    def own_triangle(self) -> np.ndarray:
        self.measure()
        R: np.ndarray = self._sum("own_triangle", merge=joined_triangle)
        return R

    def materialized(self) -> None:
        """Return None: no process holds Z."""

    # -- matrices ------------------------------------------------------------------------------------------------------

    def moments(self) -> Array:
        return self._sum("moments")

    def scatter_and_sums(self) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self._sum("scatter_and_sums")
        return found

    def shifted_gram(self) -> Array:
        """Return the products of the shifted rows, of rows that are few beside their features: all are read at once."""
        roots = None if self.frequencies is None else self.frequencies.roots
        shared = self.source.pairs(products_of_rows, self._spec, roots)
        if shared is not None:
            return shared
        return self._spec.rows(gathered(self.source), roots).shifted_gram()


def method_of_panel(panel: Array, roots: Array | None, spec: CenteringSpec, method: str, *blocks: Array) -> Any:
    """Return the result of a method of `DenseCenteredMatrix` of a panel."""
    return getattr(spec.rows(panel, roots), method)(*(move(block, panel) for block in blocks))


def adjoint_of_panel(panel: Array, U: Array, roots: Array | None, spec: CenteringSpec) -> Array:
    """Return Zᵀ U of a panel and its rows of U, wide."""
    return spec.rows(panel, roots).wide_adjoint(move(U, panel))


def products_of_rows(shared: tuple[CenteringSpec], *parts: Array) -> np.ndarray:
    """Return the products of the rows of two panels, on the host; the roots of their frequencies may follow each."""
    one, other = parts[: len(parts) // 2], parts[len(parts) // 2 :]
    with device_context(one[0]), overflow_allowed():
        rows = shared[0].rows(*one)
        return to_host(rows.products_with(rows if other[0] is one[0] else shared[0].rows(*other)))


def sum_of_results(a: Any, b: Any, plus: Merge) -> Any:
    """Return the sum of two arrays, or of two tuples of them."""
    return tuple(map(plus, a, b)) if isinstance(a, tuple) else plus(a, b)
