"""Where the iteration starts when a pass over K is dear: from the components of a sample."""

from __future__ import annotations

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.random import random_subset
from gpukpca.backend.rows import gather_rows
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.gram import CenteredGram, DenseGram, TiledGram, kernel_matmat
from gpukpca.gram.product import compute_tile

# The start need not be better than the sample is.
SAMPLE_TOLERANCE = 1e-3


def components_of_sample(op: TiledGram, X: Array, size: int, columns: int, rng: np.random.Generator) -> Array:
    """Scores of all rows on the components of `size` random rows, shape (n, columns): Nyström with even landmarks.

    Cost: n size kernel values, which is 2 size / n of a pass.
    """
    chosen = np.sort(random_subset(rng, op.shape[0], size))
    sample = op.rows.take(chosen)
    K = compute_tile(op.kernel, sample, sample, op.like, diagonal=True)
    eigen = top_eigh(CenteredGram(DenseGram(K)), columns, solver=BlockKrylov(tol=SAMPLE_TOLERANCE), rng=rng)
    vectors = eigen.eigenvectors
    return kernel_matmat(op.kernel, X, gather_rows(X, chosen), vectors, prepared=sample, n_jobs=op.workers)
