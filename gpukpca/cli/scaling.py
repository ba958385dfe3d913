"""Standardized columns, and the same done to new rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca.backend.finite import check_finite
from gpukpca.cli.table import Table, check_memory

PANEL = 8192


@dataclass(frozen=True)
class Standardization:
    """z-scores: columns less their means, in units of their standard deviations.

    Attributes
    ----------
    mean, deviation : array, shape (d,), float64
        The deviation is 1 where a column is constant.
    constant : int
        Columns that are.
    """

    mean: np.ndarray
    deviation: np.ndarray
    constant: int

    @classmethod
    def of(cls, X: np.ndarray, missing: bool = False) -> Standardization:
        """Means and population standard deviations of the columns, accumulated in float64.

        `missing` says that NaN stand for missing values, which are left out; without it they are errors.
        """
        check_finite(X, "Impute or drop missing values first.", missing=missing)
        # fmin and fmax pass over NaN.
        low, high = (extreme.reduce(X, axis=0).astype(np.float64) for extreme in (np.fmin, np.fmax))
        constant = ~(low < high)
        # Divided by the range first: squares of very large or small numbers leave the exponent range.
        spread = np.where(constant, 1.0, high - low)
        means = low + spread * _column_means(X, lambda rows: (rows - low) / spread)
        # The rounded mean of equal numbers may differ from them.
        mean = np.where(constant, low, means)
        variance = _column_means(X, lambda rows: ((rows - mean) / spread) ** 2)
        return cls(mean, np.where(constant, 1.0, spread * np.sqrt(variance)), int(np.sum(constant)))

    def applied(self, X: np.ndarray) -> np.ndarray:
        """New memory: float32 where X is, else float64."""
        return self._mapped(X, lambda rows: (rows - self.mean) / self.deviation, "the standardized matrix")

    def undone(self, Z: np.ndarray) -> np.ndarray:
        """From z-scores back to the units of the data."""
        return self._mapped(Z, lambda rows: rows * self.deviation + self.mean, "the matrix in its own units")

    def _mapped(self, X: np.ndarray, function: Callable[[np.ndarray], np.ndarray], what: str) -> np.ndarray:
        dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        check_memory(X.size * dtype.itemsize, what)
        mapped = np.empty(X.shape, dtype=dtype)
        for start, rows in _panels(X):
            mapped[start : start + PANEL] = function(rows)
        return mapped

    def describe(self) -> str:
        """In words."""
        words = f"{len(self.mean) - self.constant} columns to mean 0 and standard deviation 1"
        return words + (f"; {self.constant} constant, only centered" if self.constant else "")

    def notes(self) -> dict[str, Any]:
        """For a model file."""
        return {"mean": self.mean, "deviation": self.deviation, "constant": self.constant}


@dataclass(frozen=True)
class Prepared:
    """What a fit gets.

    Attributes
    ----------
    table : Table
    words : str
        What was done to it; empty where nothing was.
    scaling : Standardization or None
        What was done, where it is to be done to new rows too.
    """

    table: Table
    words: str = ""
    scaling: Standardization | None = None

    @classmethod
    def of(cls, table: Table, scale: bool, missing: bool = False) -> Prepared:
        """The table with its columns standardized if `scale` says so; `missing` values stay."""
        if not scale:
            return cls(table)
        scaling = Standardization.of(table.X, missing)
        return cls(replace(table, X=scaling.applied(table.X)), scaling.describe(), scaling)


def _panels(X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Some rows at a time, and where they start."""
    return ((start, X[start : start + PANEL]) for start in range(0, X.shape[0], PANEL))


def _column_means(X: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Means over the rows of a function of them, in float64, NaN left out."""
    sums, counts = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _, rows in _panels(X):
        values = function(rows)
        there = ~np.isnan(values)
        sums += np.sum(values, axis=0, where=there)
        counts += np.sum(there, axis=0)
    return sums / np.maximum(counts, 1.0)
