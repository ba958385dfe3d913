"""Tiles between two groups of rows, on one worker; sums over pairs of groups; and the worker of each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context, is_on_gpu
from gpukpca.backend.namespace import empty_like, indices, item_size, move, namespace_of, overflow_allowed, to_host
from gpukpca.backend.parallel import row_slices, single_threaded_blas
from gpukpca.exceptions import GpuKPCAWarning, held_warnings, warn_user
from gpukpca.gram.product import compute_tile
from gpukpca.gram.tiled import UpperTiles
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


def prepare_rows(kernel: Kernel, rows: Array, template: PreparedRows) -> tuple[PreparedRows, list[GpuKPCAWarning]]:
    """Return prepared rows, and the kernel's warnings, which a worker would not show."""
    with held_warnings() as held:
        return kernel.prepare(rows, like=template), held


class Group:
    """Prepared rows on a worker, with the bytes that they take."""

    def __init__(self, panel: Array, kernel: Kernel, template: PreparedRows) -> None:
        self.rows: PreparedRows = prepare_rows(kernel, panel, template)[0]
        self.like: Array = empty_like(panel)
        self.nbytes: int = self.rows.n_rows * (int(panel.shape[1]) * item_size(panel.dtype) + self.rows.row_bytes)

    def __sizeof__(self) -> int:
        return self.nbytes


class GroupRows(PreparedRows):
    """Prepared groups one after another, sliced within a group."""

    def __init__(self, parts: Sequence[PreparedRows]) -> None:
        self.parts = parts
        self.starts: Any = np.cumsum([0, *(part.n_rows for part in parts)]).tolist()
        self.n_rows: int = self.starts.pop()

    def slice(self, start: int, stop: int) -> PreparedRows:
        k = int(np.searchsorted(self.starts, start, side="right")) - 1
        return self.parts[k].slice(start - self.starts[k], stop - self.starts[k])


class TilePair:
    """The tiles between two groups, or the upper tiles of one; a share of them is cached after the first product.

    Parameters
    ----------
    shared : (kernel,)
    *arguments : (*groups, share)
    """

    def __init__(self, shared: tuple[Kernel], *arguments: Any) -> None:
        *groups, share = arguments
        self.arguments: tuple[Any, ...] = (shared, *arguments)
        self.like: Array = groups[0].like
        rows = GroupRows([group.rows for group in groups])
        edge = tile_edge_for(max(part.n_rows for part in rows.parts), 1, is_on_gpu(self.like))
        slices = [
            [(start + a, start + b) for a, b in row_slices(part.n_rows, edge)]
            for start, part in zip(rows.starts, rows.parts, strict=True)
        ]
        bounds, first = [bound for part in slices for bound in part], len(slices[0])
        columns = range(first, len(bounds)) if len(groups) > 1 else range(first)
        tiles = [(i, j) for j in columns for i in range(first) if len(groups) > 1 or i <= j]
        cached = int(share * len(tiles))
        heights = np.diff([start for start, _ in bounds] + [rows.n_rows])
        self.nbytes: int = int(sum(heights[i] * heights[j] for i, j in tiles[:cached])) * item_size(self.like.dtype)
        self.stops: np.ndarray = np.cumsum([len(part) for part in slices])[:-1]
        self.tiles: UpperTiles = UpperTiles(shared[0], rows, self.like, bounds, tiles, cached, 1)

    def times(self, *blocks: np.ndarray) -> list[np.ndarray]:
        """Return the part of K @ V in the rows of each group, on the host; `blocks` are V in the same rows."""
        with device_context(self.like), overflow_allowed(), single_threaded_blas():
            sums: Any = self.tiles.sums(move(np.concatenate(blocks, axis=0), self.like))
            xp = namespace_of(self.like)
            parts = [sums] if len(blocks) == 1 else [sums[: self.stops[0]], sums[self.stops[0] :]]
            return [to_host(xp.concat(part, axis=0)) for part in parts]

    def __sizeof__(self) -> int:
        """Return the bytes of the cached tiles, which Dask reads before it moves the pair."""
        return self.nbytes

    def __reduce__(self) -> Any:
        """Leave the tiles behind where Dask moves or spills the pair."""
        return TilePair, self.arguments


def added(*arguments: Any) -> np.ndarray:
    """Return the sum of one part of each product, in float64; arguments (*products, places, dtype)."""
    *products, places, dtype = arguments
    total = products[0][places[0]].astype(np.float64)
    for product, place in zip(products[1:], places[1:], strict=True):
        total += product[place]
    return total.astype(dtype, copy=False)


def place_pairs(costs: Sequence[float], owners: Sequence[str | None], threads: Mapping[str, int]) -> list[str]:
    """Return the worker of each pair: its former one where that has no more than its share, else one with room.

    Pairs that follow each other go to one worker while it has room, so that it needs few groups.
    """
    left = {worker: sum(costs) * count / sum(threads.values()) for worker, count in threads.items()}
    placed: dict[int, str] = {}
    for k, owner in enumerate(owners):
        if owner is not None and left.get(owner, -1.0) >= costs[k] / 2.0:
            placed[k] = owner
            left[owner] -= costs[k]
    for k, cost in enumerate(costs):
        if k not in placed:
            placed[k] = next((one for one, room in left.items() if room >= cost / 2.0), max(left, key=left.__getitem__))
            left[placed[k]] -= cost
    return [placed[k] for k in range(len(costs))]


# -- columns and diagonal ----------------------------------------------------------------------------------------------


def panel_columns(
    panel: Array, numbers: np.ndarray, kernel: Kernel, template: PreparedRows, chosen: Array, named: np.ndarray
) -> Array:
    """Return K between a panel, whose rows have these numbers, and chosen rows; the entries k(x, x) are exact."""
    rows, others = (prepare_rows(kernel, one, template)[0] for one in (panel, chosen))
    C = compute_tile(kernel, rows, others, panel[:0, 0], False)
    inside = np.flatnonzero((named >= numbers[0]) & (named <= numbers[-1]))
    if len(inside):
        places = indices(named[inside] - numbers[0], C), indices(inside, C)
        C[places] = kernel.tile_diagonal(others)[places[1]]
    return C


def panel_diagonal(panel: Array, kernel: Kernel, template: PreparedRows) -> tuple[Array, list[GpuKPCAWarning]]:
    """Return k(x, x) in a panel, and the kernel's warnings."""
    rows, warned = prepare_rows(kernel, panel, template)
    return kernel.tile_diagonal(rows), warned


def warn_of_panels(by_panel: Sequence[Sequence[GpuKPCAWarning]]) -> None:
    """Warn in this process of what kernels on workers warned of: once for each text, with the panels of the rows."""
    panels: dict[tuple[str, type[GpuKPCAWarning]], list[int]] = {}
    for k, held in enumerate(by_panel):
        for warning in held:
            panels.setdefault((str(warning), type(warning)), []).append(k)
    for (text, category), where in panels.items():
        warn_user(text, category, panels=where)
