"""K as a factor: K = F Fᵀ."""

from __future__ import annotations

from typing import Any

from gpukpca._typing import Array, Indices, SymmetricOperator
from gpukpca.backend.device import operator_on_its_device
from gpukpca.backend.linalg import symmetric_from_upper
from gpukpca.backend.namespace import cast, empty_like
from gpukpca.backend.parallel import occupied, worker_count
from gpukpca.data.products import inner_products, times_small
from gpukpca.data.rows import joined
from gpukpca.data.slicing import by_panels, gather_rows, place_of
from gpukpca.data.statistics import row_square_sums
from gpukpca.gram.arguments import check_block, check_indices, checked_matrix


@operator_on_its_device
class LowRankGram(SymmetricOperator):
    """The symmetric positive semidefinite matrix F Fᵀ as an operator.

    F (n, k) is kept as it is. `noise_scale` is the size of the numbers that cancelled when F was centered; rank
    decisions depend on it. A product with b columns costs 4 n k b operations, without another array of the size of F.
    ``Fᵀ V`` is summed in the widest floating type.
    """

    def __init__(self, F: Array, noise_scale: float = 0.0, *, n_jobs: int | None = None) -> None:
        self.F = F = checked_matrix(F, "F", "(n, k)")
        self.noise_scale = noise_scale
        self.shape: tuple[int, int] = (int(F.shape[0]), int(F.shape[0]))
        self.dtype: Any = F.dtype
        self.like: Array = empty_like(place_of(F))
        self.workers: int = worker_count(F, n_jobs, F.shape[0] * F.shape[1] ** 2)

    def __matmul__(self, V: Array) -> Array:
        """Return F (Fᵀ V), shape (n, b)."""
        check_block(self, V)
        V = cast(V, self.dtype)
        workers = occupied(self.workers, self.F.shape[0] * self.F.shape[1] * V.shape[1])
        return times_small(self.F, inner_products(self.F, V, workers), workers)

    def diagonal(self) -> Array:
        return joined(self.F, row_square_sums)

    def columns(self, indices: Indices) -> Array:
        check_indices(self, indices)
        return self.F @ gather_rows(self.F, indices).T

    def block(self, rows: Indices, columns: Indices) -> Array:
        right = gather_rows(self.F, columns)
        return gather_rows(self.F, rows) @ right.T

    def to_dense(self) -> Array:
        """Return F Fᵀ as a new square array, exactly symmetric. Cost 2 n² k."""
        transposed = self.F.T
        # By panels: one buffer times its own transpose takes BLAS's syrk path, which crashes for large shapes.
        K = by_panels(self.F, lambda panel, *_: panel @ transposed)
        return symmetric_from_upper(K, self.diagonal())

    def factor(self) -> Array:
        return self.F
