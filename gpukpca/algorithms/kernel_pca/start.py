"""The start of an iteration: components of a sample of the rows."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import empty_like
from gpukpca.backend.random import random_subset
from gpukpca.data.rows import joined
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.product import compute_tile, prepared_matmat
from gpukpca.kernels import Kernel
from gpukpca.kernels.prepared import PreparedRows

# The start of an iteration need not be better than the sample is.
SAMPLE_TOLERANCE = 1e-3


def components_of_sample(
    kernel: Kernel,
    X: Array,
    rows: PreparedRows,
    size: int,
    columns: int,
    rng: np.random.Generator,
    center: bool = True,
    n_jobs: int | None = None,
) -> Array:
    """Return scores of all rows on the components of `size` random rows, (n, columns): Nyström with even landmarks.

    `rows` are those of X, prepared for centering if `center`. Cost: n size kernel values, 2 size / n of a pass.
    """
    chosen = np.sort(random_subset(rng, rows.n_rows, size))
    sample = rows.take(chosen)
    K = compute_tile(kernel, sample, sample, empty_like(place_of(X)), diagonal=True)
    eigen = top_eigh(
        CenteredGram(DenseGram(K), center=center), columns, solver=BlockKrylov(tol=SAMPLE_TOLERANCE), rng=rng
    )
    return joined(X, _sample_scores, kernel, gather_rows(X, chosen), sample, eigen.eigenvectors, n_jobs)


def _sample_scores(
    X: Array, kernel: Kernel, sampled: Array, sample: PreparedRows, vectors: Array, n_jobs: int | None
) -> Array:
    """Return K(X, sampled) @ vectors."""
    return prepared_matmat(kernel, X, sampled, sample, vectors, n_jobs=n_jobs)
