"""Errors in blocks of a Dask array name rows of the whole array."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, KernelPCA
from gpukpca.backend.finite import NotFiniteError

dask_array = pytest.importorskip("dask.array")

MODELS = {
    "PCA": lambda X: PCA(2).fit(X).transform,
    "PCA, numbers": lambda X: PCA(2).fit(X).score_samples,
    "KernelPCA": lambda X: KernelPCA(2, kernel="rbf").fit(X).transform,
    "pre-images": lambda X: KernelPCA(2, kernel="rbf", preimage="ridge").fit(X).denoise,
}


def data(n: int = 40) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 3))


def with_entry(row: int, value: float) -> np.ndarray:
    X = data(30)
    X[row, 1] = value
    return X


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 7, 8, 29])
@pytest.mark.parametrize("name", MODELS)
def test_an_entry_in_a_block_is_named_by_its_row_in_the_array(name: str, row: int, value: float):
    X = dask_array.from_array(with_entry(row, value), chunks=(8, 3))
    answer = MODELS[name](data())(X)
    with pytest.raises(ValueError, match=rf"the first in row {row}, column 1\."):
        answer.compute(scheduler="synchronous")


def test_where_lengths_are_unknown_the_block_is_named_too():
    X = dask_array.from_array(with_entry(19, np.nan), chunks=(8, 3))
    unknown = X[dask_array.from_array(np.ones(30, dtype=bool), chunks=8)]
    answer = PCA(2).fit(data()).transform(unknown)
    with pytest.raises(ValueError, match=r"^block 2: Input X contains NaN.* the first in row 3, column 1\."):
        answer.compute(scheduler="synchronous")


def test_the_error_survives_a_pickle():
    error: Any = NotFiniteError("text in row ", 3, ", column 1.")
    assert str(pickle.loads(pickle.dumps(error)).moved(4)) == "text in row 7, column 1."
