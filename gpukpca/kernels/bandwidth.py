"""gamma from the data: 1/d, "scale" and "median"."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from gpukpca._typing import Array
from gpukpca.backend.namespace import epsilon, overflow_allowed
from gpukpca.backend.rows import place_of, sampled_rows, total_range, variance_of_entries
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.parameters import checked_number

GAMMA_RULES = ("scale", "median")
MEDIAN_SAMPLE = 1000
# Rows nearer to each other than so many eps of their distance from the middle are one row, told apart by rounding.
SAME_ROW = 1e3
# Squared distances by a matrix product are right to rounding, and no rows are one row, where none is below this share
# of the largest squared distance from the mean. From so many features it is faster than differences.
FAR_APART, WIDE_ROWS, PANEL = 1e-4, 32, 250
# In so many of their features rows are looked for that are near to each other: a tree is fast in few dimensions.
TREE_FEATURES = 3


def resolved_gamma(owner: str, gamma: Any, X: Array) -> float:
    """gamma as a number.

    Parameters
    ----------
    owner : str
        Named in the error.
    gamma : float >= 0, None, "scale" or "median"
        None is 1/d; "scale" is 1 / (d · Var(X)) over all entries; "median" is 1 / (2 m²) with m the median Euclidean
        distance between the distinct rows of a sample of at most 1000 (the same rows in every run). Data
        without spread give 1/d for both.
    X : array or CSR matrix, shape (n, d)

    Raises
    ------
    InvalidParameterError
        For anything else.
    """
    d = int(X.shape[1])
    if gamma is None:
        return 1.0 / d
    if not isinstance(gamma, str):
        return checked_number(owner, "gamma", gamma, low=0, what='a number >= 0, None, "scale" or "median"')
    if gamma in GAMMA_RULES:
        with overflow_allowed():
            spread = variance_of_entries(X) * d if gamma == "scale" else 2.0 * _median_distance(X) ** 2
    else:
        raise InvalidParameterError(
            f'{owner}: gamma={gamma!r} is not allowed; gamma must be a number >= 0, None, "scale" or "median".'
        )
    if spread == 0 and not _squares_vanish(X):
        return 1.0 / d
    with overflow_allowed():
        value = float(1.0 / np.float64(spread))
    if 0 < value < np.inf:
        return value
    raise InvalidParameterError(
        f"{owner}: gamma={gamma!r} is beyond the range of a number for data of this size, whose features range over "
        f"{total_range(X):.0e} together; scale the features."
    )


def _squares_vanish(X: Any) -> bool:
    """Return True where the rows differ by so little that the squares of their differences underflow."""
    reach = total_range(X)
    return reach > 0.0 and reach * reach < float(np.finfo(np.float64).tiny)


def _median_distance(X: Any) -> float:
    """Median distance between distinct rows of a seeded sample."""
    rows = sampled_rows(X, MEDIAN_SAMPLE)
    by_product = _distances_by_product(rows)
    if by_product is not None:
        return _median(by_product)
    distances = pdist(rows)
    least = SAME_ROW * epsilon(place_of(X)) * np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    # Of data without equal rows every distance is above all bounds, and no pair need be looked at by itself.
    if distances.size and not distances.min() > least.max():
        distances = distances[(distances > 0) & (distances >= _larger_of_pairs(least))]
    return _median(distances) if distances.size else 0.0


def median_is_sharp(X: Any, share: float) -> bool:
    """Whether the median distance is the same, to that share of it, if rows that rounding may tell apart are one."""
    rows = sampled_rows(X, MEDIAN_SAMPLE)
    reach = SAME_ROW * epsilon(place_of(X)) * np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()
    tree = cKDTree(rows[:, :TREE_FEATURES])
    if int(tree.count_neighbors(tree, reach)) == len(rows):
        return True
    distances = pdist(rows)
    apart = distances[distances > reach]
    return bool(apart.size and _median(apart) - _median(distances) <= share * _median(apart))


def _distances_by_product(rows: np.ndarray) -> np.ndarray | None:
    """Distances of all pairs by matrix products, in an order of their own; None where these cost digits or time."""
    n, d = rows.shape
    if n < 2 or d < WIDE_ROWS:
        return None
    rows = rows - rows.mean(axis=0)
    norms = np.sum(rows * rows, axis=1, keepdims=True)
    left, right = np.hstack([-2.0 * rows, norms, np.ones((n, 1))]), np.hstack([rows, np.ones((n, 1)), norms])
    parts = []
    for start in range(0, n, PANEL):
        squares = left[start : start + PANEL] @ right[start:].T
        count = len(squares)
        parts += [squares[:, :count][np.triu_indices(count, 1)], squares[:, count:].reshape(-1)]
    found = np.concatenate(parts)
    return np.sqrt(found) if found.min() > FAR_APART * norms.max() else None


def _median(values: np.ndarray) -> float:
    """The median, by one place of the order: NumPy looks for both middle ones of an even number, four times as long."""
    middle = len(values) // 2
    parted = np.partition(values, middle)
    upper = float(parted[middle])
    return upper if len(values) % 2 else 0.5 * (float(parted[:middle].max()) + upper)


def _larger_of_pairs(values: np.ndarray) -> np.ndarray:
    """The larger value of every two rows, in the order of `pdist`."""
    first, second = np.triu_indices(len(values), 1)
    return np.maximum(values[first], values[second])
