"""Z = (X - 1 mᵀ) D, rows less their mean in units of a scale: what of it does not depend on where the rows are.

Data are shifted before anything is multiplied, so that a large offset cancels exactly. The shift is the mean of some
rows in the dtype of X; how far the true mean is from it is measured in the widest type on the way, and corrected.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import column_sums, subtract_outer_product, subtract_outer_sum
from gpukpca.backend.namespace import cast, from_host, namespace_of, to_host

# Most and fewest rows whose mean is the shift, and entries of them.
SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 1000, 16, 2**19
# Σ(x - shift)² may exceed Σ(x - mean)² by this factor before the sums are made again about the mean that was found.
MOST_CANCELLED = 20.0


class CentredRows:
    """Rows less their mean, in units of `scale`; a subclass knows where they are.

    Attributes
    ----------
    shape : (n, d)
    dtype, like
        Of X; what is small is computed where `like` is.
    wide : dtype
        The widest floating type there.
    shift : array, shape (d,)
        In the dtype of X.
    rest : array, shape (d,), wide, or None
        What the shift lacks of the mean, once that is known.
    weights : array, shape (d,), wide, or None
        1 / scale.
    mean : array, shape (d,), wide
    squares : host array, shape (d,)
        Sums of squares about the mean, in the units of X.
    noise_scale : float
        0: nothing large is cancelled.
    """

    shape: tuple[int, int]
    dtype: Any
    like: Array
    wide: Any
    shift: Array
    rest: Array = None
    weights: Array = None
    squares: np.ndarray
    noise_scale = 0.0

    # -- what a subclass defines ---------------------------------------------------------------------------------------

    def moments(self) -> Array:
        """Sums and sums of squares of the shifted columns, shape (2, d), wide."""
        raise NotImplementedError

    def scatter_and_sums(self) -> tuple[Array, Array]:
        """The scatter matrix about the shift, shape (d, d), and the sums of the shifted columns, shape (d,); wide."""
        raise NotImplementedError

    def shifted_gram(self) -> Array:
        """The products of the shifted rows in units of the scale, shape (n, n), wide, exactly symmetric."""
        raise NotImplementedError

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
            sums = self.moments()
            rest, raw = sums[0, :] / n, to_host(sums[1, :]).astype(np.float64)
            found = np.maximum(raw - n * to_host(rest).astype(np.float64) ** 2, 0.0)
            if not (may_shift and _cancelled(raw, found)):
                break
            self.shift = cast(cast(self.shift, self.wide) + rest, self.dtype)
        self.rest, self.squares = xp.asarray(rest, copy=True), found

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

    def _weighted(self, V: Array) -> Array:
        """Rows of V, one a feature, in units of the scale."""
        if self.weights is None:
            return V
        return V * (self.weights if V.ndim == 1 else self.weights[:, None])

    # -- matrices ------------------------------------------------------------------------------------------------------

    def scatter(self) -> Array:
        """ZᵀZ in the widest type, shape (d, d), with the mean and the squares if they are not known: one sweep."""
        n, xp = self.shape[0], namespace_of(self.like)
        for may_shift in (self.rest is None, False):
            S, sums = self.scatter_and_sums()
            rest = sums / n
            raw = to_host(xp.linalg.diagonal(S)).astype(np.float64)
            found = np.maximum(raw - n * to_host(rest).astype(np.float64) ** 2, 0.0)
            if not (may_shift and _cancelled(raw, found)):
                break
            self.shift = cast(cast(self.shift, self.wide) + rest, self.dtype)
        self.rest, self.squares = rest, found
        S = subtract_outer_product(S, rest, n)
        return S if self.weights is None else S * self.weights[:, None] * self.weights[None, :]

    def gram(self) -> Array:
        """Z Zᵀ in the widest type, shape (n, n), exactly symmetric."""
        n = self.shape[0]
        G = self.shifted_gram()
        # Centring takes away what is left of the mean.
        means = column_sums(G) / n
        half = float(namespace_of(G).sum(means)) / n / 2.0
        return subtract_outer_sum(G, means - half, means - half)


def sampled_places(n: int, d: int) -> np.ndarray:
    """The rows whose mean is the shift, evenly spread; of wide rows a few are enough."""
    most = min(SAMPLED, max(FEWEST_SAMPLED, SAMPLED_ENTRIES // max(1, d)))
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.int64)


def mean_of_sample(rows: Array, wide: Any) -> Array:
    """The mean of some rows in the type `wide`."""
    # Divided first: a sum of huge numbers would overflow.
    return namespace_of(rows).sum(cast(rows, wide) / int(rows.shape[0]), axis=0)


def _cancelled(raw: np.ndarray, found: np.ndarray) -> bool:
    """Whether the shift was so far from the mean that digits are lost."""
    return bool(np.any((raw > MOST_CANCELLED * found) & (found > 0)))
