"""The affine map of new points in feature space: scores(x) = k(x, basis) A - b."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.kernel_pca.spectrum import inverse_roots
from gpukpca.backend.linalg import column_sums
from gpukpca.backend.namespace import accumulation_dtype, cast, from_host, full
from gpukpca.eigen import EigenResult
from gpukpca.gram import CenteredGram
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows


@documented
@dataclass(frozen=True, eq=False)
class AffineProjection:
    """The map of new points, scores(x) = k(x, basis) A - b, where it is computed."""

    basis: Any = field_of("m d", "The training rows, or the landmarks; an array or a CSR matrix.", "or sparse")
    projection: Array = field_of("m p", "A.")
    offset: Array = field_of("p", "b.")
    mean_weights: Array = field_of(
        "m",
        "c: Σ c_j φ(basis_j) is the mean of the features, or of their projections onto the landmarks'. In the widest "
        "floating type.",
    )
    mean_norm: float = field_of("", "The squared norm of that mean, as the tiles of the prepared basis have it.")
    template: PreparedRows | None = field_of("", "What the kernel learned from the training set.", default=None)
    rows: PreparedRows | None = field_of(
        "", "The basis made ready, once that is done.", "derived", default=None, repr=False
    )

    @classmethod
    def of_eigenpairs(
        cls,
        op: CenteredGram,
        eigen: EigenResult,
        eigenvalues: np.ndarray,
        basis: Any,
        template: PreparedRows | None = None,
        rows: PreparedRows | None = None,
    ) -> tuple[AffineProjection, Array]:
        """Return the map whose basis is all training rows, and the scores of these, shape (n, p).

        A = U λ^(-1/2), b = mᵀA with the column means m of K. `eigenvalues` are those of `eigen`, checked.
        """
        scale = from_host(inverse_roots(eigenvalues), op.like)[None, :]
        # LAPACK's vectors sum to zero up to rounding, which new points would multiply by the mean of K.
        projection = op.project(eigen.eigenvectors) * scale
        means, n = op.column_means, op.shape[0]
        offset = (means[None, :] @ cast(projection, accumulation_dtype(op.like)))[0, :]
        affine = cls(
            basis,
            projection,
            cast(offset, op.dtype),
            mean_weights=full((n,), 1.0 / n, means),
            mean_norm=float(column_sums(means[:, None])[0]) / n,
            template=template,
            rows=rows if rows is not None and rows.is_local else None,
        )
        return affine, eigen.products * scale

    @property
    def like(self) -> Array:
        """Return a zero-size array where the map is computed."""
        return self.offset[:0]

    def prepared(self, kernel: Kernel) -> PreparedRows:
        """Return the basis made ready for the kernel; it is kept for the next call, and left out of pickles.

        With landmarks for a basis, mean and flatness cannot be learned again from what the model holds: the template
        keeps them.
        """
        if self.rows is None:
            rows = kernel.prepare(self.basis, like=self.template, centered=True)
            object.__setattr__(self, "rows", rows)  # a cache, which no result depends on
            return rows
        return self.rows

    def truncated(self, keep: int) -> AffineProjection:
        """Return the map to the first `keep` components."""
        return replace(self, projection=self.projection[:, :keep], offset=self.offset[:keep])

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"rows": None}
