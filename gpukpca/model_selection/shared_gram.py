"""Families of kernels: what all of one family are elementwise functions of, so that a search computes it once.

Gaussian, Matérn and rational quadratic kernels are functions of gamma ‖x - y‖², the Laplacian one of gamma ‖x - y‖₁,
polynomials and sigmoids of gamma x·y. The matrix of the common kernel of a family, -gamma ‖x - y‖² and alike, gives the
matrix of every member by one pass over its entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import elementwise
from gpukpca.backend.elementwise import from_strips
from gpukpca.backend.linalg import cityblock_distances
from gpukpca.backend.namespace import cast, empty_like, full
from gpukpca.backend.rows import dense_rows, place_of
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.dot_product import Linear, Polynomial, Sigmoid
from gpukpca.kernels.euclidean import RBF, Matern, RationalQuadratic
from gpukpca.kernels.euclidean_rows import EuclideanRows
from gpukpca.kernels.manhattan import CityBlockRows, Laplacian


class SquaredDistance(RBF):
    """-gamma ‖x - y‖², with the care of the Gaussian kernel for offsets, precision and range.

    With `kink` a kernel with a kink at distance 0 is made of it: near pairs are computed by differences.
    """

    positive_definite = False
    can_be_flat = False

    def __init__(self, gamma: Any = None, kink: bool = False) -> None:
        self.gamma, self.kink = gamma, kink

    @property
    def smooth_at_zero(self) -> bool:  # type: ignore[override]
        return not self.kink

    def tile_diagonal(self, a: EuclideanRows) -> Array:
        return full((a.n_rows,), 0.0, place_of(a.data), a.dtype)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.clip_above(elementwise.convert(T, dtype, out), 0.0)


class CityBlockDistance(Laplacian):
    """-gamma ‖x - y‖₁."""

    positive_definite = False

    def tile(self, a: CityBlockRows, b: CityBlockRows, out: Array | None = None) -> Array:
        left, right = dense_rows(a.data), dense_rows(b.data)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            return elementwise.multiply(cityblock_distances(left[start:stop, :], right), -float(self.gamma))

        return from_strips((a.n_rows, b.n_rows), full((0,), 0.0, right), strip, out)

    def tile_diagonal(self, a: CityBlockRows) -> Array:
        return full((a.n_rows,), 0.0, place_of(a.data))


# Of kernels of exactly these classes: the common kernel of the family, with the gamma of the member.
COMMON: dict[type, Callable[[Any], Kernel]] = {
    RBF: lambda k: SquaredDistance(k.gamma),
    RationalQuadratic: lambda k: SquaredDistance(k.gamma),
    Matern: lambda k: SquaredDistance(k.gamma, kink=not k.smooth_at_zero),
    Laplacian: lambda k: CityBlockDistance(k.gamma),
    Polynomial: lambda k: Linear(),
    Sigmoid: lambda k: Linear(),
}


def common_kernel(kernel: Kernel) -> Kernel | None:
    """Return the kernel of whose matrix that of a resolved kernel is an elementwise function; None where none is."""
    make = COMMON.get(type(kernel))
    return None if make is None else make(kernel)


def widest_member(kernels: list[Kernel]) -> Kernel:
    """Of the common kernels of one family that with the largest gamma: its matrix is precise enough for all."""
    return max(kernels, key=lambda kernel: float(getattr(kernel, "gamma", 0.0)))


def from_common(kernel: Kernel, common: Kernel, T: Array, like: Array, flat: bool = False) -> Array:
    """Return the matrix (n, m) of `kernel` from T, that of the common kernel of its family, in the widest type.

    The gamma of `common` need not be that of `kernel`. `like` has the dtype of the result. With `flat` it is k - 1, for
    kernels so flat that 1 swamps their differences. T is not changed.
    """
    dtype, gamma = like.dtype, float(kernel.gamma)  # type: ignore[attr-defined]
    of_products = isinstance(common, Linear)
    factor = gamma if of_products else gamma / (float(common.gamma) or 1.0)  # type: ignore[attr-defined]

    def strip(start: int, stop: int, place: Array | None) -> Array:
        part = T[start:stop, :] * factor
        if of_products:
            return kernel._function(cast(part, dtype), place)  # type: ignore[attr-defined]
        if isinstance(kernel, Laplacian):
            return elementwise.gaussian(part, flat, dtype=dtype, out=place)
        return kernel._function(part, flat, dtype, place)  # type: ignore[attr-defined]

    return from_strips((int(T.shape[0]), int(T.shape[1])), empty_like(like), strip)
