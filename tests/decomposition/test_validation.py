"""What first readers ran into: ownership of data, inputs that only look like numbers, advice that helps."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn.decomposition
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone

from gpukpca import PCA, IncrementalPCA, KernelPCA, KernelPCACV, LocalPCA, ProbabilisticPCA
from gpukpca.algorithms import fit_pca
from gpukpca.data.finite import FINITE
from gpukpca.exceptions import IndefiniteKernelError, InvalidParameterError, PrecisionWarning
from gpukpca.gram import TiledGram, gram_matrix, kernel_matmat
from gpukpca.kernels import RBF
from tests.each import each


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((700, 5))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda X: X.astype("M8[ns]"), TypeError, "dates"),
        (lambda X: pd.DataFrame({"t": pd.date_range("2020", periods=5)}), TypeError, "dates"),
        (lambda X: pd.DataFrame(X[:, :2], columns=["a", "a"]), ValueError, "several columns named 'a'"),
        (lambda X: np.ma.masked_greater(X, 1.0), ValueError, "masked"),
        (lambda X: [[10**400], [1]], ValueError, "beyond float64"),
    ],
    ids=["dates", "data frame of dates", "columns of one name", "masked", "huge integer"],
)
def test_what_only_looks_like_numbers_is_refused(X: np.ndarray, make, error, words: str) -> None:
    with pytest.raises(error, match=words):
        KernelPCA(1, kernel="rbf").fit(make(X))


ROWS = np.random.default_rng(0).standard_normal((6, 4))
SHARED_ERRORS = {
    "mle by arpack": (PCA("mle", svd_solver="arpack"), "fit", ROWS),
    "mle by randomized": (PCA("mle", svd_solver="randomized"), "fit", ROWS),
    "mle of wide rows": (PCA("mle"), "fit", ROWS.T),
    "too many": (PCA(5, svd_solver="full"), "fit", ROWS),
    "none by arpack": (PCA(0, svd_solver="arpack"), "fit", ROWS),
    "none by randomized": (PCA(0, svd_solver="randomized"), "fit", ROWS),
    "more than features": (IncrementalPCA(5), "fit", ROWS),
    "more than features and rows": (IncrementalPCA(5), "partial_fit", ROWS[:2]),
    "more than rows": (IncrementalPCA(3), "partial_fit", ROWS[:2]),
    "sparse batch": (IncrementalPCA(2), "partial_fit", scipy.sparse.csr_array(ROWS)),
    "matrix without rows": (KernelPCA(kernel="precomputed", fit_inverse_transform=True), "fit", ROWS @ ROWS.T),
    "sparse pre-image": (KernelPCA(fit_inverse_transform=True), "fit", scipy.sparse.csr_array(ROWS)),
}


@each("case", SHARED_ERRORS)
def test_errors_have_the_words_of_scikit_learn(case):
    mine, method, rows = SHARED_ERRORS[case]
    kind = getattr(sklearn.decomposition, type(mine).__name__)
    peer = kind(**{name: mine.get_params()[name] for name in kind().get_params()})
    with pytest.raises((ValueError, TypeError, NotImplementedError)) as theirs:
        getattr(peer, method)(rows)
    with pytest.raises((ValueError, TypeError)) as ours:
        getattr(mine, method)(rows)
    assert str(theirs.value).rstrip(".") in str(ours.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "X is None, and not an array of shape"),
        ("data.csv", "X is 'data.csv', and not .* Read a file first: .*loadtxt"),
        (Path("data.csv"), "Path.*Read a file first"),
        ({"a": [1.0]}, "X is of type dict"),
        (slice(3), "X is of type slice"),
    ],
    ids=str,
)
def test_what_is_no_array_is_named(X: np.ndarray, given, words: str) -> None:
    for estimator in (PCA(1), KernelPCA(1), IncrementalPCA(1), LocalPCA(1, 1), KernelPCACV(n_components=[1])):
        with pytest.raises(InvalidParameterError, match=words):
            clone(estimator).fit(given)
    fitted = PCA(1).fit(X)
    for call in (fitted.transform, fitted.inverse_transform, RBF(), lambda X: fit_pca(X, 1)):
        with pytest.raises(InvalidParameterError, match=words):
            call(given)


REFUSED = {
    "dates": (np.zeros((3, 2), "M8[s]"), TypeError, "X holds dates or time differences"),
    "time differences": (np.zeros((3, 2), "m8[s]"), TypeError, "X holds dates or time differences"),
    "masked": (np.ma.masked_array(np.zeros((3, 2)), mask=True), InvalidParameterError, "X has masked entries"),
    "huge": ([[10**400, 0]], InvalidParameterError, "an integer beyond float64"),
    "huge objects": (np.array([[10**400, 0]], dtype=object), InvalidParameterError, "an integer beyond float64"),
    "complex": (np.zeros((3, 2), complex), InvalidParameterError, "X holds complex128; pass X.real"),
    "text": ([[1.0, "a"]], ValueError, "column 1, row 0 of X"),
}


def test_scores_are_refused_where_rows_are(X: np.ndarray) -> None:
    rows = X[:60, :3]
    models = (
        PCA(2),
        KernelPCA(2, fit_inverse_transform=True),
        ProbabilisticPCA(2),
        LocalPCA(1, 2),
        IncrementalPCA(2),
    )
    for model in (one.fit(rows) for one in models):
        for given, error, words in REFUSED.values():
            with pytest.raises(error, match=words):
                model.inverse_transform(given)
        unmasked = np.ma.masked_array(model.transform(rows))
        np.testing.assert_array_equal(model.inverse_transform(unmasked), model.inverse_transform(unmasked.data))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("form", ["to_sparse", "to_sparse_csr"])
def test_sparse_tensors_are_refused_with_advice(X: np.ndarray, form: str) -> None:
    tensor = getattr(pytest.importorskip("torch").asarray(X), form)()
    fitted = PCA(5).fit(X)
    for call in (PCA(1).fit, KernelPCA(1).fit, fitted.transform, fitted.inverse_transform, RBF()):
        with pytest.raises(InvalidParameterError, match=r"X is a sparse tensor.* pass X.to_dense\(\), or a CSR"):
            call(tensor)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (scipy.sparse.coo_array([1.0, 2.0]), "Expected 2D array, got 1D array"),
        ([[10**400], [1]], "an integer beyond float64"),
        (np.ones((0, 3)), r"shape[ =]\(0, 3\)"),
    ],
    ids=["sparse vector", "huge integer", "no rows"],
)
def test_functions_name_what_are_no_rows(given, words: str) -> None:
    for call in (RBF(), RBF().diagonal, lambda X: fit_pca(X, 1)):
        with pytest.raises(InvalidParameterError, match=words):
            call(given)


class Frame:
    """A data frame as polars makes them: dtypes in a list, without kinds, and numbers by `__array__` alone."""

    class Dtype:
        def __init__(self, temporal: bool) -> None:
            self.temporal = temporal

        def is_temporal(self) -> bool:
            return self.temporal

    def __init__(self, X: np.ndarray, temporal: bool = False) -> None:
        self.X, self.shape = X, X.shape
        self.columns = [f"x{i}" for i in range(X.shape[1])]
        self.dtypes = [self.Dtype(temporal and i == 1) for i in range(X.shape[1])]

    def __len__(self) -> int:
        return len(self.X)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.X, dtype=dtype)


ESTIMATORS = [
    PCA(2, svd_solver="covariance_eigh"),
    KernelPCA(2, kernel="rbf", random_state=0),
    IncrementalPCA(2),
    ProbabilisticPCA(2, random_state=0),
    LocalPCA(1, 2, random_state=0),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_frames_whose_dtypes_have_no_kind_are_rows(X: np.ndarray, estimator, dtype: str) -> None:
    rows = X.astype(dtype)
    model = clone(estimator)
    scores = model.fit(Frame(rows)).transform(Frame(rows))
    assert scores.dtype == dtype
    np.testing.assert_array_equal(scores, model.fit(rows).transform(rows))
    with pytest.raises(TypeError, match="dates"):
        model.fit(Frame(rows, temporal=True))


def test_polars_frames_are_rows(X: np.ndarray) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X, schema=list("abcde"))
    model = PCA(2).fit(frame)
    assert list(model.feature_names_in_) == list("abcde")
    # In columns one after the other, so that sums are rounded in another order.
    np.testing.assert_allclose(model.transform(frame), PCA(2).fit(X).transform(X), atol=1e-10)
    assert PCA(2).fit_transform(frame.cast(polars.Float32)).dtype == np.float32
    holes = frame.with_columns(a=polars.when(polars.col("a") > 1).then(None).otherwise(polars.col("a")))
    with pytest.raises(ValueError, match="missing values"):
        PCA(2).fit(holes)
    assert np.isfinite(ProbabilisticPCA(2).fit(holes).transform(holes)).all()
    for temporal in (polars.lit("2020-01-01").str.to_date(), polars.duration(days=1)):
        with pytest.raises(TypeError, match="dates"):
            PCA(2).fit(frame.with_columns(a=temporal))
    with pytest.raises(ValueError, match=r"'red' \(column 'e', row 0 of X\)"):
        PCA(2).fit(frame.with_columns(e=polars.lit("red")))
    texts = frame.with_columns(b=polars.lit("red"), e=polars.lit("x"))
    with pytest.raises(ValueError, match=r"'red' \(column 'b', row 0 of X\). Leave out, .* column\(s\) 'b', 'e'\."):
        PCA(2).fit(texts)
    with pytest.raises(TypeError, match="collect"):
        PCA(2).fit(frame.lazy())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda X: pd.DataFrame(X, columns=list("abcde")).assign(kind="red"), ValueError, "column 'kind', row 0"),
        (lambda X: np.array([[1.0, 2.0, 3.0], [4.0, None, "red"]], dtype=object), ValueError, "column 2, row 1"),
        (lambda X: [[1.0, 2.0], [3.0, "red"]], ValueError, "'red'.*column 1, row 1"),
        (lambda X: np.array([["1.5", "2"], ["red", "4"]]), ValueError, "column 0, row 1"),
        (lambda X: [[1.0, 2.0], [object(), 3.0]], TypeError, "column 0, row 1"),
        (lambda X: Frame(np.array([[1.0, "red"]], dtype=object)), ValueError, "column 'x1', row 0"),
    ],
    ids=["data frame", "objects", "lists", "text", "no number", "frame without kinds"],
)
def test_what_is_no_number_is_named_by_its_column(X: np.ndarray, make, error, words: str) -> None:
    for estimator in ESTIMATORS:
        with pytest.raises(error, match=words):
            clone(estimator).fit(make(X))
    with pytest.raises(error, match=words):
        RBF()(make(X))


def test_a_missing_value_in_a_wide_csr_matrix_is_found_without_filling_it() -> None:
    W = scipy.sparse.random_array((10, 10**7), density=1e-6, format="csr", rng=np.random.default_rng(0))
    W.data[5] = np.nan
    column = W.indices[5]
    with pytest.raises(ValueError, match=f"NaN: 1 value.* column {column}"):
        KernelPCA(2).fit(W)


def test_big_endian_float32_stays_float32(X: np.ndarray) -> None:
    assert KernelPCA(2).fit(X.astype(">f4")).eigenvalues_.dtype == np.float32


def test_distances_are_not_similarities(X: np.ndarray) -> None:
    with pytest.raises(IndefiniteKernelError, match=r"-D\*\*2 / 2"):
        KernelPCA(2, kernel="precomputed").fit(cdist(X[:60], X[:60]))


@pytest.mark.parametrize(("kernel", "degree"), [("poly", 2), ("cosine", 3)])
@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_float32_says_where_it_cannot_resolve(rng: np.random.Generator, kernel: str, degree: int, solver: str) -> None:
    X = (rng.standard_normal((600, 40)) + 100.0).astype(np.float32)
    exact = KernelPCA(3, kernel=kernel, degree=degree).fit(X.astype(np.float64)).eigenvalues_
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = KernelPCA(3, kernel=kernel, degree=degree, eigen_solver=solver, random_state=0).fit(X)
    assert any(w.category is PrecisionWarning and "float32 cannot resolve" in str(w.message) for w in seen)
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=1e-2)


@pytest.mark.parametrize("call", [gram_matrix, TiledGram, lambda k, X: kernel_matmat(k, X, X, X)])
def test_a_kernel_is_an_object_below_the_estimators(X: np.ndarray, call) -> None:
    with pytest.raises(InvalidParameterError, match="RBF"):
        call("rbf", X)


@pytest.mark.parametrize("estimator", [PCA(1), KernelPCA(1), LocalPCA(1, 1)], ids=lambda e: type(e).__name__)
def test_infinity_is_not_called_a_missing_value(estimator, xp):
    X = np.ones((4, 2))
    for entry, wanted in ((np.inf, FINITE), (np.nan, "does not accept missing values; impute or drop them first")):
        X[2, 1] = entry
        with pytest.raises(ValueError, match="row 2, column 1") as caught:
            estimator.fit(xp.array(X))
        assert wanted in str(caught.value)
        assert ("missing" in str(caught.value)) == bool(np.isnan(entry))


def test_kernel_matrices_in_the_wrong_place_get_the_sentence_that_helps(rng: np.random.Generator):
    X = rng.standard_normal((12, 3))
    K = RBF(gamma=0.5)(X)
    model = KernelPCA(2, kernel="precomputed").fit(K)
    with pytest.raises(ValueError, match=r"X has 5 features.* expecting 12 features.* Pass its transpose, K\.T\."):
        model.transform(RBF(gamma=0.5)(X, X[:5]))
    with pytest.raises(ValueError, match=r"vector of 66 numbers.*of 12 rows\. squareform"):
        KernelPCA(2, kernel="precomputed").fit(pdist(X))
    with pytest.raises(ValueError, match=r"kernel is an array of shape \(12, 12\).*precomputed.*fit\(K\)"):
        KernelPCA(2, kernel=K).fit(X)

    def blocks(A: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.exp(-np.abs(A[:, None] - B[None]))

    with pytest.raises(
        ValueError, match=r"all pairs of two sets of rows, pass gpukpca\.kernels\.BlockCallable\(.*blocks\)"
    ):
        KernelPCA(2, kernel=blocks).fit(X)


def test_a_column_of_a_data_frame_that_counts_the_rows_is_named():
    X = np.random.default_rng(0).standard_normal((9, 2))
    frame = pd.DataFrame(X, columns=["x", "y"])
    for first, step, dtype in ((1, 1, int), (0, 1, float), (7, 1, np.uint8), (1, 2, int), (1, 0, int)):
        numbered = frame.assign(Id=(first + step * np.arange(9)).astype(dtype))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            PCA(1).fit(numbered)
            PCA(1).fit(numbered.to_numpy())
        messages = [str(one.message) for one in caught if "counts the rows" in str(one.message)]
        assert len(messages) == (step == 1), (first, step)
        assert all("column 'Id' of X" in one and "leave the column out unless it is one" in one for one in messages)
