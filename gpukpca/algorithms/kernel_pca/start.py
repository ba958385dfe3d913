"""The start of an iteration: components of all rows in the span of a sample's components."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.linalg import leading_ritz_pairs, reciprocals
from gpukpca.backend.namespace import empty_like, from_host, to_host
from gpukpca.backend.random import random_subset
from gpukpca.data.products import inner_products, times_small
from gpukpca.data.rows import joined
from gpukpca.data.slicing import gather_rows, place_of
from gpukpca.eigen import BlockKrylov, top_eigh
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.product import compute_tile, prepared_matmat
from gpukpca.kernels import Kernel

# Passes over K of the sample. Its components span a space, in which those of all rows are found: they need not be good.
SAMPLE_PASSES = 2
# Components of the sample for each column, at most one for so many of its rows.
SPANNED, FEWEST_SHARE = 6, 5


def components_by_sample(
    kernel: Kernel, X: Array, op: CenteredGram, size: int, columns: int, rng: np.random.Generator, n_jobs: int | None
) -> Array:
    """Return scores (n, columns) on components of K ≈ F Fᵀ, whose landmarks are `size` random rows.

    F holds scores of all rows X of the operator on the leading components of the sample. Cost: n size kernel values,
    and some percent of a pass.
    """
    rows, like = op.base.rows, empty_like(place_of(X))
    chosen = np.sort(random_subset(rng, rows.n_rows, size))
    sample, kept = rows.take(chosen), min(SPANNED * columns, size // FEWEST_SHARE)
    K = CenteredGram(DenseGram(compute_tile(kernel, sample, sample, like, diagonal=True)), center=op.center)
    eigen = top_eigh(K, kept, solver=BlockKrylov(passes=SAMPLE_PASSES), rng=rng)
    roots = reciprocals(np.sqrt(np.maximum(to_host(eigen.eigenvalues).astype(np.float64), 0.0)))
    U = eigen.eigenvectors * from_host(roots, like)[None, :]
    F = joined(X, partial(prepared_matmat, kernel, n_jobs=n_jobs), gather_rows(X, chosen), sample, U)
    F = op.project(op.rooted(F))
    return times_small(F, leading_ritz_pairs(inner_products(F, F), min(columns, kept), like)[1])
