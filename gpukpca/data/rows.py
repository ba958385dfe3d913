"""Rows in panels, and the verbs of all data: `fold`, `map_rows` and `joined`, which call a function of every panel.

An algorithm that is written with them runs on every container. An array or a CSR matrix in memory is one panel, and
`Rows` are several: batches that are read one by one, or panels on the workers of a cluster.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import matmul
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.namespace import concat

# From two results of panels to one: an associative function that a worker can import.
Merge = Callable[[Any, Any], Any]


class Rows(ABC):
    """Rows (n, d) as consecutive panels, of which a process never needs all at once.

    Attributes
    ----------
    shape : (int, int)
    like : array, shape (0, d)
        Stands for the rows where only their library, dtype, device and width matter.
    """

    shape: tuple[int, int]
    ndim = 2
    # Whether the verbs report their progress themselves.
    reports = False
    like: Array

    @property
    def dtype(self) -> Any:
        """Return the floating-point type of every panel."""
        return self.like.dtype

    def __matmul__(self, B: Array) -> Array:
        """Return the product with a small array (d, b), shape (n, b), in this process."""
        return self.joined(matmul, B)

    @abstractmethod
    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        """Return ``function(panel, *arguments)`` of all panels, merged in a fixed order.

        Arguments that are `Rows` with the same panels come first, and give their panel.
        """

    @abstractmethod
    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(panel, *arguments)`` of every panel, in order; see `fold`."""

    @abstractmethod
    def map(self, function: Callable[..., Array], *arguments: Any, width: int) -> Rows:
        """Return the rows ``function(panel, *arguments)``, each computed where its panel is; see `fold`."""

    @abstractmethod
    def split(self, A: Array) -> Rows:
        """Return the rows of an array (n, b) in the panels of these rows."""

    @abstractmethod
    def take(self, chosen: Any, *others: Any) -> Array:
        """Return the rows named by host integers, in their order, joined with those of others, in this process."""

    def joined(self, function: Callable[..., Array], *arguments: Any) -> Array:
        """Return ``function(panel, *arguments)`` of all panels as one array; see `fold`."""
        return concat(self.each(function, *arguments), axis=0)


def fold(X: Any, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
    """Return ``function(panel, *arguments)`` of all panels of X, merged; an array is one panel."""
    return X.fold(function, *arguments, merge=merge) if isinstance(X, Rows) else function(X, *arguments)


def map_rows(X: Any, function: Callable[..., Array], *arguments: Any, width: int) -> Any:
    """Return the rows ``function(panel, *arguments)`` of all panels of X, `width` columns where the panels are."""
    return X.map(function, *arguments, width=width) if isinstance(X, Rows) else function(X, *arguments)


def joined(X: Any, function: Callable[..., Array], *arguments: Any) -> Array:
    """Return ``function(panel, *arguments)`` of all panels of X as one array in this process."""
    return X.joined(function, *arguments) if isinstance(X, Rows) else function(X, *arguments)


def along(X: Any, A: Array) -> Any:
    """Return an array (n, b) in the panels of X, as an argument of the verbs."""
    return X.split(A) if isinstance(X, Rows) else A


def gathered(X: Any) -> Array:
    """Return X as one array in this process."""
    return X.joined(itself) if isinstance(X, Rows) else X


def itself(panel: Array) -> Array:
    """Return a panel as it is."""
    return panel
