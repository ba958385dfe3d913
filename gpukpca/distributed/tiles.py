"""What one worker does of a product: the tiles between some pairs of panels, kept where its memory allows."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import device_context, free_bytes, is_on_gpu
from gpukpca.backend.limits import SHARE_OF_WORKER
from gpukpca.backend.namespace import empty_like, item_size, move, namespace_of, overflow_allowed, to_host
from gpukpca.backend.parallel import row_slices, worker_count
from gpukpca.distributed.panel import prepared
from gpukpca.gram.tiled import UpperTiles
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows

# Shares in this process, whose tiles count against each other.
_here: weakref.WeakSet[TileAssignment] = weakref.WeakSet()


@dataclass(frozen=True)
class ShareSpec:
    """Which tiles, and how.

    Attributes
    ----------
    panels : tuple of int
        Panels whose rows it needs, ascending.
    pairs : tuple of (int, int)
        Pairs of panels (I, J), I <= J, all tiles of which are its own.
    threads : int
    memory : int
        Bytes of the worker, 0 for those that are free.
    neighbors : int
        Workers that share what is free.
    cache : bool
        Whether tiles are kept.
    """

    panels: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    threads: int
    memory: int
    neighbors: int
    cache: bool = True


class PanelRows(PreparedRows):
    """Prepared panels one after another, sliced within a panel."""

    def __init__(self, panels: list[PreparedRows]) -> None:
        self.panels = panels
        stops = np.cumsum([panel.n_rows for panel in panels]).tolist()
        self.starts = [stop - panel.n_rows for stop, panel in zip(stops, panels, strict=True)]
        self.n_rows = stops[-1]

    def slice(self, start: int, stop: int) -> PreparedRows:
        k = int(np.searchsorted(self.starts, start, side="right")) - 1
        return self.panels[k].slice(start - self.starts[k], stop - self.starts[k])


class TileAssignment:
    """Tiles between pairs of panels, as `UpperTiles`; a result on a worker, made anew elsewhere when that dies.

    Parameters
    ----------
    kernel : Kernel
        With numbers in place of rules.
    template : Rows
        What the kernel learned from all rows.
    spec : ShareSpec
    panels : arrays
        Those that the spec names.
    """

    def __init__(self, kernel: Kernel, template: PreparedRows, spec: ShareSpec, *panels: Array) -> None:
        self.kernel, self.spec, self.like = kernel, spec, empty_like(panels[0])
        self.worker = _worker_here()
        with device_context(self.like):
            template = template.moved(self.like)
            self.rows = PanelRows([prepared(kernel, panel, template)[0] for panel in panels])
        self.bytes_of_rows = sum(
            rows.n_rows * (int(panel.shape[1]) * item_size(panel.dtype) + rows.row_bytes)
            for rows, panel in zip(self.rows.panels, panels, strict=True)
        )
        self._tiles = self._planned()

    def _planned(self) -> UpperTiles:
        """The tiles in local coordinates, with as many kept as this worker has memory for now."""
        rows, spec = self.rows, self.spec
        workers = worker_count(self.like, spec.threads)
        edge = tile_edge_for(max(panel.n_rows for panel in rows.panels), workers, is_on_gpu(self.like))
        bounds: list[tuple[int, int]] = []
        numbers: dict[int, range] = {}
        for k, start, panel in zip(spec.panels, rows.starts, rows.panels, strict=True):
            numbers[k] = range(len(bounds), len(bounds) + len(row_slices(panel.n_rows, edge)))
            bounds += [(start + a, start + b) for a, b in row_slices(panel.n_rows, edge)]
        tiles = [(i, j) for a, b in spec.pairs for j in numbers[b] for i in numbers[a] if i <= j]
        kept, self.bytes_of_tiles = _kept(tiles, bounds, item_size(self.like.dtype), self._room() if spec.cache else 0)
        _here.add(self)
        return UpperTiles(self.kernel, rows, self.like, bounds, tiles, kept, workers)

    def _room(self) -> int:
        """Bytes for tiles beside these rows and the tiles of other shares on this worker."""
        others = sum(share.bytes_of_tiles for share in list(_here) if share is not self and share.worker == self.worker)
        if is_on_gpu(self.like):  # what others keep there may not be there yet; the rows are
            return max(0, int(SHARE_OF_WORKER * free_bytes(self.like)) - others)
        memory = self.spec.memory or free_bytes(self.like) // self.spec.neighbors
        return max(0, int(SHARE_OF_WORKER * memory) - self.bytes_of_rows - others)

    def times(self, *blocks: np.ndarray) -> list[np.ndarray]:
        """The share of K @ V in the rows of each of its panels, on the host; `blocks` are V in the same rows."""
        with device_context(self.like), overflow_allowed():
            V = move(np.concatenate(blocks, axis=0), self.like)
            sums = self._tiles.sums(V)
            xp = namespace_of(self.like)
            answers, k = [], 0
            for block in blocks:
                parts, rows = [], 0
                while rows < len(block):
                    start, stop = self._tiles.bounds[k]
                    parts.append(xp.zeros_like(V[start:stop, :]) if sums[k] is None else sums[k])
                    rows, k = rows + stop - start, k + 1
                answers.append(to_host(xp.concat(parts, axis=0)))
            return answers

    def __sizeof__(self) -> int:
        """What it will take, so that Dask neither moves it for nothing nor wonders about the memory."""
        return self.bytes_of_rows + self.bytes_of_tiles

    def __getstate__(self) -> dict[str, Any]:
        """Without the tiles, where Dask moves or spills it."""
        return {name: value for name, value in vars(self).items() if name not in ("_tiles", "bytes_of_tiles")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.worker = _worker_here() or self.worker
        with device_context(self.like):
            self._tiles = self._planned()


def _kept(tiles: list[tuple[int, int]], bounds: list[tuple[int, int]], item: int, room: int) -> tuple[int, int]:
    """How many of the first tiles fit into `room` bytes, and what they take."""
    heights = np.asarray([stop - start for start, stop in bounds])
    numbers = np.asarray(tiles, dtype=np.int64).reshape(-1, 2)
    taken = np.cumsum(heights[numbers[:, 0]] * heights[numbers[:, 1]] * item)
    count = int(np.searchsorted(taken, room, side="right"))
    return count, int(taken[count - 1]) if count else 0


def _worker_here() -> str:
    """The address of the worker whose task this is: several may be threads of one process."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return ""


def times(share: TileAssignment, *blocks: Array) -> list[np.ndarray]:
    """See `TileAssignment.times`."""
    return share.times(*blocks)


def some(parts: list[np.ndarray], places: Sequence[int]) -> list[np.ndarray]:
    """Some of the parts that a share gives."""
    return [parts[place] for place in places]


def added(dtype: str, panels: Sequence[Sequence[int]], *shares: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Sums over shares in float64, in their order, one for each panel in ascending order; each as `dtype`.

    `panels` names the panels that each of the shares has parts for.
    """
    sums: dict[int, np.ndarray] = {}
    for names, parts in zip(panels, shares, strict=True):
        for k, part in zip(names, parts, strict=True):
            if k in sums:
                sums[k] += part
            else:
                sums[k] = part.astype(np.float64)
    return [sums[k].astype(dtype, copy=False) for k in sorted(sums)]


def as_it_is(block: Array) -> Array:
    """A block of V, brought to a worker as part of a task."""
    return block


Dealt = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


def assign_tiles(sizes: list[int], weights: Sequence[float]) -> list[Dealt]:
    """Panels and pairs of panels for each share: work as the weights are, and few panels a share.

    Panels have owners in contiguous groups. On a circle of the owners each takes what its group has with the next
    groups, until it has its part; so of W shares each needs the rows of about W/2 + 1 groups.
    """
    count, owned = len(weights), owners(sizes, weights)
    groups = [[k for k, owner in enumerate(owned) if owner == share] for share in range(count)]
    left = [sum(sizes) ** 2 / 2.0 * weight / sum(weights) for weight in weights]
    pairs: list[list[tuple[int, int]]] = [[] for _ in weights]
    for share, group in enumerate(groups):
        pairs[share] += [(i, j) for j in group for i in group if i <= j]
        left[share] -= sum(sizes[k] for k in group) ** 2 / 2.0
    for step in range(1, count // 2 + 1):
        for one in range(count if 2 * step < count else step):
            other = (one + step) % count
            for j in groups[other]:
                cost = sizes[j] * sum(sizes[i] for i in groups[one])
                taker = one if left[one] >= min(cost / 2.0, left[other]) else other
                pairs[taker] += [(min(i, j), max(i, j)) for i in groups[one]]
                left[taker] -= cost
    return [(tuple(sorted({k for pair in own for k in pair})), tuple(own)) for own in pairs]


def owners(sizes: list[int], weights: Sequence[float]) -> list[int]:
    """The share that owns each panel: contiguous groups of about as many rows as the weights say."""
    middles = (np.cumsum(sizes) - np.asarray(sizes) / 2.0) / sum(sizes)
    stops = np.cumsum(weights) / sum(weights)
    return np.minimum(np.searchsorted(stops, middles, side="right"), len(weights) - 1).tolist()
