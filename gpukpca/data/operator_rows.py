"""Kernel matrices that are known by their products, as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._typing import Array, Indices, SymmetricOperator
from gpukpca.backend.namespace import from_host
from gpukpca.backend.parallel import row_slices
from gpukpca.data.batches import BatchedRows, slice_of


class OperatorRows(BatchedRows):
    """The rows (n, n) of a symmetric operator, which are its columns: few are computed at once.

    Attributes
    ----------
    op : SymmetricOperator, shape (n, n)
    """

    def __init__(self, op: SymmetricOperator) -> None:
        n = op.shape[0]
        self.op = op
        bounds = row_slices(n, slice_of(n))
        super().__init__(
            lambda: (self._rows(np.arange(*pair)) for pair in bounds),
            from_host(np.empty((0, n)), op.like, op.dtype),
            [stop - start for start, stop in bounds],
        )

    def _rows(self, chosen: Indices) -> Array:
        return self.op.columns(chosen).T

    def take(self, chosen: Any, *others: Any) -> Array:
        return super().take(chosen, *others) if others else self._rows(chosen)
