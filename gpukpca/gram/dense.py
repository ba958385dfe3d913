"""K as a stored square matrix."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array, ColumnPanels, Indices, SymmetricOperator
from gpukpca.backend import blocking
from gpukpca.backend.device import operator_on_its_device
from gpukpca.backend.namespace import empty_like, namespace_of
from gpukpca.backend.parallel import map_in_order, row_slices, worker_count
from gpukpca.data.slicing import gather_rows, take_columns
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.arguments import check_block, check_indices, checked_matrix
from gpukpca.kernels.prepared import PreparedRows


@operator_on_its_device
class DenseGram(SymmetricOperator):
    """A stored symmetric matrix as an operator.

    Parameters
    ----------
    K : array, shape (n, n)
        Symmetric; that is trusted, not checked. Integers become float64. Not copied and not changed.
    n_jobs : int, optional
        Threads (NumPy only). None: as many as BLAS may use now.
    rounding : float
        See `gpukpca.gram.SymmetricOperator`.
    rows : PreparedRows, optional
        The prepared rows that K was evaluated from.

    See Also
    --------
    TiledGram : The operator of a kernel and data, without the square matrix.
    gram_matrix : The matrix of a kernel and data.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.gram import DenseGram
    >>> op = DenseGram(np.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> op @ np.array([[1.0], [0.0]])
    array([[2.],
           [1.]])
    >>> op.diagonal()
    array([2., 3.])
    """

    def __init__(
        self, K: Array, *, n_jobs: int | None = None, rounding: float = 1.0, rows: PreparedRows | None = None
    ) -> None:
        K = checked_matrix(K, "K", "(n, n)")
        if K.shape[0] != K.shape[1]:
            raise InvalidParameterError(f"a Gram matrix must be square; got shape {tuple(K.shape)}.")
        self.K = K
        self.shape: tuple[int, int] = (int(K.shape[0]), int(K.shape[0]))
        self.dtype: Any = K.dtype
        self.like: Array = empty_like(K)
        self.n_jobs = n_jobs
        self.rounding: float = rounding
        self.rows = rows

    def __matmul__(self, V: Array) -> Array:
        xp, n = check_block(self, V), self.shape[0]
        workers = worker_count(self.like, self.n_jobs, n * n * (V.shape[1] + blocking.ENTRY_PASS))
        panels = row_slices(n, n if workers == 1 else max(blocking.SMALLEST_PRODUCT_PANEL, -(-n // (4 * workers))))
        parts = map_in_order(lambda rows: self.K[rows[0] : rows[1], :] @ V, panels, workers)
        return xp.concat(parts, axis=0)

    def diagonal(self) -> Array:
        return namespace_of(self.K).linalg.diagonal(self.K)

    def columns(self, indices: Indices) -> Array:
        check_indices(self, indices)
        return take_columns(self.K, indices)

    def column_panels(self, indices: Indices) -> ColumnPanels:
        check_indices(self, indices)
        return lambda start, stop: take_columns(self.K[start:stop, :], indices)

    def block(self, rows: Indices, columns: Indices) -> Array:
        return take_columns(gather_rows(self.K, rows), columns)

    def to_dense(self) -> Array:
        """Return a copy of the matrix."""
        return namespace_of(self.K).asarray(self.K, copy=True)
