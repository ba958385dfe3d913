"""CSR matrices of index arrays from anywhere: each is one matrix, or refused before compiled code reads it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, KernelPCA
from gpukpca.backend.linalg import row_products
from gpukpca.data.csr import csr_from_parts
from gpukpca.kernels import RBF
from tests.each import each
from tests.hostile import forks, in_a_process, mutated, valid_parts

# Mutated matrices; `GPUKPCA_FUZZ=10000` tries more.
COUNT = int(os.environ.get("GPUKPCA_FUZZ", "2500"))


def use(matrix: Any) -> None:
    """Compute with a matrix what kernels and operators compute."""
    matrix @ np.ones((matrix.shape[1], 2))
    matrix.T @ np.ones((matrix.shape[0], 2))
    (matrix @ matrix.T).toarray()
    matrix[np.array([1, 0])].toarray()


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_mutated_index_arrays_are_refused_or_make_a_matrix() -> None:
    def work() -> str:
        rng, refused, valid = np.random.default_rng(16), 0, valid_parts()
        for _ in range(COUNT):
            fields = dict(valid)
            for _ in range(rng.integers(1, 3)):
                name = str(rng.choice(["indices", "indptr"]))
                if fields[name].ndim == 1 and len(fields[name]):
                    fields[name] = mutated(fields[name], rng)
            try:
                matrix = csr_from_parts("csr_array", **fields)
            except ValueError:
                refused += 1
            else:
                assert matrix.has_canonical_format
                use(matrix)
        return str(refused)

    refused = int(in_a_process(work))
    assert COUNT // 2 < refused < COUNT  # some changes leave a matrix


OUTSIDE = {
    "indices": lambda part: part.__setitem__(0, 10**6),
    "indptr": lambda part: part.__setitem__(slice(1, None), [10**6] * (len(part) - 2) + [0]),
}


@each("part", OUTSIDE)
@each("form", ["csr", "csc"])
@each("work", [KernelPCA(2).fit, PCA(2).fit, RBF(0.1)])
def test_sparse_data_whose_entries_lie_outside_are_refused(part: str, form: str, work: Any) -> None:
    X = scipy.sparse.random(12, 6, 0.4, format=form, random_state=0)
    OUTSIDE[part](getattr(X, part))
    with pytest.raises(ValueError, match=r"indptr must never decrease|column indices must lie"):
        work(X)


@each("columns", [[4, 1, 2], [1, 1, 4], [1, 4, 4]])
def test_unsorted_and_repeated_indices_are_refused(columns: list[int]) -> None:
    fields = valid_parts() | {"indices": np.array(columns), "data": np.array([1.0, 2.0, 3.0])}
    fields["indptr"] = np.array([0, 3] + [3] * 7)
    with pytest.raises(ValueError, match="column indices must ascend in every row"):
        csr_from_parts("csr_matrix", **fields)


def test_products_of_rows_are_those_of_any_number_of_columns() -> None:
    """Columns that are many beside the entries are left out first: the same sums in the same order."""
    rng = np.random.default_rng(0)
    for n, m in ((0, 3), (1, 1), (7, 5), (40, 3)):
        a, b = rng.random((n, 12)) * (rng.random((n, 12)) < 0.4), rng.random((m, 12)) * (rng.random((m, 12)) < 0.4)
        narrow = [scipy.sparse.csr_array(rows) for rows in (a, b)]
        wide = [
            scipy.sparse.csr_array((rows.data, 10**6 * rows.indices, rows.indptr), (len(rows.indptr) - 1, 12 * 10**6))
            for rows in narrow
        ]
        np.testing.assert_allclose(row_products(*wide), a @ b.T, rtol=1e-14)
        np.testing.assert_array_equal(row_products(*wide), row_products(*narrow))
