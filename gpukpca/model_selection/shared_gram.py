"""Families of kernels: the matrix that all kernels of a family are elementwise functions of, computed once.

Gaussian, Matérn and rational quadratic kernels are functions of gamma ‖x - y‖², the Laplacian one of gamma ‖x - y‖₁,
polynomials and sigmoids of gamma x·y.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend import elementwise
from gpukpca.backend.elementwise import from_strips
from gpukpca.backend.linalg import distances
from gpukpca.backend.namespace import cast, empty_like, full
from gpukpca.backend.rows import dense_pair, place_of
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.dot_product import Linear, Polynomial, Sigmoid
from gpukpca.kernels.euclidean import RBF, Matern, RationalQuadratic
from gpukpca.kernels.euclidean_rows import EuclideanRows
from gpukpca.kernels.manhattan import CityBlockRows, Laplacian


class SquaredDistance(RBF):
    """-gamma ‖x - y‖², with the care of the Gaussian kernel for offsets, precision and range.

    With `kink`, for kernels with a kink at distance 0, near pairs are computed by differences.
    """

    positive_definite: bool = False
    can_be_flat = False

    def __init__(self, gamma: Any = None, kink: bool = False) -> None:
        self.gamma = gamma
        self.kink = kink

    @property
    def smooth_at_zero(self) -> bool:  # type: ignore[override]
        return not self.kink

    def tile_diagonal(self, a: EuclideanRows) -> Array:
        return full((a.n_rows,), 0.0, place_of(a.data), a.dtype)

    def _function(self, T: Array, flat: bool, dtype: Any = None, out: Array | None = None) -> Array:
        return elementwise.clip_above(elementwise.convert(T, dtype, out), 0.0)

    def member(self, kernel: Any, part: Array, flat: bool, dtype: Any, out: Array | None) -> Array:
        """Return entries of a kernel of the family, from those of this kernel with its gamma."""
        return kernel._function(part, flat, dtype, out)


class CityBlockDistance(Laplacian):
    """-gamma ‖x - y‖₁."""

    positive_definite: bool = False
    kink = False

    def tile(self, a: CityBlockRows, b: CityBlockRows, out: Array | None = None) -> Array:
        left, right = dense_pair(a.data, b.data)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            return elementwise.multiply(distances(left[start:stop, :], right, "cityblock"), -float(self.gamma))

        return from_strips((a.n_rows, b.n_rows), full((0,), 0.0, right), strip, out)

    def tile_diagonal(self, a: CityBlockRows) -> Array:
        return full((a.n_rows,), 0.0, place_of(a.kept))

    def member(self, kernel: Any, part: Array, flat: bool, dtype: Any, out: Array | None) -> Array:
        """Return entries of a Laplacian kernel, from those of this kernel with its gamma."""
        return elementwise.gaussian(part, flat, dtype=dtype, out=out)


class InnerProduct(Linear):
    """x·y."""

    gamma: float = 1.0
    kink = False

    def member(self, kernel: Any, part: Array, flat: bool, dtype: Any, out: Array | None) -> Array:
        """Return entries of a kernel of the family, from gamma x·y."""
        return kernel._function(cast(part, dtype), float(kernel.coef0), out)


CommonKernel = SquaredDistance | CityBlockDistance | InnerProduct
# For kernels of exactly these classes: the common kernel of the family, with the gamma of the member.
COMMON: dict[type, Callable[[Any], CommonKernel]] = {
    RBF: lambda k: SquaredDistance(k.gamma),
    RationalQuadratic: lambda k: SquaredDistance(k.gamma),
    Matern: lambda k: SquaredDistance(k.gamma, kink=not k.smooth_at_zero),
    Laplacian: lambda k: CityBlockDistance(k.gamma),
    Polynomial: lambda k: InnerProduct(),
    Sigmoid: lambda k: InnerProduct(),
}


def common_kernel(kernel: Kernel) -> CommonKernel | None:
    """Return the kernel whose matrix gives that of a resolved kernel entry by entry; None where there is none."""
    make = COMMON.get(type(kernel))
    return None if make is None else make(kernel)


def widest_member(kernels: list[CommonKernel]) -> CommonKernel:
    """Return the common kernel of one family with the largest gamma: its matrix is precise enough for all."""
    return max(kernels, key=lambda kernel: float(kernel.gamma))


def from_common(kernel: Any, common: CommonKernel, T: Array, like: Array, flat: bool = False) -> Array:
    """Return the matrix (n, m) of `kernel` from T, that of the common kernel of its family, in the widest type.

    The gammas may differ, and the result has the dtype of `like`. With `flat` it is k - 1, for kernels so flat that 1
    swamps their differences. T is not changed.
    """
    factor = float(kernel.gamma) / (float(common.gamma) or 1.0)

    def strip(start: int, stop: int, place: Array | None) -> Array:
        return common.member(kernel, T[start:stop, :] * factor, flat, like.dtype, place)

    return from_strips((int(T.shape[0]), int(T.shape[1])), empty_like(like), strip)
