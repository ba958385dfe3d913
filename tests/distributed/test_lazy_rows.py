"""New rows in Dask arrays: answers are computed block by block, and errors name rows of the whole array."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA
from gpukpca.data.finite import NotFiniteError
from tests.each import each
from tests.tolerances import eps

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


def data(dtype: str = "float64") -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((203, 12)) * 0.7 ** np.arange(12) + 3.0).astype(dtype)


def chunked(X: np.ndarray) -> Any:
    return da.from_array(X, chunks=(41, -1))


MODELS = {
    "PCA": lambda: PCA(3, whiten=True),
    "IncrementalPCA": lambda: IncrementalPCA(3),
    "ProbabilisticPCA": lambda: ProbabilisticPCA(3),
    "BayesianPCA": lambda: BayesianPCA(5),
    "LocalPCA": lambda: LocalPCA(2, 3, random_state=0),
    "KernelPCA": lambda: KernelPCA(3, kernel="rbf", preimage="ridge"),
    "KernelPCA, linear": lambda: KernelPCA(3, kernel="linear"),
    "KernelPCA, Nystrom": lambda: KernelPCA(3, kernel="rbf", eigen_solver="nystrom", random_state=0),
}
METHODS = ("transform", "score_samples", "denoise", "reconstruction_error", "inverse_transform")


@each("dtype", ["float64", "float32"])
@each("name", MODELS)
def test_new_rows_in_a_dask_array_are_answered_lazily(name, dtype):
    X = data(dtype=dtype)
    model = MODELS[name]().fit(X)
    # Column chunks, an empty block, doubles for a model of singles.
    A = da.from_array(X.astype("float64"), chunks=((50, 0, 103, 50), (5, 7)))
    for method in METHODS:
        if not hasattr(model, method) or (name, method) == ("LocalPCA", "inverse_transform"):
            continue
        given = model.transform(X) if method == "inverse_transform" else X
        rows = da.from_array(given, chunks=((50, 0, 103, 50), 2)) if method == "inverse_transform" else A
        found, expected = getattr(model, method)(rows), getattr(model, method)(given)
        assert isinstance(found, da.Array), method
        assert found.chunks[0] == (50, 0, 103, 50)
        assert found.shape == expected.shape
        assert found.dtype == found._meta.dtype == found.compute().dtype == dtype
        assert found._meta.ndim == expected.ndim
        size = np.max(np.abs(expected))
        np.testing.assert_allclose(found.compute(), expected, atol=2000 * eps(dtype) * size, err_msg=method)
        assert found.blocks[1].compute().shape == (0, *expected.shape[1:])
        squares = float(np.sum(expected.astype("float64") ** 2))
        assert float((found.astype("float64") ** 2).sum()) == pytest.approx(squares, rel=1e-3)  # the graph goes on
    if hasattr(model, "score"):
        assert model.score(A) == pytest.approx(model.score(X), rel=1e-3)


def test_unknown_lengths_of_chunks_stay_unknown():
    X = data()
    model = PCA(3).fit(X)
    A = chunked(X)
    found = model.transform(A[A[:, 0] > 3.0])
    assert np.all(np.isnan(found.chunks[0]))
    np.testing.assert_allclose(found.compute(), model.transform(X[X[:, 0] > 3.0]), atol=1e-12)
    assert model.score(A[A[:, 0] > 3.0]) == pytest.approx(model.score(X[X[:, 0] > 3.0]))


def test_the_model_is_in_the_graph_once():
    X = np.random.default_rng(0).standard_normal((200, 2000))
    model = PCA(20).fit(X)
    found = model.transform(da.from_array(X, chunks=(5, 2000)))
    graph = dict(dask.optimize(found)[0].__dask_graph__())
    models = {key for key in graph if "gpukpca-model" in str(key)}
    assert len(models) == 1
    others = sum(len(pickle.dumps(value)) for key, value in graph.items() if "gpukpca-rows" in str(key))
    assert others < model.components_.nbytes


def test_a_later_fit_does_not_change_what_was_asked_before():
    X = data()
    model = PCA(3).fit(X)
    expected, found = model.transform(X), model.transform(chunked(X))
    model.fit(-2 * X)
    np.testing.assert_allclose(found.compute(), expected, atol=1e-12)


REFUSED = {
    "width": (lambda m, A: m.transform(A[:, :5]), ValueError, "5 features, but KernelPCA is expecting 12"),
    "width of scores": (lambda m, A: m.inverse_transform(A), ValueError, "n_components = 3"),
    "one dimension": (lambda m, A: m.transform(A[:, 0]), ValueError, "2D"),
    "complex": (lambda m, A: m.transform(A + 1j), ValueError, "Complex"),
    "out": (lambda m, A: m.transform(A, out=np.empty((203, 3))), ValueError, "takes no out"),
    "info": (lambda m, A: m.denoise(A, return_info=True), ValueError, "takes no return_info"),
    "data frames": (lambda m, A: m.set_output(transform="pandas").transform(A), ValueError, "data frames"),
    "not fitted": (lambda m, A: clone(m).transform(A), ValueError, "not fitted"),
    "NaN": (lambda m, A: m.transform(A * np.nan).compute(), ValueError, "NaN"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_answered_is_refused(name):
    ask, error, message = REFUSED[name]
    model = KernelPCA(3, kernel="rbf", preimage="ridge").fit(data())
    with pytest.raises(error, match=message):
        ask(model, chunked(data()))


def test_an_argument_goes_to_every_block():
    X = data()
    model = KernelPCA(3, kernel="rbf", preimage="ridge").fit(X)
    found = model.denoise(chunked(X), n_components=1).compute()
    np.testing.assert_allclose(found, model.denoise(X, n_components=1), atol=1e-12)


def test_names_of_columns_are_missed_once():
    frame = pytest.importorskip("pandas").DataFrame(data(), columns=[f"c{k}" for k in range(12)])
    model = PCA(3).fit(frame)
    with pytest.warns(UserWarning, match="feature names"):
        found = model.transform(chunked(data()))
    assert found.compute().shape == (203, 3)  # without a warning, which would be an error


def test_blocks_on_a_gpu_are_answered_there(cuda):
    X = data()
    model = PCA(3).fit(cuda.asarray(X))
    meta, upload = cuda.empty((0, 0)), dask.delayed(cuda.asarray)
    blocks = [da.from_delayed(upload(rows), rows.shape, meta=meta) for rows in (X[:100], X[100:])]
    found = model.transform(da.concatenate(blocks))
    assert isinstance(found._meta, cuda.ndarray)
    part = dask.compute(found.to_delayed()[0, 0], scheduler="sync")[0]
    assert isinstance(part, cuda.ndarray)
    np.testing.assert_allclose(part.get(), PCA(3).fit(X).transform(X[:100]), atol=1e-12)


# -- errors ------------------------------------------------------------------------------------------------------------


ANSWERS = {
    "PCA": lambda X: PCA(2).fit(X).transform,
    "PCA, numbers": lambda X: PCA(2).fit(X).score_samples,
    "KernelPCA": lambda X: KernelPCA(2, kernel="rbf").fit(X).transform,
    "pre-images": lambda X: KernelPCA(2, kernel="rbf", preimage="ridge").fit(X).denoise,
}


def three(n: int = 40) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 3))


def with_entry(row: int, value: float) -> np.ndarray:
    X = three(30)
    X[row, 1] = value
    return X


@each("value", [np.nan, np.inf])
@each("row", [0, 7, 8, 29])
@each("name", ANSWERS)
def test_an_entry_in_a_block_is_named_by_its_row_in_the_array(name: str, row: int, value: float):
    X = da.from_array(with_entry(row, value), chunks=(8, 3))
    answer = ANSWERS[name](three())(X)
    with pytest.raises(ValueError, match=rf"the first in row {row}, column 1\."):
        answer.compute(scheduler="synchronous")


def test_where_lengths_are_unknown_the_block_is_named_too():
    X = da.from_array(with_entry(19, np.nan), chunks=(8, 3))
    unknown = X[da.from_array(np.ones(30, dtype=bool), chunks=8)]
    answer = PCA(2).fit(three()).transform(unknown)
    with pytest.raises(ValueError, match=r"^block 2: Input X contains NaN.* the first in row 3, column 1\."):
        answer.compute(scheduler="synchronous")


def test_the_error_survives_a_pickle():
    error: Any = NotFiniteError("text in row ", 3, ", column 1.")
    assert str(pickle.loads(pickle.dumps(error)).moved(4)) == "text in row 7, column 1."
