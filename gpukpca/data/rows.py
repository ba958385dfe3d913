"""Rows in panels, and the verbs of all data: `fold`, `map_rows` and `joined`, which call a function of every panel.

An algorithm that is written with them runs on every container. An array or a CSR matrix in memory is one panel, and
`Rows` are several: batches that are read one by one, panels on the workers of a cluster, or those of another class.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from operator import matmul
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import concat

# From two results of panels to one: an associative function that a worker can import.
Merge = Callable[[Any, Any], Any]
# Most and fewest rows of a sample whose mean stands for that of all, and most entries of them. The mean of 128 rows
# differs from that of all by a tenth of a standard deviation.
SAMPLED, FEWEST_SAMPLED, SAMPLED_ENTRIES = 128, 16, 2**19


class Rows(ABC):
    """Rows (n, d) as consecutive panels, of which a process never needs all at once.

    A class outside of the library sets `shape` and `like`, and defines the five abstract methods. Its panels are dense
    arrays of the library and the floating-point type of `like`; `CheckedRows` counts and checks them.

    Attributes
    ----------
    shape : (int, int)
    like : array, shape (0, d)
        Stands for the rows where only their library, dtype, device and width matter.
    place : Placement or None
        Where the rows are, and where they are computed; None: where they are.
    """

    shape: tuple[int, int]
    ndim = 2
    like: Array
    place: Any = None
    # Whether the verbs report their progress themselves.
    reports = False
    # Whether the rows are counted, and their entries checked, without the gate.
    is_checked = False

    @property
    def dtype(self) -> Any:
        """Return the floating-point type of every panel."""
        return self.like.dtype

    def __matmul__(self, B: Array) -> Array:
        """Return the product with a small array (d, b), shape (n, b), in this process."""
        return self.joined(matmul, B)

    # -- verbs, which a class defines ----------------------------------------------------------------------------------

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

    # -- what follows from them ----------------------------------------------------------------------------------------

    @staticmethod
    def plus(a: Any, b: Any) -> Any:
        """Return a + b of two results of panels; in the memory of one of them where this process alone holds both."""
        return a + b

    def joined(self, function: Callable[..., Array], *arguments: Any) -> Array:
        """Return ``function(panel, *arguments)`` of all panels as one array; see `fold`."""
        return concat(self.each(function, *arguments), axis=0)

    def counted(self) -> list[int]:
        """Return the number of rows of every panel, after a pass where they are unknown."""
        return self.each(row_count)

    @cached_property
    def largest(self) -> int:
        """The number of rows of the largest panel."""
        return max(self.counted())

    @property
    def threads(self) -> int | None:
        """Return how many threads work on the panels; None: those of this process."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the plan of PCA says of the rows."""
        return (f"rows are read in every pass, in batches of up to {self.largest}",)

    @property
    def n_rows(self) -> int | None:
        """Return the number of rows; None where no pass has counted them yet."""
        return int(self.shape[0])

    def slice(self, start: int, stop: int) -> Array:
        """Return consecutive rows in this process."""
        return self.take(np.arange(start, stop))

    def __iter__(self) -> Iterator[Array]:
        """Yield the panels in this process, one after another."""
        return (self.slice(start, stop) for start, stop in pairwise(np.cumsum([0, *self.counted()]).tolist()))

    def pairs(self, function: Callable[..., Any], shared: Any, column: Array | None) -> Array | None:
        """Return the symmetric matrix (n, n) of ``function((shared,), *rows, *others)`` for pairs of groups of rows.

        Those of a column (n, 1) follow the rows of a group. None: no workers share the pairs.
        """
        return None

    def kept(self, numbers: np.ndarray) -> Rows | None:
        """Return the rows of these numbers, ascending, where they are; None: as `BatchedRows`, in this process."""
        return None

    def sample(self) -> Array:
        """Return rows in this process that are spread over all, so few that their mean costs nothing."""
        return self.take(np.arange(0, self.shape[0], sampling_step(*self.shape)))

    def some(self, count: int) -> tuple[Any, np.ndarray, Rows]:
        """Return `count` rows that are spread over all, or all there are, their numbers, and rows for one pass."""
        n = int(self.shape[0])
        numbers = np.linspace(0, n - 1, count).astype(np.int64) if count < n else np.arange(n)
        return self.take(numbers), numbers, self

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[Any, np.ndarray, Rows]:
        """Return `count` rows that stand for all, however these are ordered, their numbers, and rows for one pass."""
        return self.some(count)


def sampling_step(n: int, d: int) -> int:
    """Return the distance between the rows of a sample whose mean stands for that of all; wide rows are few."""
    limit = min(SAMPLED, max(FEWEST_SAMPLED, SAMPLED_ENTRIES // max(1, d)))
    return max(1, -(-n // limit))


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


def row_count(panel: Array) -> int:
    """Return the number of rows of a panel."""
    return int(panel.shape[0])
