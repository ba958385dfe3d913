"""Results of pre-images: points, and information about each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpukpca._typing import Array


@dataclass(frozen=True)
class PreimageInfo:
    """Information about every pre-image; arrays on the host, one entry a point.

    Attributes
    ----------
    converged : array of bool, shape (m,)
        Always True for methods that do not iterate.
    n_iter : array of int, shape (m,)
        Looks at the point; 0 for methods that do not iterate.
    restarted : array of bool, shape (m,)
        The start was of no use, and the nearest training point took its place.
    """

    converged: np.ndarray
    n_iter: np.ndarray
    restarted: np.ndarray

    @classmethod
    def direct(cls, count: int) -> PreimageInfo:
        """Return the information about points that were found without iterating."""
        return cls(np.ones(count, dtype=bool), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool))

    @classmethod
    def concatenate(cls, parts: Sequence[PreimageInfo]) -> PreimageInfo:
        """Return the information about all points of the parts, in order."""
        names = ("converged", "n_iter", "restarted")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


# Points (m, d) of data space, and how each was found.
Preimages = tuple[Array, PreimageInfo]


class Preimage(Protocol):
    """A learned map from scores back to data space: the base class of all pre-images."""

    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the pre-images of scores (m, q); an iteration begins at the points `start` (m, d), where given."""

    def of_first(self, count: int) -> Preimage:
        """Return the pre-image of scores of the first components, at most as many as were fitted.

        Most take fewer scores as they are.
        """
        return self
