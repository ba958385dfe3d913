"""What streams owe to a user: one warning for all batches, refusals before a read, Dask chunks as batches."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, Nystrom, ProbabilisticPCA
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError
from gpukpca.model_selection import n_components_for

X = np.random.default_rng(0).standard_normal((60, 4)) * [4.0, 2.0, 1.0, 0.5]


def test_a_warning_comes_once_for_all_batches():
    large = (X * 100).astype(int) + 2**60
    frame = pytest.importorskip("pandas").DataFrame(X, columns=list("abcd"))
    model = PCA(2).fit(X)
    for call, rows in (
        (IncrementalPCA(2).fit, large),
        (IncrementalPCA(2).partial_fit, large),
        (PCA(2).fit, large),
        (model.transform, large),
        (model.transform, frame),
        (KernelPCA(2, kernel="cosine", eigen_solver=Nystrom(rank=5)).fit, X * (np.arange(60) % 7 > 0)[:, None]),
    ):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call(Batches([rows[:20], rows[20:40], rows[40:]]))
        texts = [str(one.message) for one in found]
        assert texts
        assert len(set(texts)) == len(texts), texts


def test_a_warning_of_several_passes_comes_once():
    for model in (PCA(2), ProbabilisticPCA(2), KernelPCA(2)):
        with pytest.warns(GpuKPCAWarning, match="fewer than two rows") as found:
            model.fit(X, sample_weight=np.full(60, 0.01))
        assert len(found) == 1


def test_the_rule_parallel_refuses_batches_before_it_reads_one():
    def batches() -> Any:
        raise AssertionError("a batch is read")

    with pytest.raises(InvalidParameterError, match="needs all rows in memory"):
        n_components_for(Batches(batches), "parallel")


def test_partial_fit_adds_the_chunks_of_a_dask_array():
    rows = pytest.importorskip("dask.array").from_array(X, chunks=(20, 3))
    model = KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=20), random_state=0)
    found = model.fit(rows).partial_fit(rows)
    assert found.n_samples_seen_ == 120
    expected = clone(model).fit(X).partial_fit(X)
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
