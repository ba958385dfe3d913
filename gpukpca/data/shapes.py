"""Rows of which the shape and the dtype alone are known, for plans without data."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from numbers import Real
from typing import Any

import numpy as np

from gpukpca.backend import blocking
from gpukpca.backend.random import seeded_uniform
from gpukpca.exceptions import InvalidParameterError

# A uniform variable on [0, √12) has variance 1.
WIDTH_OF_UNIT_VARIANCE = sqrt(12.0)
# NumPy holds no larger array.
MOST_BYTES = np.iinfo(np.intp).max
PRECISIONS = ("float32", "float64")


@dataclass(frozen=True)
class DataShape:
    """The shape and the precision of dense rows (n, d) in memory that do not exist."""

    shape: tuple[int, int]
    dtype: np.dtype

    def rows(self) -> np.ndarray:
        """Return zeros of this shape, which take no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)

    def sample(self) -> np.ndarray:
        """Return rows in place of those that a plan reads: features of variance 1, none negative."""
        n, d = self.shape
        rows = seeded_uniform((min(n, most_planned_rows(d)), d))
        return (WIDTH_OF_UNIT_VARIANCE * rows).astype(self.dtype)


def most_planned_rows(d: int) -> int:
    """Return how many rows of d features a plan reads at most."""
    return max(2, min(blocking.PLAN_ROWS, blocking.PLAN_ENTRIES // d))


def planned_shape(X: Any, dtype: Any = None) -> Any:
    """Return a tuple (n, d) as `DataShape`, and data as they are; raise where `dtype` or the tuple is not allowed."""
    # A tuple of numbers is never a set of rows.
    if not (isinstance(X, tuple) and X and all(isinstance(one, Real) for one in X)):
        if dtype is None:
            return X
        raise InvalidParameterError(
            f"dtype={dtype!r} is for a plan without data, plan((n, d), dtype=...); X has a dtype. Leave dtype out, or "
            "convert X.",
            argument="dtype",
        )
    if len(X) != 2 or not all(float(one).is_integer() and one >= 1 for one in X) or prod(X) * 8 > MOST_BYTES:
        raise InvalidParameterError(
            f"X={X} is no shape of data; give (n_samples, n_features), two whole numbers >= 1 whose product is below "
            "2^60.",
            argument="X",
        )
    return DataShape((int(X[0]), int(X[1])), _precision(dtype))


def _precision(dtype: Any) -> np.dtype:
    """Return the dtype of a fit, float64 for None; raise for others than float32 and float64."""
    try:
        found: np.dtype = np.dtype(dtype)  # that of None is float64
    except TypeError:
        found = np.dtype(object)
    if found.name not in PRECISIONS:
        raise InvalidParameterError(
            f"dtype={dtype!r} is not allowed; give the precision of the fit, float32 or float64. Integers are fitted "
            "in float64.",
            argument="dtype",
        )
    return found
