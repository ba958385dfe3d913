"""The centered matrix of one dense array: products by blocks, without Z itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import combinations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import Scratch, add, difference, multiply
from gpukpca.backend.linalg import column_sums, row_products, symmetric_from_upper
from gpukpca.backend.namespace import cast, concat, empty_like, full, is_numpy, namespace_of
from gpukpca.backend.orthogonalization import joined_triangle, orthonormal_factors
from gpukpca.backend.parallel import (
    assemble_rows,
    even_slices,
    fold_over,
    map_in_order,
    map_tiles,
    sum_over,
    worker_count,
)
from gpukpca.covariance.centered_matrix import OF_MISSING, CenteredMatrix, mean_of_sample
from gpukpca.data.finite import FINITE, check_finite
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.rows import sampling_step
from gpukpca.data.slicing import row_panels
from gpukpca.data.statistics import feature_bounds, outer_bounds

# Rows of a panel of which a d x d product is formed, in units of d, and columns of one of an n x n product.
SQUARES = 3


class DenseCenteredMatrix(CenteredMatrix):
    """The rows of a dense X less their mean, weighted; see `CenteredMatrix`.

    Parameters
    ----------
    X : array, shape (n, d)
        Not copied, not changed; a memory map is read block by block.
    by_rows : bool
        Blocks consist of rows, else of columns: along the longer side.
    n_jobs : int, optional
        Threads (NumPy only).
    shift : array, shape (d,), optional
        Is subtracted before any product; default: the mean of some rows.
    center : bool
        False: the mean, and the shift, are 0.
    frequencies : Frequencies, optional
        Of the rows.
    """

    def __init__(
        self,
        X: Array,
        by_rows: bool,
        n_jobs: int | None = None,
        shift: Array = None,
        center: bool = True,
        frequencies: Frequencies | None = None,
    ) -> None:
        self.X = X
        self.by_rows = by_rows
        self._set_rows(X.shape, empty_like(X), center, frequencies)
        self.n_jobs = n_jobs
        self._skips_rows: bool = frequencies is not None and frequencies.skips_rows
        if shift is None and center and not self._skips_rows:
            shift = cast(mean_of_sample(X[:: sampling_step(*self.shape), :], self.wide), X.dtype)
        self.shift: Array = full((self.shape[1],), 0.0, self.like) if shift is None else shift

    def check_entries(self) -> None:
        check_finite(self.X, FINITE, of_missing=OF_MISSING)

    def moments(self) -> Array:
        return self._summed(self._moments, 0) if self.by_rows else self._joined(self._moments, 0)

    def _moments(self, start: int, stop: int, scratch: Scratch | None = None) -> Array:
        """Return sums and sums of squares of the shifted columns of a block, shape (2, ...)."""
        xp = self.xp
        block = cast(self._shifted(start, stop, scratch), self.wide)
        ones = cast(full((1, int(block.shape[0])), 1.0, self.like), self.wide)
        if self.frequencies is not None:
            roots = self.frequencies.roots[slice(start, stop) if self.by_rows else slice(None), :]
            ones = (roots * roots).T
        return xp.concat([ones @ block, ones @ multiply(block, block)], axis=0)

    def times(self, V: Array) -> Array:
        self.measure()
        W, constant = cast(V, self.dtype), self._product_of_rest(V)
        if self.by_rows:
            lost = cast(constant, self.dtype)
            return self._joined(lambda a, b: self.rooted(add(self._shifted(a, b) @ W, -lost), a, b), W.shape[1], axis=0)
        product = self._summed(lambda a, b, scratch: self._shifted(a, b, scratch) @ W[a:b, :], W.shape[1])
        return cast(self.rooted(product - constant), self.dtype)

    def _product_of_rest(self, V: Array) -> Array:
        """Return the product of the rest of the mean with V (d, b), wide, shape (1, b)."""
        rest = self.multiplied(self.rest)
        return self.xp.sum(rest[:, None] * cast(V, self.wide), axis=0)[None, :]

    def adjoint(self, U: Array) -> Array:
        return cast(self.wide_adjoint(U), self.dtype)

    def wide_adjoint(self, U: Array) -> Array:
        """Return Zᵀ U in the widest type."""
        self.measure()
        U = self.rooted(U)
        sums, columns = column_sums(U), U.shape[1]
        U = cast(U, self.dtype)
        if self.by_rows:

            def part(start: int, stop: int, scratch: Scratch) -> Array:
                return self._shifted(start, stop, scratch).T @ U[start:stop, :]

            Y = self._summed(part, columns)
        else:
            parts = self._joined(lambda a, b: self._shifted(a, b).T @ U, columns, axis=0)
            Y = cast(parts, self.wide)
        return Y - self.multiplied(self.rest)[:, None] * sums[None, :]

    def scatter_times(self, V: Array) -> Array:
        return cast(self.wide_scatter_times(V), self.dtype) if self.by_rows else self.adjoint(self.times(V))

    def wide_scatter_times(self, V: Array) -> Array:
        """Return ZᵀZ V in the widest type, where blocks are rows."""
        self.measure()
        W, lost = cast(V, self.dtype), cast(self._product_of_rest(V), self.dtype)

        def part(start: int, stop: int, scratch: Scratch) -> Array:
            block = self._shifted(start, stop, scratch)
            rooted = self.rooted(add(block @ W, -lost), start, stop)
            return block.T @ self.rooted(rooted, start, stop)

        # Where there is a rest of the mean, the columns of Z V sum to zero: the left factor needs no correction for it.
        return self._summed(part, 2 * W.shape[1])

    def gram_times(self, U: Array) -> Array:
        if self.by_rows:
            return self.times(self.adjoint(U))
        U = cast(self.rooted(U), self.dtype)

        def part(start: int, stop: int, scratch: Scratch) -> Array:
            block = self._shifted(start, stop, scratch)
            return block @ (block.T @ U)

        W = self._summed(part, 2 * U.shape[1])  # of the shifted data; centering removes the rest of the mean
        return cast(self.without_mean(self.rooted(W)), self.dtype)

    def triangle(self, V: Array) -> np.ndarray:
        """Return R of Z V = Q R on the host in float64, by QR of blocks of rows and of their R."""
        self.measure()
        W, lost = cast(V, self.dtype), cast(self._product_of_rest(V), self.dtype)

        def part(start: int, stop: int, scratch: Scratch) -> np.ndarray:
            product = add(self._shifted(start, stop, scratch, by_rows=True) @ W, -lost)
            return orthonormal_factors(self.rooted(product, start, stop))[1]

        workers = self._workers(3 * W.shape[1])
        blocks = self._blocks(workers, by_rows=True)

        R: np.ndarray = fold_over(part, joined_triangle, lambda R: R, blocks, workers, self.like)
        return R

    def scatter_and_sums(self) -> tuple[Array, Array]:
        xp, d = self.xp, self.shape[1]
        workers = self._workers(d)

        def part(start: int, stop: int, scratch: Scratch) -> tuple[Array, Array]:
            block = self._shifted(start, stop, scratch, by_rows=True)
            ones = full((1, stop - start), 1.0, self.like)
            if self.frequencies is not None:
                roots = cast(self.frequencies.roots[start:stop, :], self.dtype)
                block, ones = multiply(block, roots), roots.T
            columns = block.T
            return row_products(columns, columns, scratch.place("product", (d, d))), (ones @ block)[0, :]

        S, sums = fold_over(
            part,
            lambda total, piece: (add(total[0], piece[0]), add(total[1], piece[1])),
            lambda piece: (xp.astype(piece[0], self.wide), cast(piece[1], self.wide)),
            self._panels(workers, by_rows=True),
            workers,
            self.like,
        )
        return _symmetric(S), sums

    def shifted_gram(self) -> Array:
        shared = self.shape[0] > blocking.PRIVATE_SCATTER_UP_TO and is_numpy(self.like)
        return self._gram_by_tiles() if shared else _symmetric(self.products_with(self))

    def products_with(self, other: DenseCenteredMatrix) -> Array:
        """Return the products of the shifted rows with other rows about the same shift, shape (n, m), wide."""
        shape = self.shape[0], other.shape[0]
        workers = self._workers(shape[1])

        def part(start: int, stop: int, scratch: Scratch) -> Array:
            own = self._shifted(start, stop, scratch, by_rows=False)
            block = own if other is self else other._shifted(start, stop, by_rows=False)
            return row_products(own, block, scratch.place("product", shape))

        return sum_over(part, self._panels(workers, by_rows=False), workers, self.like)

    def _gram_by_tiles(self) -> Array:
        """Return the products by upper tiles of one sum, which all workers share."""
        n, d = self.shape
        workers, edge = self._workers(n), blocking.SCATTER_TILE_EDGE
        G, rows = np.zeros((n, n)), [slice(*bounds) for bounds in even_slices(n, edge, workers)]
        # The tiles on the diagonal, which take half of the time, come last, so that all workers end together.
        tiles = [*combinations(range(len(rows)), 2), *((i, i) for i in range(len(rows)))]

        def add_block(columns: slice) -> None:
            parts = map_in_order(lambda part: self._deviations(part, columns), rows, workers)

            def add_tile(tile: tuple[int, int]) -> None:
                i, j = tile
                G[rows[i], rows[j]] += row_products(parts[i], parts[j])

            map_tiles(add_tile, tiles, workers)

        for bounds in even_slices(d, 2 * edge, 1):
            add_block(slice(*bounds))
        return symmetric_from_upper(G, np.diagonal(G).copy())

    def materialized(self) -> Array:
        self.measure()
        rest = cast(self.multiplied(self.rest), self.dtype)

        def centered(start: int, stop: int) -> Array:
            columns, rows = (slice(None), (start, stop)) if self.by_rows else (slice(start, stop), ())
            return self.rooted(add(self._shifted(start, stop), -rest[None, columns]), *rows)

        return self._joined(centered, 0, axis=0 if self.by_rows else 1)

    def bounds(self) -> tuple[Array, Array]:
        panels = (self._entries(slice(*panel), slice(None)) for panel in row_panels(self.X))
        return reduce(outer_bounds, map(feature_bounds, panels))

    def _workers(self, columns: int) -> int:
        """Return the workers for a product with so many columns; with 0 for a pass over the entries."""
        n, d = self.shape
        return worker_count(self.like, self.n_jobs, n * d * (columns + blocking.ENTRY_PASS))

    def _blocks(self, workers: int, by_rows: bool | None = None) -> list[tuple[int, int]]:
        by_rows = self.by_rows if by_rows is None else by_rows
        length, other = self.shape if by_rows else self.shape[::-1]
        return even_slices(length, block_length(other, by_rows, is_on_gpu(self.like)), workers)

    def _panels(self, workers: int, by_rows: bool) -> list[tuple[int, int]]:
        """Return long blocks, of which square products are formed: these take much longer than their sums."""
        length, size = self.shape if by_rows else self.shape[::-1]
        fitting = block_length(size, by_rows, is_on_gpu(self.like))
        longest = max(fitting, min(SQUARES * size, blocking.LONGEST_SCATTER_PANEL.cpu))
        return even_slices(length, longest, workers)

    def _shifted(self, start: int, stop: int, scratch: Scratch | None = None, by_rows: bool | None = None) -> Array:
        """Return a block of X less the shift, weighted, in memory of `scratch` or in a new array."""
        block, whole = slice(start, stop), slice(None)
        by_rows = self.by_rows if by_rows is None else by_rows
        shape = (stop - start, self.shape[1]) if by_rows else (self.shape[0], stop - start)
        place = None if scratch is None else scratch.place("block", shape)
        return self._deviations(block, whole, place) if by_rows else self._deviations(whole, block, place)

    def _deviations(self, rows: slice, columns: slice, place: Array | None = None) -> Array:
        """Return some columns of some rows less the shift, multiplied."""
        block, by = difference(self._entries(rows, columns), self.shift[None, columns], place), self.multipliers
        return block if by is None else multiply(block, cast(by[columns], self.dtype)[None, :])

    def _entries(self, rows: slice, columns: slice) -> Array:
        """Return some columns of some rows of X, with the shift for rows that do not count: they may be huge."""
        block, frequencies = self.X[rows, columns], self.frequencies
        if frequencies is None or not self._skips_rows:
            return block
        return self.xp.where(frequencies.roots[rows, :] > 0.0, block, self.shift[None, columns])

    def _summed(self, part: Callable[[int, int, Scratch], Array], columns: int) -> Array:
        """Return the sum of ``part(start, stop, scratch)``, a product with so many columns, over all blocks, wide."""
        workers = self._workers(columns)
        return sum_over(part, self._blocks(workers), workers, self.like)

    def _joined(self, part: Callable[[int, int], Array], columns: int, axis: int = 1) -> Array:
        """Join ``part(start, stop)``, a product with so many columns, of all blocks."""
        workers = self._workers(columns)
        parts = map_in_order(lambda block: part(*block), self._blocks(workers), workers)
        return concat(parts, axis)


def block_length(other: int, by_rows: bool, on_gpu: bool) -> int:
    """Return the most rows of a block with `other` columns, or without `by_rows` the most columns with `other` rows."""
    fewest = blocking.FEWEST_SCATTER_ROWS if by_rows and not on_gpu else blocking.FEWEST_SCATTER_COLUMNS
    fitting = max(fewest, blocking.SCATTER_ENTRIES.on(on_gpu) // max(1, other))
    return min(fitting, blocking.LONGEST_SCATTER_PANEL.on(on_gpu))


def _symmetric(S: Array) -> Array:
    """Return a sum of products of blocks with their own transposes, exactly symmetric, as NumPy's are already."""
    return S if is_numpy(S) else symmetric_from_upper(S, namespace_of(S).linalg.diagonal(S))


def projected_rows(Y: Array, shift: Array, axes: Array, offset: Array, n_jobs: int | None = None) -> Array:
    """Return (Y - shift) axes - offset, shape (m, p), in the dtype of `axes` (d, p), by panels of rows with threads.

    The shift (d,) is subtracted first, so that a large offset costs no digits. `offset` (p,) is the projection of the
    mean minus the shift.
    """
    workers = worker_count(Y, n_jobs, Y.shape[0] * Y.shape[1] * (axes.shape[1] + blocking.ENTRY_PASS))
    entries = blocking.SCATTER_ENTRIES.on(is_on_gpu(Y))
    rows = max(blocking.FEWEST_PROJECTED, entries // max(1, int(Y.shape[1])))
    panels = even_slices(int(Y.shape[0]), rows, workers) or [(0, 0)]
    weights, lost = axes.T, -offset[None, :]

    def panel(start: int, stop: int, part: Array | None) -> Array:
        return add(row_products(cast(Y[start:stop, :], axes.dtype) - shift[None, :], weights, part), lost)

    return assemble_rows(panel, panels, (int(Y.shape[0]), int(axes.shape[1])), axes, workers)
