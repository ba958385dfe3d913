"""The rules that take gamma from the data: 1/d, "scale" and "median"."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from scipy.spatial.distance import pdist, squareform

from gpukpca._rules import NONE, one_of, word
from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import epsilon, overflow_allowed
from gpukpca.backend.random import seeded_subset
from gpukpca.data.gate import check_not_empty
from gpukpca.data.slicing import place_of, sampled_panels
from gpukpca.data.statistics import total_range, variance_of_entries
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.validation import NOT_NEGATIVE

GammaRule = Literal["scale", "median"]
Gamma = float | GammaRule | None
GAMMA = one_of(
    NOT_NEGATIVE,
    NONE,
    word(*get_args(GammaRule)),
    text='None (1 / n_features), a number >= 0, "scale" or "median"',
    synonyms=(("auto", "none"),),  # scikit-learn's name of 1 / n_features
)
MEDIAN_SAMPLE = 1000
# Rows nearer to each other than so many eps of their distance from the middle are one row, up to rounding. Where most
# rows are one row, the middle is that row, and the distance of the outer tenth of the rows counts.
SAME_ROW, OUTER = 1e3, 0.9
# Arrays of the size of a panel that a rule holds.
PANEL_COPIES = 3
# Where no squared distance is below this share of the largest from the mean, a matrix product gives all of them to
# rounding, and no two rows are one row. From so many features on it is faster than differences.
FAR_APART, WIDE_ROWS = 1e-4, 32


def resolved_gamma(
    owner: str, gamma: Any, X: Array, of_length: bool = False, weights: np.ndarray | None = None
) -> float:
    """Return gamma as a number: a number >= 0 itself, None as 1/d, or by a rule from X (n, d); raise for the rest.

    "scale" is 1 / (d · Var(X)) over all entries. "median" is 1 / (2 m²) with m the median Euclidean distance between
    the distinct rows of a sample of at most 1000 (the same rows in every run). Data without spread give 1/d for both.
    `of_length` is for exp(-γ ‖x - y‖₁): with √(γ/d) for γ its exponent is at most the root of γ ‖x - y‖₂², since
    ‖x - y‖₁ ≤ √d ‖x - y‖₂, and follows the units of X as that does. A row counts as often as its weight (n,) says, in
    Var(X) and in the median over pairs of different rows.
    """
    d = int(X.shape[1])
    if gamma is None:
        return 1.0 / max(1, d)  # `Kernel.prepare` refuses rows without features
    GAMMA.check(owner, "gamma", gamma)
    if not isinstance(gamma, str):
        return float(gamma)
    check_not_empty(X, f"gamma={gamma!r}")
    with overflow_allowed():
        spread = variance_of_entries(X, weights) * d if gamma == "scale" else 2.0 * _median_distance(X, weights) ** 2
    if spread == 0 and not _squares_vanish(X):
        return 1.0 / d
    with overflow_allowed():
        value = float(1.0 / np.float64(spread))
    if 0 < value < np.inf:
        return math.sqrt(value / d) if of_length else value
    raise InvalidParameterError(
        f"{owner}: gamma={gamma!r} is beyond the range of a number for data of this size, whose features range over "
        f"{total_range(X):.0e} together; scale the features."
    )


def rule_bytes(gamma: Any, n: int, d: int) -> int:
    """Return the bytes that a rule holds for rows (n, d), in addition to them; 0 for None and a number."""
    if not isinstance(gamma, str):
        return 0
    m = min(n, MEDIAN_SAMPLE) * (gamma != "scale")  # rows whose pairs are compared: their distances, twice
    panels = min(n * d, max(m, blocking.PANEL_ENTRIES.cpu)) + m * min(m, blocking.MEDIAN_PANEL)
    return 8 * (2 * m * m + PANEL_COPIES * panels)


def _squares_vanish(X: Any) -> bool:
    """Return True where the rows differ by so little that the squares of their differences underflow."""
    reach = total_range(X)
    return reach > 0.0 and reach * reach < float(np.finfo(np.float64).tiny)


def _median_distance(X: Any, weights: np.ndarray | None) -> float:
    """Return the median distance between distinct rows of a seeded sample, pairs counting w_i w_j times."""
    n = min(int(X.shape[0]), MEDIAN_SAMPLE)
    often = None
    if weights is not None:
        chosen = weights[seeded_subset(int(X.shape[0]), n)]
        often = np.outer(chosen, chosen)[np.triu_indices(n, 1)]  # the order of `pdist`
    by_product = _squares_by_product(X)
    if by_product is not None:
        return _median(np.sqrt(by_product, out=by_product), often)
    squares, lengths = np.zeros(n * (n - 1) // 2), np.zeros(n)
    for rows in sampled_panels(X, MEDIAN_SAMPLE):
        squares += pdist(rows, "sqeuclidean")
        rows -= np.median(rows, axis=0)
        lengths += np.einsum("ij,ij->i", rows, rows)
    distances, lengths = np.sqrt(squares, out=squares), np.sqrt(lengths)
    least = SAME_ROW * epsilon(place_of(X)) * np.maximum(lengths, np.quantile(lengths, OUTER, method="lower"))
    # Without equal rows every distance is above all bounds, and the bounds of pairs are not needed.
    if distances.size and not distances.min() > least.max():
        kept, stop = np.empty(len(distances), dtype=bool), 0
        for i in range(n - 1):  # the order of `pdist`
            start, stop = stop, stop + n - 1 - i
            own = distances[start:stop]
            kept[start:stop] = (own > 0) & (own >= np.maximum(least[i], least[i + 1 :]))
        distances, often = distances[kept], None if often is None else often[kept]
    return _median(distances, often) if distances.size else 0.0


def _squares_by_product(X: Any) -> np.ndarray | None:
    """Return squared distances of all pairs of the sample by matrix products; None where that costs digits or time."""
    n = min(int(X.shape[0]), MEDIAN_SAMPLE)
    if n < 2 or X.shape[1] < WIDE_ROWS:
        return None
    squares, lengths = np.zeros((n, n)), np.zeros(n)
    for rows in sampled_panels(X, MEDIAN_SAMPLE):
        rows -= rows.mean(axis=0)
        norms = np.einsum("ij,ij->i", rows, rows)
        lengths += norms
        for start in range(0, n, blocking.MEDIAN_PANEL):
            strip = slice(start, start + blocking.MEDIAN_PANEL)
            squares[strip, start:] += norms[strip, None] + norms[start:] - 2.0 * (rows[strip] @ rows[start:].T)
    found = squareform(squares, checks=False)
    return found if found.min() > FAR_APART * lengths.max() else None


def _median(values: np.ndarray, often: np.ndarray | None = None) -> float:
    """Return the median of values, whose order is changed, each of which is there as often as `often` says."""
    if often is not None:
        order = np.argsort(values)
        counted = np.cumsum(often[order])
        middles = [np.searchsorted(counted, 0.5 * counted[-1], side) for side in ("left", "right")]
        return float(np.mean(values[order][middles]))
    return float(np.median(values, overwrite_input=True))
