"""Frequencies of rows: row i of data counts w_i times in every sum over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import accumulation_dtype, cast, from_host, is_foreign, move, namespace_of, to_host
from gpukpca.data.batches import rows_of_weight
from gpukpca.data.gate import LARGEST_EXACT
from gpukpca.data.rows import Rows, along, fold
from gpukpca.data.slicing import gather_rows, place_of, row_panels
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, warn_user

TO_WEIGHTS = "Pass one finite number >= 0 for each row: how often the row counts."
# Sums of weights whose products with rows fit into float32. A weight that is less than this share of the sum changes no
# digit of it, and its root may be 0 in float32.
SMALLEST_SUM, LARGEST_SUM, LEAST_SHARE = 1e-24, 1e24, 1e-30


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Roots w_i^½ of the frequencies of rows, and their sum.

    Attributes
    ----------
    roots : array, shape (n, 1)
        In the widest floating type, where the rows are computed.
    count : float
        Σ w, the number of rows that they stand for; an int where it is whole.
    """

    roots: Array
    count: float

    @classmethod
    def of(cls, weights: np.ndarray, like: Array) -> Frequencies:
        """Return the frequencies (n,), checked, of rows that are computed where `like` is."""
        roots = from_host(np.sqrt(weights)[:, None], like, accumulation_dtype(like))
        return cls(roots, number_of(float(np.sum(weights))))

    @cached_property
    def rows(self) -> int:
        """Return the number of rows with w > 0."""
        return int(np.count_nonzero(to_host(self.roots)))

    @property
    def skips_rows(self) -> bool:
        """Return whether some w are 0."""
        return self.rows < int(self.roots.shape[0])

    def rooted(self, U: Array, start: int = 0, stop: int | None = None) -> Array:
        """Return U (b, k), whose rows are those from start to stop, times the roots."""
        return U * cast(self.roots[start:stop, :], U.dtype)

    def unrooted(self, U: Array) -> Array:
        """Return U (n, k) divided by the roots, none of which is 0."""
        return U / cast(self.roots, U.dtype)

    def times(self, v: Array) -> Array:
        """Return numbers of the rows, shape (n,), times the frequencies."""
        return cast(v * self.roots[:, 0] ** 2, v.dtype)

    def sums(self, F: Array, factors: Array | None = None) -> Array:
        """Return Fᵀ w^½, or Fᵀ times other factors (n, 1), of F (n, k), shape (k,), in the widest type, by panels."""
        factors = self.roots if factors is None else factors
        parts = [column_sums(cast(F[a:b, :], factors.dtype) * factors[a:b, :]) for a, b in row_panels(F)]
        return sum(parts[1:], parts[0])


def without_mean(U: Array, frequencies: Frequencies | None) -> Array:
    """Return U (n, b) less the means of its columns; with frequencies less its projection onto their roots."""
    if frequencies is None:
        return U - cast(column_sums(U) / U.shape[0], U.dtype)[None, :]
    return U - cast(frequencies.roots * (frequencies.sums(U) / frequencies.count)[None, :], U.dtype)


def number_of(count: float) -> float:
    """Return a number of rows as an int where it is whole, and exact."""
    return int(count) if count <= LARGEST_EXACT and float(count).is_integer() else count


def degrees_of_freedom(count: float) -> float:
    """Return what sums of squares over so many rows are divided by: count - 1, or for fewer than two the count.

    Weights that sum to 1 are shares; whole ones that count two rows sum to 2 at least.
    """
    return count - 1 if count >= 2 else count


def checked_frequencies(sample_weight: Any, n: int, is_batch: bool = False) -> np.ndarray | None:
    """Return the frequencies of n rows on the host, shape (n,), float64; None where each row counts once.

    Raise `InvalidParameterError` for anything but n finite numbers >= 0 whose sum is in range; that of a batch of
    several may be small. Warn where they count fewer than two rows, but for such a batch.
    """
    if sample_weight is None:
        return None
    weights = real_weights(sample_weight)
    weights = np.full(n, float(weights)) if weights.ndim == 0 else weights
    if weights.shape != (n,):
        raise _refused(f"its shape is {weights.shape}, and X has {n} rows, so that it must be ({n},)")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if bad.size:
        raise _refused(f"entry {bad[0]} is {weights[bad[0]]}")
    with np.errstate(over="ignore"):
        total = float(np.sum(weights))
    if total == 0.0:
        raise _refused("all weights are zero")
    if total > LARGEST_SUM or (total < SMALLEST_SUM and not is_batch):
        why = f"the sum is {total:.3g}, and from {SMALLEST_SUM} to {LARGEST_SUM:g} is allowed"
        raise _refused(f"{why}; multiply all weights by a constant")
    weights[(weights > 0.0) & (weights < LEAST_SHARE * total)] = LEAST_SHARE * total
    if np.all(weights == 1.0):
        return None
    if total < 2.0 and not is_batch:
        warn_user(
            "sample_weight counts fewer than two rows, so that variances are divided by its sum, not by its sum less "
            "1. Multiply it by the number of rows over its sum to have variances of a sample.",
            GpuKPCAWarning,
            sum=total,
            n_samples=n,
        )
    return weights


def real_weights(sample_weight: Any) -> np.ndarray:
    """Return weights as they are given, on the host in float64; raise for what holds no real numbers."""
    given = to_host(sample_weight) if is_foreign(sample_weight) else sample_weight
    try:
        if np.ma.isMaskedArray(given):
            raise TypeError("masked")
        weights = np.asarray(given)
        if weights.dtype.kind not in "biufO":
            raise TypeError(weights.dtype.name)
        return weights.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise _refused(f"got {type(sample_weight).__name__} that holds no real numbers") from error


def _refused(why: str) -> InvalidParameterError:
    return InvalidParameterError(f"sample_weight is not allowed: {why}. {TO_WEIGHTS}", argument="sample_weight")


class CountedRows(NamedTuple):
    """The rows of weight > 0, their weights (n,), None where each counts once, and their numbers; None: all rows."""

    rows: Any
    weights: np.ndarray | None
    numbers: np.ndarray | None = None


def counted_rows(X: Any, sample_weight: Any, is_batch: bool = True) -> CountedRows:
    """Return the rows that count, with their weights, checked; `Rows` stay in their panels, and none is read.

    The sum of the weights of a batch may be small.
    """
    weights = checked_frequencies(sample_weight, int(X.shape[0]), is_batch)
    if weights is None or np.all(weights):
        return CountedRows(X, weights)
    kept = np.flatnonzero(weights)
    rows = rows_of_weight(X, weights) if isinstance(X, Rows) else gather_rows(X, kept)
    return CountedRows(rows, weights[kept], kept)


def rows_that_count(sample_weight: Any, also: Sequence[int] = ()) -> np.ndarray | None:
    """Return which rows have another weight than 0, shape (n,); None where all may have, or weights are no vector.

    The rows that `also` names count with any weight.
    """
    if sample_weight is None:
        return None
    try:
        weights = real_weights(sample_weight)
    except InvalidParameterError:  # which the check of weights raises again
        return None
    if weights.ndim != 1 or np.all(weights):
        return None
    counts: np.ndarray = weights != 0
    counts[[row for row in also if row < len(counts)]] = True
    return counts


def sum_over_rows(X: Any, weights: np.ndarray | None, function: Callable[..., Array], *arguments: Any) -> float:
    """Return Σ w f(x) over the rows of any container, ``function(panel, *arguments)`` holding f(x), shape (b,).

    `weights` (n,) are on the host; None counts each row once.
    """
    like = place_of(X)
    own = None if weights is None else along(X, from_host(weights[:, None], like, accumulation_dtype(like)))
    return float(fold(X, _sum_of_panel, own, function, *arguments))


def _sum_of_panel(panel: Any, weights: Array | None, function: Callable[..., Array], *arguments: Any) -> float:
    values = function(panel, *arguments)
    xp = namespace_of(values)
    if weights is not None:  # a row of weight 0 may hold anything
        weights = move(weights, values)[:, 0]
        values = xp.where(weights > 0, values * cast(weights, values.dtype), xp.zeros_like(values))
    return float(xp.sum(values))
