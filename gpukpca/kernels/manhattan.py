"""The kernel of the Manhattan distance: Laplacian."""

from __future__ import annotations

from gpukpca._typing import Array
from gpukpca.backend import elementwise, linalg
from gpukpca.backend.elementwise import from_strips
from gpukpca.backend.namespace import cast
from gpukpca.data.slicing import dense_pair, take_rows
from gpukpca.data.statistics import total_range
from gpukpca.kernels.euclidean import FLAT, OfDistance
from gpukpca.kernels.prepared import DataRows


class CityBlockRows(DataRows):
    """Rows as they are, with the flag of their training set."""

    wide = True
    shifted: property = property(lambda self: self.flat)
    dtype: property = property(lambda self: self.kept.dtype)

    def __init__(self, data: Array, flat: bool) -> None:
        super().__init__(data)
        self.flat = flat


class Laplacian(OfDistance):
    """Laplacian kernel k(x, y) = exp(-gamma ‖x - y‖₁).

    Parameters
    ----------
    gamma : float >= 0, None, "scale" or "median"
        None is 1 / d; "scale" is 1 / (d √Var(X)); "median" is 1 / (m √(2d)), m the median Euclidean distance of at most
        1000 rows. These are √(γ / d) for the γ of `RBF`: no distance is in the exponent squared.

    See Also
    --------
    RBF : The Gaussian of the Euclidean distance.
    Matern : With nu = 1/2 the exponential of the Euclidean distance.

    Notes
    -----
    Without a matrix product a tile costs d subtractions an entry. Slices of CSR rows are converted to dense arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.kernels import Laplacian
    >>> Laplacian(gamma=0.5)(np.array([[0.0, 0.0], [1.0, 1.0]])).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """

    densifies = True
    gamma_of_length = True

    def template(self, X: Array, centered: bool = False) -> CityBlockRows:
        flat = centered and float(self.gamma) * total_range(X) <= FLAT
        return CityBlockRows(take_rows(X, 0, 0), flat)

    def prepare_rows(self, X: Array, like: CityBlockRows | None, centered: bool) -> CityBlockRows:
        return CityBlockRows(X, (like or self.template(X, centered)).flat)

    def tile(self, a: CityBlockRows, b: CityBlockRows, out: Array | None = None) -> Array:
        left, right = dense_pair(a.data, b.data)
        wide, like = linalg.differences_dtype(left, right), right[:0, :]
        left, right = cast(left, wide), cast(right, wide)

        def strip(start: int, stop: int, place: Array | None) -> Array:
            T = linalg.distances(left[start:stop, :], right, "cityblock")
            return elementwise.gaussian(T, b.flat, -float(self.gamma), like.dtype, place)

        return from_strips((a.n_rows, b.n_rows), like, strip, out)
