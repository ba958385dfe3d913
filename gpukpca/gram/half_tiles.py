"""K in float16 tiles, a twin on which block Krylov iterates on a card, and the check of whether they are faster.

Tensor cores multiply them several times as fast as float32 ones, and they take half the memory. Tiles are computed in
float32 and rounded, blocks are rounded too, and products are summed in float32.
"""

from __future__ import annotations

import math
from copy import copy
from functools import partial

from gpukpca._process import state, uses_timings
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu, milliseconds, on_its_device
from gpukpca.backend.linalg import add_tile_product, in_float16
from gpukpca.backend.namespace import empty_like, namespace_of
from gpukpca.data.slicing import take_rows
from gpukpca.gram.product import compute_tile
from gpukpca.gram.tiled import TiledGram, UpperTiles
from gpukpca.gram.timed_edge import kind_of
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows

# The relative error of products, and how many times as fast they must be: K itself makes two or three passes more.
RESOLUTION, FASTER = 2.0**-9, 2.5
# Of a scale in float32, with room for that of a block.
MOST_EXPONENT = 100


def in_halves(op: TiledGram) -> TiledGram:
    """Return the operator of the same prepared rows whose tiles are all cached, in float16."""
    halved = copy(op)
    vars(halved).pop("_upper", None)
    halved.resolution, halved._class_of_tiles, halved.cached_tiles = RESOLUTION, HalfTiles, 0  # none in float32
    return halved


class HalfTiles(UpperTiles):
    """Upper tiles that are all cached in float16, times the power of two that makes the first one about 1.

    Entries of 6e4 times the largest one of the first tile become infinite, and so do products with them.
    """

    scale: float = 0.0

    def sums(self, V: Array) -> list[Array | None]:
        # The power of two that makes entries of orthonormal columns, about n^-1/2, those of about 1.
        unit = 2.0 ** round(math.log2(V.shape[0]) / 2)
        parts = super().sums(in_float16(V, unit))
        return [None if part is None else part[:, : V.shape[1]] / (unit * self.scale) for part in parts]

    def compute(self, number: int, a: PreparedRows, b: PreparedRows, buffer: Array | None) -> Array:
        tile = super().compute(number, a, b, buffer)
        self.scale = self.scale or _scale(tile)
        self.cache[number] = in_float16(tile, self.scale)[:, : b.n_rows]
        return self.cache[number]


def _scale(tile: Array) -> float:
    """Return the power of two that makes the largest entry of a tile at most 1."""
    xp = namespace_of(tile)
    return 2.0 ** min(MOST_EXPONENT, -math.frexp(float(xp.max(xp.abs(tile))))[1])


def known_halves(kernel: Kernel, like: Array, d: int, edge: int) -> bool:
    """Return whether this process, or the fit of a checkpoint, has found float16 tiles of such a kind faster."""
    return is_on_gpu(like) and uses_timings() and state.half_tiles.get(kind_of(kernel, like, d, edge), False)


@on_its_device
def timed_halves(kernel: Kernel, X: Array, template: PreparedRows | None, edge: int) -> bool:
    """Return whether products with float16 tiles of rows X (n, d) are faster, and accurate, by the first tile.

    The first call for a kind of tile does the work. K of X has 36 tiles at least, else nothing is timed.
    """
    if not (is_on_gpu(X) and uses_timings()) or X.shape[0] < blocking.TILES_ALONG_A_SIDE * edge:
        return False
    kind = kind_of(kernel, X, X.shape[1], edge)
    if kind not in state.half_tiles:
        rows, like = kernel.prepare(take_rows(X, 0, 2 * edge), like=template), empty_like(X)
        T = compute_tile(kernel, rows.slice(0, edge), rows.slice(edge, 2 * edge), like, False)
        scale, norm = _scale(T), namespace_of(X).linalg.vector_norm
        V = scale * T[:, : blocking.GPU_BLOCK_COLUMNS]
        pair = in_float16(T, scale)[:, :edge], in_float16(V, 1.0)
        exact, rounded = _used(T, V), _used(*pair)[:, : V.shape[1]] / scale
        is_accurate = float(norm(rounded - exact)) <= RESOLUTION * float(norm(exact))
        times = [milliseconds(partial(_used, *one), blocking.TILES_ALONG_A_SIDE) for one in ((T, V), pair)]
        state.half_tiles[kind] = is_accurate and FASTER * times[1] <= times[0]
    return state.half_tiles[kind]


def _used(T: Array, V: Array) -> Array:
    """Return the sum of both products of a tile."""
    return add_tile_product(add_tile_product(None, T, V), T, V, transposed=True)
