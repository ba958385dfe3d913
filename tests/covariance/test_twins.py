"""Dense, sparse and streamed centered matrices are one matrix; the cluster's twin is in tests/distributed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse

from gpukpca.covariance.dense import DenseCenteredMatrix
from gpukpca.covariance.panels import PanelCenteredMatrix
from gpukpca.covariance.sparse import SparseCenteredMatrix
from gpukpca.data.batches import BatchedRows
from tests.covariance.twins import OFFSETS, SHAPES, check_twin, rows
from tests.each import covering, each

pytestmark = pytest.mark.usefixtures("threads_for_little")


def streamed(X):
    """Three batches of unequal size, or one."""
    n = int(X.shape[0])
    cuts = sorted({0, n // 3, n // 2, n})
    batches = [X[a:b, :] for a, b in itertools.pairwise(cuts)]
    return PanelCenteredMatrix(BatchedRows(lambda: iter(batches), X[:0, :]), True, X[0, :])


MAKERS = {
    "rows": lambda X: DenseCenteredMatrix(X, by_rows=True, n_jobs=2),
    "columns": lambda X: DenseCenteredMatrix(X, by_rows=False, n_jobs=2),
    "streamed": streamed,
}
# All shapes and offsets, and each with and without divisors of the features.
over_cases = each("shape, offset, scaled", covering(SHAPES, OFFSETS, [False, True]))


@over_cases
@pytest.mark.parametrize("maker", MAKERS)
def test_every_member_agrees_with_the_matrix(xp, maker, shape, offset, dtype, scaled):
    X = rows(shape, offset, dtype)
    check_twin(MAKERS[maker](xp.array(X)), X, np.linspace(0.5, 2.0, shape[1]) if scaled else None)


@over_cases
def test_every_member_of_csr_rows_agrees_with_the_matrix(shape, offset, dtype, scaled):
    X = rows(shape, offset, dtype)
    Z = SparseCenteredMatrix(scipy.sparse.csr_array(X), by_rows=True)
    check_twin(Z, X, np.linspace(0.5, 2.0, shape[1]) if scaled else None)
