"""The kernel of the Manhattan distance: Laplacian."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import elementwise, linalg
from gpukpca.backend.elementwise import from_strips
from gpukpca.backend.namespace import cast, full
from gpukpca.backend.rows import dense_rows, gather_rows, place_of, take_rows, total_range
from gpukpca.kernels.bandwidth import Gamma
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.euclidean import FLAT
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.validation import checked_number


class CityBlockRows(PreparedRows):
    """Rows as they are, with the flag of their training set."""

    def __init__(self, data: Array, flat: bool) -> None:
        self.data, self.flat = data, flat
        self.n_rows = int(data.shape[0])

    def slice(self, start: int, stop: int) -> CityBlockRows:
        return CityBlockRows(take_rows(self.data, start, stop), self.flat)

    def take(self, indices: Any) -> CityBlockRows:
        return CityBlockRows(gather_rows(self.data, indices), self.flat)

    @property
    def shifted(self) -> bool:
        return self.flat

    @property
    def wide(self) -> bool:
        return True


class Laplacian(Kernel):
    """k(x, y) = exp(-gamma ‖x - y‖₁).

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d.

    Notes
    -----
    There is no matrix product in it: a tile costs d subtractions an entry, and CSR rows are made dense slice by
    slice.
    """

    positive_definite = True
    leaves_out_constants = True
    densifies = True
    depends_on_distance = True

    def __init__(self, gamma: Gamma = None) -> None:
        self.gamma: Any = gamma

    def check(self) -> None:
        checked_number("Laplacian", "gamma", self.gamma, low=0, what="a number >= 0")

    def template(self, X: Array, centered: bool = False) -> CityBlockRows:
        flat = centered and float(self.gamma) * total_range(X) <= FLAT
        return CityBlockRows(take_rows(X, 0, 0), flat)

    def prepare_rows(self, X: Array, like: CityBlockRows | None, centered: bool) -> CityBlockRows:
        return CityBlockRows(X, (like or self.template(X, centered)).flat)

    def tile(self, a: CityBlockRows, b: CityBlockRows, out: Array | None = None) -> Array:
        left, right = dense_rows(a.data), dense_rows(b.data)
        wide, dtype = linalg.differences_dtype(left, right), b.data.dtype
        left, right = cast(left, wide), cast(right, wide)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            T = linalg.cityblock_distances(left[start:stop, :], right)
            return elementwise.gaussian(T, b.flat, -float(self.gamma), dtype, place)

        return from_strips((a.n_rows, b.n_rows), full((0,), 0.0, place_of(b.data), dtype), strip, out)

    def tile_diagonal(self, a: CityBlockRows) -> Array:
        return full((a.n_rows,), 1.0 - self.offset(a), place_of(a.data))

    def offset(self, rows: CityBlockRows) -> float:
        return 1.0 if rows.flat else 0.0
