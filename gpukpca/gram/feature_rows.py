"""Z = (X - 1 mᵀ) D, rows less their mean in units of a scale: its products, block by block; Z itself is never made.

Data are shifted before anything is multiplied, so that a large offset cancels exactly. The shift is the mean of some
rows in the dtype of X; how far the true mean is from it is measured in the widest type on the way, and corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.creation import full, writable
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.elementwise import add
from gpukpca.backend.linalg import column_sums, subtract_outer_product, subtract_outer_sum, symmetric_from_upper
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    empty_like,
    from_host,
    is_numpy,
    namespace_of,
    to_host,
)
from gpukpca.backend.orthonormal import orthonormal_factors
from gpukpca.backend.rows import pick_rows
from gpukpca.backend.tiles import dealt_back, map_tiles, worker_count
from gpukpca.gram.residence import edges

# Entries of a block: 2 MiB in float32, which stays in a core's cache with its product.
BLOCK_ENTRIES = 2**19
# On a device launches are dear.
GPU_BLOCK_ENTRIES = 2**25
# Sums of more terms than this would lose digits in float32 before they are added up in float64.
LONGEST, LONGEST_ON_GPU = 4096, 65_536
# Rows of a block of which a d x d product is made, in units of d.
SQUARES = 3
FEWEST_ROWS, FEWEST_COLUMNS, FEWEST_PROJECTED = 256, 1024, 32
# Up to this size every worker has a sum of its own; beyond it they share tiles of one.
PRIVATE_UP_TO = 2048
TILE_EDGE = 1024
# Most and fewest rows whose mean is the shift.
SAMPLED, FEWEST_SAMPLED = 1000, 16
# Σ(x - shift)² may exceed Σ(x - mean)² by this factor before the sums are made again about the mean that was found.
MOST_CANCELLED = 20.0


class FeatureRows:
    """The rows of a dense X less their mean, in units of `scale`.

    Parameters
    ----------
    X : array, shape (n, d)
        Not copied, not changed; a memory map is read block by block.
    by_rows : bool
        Blocks are made of rows, else of columns: along the longer side.
    n_jobs : int, optional
        Threads (NumPy only).

    Attributes
    ----------
    shape : (n, d)
    dtype, like
        Of X.
    wide : dtype
        The widest floating type there.
    mean : array, shape (d,), wide
    squares : host array, shape (d,)
        Sums of squares about the mean, in the units of X.
    noise_scale : float
        0: nothing large is cancelled.
    """

    noise_scale = 0.0

    def __init__(self, X: Array, by_rows: bool, n_jobs: int | None = None) -> None:
        self.X, self.by_rows = X, by_rows
        self.shape = (int(X.shape[0]), int(X.shape[1]))
        self.dtype = X.dtype
        self.like = empty_like(X)
        self.wide = accumulation_dtype(X)
        self.workers = worker_count(self.like, n_jobs)
        self.weights: Array | None = None
        self.squares: np.ndarray = np.zeros(0)
        self.shift = cast(_sampled_mean(X, self.wide), X.dtype)
        self.rest: Array = None  # not known yet

    # -- mean and scale ------------------------------------------------------------------------------------------------

    @property
    def mean(self) -> Array:
        self.measure()
        return cast(self.shift, self.wide) + self.rest

    def measure(self) -> None:
        """Find mean and squares, in one sweep over X; nothing where they are known."""
        if self.rest is not None:
            return
        n = self.shape[0]
        xp = namespace_of(self.like)
        for may_shift in (True, False):
            sums = self._joined(self._moments) if not self.by_rows else self._summed(self._moments)
            rest, raw = sums[0, :] / n, to_host(sums[1, :]).astype(np.float64)
            found = np.maximum(raw - n * to_host(rest).astype(np.float64) ** 2, 0.0)
            if not (may_shift and _cancelled(raw, found)):
                break
            self.shift = cast(cast(self.shift, self.wide) + rest, self.dtype)
        self.rest, self.squares = xp.asarray(rest, copy=True), found

    def _moments(self, start: int, stop: int) -> Array:
        """Sums and sums of squares of the shifted columns, shape (2, ...)."""
        xp = namespace_of(self.like)
        block = cast(self._shifted(start, stop), self.wide)
        return xp.stack([xp.sum(block, axis=0), xp.sum(block * block, axis=0)])

    def rescale(self, scale: np.ndarray) -> None:
        """Divide every feature by its entry of a host array (d,) from here on."""
        self.weights = from_host(1.0 / scale, self.like, self.wide)

    @property
    def total(self) -> float:
        """The sum of the squares of all entries of Z."""
        self.measure()
        weights = 1.0 if self.weights is None else to_host(self.weights).astype(np.float64)
        return float(np.sum(self.squares * weights**2))

    @property
    def size(self) -> float:
        """n ‖m‖² in the units of Z: the size of what is cancelled if the data are given with their mean."""
        mean = to_host(self._weighted(self.mean)).astype(np.float64)
        with np.errstate(over="ignore"):
            return self.shape[0] * float(np.sum(mean**2))

    # -- products ------------------------------------------------------------------------------------------------------

    def times(self, V: Array) -> Array:
        """Z V for V (d, b), shape (n, b)."""
        self.measure()
        V = self._weighted(cast(V, self.wide))
        W = cast(V, self.dtype)
        constant = namespace_of(V).sum(self.rest[:, None] * V, axis=0)
        if self.by_rows:
            lost = cast(constant, self.dtype)[None, :]
            return self._joined(lambda a, b: add(self._shifted(a, b) @ W, -lost), axis=0)
        return cast(self._summed(lambda a, b: self._shifted(a, b) @ W[a:b, :]) - constant[None, :], self.dtype)

    def adjoint(self, U: Array) -> Array:
        """Zᵀ U for U (n, b), shape (d, b)."""
        self.measure()
        xp = namespace_of(self.like)
        sums = column_sums(U)
        U = cast(U, self.dtype)
        if self.by_rows:
            Y = self._summed(lambda a, b: xp.matrix_transpose(self._shifted(a, b)) @ U[a:b, :])
        else:
            Y = cast(self._joined(lambda a, b: xp.matrix_transpose(self._shifted(a, b)) @ U, axis=0), self.wide)
        return cast(self._weighted(Y - self.rest[:, None] * sums[None, :]), self.dtype)

    def scatter_times(self, V: Array) -> Array:
        """ZᵀZ V, shape (d, b): one sweep over X where blocks are rows."""
        if not self.by_rows:
            return self.adjoint(self.times(V))
        self.measure()
        xp = namespace_of(self.like)
        V = self._weighted(cast(V, self.wide))
        W = cast(V, self.dtype)
        lost = cast(xp.sum(self.rest[:, None] * V, axis=0), self.dtype)[None, :]

        def part(start: int, stop: int) -> Array:
            block = self._shifted(start, stop)
            return xp.matrix_transpose(block) @ add(block @ W, -lost)

        # The columns of Z V sum to zero, so nothing of the rest of the mean remains on the left.
        return cast(self._weighted(self._summed(part)), self.dtype)

    def gram_times(self, U: Array) -> Array:
        """Z ZᵀU, shape (n, b), for columns U that sum to zero: one sweep over X where blocks are columns."""
        if self.by_rows:
            return self.times(self.adjoint(U))
        xp = namespace_of(self.like)
        U = cast(U, self.dtype)

        def part(start: int, stop: int) -> Array:
            block = self._scaled(self._shifted(start, stop), start, stop)
            return block @ (xp.matrix_transpose(block) @ U)

        W = self._summed(part)  # of the shifted data; centring takes the rest of the mean away
        return cast(W - column_sums(W)[None, :] / self.shape[0], self.dtype)

    def triangle(self, V: Array) -> np.ndarray:
        """R of Z V = Q R on the host in float64, by QR of blocks of rows and of their R: Z V is never held."""
        self.measure()
        V = self._weighted(cast(V, self.wide))
        W = cast(V, self.dtype)
        lost = cast(namespace_of(V).sum(self.rest[:, None] * V, axis=0), self.dtype)[None, :]

        def part(start: int, stop: int) -> np.ndarray:
            return orthonormal_factors(add(self._shifted(start, stop) @ W, -lost))[1]

        return self._folded(
            part, lambda R, S: np.linalg.qr(np.concatenate([R, S]), mode="r"), lambda R: R, self._blocks()
        )

    # -- matrices ------------------------------------------------------------------------------------------------------

    def scatter(self) -> Array:
        """ZᵀZ in the widest type, shape (d, d), with the mean and the squares if they are not known: one sweep."""
        n, xp = self.shape[0], namespace_of(self.like)
        for may_shift in (self.rest is None, False):
            S, sums = self._scatter_and_sums()
            rest = sums / n
            raw = to_host(xp.linalg.diagonal(S)).astype(np.float64)
            found = np.maximum(raw - n * to_host(rest).astype(np.float64) ** 2, 0.0)
            if not (may_shift and _cancelled(raw, found)):
                break
            self.shift = cast(cast(self.shift, self.wide) + rest, self.dtype)
        self.rest, self.squares = rest, found
        S = subtract_outer_product(S, rest, n)
        return S if self.weights is None else S * self.weights[:, None] * self.weights[None, :]

    def _scatter_and_sums(self) -> tuple[Array, Array]:
        """The scatter matrix about the shift, shape (d, d), and the sums of the shifted columns, shape (d,)."""
        xp, d = namespace_of(self.like), self.shape[1]
        # Products of tall blocks: beside them, adding up d x d matrices should cost nothing.
        rows = max(self.block_length(by_rows=True), min(SQUARES * d, LONGEST))

        def part(start: int, stop: int) -> tuple[Array, Array]:
            block = self.X[start:stop, :] - self.shift[None, :]
            ones = full((1, stop - start), 1.0, self.like)
            return xp.matrix_transpose(block) @ block, (ones @ block)[0, :]

        return self._folded(
            part,
            lambda total, piece: (add(total[0], piece[0]), add(total[1], piece[1])),
            lambda piece: (cast(piece[0], self.wide), cast(piece[1], self.wide)),
            blocks=edges(self.shape[0], min(rows, max(1, -(-self.shape[0] // self.workers)))),
        )

    def gram(self) -> Array:
        """Z Zᵀ in the widest type, shape (n, n), exactly symmetric."""
        n = self.shape[0]
        shared = n > PRIVATE_UP_TO and is_numpy(self.like)
        G = self._gram_by_tiles() if shared else self._summed(self._gram_part, by_rows=False)
        # Centring takes away what is left of the mean.
        means = column_sums(G) / n
        half = float(namespace_of(G).sum(means)) / n / 2.0
        return subtract_outer_sum(G, means - half, means - half)

    def _gram_part(self, start: int, stop: int) -> Array:
        block = self._scaled(self._shifted(start, stop, by_rows=False), start, stop)
        return block @ namespace_of(block).matrix_transpose(block)

    def _gram_by_tiles(self) -> Array:
        """Upper tiles of one sum, shared by all workers; a block of columns is copied once for all of them."""
        n, d = self.shape
        G = np.zeros((n, n), dtype=np.float64)
        rows = edges(n, TILE_EDGE)
        tiles = [(i, j) for i in rows for j in rows if i <= j]
        for start, stop in edges(d, self.block_length(by_rows=False)):
            block = np.empty((n, stop - start), dtype=self.dtype)
            columns = slice(start, stop)

            def copy(r: tuple[int, int], block: Array = block, columns: slice = columns) -> None:
                part = self.X[r[0] : r[1], columns] - self.shift[None, columns]
                block[r[0] : r[1], :] = self._scaled(part, columns.start, columns.stop)

            def product(tile: tuple[Any, Any], block: Array = block) -> None:
                (a, b), (p, q) = tile
                G[a:b, p:q] += block[a:b, :] @ block[p:q, :].T

            map_tiles(copy, rows, self.workers)
            map_tiles(product, tiles, self.workers)
        return symmetric_from_upper(G, np.diagonal(G).copy())

    def materialized(self) -> Array:
        """Z itself, in the dtype of X."""
        self.measure()
        return self._joined(self._centered_block, axis=0 if self.by_rows else 1)

    def _centered_block(self, start: int, stop: int) -> Array:
        block = self._shifted(start, stop)
        if self.by_rows:
            return self._scaled(add(block, -cast(self.rest, self.dtype)[None, :]), 0, self.shape[1])
        rest = cast(self.rest, self.dtype)[None, start:stop]
        return self._scaled(add(block, -rest), start, stop)

    # -- blocks --------------------------------------------------------------------------------------------------------

    def block_length(self, by_rows: bool | None = None) -> int:
        """Rows, or columns, of a block."""
        by_rows = self.by_rows if by_rows is None else by_rows
        length, other = self.shape if by_rows else self.shape[::-1]
        if is_on_gpu(self.like):
            return max(1, min(length, LONGEST_ON_GPU, max(FEWEST_COLUMNS, GPU_BLOCK_ENTRIES // max(1, other))))
        wanted = max(FEWEST_ROWS if by_rows else FEWEST_COLUMNS, BLOCK_ENTRIES // max(1, other))
        return max(1, min(wanted, LONGEST, -(-length // self.workers)))

    def _blocks(self, by_rows: bool | None = None) -> list[tuple[int, int]]:
        by_rows = self.by_rows if by_rows is None else by_rows
        return edges(self.shape[0 if by_rows else 1], self.block_length(by_rows))

    def _shifted(self, start: int, stop: int, by_rows: bool | None = None) -> Array:
        """A block of X less the shift, in memory of its own."""
        if self.by_rows if by_rows is None else by_rows:
            return self.X[start:stop, :] - self.shift[None, :]
        return self.X[:, start:stop] - self.shift[None, start:stop]

    def _scaled(self, block: Array, start: int, stop: int) -> Array:
        """Columns from start to stop in units of their scale."""
        return block if self.weights is None else block * cast(self.weights, self.dtype)[None, start:stop]

    def _weighted(self, V: Array) -> Array:
        """Rows of V, one a feature, in units of the scale."""
        if self.weights is None:
            return V
        return V * (self.weights if V.ndim == 1 else self.weights[:, None])

    def _summed(self, part: Callable[[int, int], Array], by_rows: bool | None = None) -> Array:
        """The sum of ``part(start, stop)`` over all blocks in the widest type."""
        return self._folded(part, add, lambda piece: cast(piece, self.wide), self._blocks(by_rows))

    def _folded(self, part: Any, merged: Any, first: Any, blocks: list[tuple[int, int]]) -> Any:
        """``merged(... merged(first(part 0), part 1) ...)`` over all blocks; each worker has a result of its own."""
        workers = min(self.workers, len(blocks))
        totals: list[Any] = [None] * workers

        def work(k: int) -> None:
            piece = part(*blocks[k])
            w = k % workers
            totals[w] = first(piece) if totals[w] is None else merged(totals[w], piece)

        map_tiles(work, list(range(len(blocks))), workers)
        total = totals[0]
        for other in totals[1:]:
            total = merged(total, other)
        return total

    def _joined(self, part: Callable[[int, int], Array], axis: int = 1) -> Array:
        """``part(start, stop)`` of all blocks side by side."""
        blocks = self._blocks()
        parts = dealt_back(map_tiles(lambda block: part(*block), blocks, self.workers), len(blocks))
        return parts[0] if len(parts) == 1 else namespace_of(self.like).concat(parts, axis=axis)


def _sampled_mean(X: Array, wide: Any) -> Array:
    """The mean of some rows, evenly spread; of wide rows a few are enough."""
    n = int(X.shape[0])
    most = min(SAMPLED, max(FEWEST_SAMPLED, BLOCK_ENTRIES // max(1, int(X.shape[1]))))
    rows = X if n <= most else pick_rows(X, np.linspace(0, n - 1, most).astype(np.int64))
    # Divided first: a sum of huge numbers would overflow.
    return namespace_of(X).sum(cast(rows, wide) / int(rows.shape[0]), axis=0)


def _cancelled(raw: np.ndarray, found: np.ndarray) -> bool:
    """Whether the shift was so far from the mean that digits are lost."""
    return bool(np.any((raw > MOST_CANCELLED * found) & (found > 0)))


def projected_rows(Y: Array, shift: Array, axes: Array, offset: Array, n_jobs: int | None = None) -> Array:
    """(Y - shift) axes - offset for new rows, by panels with threads.

    Parameters
    ----------
    Y : array, shape (m, d)
    shift : array, shape (d,)
        In the dtype of `axes`; subtracted first, so that a large offset costs no digits.
    axes : array, shape (d, p)
    offset : array, shape (p,)
        What the shift lacks of the mean, projected.
    n_jobs : int, optional

    Returns
    -------
    array, shape (m, p), in the dtype of `axes`
    """
    workers = worker_count(Y, n_jobs)
    entries = GPU_BLOCK_ENTRIES if is_on_gpu(Y) else BLOCK_ENTRIES
    rows = max(FEWEST_PROJECTED, entries // max(1, int(Y.shape[1])))
    panels = edges(int(Y.shape[0]), max(1, min(rows, -(-int(Y.shape[0]) // workers))))
    out = writable((int(Y.shape[0]), int(axes.shape[1])), axes)

    def panel(bounds: tuple[int, int]) -> Array | None:
        centered = cast(Y[bounds[0] : bounds[1], :], axes.dtype) - shift[None, :]
        scores = add(centered @ axes, -offset[None, :])
        if out is None:
            return scores
        out[bounds[0] : bounds[1], :] = scores
        return None

    parts = dealt_back(map_tiles(panel, panels, workers), len(panels))
    return namespace_of(axes).concat(parts, axis=0) if out is None else out
