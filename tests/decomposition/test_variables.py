"""Loadings and correlations of variables: against plain formulas, and the numbers of FactoMineR, prcomp and kernlab."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca import PCA, Batches, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, loadings, variable_correlations
from gpukpca.decomposition import squared_cosines
from gpukpca.exceptions import InvalidParameterError
from tests import decathlon, tolerances
from tests.each import each

IRIS = load_iris().data
# kpca(iris[, 1:4], kernel = "rbfdot", kpar = list(sigma = 0.2), features = 4) of R's kernlab 0.9-32: eig, and the first
# two rows of pcv and rotated. For the odd rows of iris: eig, and the first two rows of predict for the even ones.
EIG = [0.3248377329690, 0.1190608662395, 0.0354473602433, 0.0248222740764]
PCV = [
    (-0.207241506364, -0.0388035289748, 0.21246401965907, -0.174318476129),
    (-0.201244659113, -0.0248740403347, -0.00153554861678, 0.656738150926),
]
ROTATED = [
    (-10.09797916563, -0.692997265934, 1.12969329653960, -0.649047148659),
    (-9.80577882575, -0.444228718370, -0.00816467174851, 2.445260156806),
]
EIG_OF_HALF = [0.3287814255529, 0.1150934947324, 0.0313228423146, 0.0267645504506]
PREDICTED = [
    (-6.91041682434, -0.391900673567, -0.422549716164, -0.661614486867),
    (-6.84105706897, -0.399715543198, -0.679233143217, -0.967541331417),
]


def oracle(variables, scores):
    """Pearson's correlations, one pair of columns at a time."""
    a, b = (x - x.mean(axis=0) for x in (np.asarray(variables, np.float64), np.asarray(scores, np.float64)))
    return np.array([[x @ z / np.sqrt((x @ x) * (z @ z)) for z in b.T] for x in a.T])


def close_up_to_signs(found, expected, atol):
    signs = np.sign(np.sum(np.asarray(found) * expected, axis=0))
    np.testing.assert_allclose(signs * found, expected, rtol=0, atol=atol)


def models(X):
    return [
        PCA().fit(X),
        PCA(2, scale=True, whiten=True).fit(X),
        IncrementalPCA(3).fit(X),
        KernelPCA(3, kernel="rbf", gamma=0.1).fit(X),
        KernelPCA(2, kernel="poly", degree=2, gamma=0.1, eigen_solver="nystrom", random_state=0).fit(X),
    ]


# -- correlations ------------------------------------------------------------------------------------------------------


def test_correlations_are_those_of_the_columns_on_every_library(xp, dtype):
    X = IRIS.astype(dtype)
    for model in models(xp.array(X)):
        scores = xp.host(model.transform(xp.array(X)))
        for Y in (None, X[:, ::-1] ** 2):
            found = variable_correlations(model, xp.array(X), None if Y is None else xp.array(Y))
            assert xp.owns(found)
            assert str(dtype) in str(found.dtype)
            allowed = tolerances.product(dtype, len(X))
            np.testing.assert_allclose(xp.host(found), oracle(X if Y is None else Y, scores), atol=allowed)


def test_every_container_gives_the_same_correlations(tmp_path):
    pandas, da = pytest.importorskip("pandas"), pytest.importorskip("dask.array")
    mapped = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=IRIS.shape)
    mapped[:] = IRIS
    batches, frame = Batches(np.array_split(IRIS, 7)), pandas.DataFrame(IRIS, columns=list("abcd"))
    containers = [scipy.sparse.csr_array(IRIS), mapped, batches, da.from_array(IRIS, chunks=(40, 4)), OnDisk(IRIS)]
    for model in models(IRIS):
        expected = oracle(IRIS, model.transform(IRIS))
        for X in containers:
            np.testing.assert_allclose(variable_correlations(model, X), expected, atol=1e-13)
        for Y in (*containers, frame):
            np.testing.assert_allclose(variable_correlations(model, batches, Y), expected, atol=1e-13)


class OnDisk:
    """Rows that are read by slices, as those of zarr and HDF5."""

    def __init__(self, rows):
        self.rows, self.shape, self.dtype, self.ndim = rows, rows.shape, rows.dtype, 2

    def __getitem__(self, key):
        assert key.stop - key.start <= len(self.rows)
        return self.rows[key]


def test_any_model_with_scores_has_correlations():
    frame = pytest.importorskip("pandas").DataFrame(IRIS, columns=list("abcd"))
    for model in (
        sklearn.decomposition.PCA(2),
        sklearn.decomposition.KernelPCA(2, kernel="rbf"),
        make_pipeline(StandardScaler(), KernelPCA(2)).set_output(transform="pandas"),
    ):
        scores = model.fit_transform(frame)
        np.testing.assert_allclose(variable_correlations(model, frame), oracle(IRIS, scores), atol=1e-13)
    K = KernelPCA(2, kernel="precomputed").fit(IRIS @ IRIS.T)
    found = variable_correlations(K, IRIS @ IRIS.T, IRIS)
    close_up_to_signs(found, variable_correlations(PCA(2).fit(IRIS), IRIS), 1e-13)
    with pytest.raises(InvalidParameterError, match="kernel matrix, whose columns are no variables"):
        variable_correlations(K, IRIS @ IRIS.T)


def test_units_offsets_and_constants_change_no_other_variable():
    model = PCA(2).fit(IRIS)
    first = oracle(IRIS, model.transform(IRIS))[:1]
    tiny, huge, constant = 1e-200 * IRIS[:, :1], -1e200 * IRIS[:, :1], np.full((150, 1), 0.1)
    found = variable_correlations(model, IRIS, np.hstack([tiny, huge, constant, IRIS[:, :1] + 1e8]))
    np.testing.assert_allclose(found[:2], np.vstack([first, -first]), atol=1e-13)
    np.testing.assert_array_equal(found[2], 0.0)
    np.testing.assert_allclose(found[3:], first, atol=1e-7)
    flat = np.zeros((150, 1))
    np.testing.assert_array_equal(variable_correlations(PCA(2).fit(IRIS), np.ones((150, 4)), flat), 0.0)


def test_squares_of_all_components_sum_to_one():
    np.testing.assert_allclose(np.sum(variable_correlations(PCA().fit(IRIS), IRIS) ** 2, axis=1), 1.0, rtol=1e-13)


def test_rows_that_cannot_be_correlated_are_named():
    model = PCA(2).fit(IRIS)
    for X, Y, message in (
        (iter([IRIS[:99], IRIS[99:]]), None, "^variable_correlations reads the batches more than once"),
        (IRIS, iter([IRIS[:99], IRIS[99:]]), "^Y: variable_correlations reads the batches more than once"),
        (IRIS[:1], None, "got 1 row, and correlations need at least 2"),
        (Batches([IRIS[:1]]), None, "got 1 row, and correlations need at least 2"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            variable_correlations(model, X, Y)


@each(
    "Y, message",
    [
        (IRIS[:20], "Y: 20 rows of variables for 150 rows of X"),
        (IRIS[:, 0], "Y: Expected 2D array"),
        (np.full((150, 1), np.nan), "Y: Input X contains NaN"),
    ],
    ids=lambda case: "",
)
def test_variables_that_do_not_fit_are_named(Y, message):
    with pytest.raises(ValueError, match=message):
        variable_correlations(PCA(2).fit(IRIS), IRIS, Y)


# -- loadings ----------------------------------------------------------------------------------------------------------


def test_loadings_give_the_covariance_and_the_data(xp, dtype):
    X = IRIS.astype(dtype)
    model = PCA(whiten=True).fit(xp.array(X))
    L = loadings(model)
    assert xp.owns(L)
    assert str(dtype) in str(L.dtype)
    L = xp.host(L).astype(np.float64)
    S = np.cov(X.astype(np.float64), rowvar=False)
    np.testing.assert_allclose(L @ L.T, S, atol=tolerances.eigenvalue(dtype) * np.linalg.norm(S))
    scores = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(scores @ L.T, X - X.mean(axis=0), atol=2e3 * tolerances.eps(dtype))


def test_loadings_of_standardized_data_are_correlations():
    model = PCA(3, scale=True).fit(IRIS)
    np.testing.assert_allclose(loadings(model), variable_correlations(model, IRIS), atol=1e-13)
    plain = PCA(3).fit(IRIS)
    over_deviations = loadings(plain) / IRIS.std(axis=0, ddof=1)[:, None]
    np.testing.assert_allclose(over_deviations, variable_correlations(plain, IRIS), atol=1e-13)
    theirs = sklearn.decomposition.PCA(3).fit(IRIS)
    np.testing.assert_allclose(loadings(theirs), loadings(plain), atol=1e-12)


def test_a_probabilistic_model_has_its_own_loadings():
    model = ProbabilisticPCA(2).fit(IRIS)
    assert loadings(model) is model.loadings_


def test_a_model_without_axes_says_what_to_take():
    for model in (KernelPCA(2).fit(IRIS), LocalPCA(2, 1).fit(IRIS), make_pipeline(PCA(2)).fit(IRIS)):
        with pytest.raises(InvalidParameterError, match=r"has no axes of a PCA .* or take variable_correlations"):
            loadings(model)
    with pytest.raises(NotFittedError):
        loadings(PCA())
    with pytest.raises(NotFittedError):
        variable_correlations(PCA(), IRIS)


# -- other programs ----------------------------------------------------------------------------------------------------


def test_factominer_and_prcomp_of_decathlons():
    X, n = decathlon.EVENTS, 41
    model = PCA(scale=True).fit(X)
    scores, three = model.transform(X), model.components_[:3]
    np.testing.assert_allclose(model.explained_variance_, decathlon.EIGENVALUES, rtol=1e-11)
    np.testing.assert_allclose(model.explained_variance_[:3] ** 0.5, decathlon.DEVIATIONS, rtol=1e-11)
    signs = np.sign(np.sum(three.T * decathlon.VARIABLES, axis=0))  # of an axis, of a score, of a loading
    np.testing.assert_allclose(signs * loadings(model)[:, :3], decathlon.VARIABLES, atol=1e-11)
    np.testing.assert_allclose(signs * variable_correlations(model, X)[:, :3], decathlon.VARIABLES, atol=1e-11)
    np.testing.assert_allclose(100 * three[:, 0] ** 2, decathlon.VARIABLE_100M_CONTRIBUTIONS, rtol=1e-10)
    supplementary = variable_correlations(model, X, decathlon.SUPPLEMENTARY)[:, :3]
    np.testing.assert_allclose(signs * supplementary, decathlon.RANK_AND_POINTS, atol=1e-11)
    np.testing.assert_allclose(signs * scores[:2, :3], decathlon.PRCOMP_ATHLETES, atol=1e-10)
    np.testing.assert_allclose(signs * scores[:2, :3] * np.sqrt(n / (n - 1)), decathlon.ATHLETES, atol=1e-10)
    np.testing.assert_allclose(squared_cosines(model, X)[:2, :3], decathlon.COSINES, rtol=1e-10)
    contributions = 100 * scores**2 / ((n - 1) * model.explained_variance_)
    np.testing.assert_allclose(contributions[:2, :3], decathlon.CONTRIBUTIONS, rtol=1e-10)
    distances = np.linalg.norm(scores, axis=1)[:2] * np.sqrt(n / (n - 1))
    np.testing.assert_allclose(distances, decathlon.DISTANCES, rtol=1e-10)


def test_kernlab_of_iris():
    n, model = 150, KernelPCA(4, kernel="rbf", gamma=0.2).fit(IRIS)
    np.testing.assert_allclose(model.eigenvalues_ / n, EIG, rtol=1e-11)
    signs = np.sign(np.sum(model.eigenvectors_[:2] * PCV, axis=0))
    vectors = model.eigenvectors_ / np.sqrt(model.eigenvalues_ / n)
    np.testing.assert_allclose(signs * vectors[:2], PCV, atol=1e-9)
    np.testing.assert_allclose(signs * model.transform(IRIS[:2]) * np.sqrt(n), ROTATED, atol=1e-9)
    half = KernelPCA(4, kernel="rbf", gamma=0.2).fit(IRIS[::2])
    np.testing.assert_allclose(half.eigenvalues_ / 75, EIG_OF_HALF, rtol=1e-11)
    close_up_to_signs(half.transform(IRIS[1:4:2]) * np.sqrt(75), PREDICTED, 1e-9)
