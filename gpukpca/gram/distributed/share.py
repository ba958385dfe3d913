"""What one worker does of a product: the tiles between some pairs of panels, kept where its memory allows."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.device import free_bytes
from gpukpca.backend.namespace import empty_like, item_size, namespace_of, overflow_allowed, to_host
from gpukpca.backend.tiles import worker_count
from gpukpca.gram.residence import edges, tile_edge_for
from gpukpca.gram.upper_tiles import UpperTiles
from gpukpca.kernels.base import Kernel, Rows

# Of a worker's memory, what tiles may take. Dask spills at 60 % and pauses at 80 %, and rows and blocks need theirs.
SHARE_FOR_TILES = 0.4

# Shares in this process, whose tiles count against each other.
_here: weakref.WeakSet[TileShare] = weakref.WeakSet()


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
    neighbours : int
        Workers that share what is free.
    cache : bool
        Whether tiles are kept.
    """

    panels: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    threads: int
    memory: int
    neighbours: int
    cache: bool = True


class PanelRows(Rows):
    """Prepared panels one after another, sliced within a panel."""

    def __init__(self, panels: list[Rows]) -> None:
        self.panels = panels
        stops = np.cumsum([panel.n_rows for panel in panels]).tolist()
        self.starts = [stop - panel.n_rows for stop, panel in zip(stops, panels, strict=True)]
        self.n_rows = stops[-1]

    def slice(self, start: int, stop: int) -> Rows:
        k = int(np.searchsorted(self.starts, start, side="right")) - 1
        return self.panels[k].slice(start - self.starts[k], stop - self.starts[k])


class TileShare:
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

    def __init__(self, kernel: Kernel, template: Rows, spec: ShareSpec, *panels: Array) -> None:
        self.kernel, self.spec, self.like = kernel, spec, empty_like(panels[0])
        with overflow_allowed():
            self.rows = PanelRows([kernel.prepare(panel, like=template) for panel in panels])
        self._tiles = self._planned()

    def _planned(self) -> UpperTiles:
        """The tiles in local coordinates, with as many kept as this worker has memory for now."""
        rows, spec = self.rows, self.spec
        workers = worker_count(self.like, spec.threads)
        edge = tile_edge_for(max(panel.n_rows for panel in rows.panels), workers, on_gpu=False)
        bounds: list[tuple[int, int]] = []
        numbers: dict[int, range] = {}
        for k, start, panel in zip(spec.panels, rows.starts, rows.panels, strict=True):
            numbers[k] = range(len(bounds), len(bounds) + len(edges(panel.n_rows, edge)))
            bounds += [(start + a, start + b) for a, b in edges(panel.n_rows, edge)]
        tiles = [(i, j) for a, b in spec.pairs for j in numbers[b] for i in numbers[a] if i <= j]
        room = self._room() // (edge * edge * item_size(self.like.dtype)) if spec.cache else 0
        tiles_kept = min(room, len(tiles))
        self.bytes_kept = tiles_kept * edge * edge * item_size(self.like.dtype)
        _here.add(self)
        return UpperTiles(self.kernel, rows, self.like, bounds, tiles, tiles_kept, workers)

    def _room(self) -> int:
        """Bytes for tiles beside those of other shares in this process."""
        memory = self.spec.memory or free_bytes(self.like) // self.spec.neighbours
        return max(
            0, int(SHARE_FOR_TILES * memory) - sum(share.bytes_kept for share in list(_here) if share is not self)
        )

    def times(self, *blocks: Array) -> np.ndarray:
        """The share of K @ V in the rows of its panels, shape (rows, b); `blocks` are V in the same rows."""
        xp = namespace_of(self.like)
        with overflow_allowed():
            sums = self._tiles.sums(xp.concat(list(blocks), axis=0))
        width = blocks[0].shape[1]
        parts = [
            xp.zeros((stop - start, width), dtype=self.like.dtype) if part is None else part
            for part, (start, stop) in zip(sums, self._tiles.bounds, strict=True)
        ]
        return to_host(xp.concat(parts, axis=0))

    def __getstate__(self) -> dict[str, Any]:
        """Without the tiles, where Dask moves or spills it."""
        return {name: value for name, value in vars(self).items() if name not in ("_tiles", "bytes_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._tiles = self._planned()


def times(share: TileShare, *blocks: Array) -> np.ndarray:
    """See `TileShare.times`."""
    return share.times(*blocks)


def as_it_is(block: Array) -> Array:
    """A block of V, brought to a worker as part of a task."""
    return block


def dealt(sizes: list[int], shares: int) -> list[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """Panels and pairs of panels for each share: even work, and few panels a share.

    Panels have owners in contiguous groups, and a pair goes to the owner of one of the two, whichever has less to do;
    so a share needs the rows of about half of the panels, where there are many shares.
    """
    stops = np.cumsum(sizes)
    middles = stops - np.asarray(sizes) / 2.0
    owners = np.minimum((middles * shares / stops[-1]).astype(int), shares - 1).tolist()
    work = [0.0] * shares
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(shares)]
    count = len(sizes)
    for step in range(count):  # diagonal pairs last: they are the small change
        for i in range(count - (count - 1 - step)):
            j = i + count - 1 - step
            owner = min(owners[i], owners[j], key=lambda share: (work[share], share))
            pairs[owner].append((i, j))
            work[owner] += sizes[i] * sizes[j] * (0.5 if i == j else 1.0)
    return [(tuple(sorted({k for pair in own for k in pair})), tuple(own)) for own in pairs if own]
