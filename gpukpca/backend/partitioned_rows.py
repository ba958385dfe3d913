"""Rows that no single array holds, such as those on other machines: each panel computes its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpukpca._typing import Array


class PartitionedRows:
    """Rows (n, d) as consecutive panels in other places.

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
        return self.like.dtype

    def over_panels(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(panel, *arguments)`` of every panel, in order, on the host."""
        raise NotImplementedError

    def take(self, chosen: Any) -> Array:
        """Return the rows named by host integers, in their order, on the host."""
        raise NotImplementedError


def map_row_blocks(X: Any, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return ``function(panel, *arguments)`` of every panel of X; an array is one panel."""
    return X.over_panels(function, *arguments) if isinstance(X, PartitionedRows) else [function(X, *arguments)]
