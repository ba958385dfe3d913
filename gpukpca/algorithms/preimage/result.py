"""How pre-images were found, point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._typing import Array


@dataclass(frozen=True)
class PreimageInfo:
    """How every pre-image was found; arrays on the host, one entry a point.

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
        """Of so many points that were found without iterating."""
        return cls(np.ones(count, dtype=bool), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool))

    @classmethod
    def joined(cls, parts: Sequence[PreimageInfo]) -> PreimageInfo:
        """Of all points of the parts, in order."""
        names = ("converged", "n_iter", "restarted")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


# Pre-images of scores (m, q), q at most the number of components fitted, from points (m, d) to begin with, if any.
FittedPreimage = Any
Found = tuple[Array, PreimageInfo]
