"""Rows that no single array holds, such as those of a cluster: a function of all of them is one of every panel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import matmul
from typing import Any

import numpy as np

from gpukpca._typing import Array


class PartitionedRows(ABC):
    """Rows (n, d) as consecutive panels that live elsewhere.

    Attributes
    ----------
    shape : (int, int)
    dtype : floating-point type of every panel
    like : host array, shape (0, d)
        Stands for the rows where only their library, dtype and width matter.
    """

    shape: tuple[int, int]
    ndim = 2
    like: Array

    @property
    def dtype(self) -> Any:
        """Return the floating-point type of every panel."""
        return self.like.dtype

    def __matmul__(self, B: Array) -> Array:
        """Return the product with a small host array (d, b), shape (n, b), on the host."""
        return np.concatenate(self.over_panels(matmul, B))

    @abstractmethod
    def over_panels(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(panel, *arguments)`` of every panel, in order, on the host.

        Arguments that are partitioned themselves come first, and give their panel.
        """

    @abstractmethod
    def map_panels(self, function: Callable[..., Array], *arguments: Any, width: int) -> PartitionedRows:
        """Return the rows ``function(panel, *arguments)``, which stay where the panels are; see `over_panels`."""

    @abstractmethod
    def split(self, A: Array) -> PartitionedRows:
        """Return the rows of a host array (n, b) where the panels are."""

    @abstractmethod
    def take(self, chosen: Any, *others: Any) -> Array:
        """Return the rows named by host integers, in their order, joined with those of others, on the host."""


def gathered(X: Any) -> Array:
    """Return X as one array; on the host where it is partitioned."""
    return X.take(np.arange(X.shape[0])) if isinstance(X, PartitionedRows) else X


def map_row_blocks(X: Any, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return ``function(panel, *arguments)`` of every panel of X; an array is one panel."""
    return X.over_panels(function, *arguments) if isinstance(X, PartitionedRows) else [function(X, *arguments)]
