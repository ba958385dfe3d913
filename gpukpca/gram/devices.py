"""K as upper tiles that several CUDA devices of this machine share, by copies of V and of sums."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

from gpukpca._typing import Array
from gpukpca.backend.device import device_context, operator_on_its_device, synchronize
from gpukpca.backend.namespace import cast, concat, full, move
from gpukpca.backend.parallel import map_in_order
from gpukpca.gram.arguments import check_block
from gpukpca.gram.tiled import TiledGram, UpperTiles
from gpukpca.gram.tiling import shares_of, tile_order


@operator_on_its_device
class DevicesGram(TiledGram):
    """K as upper tiles, shared out to several CUDA devices in their order; all else is on the first device.

    A thread for each device launches its work. In a product a device gets the leading rows of V, up to the last tile
    that it has, and returns as many sums; these copies need no peer access. Sums are added in the order of the
    devices, so that two products agree to the last bit.
    """

    devices: tuple[Array, ...]  # of size 0, each on its device; the first is `like`
    cached: int  # tiles of each device
    _shares: list[UpperTiles | None]

    @classmethod
    def of(cls, source: Any, tile_edge: int, cached: int) -> Self:
        """Return the operator of a `StorageInput`, with so many cached tiles on each device; see `shifted_gram`."""
        op = cls.__new__(cls)
        options: dict[str, Any] = {"tile_edge": tile_edge, "n_jobs": source.n_jobs, "report": source.report}
        op._set_up(source.kernel, source.X, True, source.template, 0, cached_tiles=0, **options)
        op.devices, op.cached = (op.like, *source.others)[: op.tiles], cached
        op._shares = [None] * len(op.devices)
        return op

    def __matmul__(self, V: Array) -> Array:
        check_block(self, V)
        V = cast(V, self.dtype)
        synchronize(V)  # before other threads read it
        total = full(V.shape, 0.0, V)
        for part in map_in_order(partial(self._part, V), list(range(len(self.devices))), len(self.devices)):
            total[: part.shape[0], :] += move(part, total)
        return total

    def _part(self, V: Array, k: int) -> Array:
        """Return the leading rows of K @ V from the tiles of one device, there."""
        with device_context(self.devices[k]):
            tiles = self._shares[k] = self._shares[k] or self._share(k)
            V = move(V[: tiles.bounds[-1][1], :], tiles.like)
            sums = zip(tiles.sums(V), tiles.bounds, strict=True)
            return concat([full((b - a, V.shape[1]), 0.0, V) if part is None else part for part, (a, b) in sums])

    def _share(self, k: int) -> UpperTiles:
        """Return the tiles of one device, with the rows that they are made from."""
        shares = shares_of(self.tiles, len(self.devices))
        tiles = tile_order(len(self._bounds), 0)[sum(shares[:k]) : sum(shares[: k + 1])]
        bounds = self._bounds[: tiles[-1][1] + 1]
        like, report = self.devices[k], None if k else self._report
        rows = self.rows.slice(0, bounds[-1][1]).moved(like) if k else self.rows
        return UpperTiles(self.kernel, rows, like, bounds, tiles, self.cached, 1, report=report)
