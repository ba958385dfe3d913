"""Agreement with `sklearn.decomposition.KernelPCA` on every feature that both have, signs included.

Deviations have their tests in test_deviations.py.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.spatial
import sklearn.decomposition
from sklearn import config_context
from sklearn.datasets import make_circles
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from gpukpca import KernelPCA
from gpukpca.exceptions import PrecisionWarning, RankWarning
from tests.each import covering, each

Theirs = sklearn.decomposition.KernelPCA
EPS = {"float64": float(np.finfo(np.float64).eps), "float32": float(np.finfo(np.float32).eps)}
SOLVERS = ["auto", "dense", "arpack", "randomized"]
KERNELS = ["linear", "poly", "rbf", "sigmoid", "cosine"]
# The sigmoid and the callable of these tests are not positive semidefinite; the iterative solvers say so.
pytestmark = pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")


class Tolerance:
    """How far two right answers may be apart: the one place that says so.

    Both sides form K to c u ||K|| with c at most 80 for sums of this length, and stop at a residual of `residual` times
    the largest eigenvalue. An eigenvalue moves by no more than that; an eigenvector by it over its gap to the nearest
    other eigenvalue; a score by the vector's part times sqrt(lambda), and that of new points by it over sqrt(lambda).
    """

    def __init__(self, spectrum: np.ndarray, size: float, dtype: str, residual: float = 0.0) -> None:
        largest = float(spectrum[0])
        self.eigenvalues = 80 * EPS[dtype] * size + residual * largest
        with np.errstate(divide="ignore"):
            differences = np.abs(np.diff(spectrum))
        below, above = np.append(differences, np.inf), np.append(np.inf, differences)
        self.vectors = self.eigenvalues / np.minimum(below, above)
        roots = np.sqrt(np.maximum(spectrum, 1e-300))
        self.scores = 2 * self.vectors * roots + self.eigenvalues / roots
        self.new_scores = 2 * self.vectors * np.sqrt(size) * np.sqrt(largest) / roots + self.eigenvalues / roots


def points(n: int = 40, d: int = 5, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    """Well separated variances, so that eigenvectors are determined."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * 0.8 ** np.arange(d)).astype(dtype)


def minimum(x: np.ndarray, y: np.ndarray, power: float = 1.0) -> float:
    """A callable kernel."""
    return float(np.sum(np.minimum(np.abs(x), np.abs(y))) ** power)


def both(X: Any, **parameters: Any) -> tuple[KernelPCA, Any]:
    """The two estimators, fitted."""
    mine = KernelPCA(**parameters).fit(X)
    theirs = Theirs(**parameters).fit(X)
    return mine, theirs


def assert_agree(
    mine: KernelPCA, theirs: Any, X: Any, X_new: Any, dtype: str, size: float, residual: float = 0.0
) -> None:
    """Every fitted array and every method, signs included, where the spectrum determines them."""
    p = len(theirs.eigenvalues_)
    assert mine.eigenvalues_.shape == theirs.eigenvalues_.shape
    assert mine.eigenvectors_.shape == theirs.eigenvectors_.shape
    # The eigenvalue after the last decides how well the last vector is determined.
    full = np.linalg.eigvalsh(_centered(mine, X))[::-1]
    tolerance = Tolerance(full, size, dtype, residual)
    np.testing.assert_allclose(mine.eigenvalues_, theirs.eigenvalues_, rtol=0, atol=tolerance.eigenvalues)
    determined = np.flatnonzero(tolerance.vectors[:p] < 0.01)
    assert determined.size
    signs = _signs_of_ties(theirs.eigenvectors_, dtype)
    for mine_gives, theirs_gives, bound in (
        (mine.eigenvectors_, theirs.eigenvectors_, tolerance.vectors),
        (mine.transform(X), theirs.transform(X), tolerance.new_scores),
        (mine.transform(X_new), theirs.transform(X_new), tolerance.new_scores),
        (mine.fit_transform(X), theirs.fit_transform(X), tolerance.scores),
    ):
        same = np.abs(mine_gives - theirs_gives)
        other = np.where(signs, np.abs(mine_gives + theirs_gives), np.inf)
        error = np.minimum(same.max(axis=0), other.max(axis=0))
        assert np.all(error[determined] <= bound[determined])


def _signs_of_ties(V: np.ndarray, dtype: str) -> np.ndarray:
    """Columns with largest entries of both signs, equal within 8 sqrt(eps): there the peer's sign is chance."""
    highest, lowest = V.max(axis=0), -V.min(axis=0)
    ties = np.abs(highest - lowest) <= 8 * np.sqrt(EPS[dtype]) * np.maximum(highest, lowest)
    assert np.sum(ties) <= 1  # signs are compared, not waved through
    return ties


def _centered(mine: KernelPCA, X: Any) -> np.ndarray:
    dense = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)
    parameters = {"gamma": mine.gamma, "degree": mine.degree, "coef0": mine.coef0}
    if callable(mine.kernel):
        K = pairwise_kernels(dense, metric=mine.kernel, **(mine.kernel_params or {}))
    else:
        K = pairwise_kernels(dense, metric=mine.kernel, filter_params=True, **parameters)
    K = K.astype(np.float64)
    return K - K.mean(axis=0)[None, :] - K.mean(axis=1)[:, None] + K.mean()


def size_of(X: Any, **parameters: Any) -> float:
    """The norm of the uncentered kernel matrix: the size of the numbers that both sides round."""
    metric = parameters.pop("metric")
    dense = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)
    return float(np.linalg.norm(pairwise_kernels(dense, metric=metric, filter_params=True, **parameters), 2))


# -- every kernel, solver and dtype ----------------------------------------------------------------------------------

PARAMETERS = [
    {"kernel": "linear"},
    {"kernel": "poly"},
    {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 0.3},
    {"kernel": "poly", "degree": 1, "coef0": 0},
    {"kernel": "rbf"},
    {"kernel": "rbf", "gamma": 0.7},
    {"kernel": "sigmoid", "gamma": 0.05},
    {"kernel": "sigmoid", "gamma": 0.02, "coef0": 0.1},
    {"kernel": "cosine"},
]


@each("parameters, solver, dtype", covering(PARAMETERS, SOLVERS, ["float64", "float32"]), ids=str)
def test_every_kernel_and_solver_agrees(parameters: dict[str, Any], solver: str, dtype: str) -> None:
    X, X_new = points(dtype=dtype), points(9, seed=1, dtype=dtype)
    settings = {"n_components": 3, "eigen_solver": solver, "random_state": 0, **parameters}
    mine = KernelPCA(**settings, tol=1e-13 if solver == "randomized" and dtype == "float64" else 0).fit(X)
    theirs = Theirs(**settings).fit(X)
    kernel = {name: value for name, value in parameters.items() if name != "kernel"}
    size = size_of(X, metric=parameters["kernel"], **kernel)
    # The peer's randomized solver has no residual to stop at: 1e-6 is what its seven power iterations leave here.
    iterative = {"arpack": 1e-7, "randomized": 1e-6}.get(solver, 0.0) if dtype == "float64" else 1e-5
    assert_agree(mine, theirs, X, X_new, dtype, size, iterative)
    assert mine.eigenvalues_.dtype == mine.transform(X).dtype == X.dtype


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_precomputed_agrees(solver: str, dtype: str) -> None:
    X, X_new = points(), points(9, seed=1)
    K, K_new = rbf_kernel(X).astype(dtype), rbf_kernel(X_new, X).astype(dtype)
    settings = {"n_components": 3, "kernel": "precomputed", "eigen_solver": solver, "random_state": 0}
    mine, theirs = both(K, **settings)
    residual = {"arpack": 1e-7, "randomized": 1e-6}.get(solver, 0.0) if dtype == "float64" else 1e-5
    assert_agree(mine, theirs, K, K_new, dtype, float(np.linalg.norm(K, 2)), residual)


@pytest.mark.parametrize("solver", ["dense", "randomized"])
@pytest.mark.parametrize("extra", [None, {"power": 0.5}])
def test_callables_agree(extra: dict[str, Any] | None, solver: str) -> None:
    X, X_new = points(25), points(9, seed=1)
    settings = {"n_components": 2, "kernel": minimum, "kernel_params": extra, "eigen_solver": solver, "random_state": 0}
    mine, theirs = both(X, **settings)
    size = float(np.linalg.norm(pairwise_kernels(X, metric=minimum, **(extra or {})), 2))
    assert_agree(mine, theirs, X, X_new, "float64", size, 1e-6 if solver == "randomized" else 0.0)


def test_callables_get_no_parameters_that_were_not_given() -> None:
    def kernel(x: np.ndarray, y: np.ndarray, **parameters: Any) -> float:
        assert parameters == {}
        return float(x @ y)

    with pytest.warns(UserWarning, match="(gamma|degree) is not used by a kernel object or function"):
        KernelPCA(2, kernel=kernel, gamma=3.0, degree=5).fit(points(10))


# -- number of components --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "cosine"])
def test_all_components_agree(kernel: str, dtype: str) -> None:
    X = points(12, dtype=dtype)
    mine, theirs = both(X, kernel=kernel, coef0=1, degree=2 if kernel == "poly" else 3)
    assert_agree(mine, theirs, X, points(5, seed=1, dtype=dtype), dtype, size_of(X, metric=kernel, degree=2))


@pytest.mark.parametrize("n_components", [None, 3, 7])
@pytest.mark.parametrize("remove_zero_eig", [False, True])
def test_components_without_variance_are_kept_or_dropped_alike(n_components: int | None, remove_zero_eig: bool) -> None:
    X = points(20, 4)
    settings = {"n_components": n_components, "remove_zero_eig": remove_zero_eig}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        mine = KernelPCA(**settings).fit(X)
    theirs = Theirs(**settings).fit(X)
    assert mine.eigenvalues_.shape == theirs.eigenvalues_.shape
    np.testing.assert_allclose(mine.transform(X), theirs.transform(X), atol=1e-11)
    np.testing.assert_array_equal(mine.eigenvalues_ == 0, theirs.eigenvalues_ == 0)


NEARLY_EQUAL = np.array([[1.0, 2.0], [1.0, 2.0 - 1e-25], [1.0 + 1e-28, 2.0]])


def test_rows_equal_to_rounding_have_no_components() -> None:
    with pytest.warns(RankWarning, match="none is kept"):
        assert KernelPCA().fit_transform(NEARLY_EQUAL).shape == (3, 0)
    with pytest.warns(RankWarning, match="fewer components carry variance"):
        assert KernelPCA(2).fit_transform(NEARLY_EQUAL).shape == (3, 2)
    with pytest.warns(RankWarning, match="none is kept"):
        assert KernelPCA(2, remove_zero_eig=True).fit_transform(NEARLY_EQUAL).shape == (3, 0)


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_zero_components_are_the_same_from_fit_transform_and_from_transform(solver: str) -> None:
    X = np.array([[3.0, 3.0], [0.0, 0.0], [3.0, 3.0]])
    with np.errstate(divide="raise", invalid="raise"):
        estimator = KernelPCA(3, eigen_solver=solver, random_state=0)
        together = estimator.fit_transform(X)
        np.testing.assert_allclose(estimator.transform(X), together, atol=1e-14)
    assert not np.any(together[:, 1:])


def test_an_eigenvalue_that_rounding_made_is_zero() -> None:
    X = np.array([[7.0, 2.0], [7.0 + 3e-9, 2e-9], [7.0 + 3e-9, 0.0]])
    with pytest.warns(RankWarning):
        estimator = KernelPCA(2, fit_inverse_transform=True).fit(X)
    assert estimator.eigenvalues_.min() == 0


# -- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 8])
def test_gamma_is_one_over_the_features_where_it_is_not_given(d: int) -> None:
    X = points(10, d)
    default, given = KernelPCA(2, kernel="rbf").fit(X), KernelPCA(2, kernel="rbf", gamma=1 / d).fit(X)
    assert default.gamma_ == given.gamma_ == Theirs(2, kernel="rbf").fit(X).gamma_
    np.testing.assert_array_equal(default.transform(X), given.transform(X))


def test_parameters_and_defaults_have_the_same_names_and_values() -> None:
    mine, theirs = KernelPCA().get_params(), Theirs().get_params()
    assert {name: mine[name] for name in theirs} == theirs


def test_fitted_attributes_of_the_peer_are_all_there() -> None:
    X = points()
    mine, theirs = both(X, n_components=2, kernel="rbf", fit_inverse_transform=True)
    wanted = {name for name in vars(theirs) if name.endswith("_") and not name.startswith("_")}
    assert {name for name in wanted if not hasattr(mine, name)} == set()
    for name in ("X_fit_", "X_transformed_fit_", "dual_coef_"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("iterated_power", [3, 9])
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.ConvergenceWarning")
def test_fixed_number_of_iterations_is_accepted(iterated_power: int) -> None:
    X = points()
    settings = {"n_components": 2, "kernel": "rbf", "eigen_solver": "randomized", "iterated_power": iterated_power}
    mine = KernelPCA(random_state=0, **settings).fit(X)
    reference = Theirs(2, kernel="rbf", eigen_solver="dense").fit(X)
    np.testing.assert_allclose(mine.eigenvalues_, reference.eigenvalues_, rtol=1e-3)


# -- inverse ---------------------------------------------------------------------------------------------------------


@each("dtype", ["float64", "float32"])
@each("alpha", [1e-3, 1.0, 10.0])
@each("kernel", ["rbf", "poly", "cosine", "sigmoid"])
@pytest.mark.filterwarnings("ignore:inverse_transform is worse than the mean")
def test_ridge_preimages_agree(kernel: str, alpha: float, dtype: str) -> None:
    X, X_new = points(dtype=dtype), points(9, seed=1, dtype=dtype)
    gamma = {"sigmoid": 0.01, "cosine": None}.get(kernel, 0.3)
    settings = {"n_components": 3, "kernel": kernel, "gamma": gamma, "alpha": alpha, "fit_inverse_transform": True}
    mine, theirs = both(X, **settings)
    Z = theirs.transform(X_new)
    # The kernel matrix of the scores plus alpha: its condition number multiplies the rounding of both sides.
    scores = mine.X_transformed_fit_.astype(float)
    K = pairwise_kernels(scores, metric=kernel, filter_params=True, gamma=gamma, degree=3, coef0=1)
    condition = (np.linalg.norm(K, 2) + alpha) / alpha
    bound = 1000 * EPS[dtype] * condition * np.abs(X).max()
    np.testing.assert_allclose(mine.inverse_transform(Z), theirs.inverse_transform(Z), rtol=0, atol=bound)


def test_inverse_of_a_precomputed_kernel_is_refused_with_the_same_words() -> None:
    settings = {"kernel": "precomputed", "fit_inverse_transform": True}
    for estimator in (KernelPCA(**settings), Theirs(**settings)):
        with pytest.raises(ValueError, match="Cannot fit_inverse_transform with a precomputed kernel"):
            estimator.fit(np.eye(4))


# -- sparse ----------------------------------------------------------------------------------------------------------


@each(
    "kernel, solver, container",
    covering(KERNELS, ["auto", "arpack", "randomized"], [scipy.sparse.csr_array, scipy.sparse.csr_matrix]),
)
def test_sparse_input_agrees(kernel: str, solver: str, container: Any) -> None:
    rng = np.random.default_rng(3)
    dense, dense_new = (np.where(rng.random((n, 6)) < 0.5, rng.random((n, 6)) + 0.1, 0.0) for n in (30, 7))
    dense[:, 0] += 0.1  # no zero rows
    dense_new[:, 0] += 0.1
    X, X_new = container(dense), container(dense_new)
    settings = {"n_components": 2, "kernel": kernel, "eigen_solver": solver, "random_state": 0}
    settings |= {"gamma": 0.05} if kernel == "sigmoid" else {}
    mine, theirs = both(X, **settings)
    size = size_of(X, metric=kernel, **({"gamma": 0.05} if kernel == "sigmoid" else {}))
    assert_agree(mine, theirs, X, X_new, "float64", size, 0.0 if solver == "auto" else 1e-6)
    with pytest.raises(NotFittedError):
        mine.inverse_transform(mine.transform(X))


# -- scikit-learn around it ------------------------------------------------------------------------------------------


def test_data_frames_and_pandas_output_agree() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(points(), columns=list("abcde"), index=np.arange(100, 140))
    settings = {"n_components": 2, "kernel": "rbf", "eigen_solver": "arpack", "random_state": 0}
    mine = KernelPCA(**settings).set_output(transform="pandas").fit_transform(frame)
    theirs = Theirs(**settings).set_output(transform="pandas").fit_transform(frame)
    pandas.testing.assert_frame_equal(mine, theirs, atol=1e-6, rtol=0)
    with config_context(transform_output="pandas"):
        again = KernelPCA(**settings).fit(frame)
        assert list(again.transform(frame).columns) == ["kernelpca0", "kernelpca1"]
        assert list(again.transform(frame).index) == list(frame.index)
    assert list(again.feature_names_in_) == list(Theirs(**settings).fit(frame).feature_names_in_)


@pytest.mark.parametrize("new", ["reordered", "renamed", "narrow"])
def test_messages_about_feature_names_and_counts_agree(new: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(points(), columns=list("abcde"))
    other = {"reordered": frame[list("edcba")], "renamed": frame.rename(columns={"a": "z"}), "narrow": frame[["a"]]}
    texts = []
    for estimator in (KernelPCA(2).fit(frame), Theirs(2).fit(frame)):
        with pytest.raises(ValueError, match="feature") as caught:
            estimator.transform(other[new])
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_grid_search_over_gamma_in_a_pipeline_agrees() -> None:
    X, y = make_circles(n_samples=150, factor=0.3, noise=0.05, random_state=0)
    results = []
    for make in (KernelPCA, Theirs):
        pipeline = Pipeline([("kpca", make(2, kernel="rbf")), ("classify", Perceptron(max_iter=5, tol=None))])
        search = GridSearchCV(pipeline, {"kpca__gamma": 2.0 ** np.arange(-2, 2), "kpca__n_components": [2, 3]}, cv=3)
        results.append(search.fit(X, y))
    mine, theirs = results
    assert mine.best_score_ == theirs.best_score_ == 1
    assert mine.best_params_ == theirs.best_params_


def test_grid_search_with_a_precomputed_kernel_agrees() -> None:
    X, y = make_circles(n_samples=150, factor=0.3, noise=0.05, random_state=0)
    K = rbf_kernel(X, gamma=2.0)
    scores = []
    for make in (KernelPCA, Theirs):
        pipeline = make_pipeline(make(2, kernel="precomputed"), LogisticRegression())
        search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0, 10.0]}, cv=3).fit(K, y)
        scores.append(search.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(scores[0], scores[1])
    assert scores[0].max() == 1


# -- indefinite and asymmetric matrices ------------------------------------------------------------------------------


def indefinite() -> np.ndarray:
    """A centered matrix with eigenvalues 50, 8, 5, 0, 0, -6, -20."""
    Q = np.linalg.qr(np.column_stack([np.ones(7), np.random.default_rng(0).standard_normal((7, 6))]))[0]
    K = (Q * [0.0, 50.0, 8.0, 5.0, 0.0, -6.0, -20.0]) @ Q.T
    return (K + K.T) / 2 + 30.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_negative_eigenvalues_are_refused_in_the_same_text_where_they_are_selected(solver: str) -> None:
    # ARPACK of the peer cannot compute all of seven.
    with pytest.raises(ValueError, match="There are significant negative eigenvalues"):
        KernelPCA(6, kernel="precomputed", eigen_solver=solver, random_state=0).fit(indefinite())
    with pytest.raises(ValueError, match="There are significant negative eigenvalues"):
        Theirs(6, kernel="precomputed", eigen_solver=solver, random_state=0).fit(indefinite())


def test_the_refusal_of_a_matrix_names_a_number_of_components_that_fits() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 5))
    D = scipy.spatial.distance.cdist(rows, rows, "cityblock")
    with pytest.raises(ValueError, match="or use Euclidean distances if the matrix is made of distances") as raised:
        KernelPCA(kernel="precomputed").fit(-(D**2) / 2)
    most = int(str(raised.value).partition("at most ")[2].split()[0])
    assert KernelPCA(most, kernel="precomputed").fit(-(D**2) / 2).eigenvalues_[-1] > 0
    with pytest.raises(ValueError, match="significant negative"):
        KernelPCA(most + 2, kernel="precomputed").fit(-(D**2) / 2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_negative_eigenvalues_that_are_not_selected_do_no_harm(solver: str) -> None:
    # Deviation: the peer's randomized solver selects by modulus and refuses this matrix.
    K = indefinite()
    mine = KernelPCA(2, kernel="precomputed", eigen_solver=solver, random_state=0).fit(K)
    np.testing.assert_allclose(mine.eigenvalues_, [50.0, 8.0], rtol=1e-10)
    if solver == "randomized":
        with pytest.raises(ValueError, match="There are significant negative eigenvalues"):
            Theirs(2, kernel="precomputed", eigen_solver=solver, random_state=0).fit(K)
    else:
        theirs = Theirs(2, kernel="precomputed", eigen_solver=solver, random_state=0).fit(K)
        np.testing.assert_allclose(mine.eigenvectors_, theirs.eigenvectors_, atol=1e-10)


@pytest.mark.parametrize("solver", ["dense", "randomized"])
@pytest.mark.parametrize(("offset", "bound"), [(1e3, 1e-8), (1e5, 1e-4)])
def test_new_points_of_offset_data_are_mapped_as_well_as_in_scikit_learn(solver, offset, bound):
    """A projection whose columns do not sum to zero would multiply rounding by the mean of K."""
    X = np.random.default_rng(0).standard_normal((150, 6)) + offset
    settings = {"n_components": 4, "kernel": "poly", "gamma": 0.02}
    model = KernelPCA(**settings, eigen_solver=solver, random_state=0)
    beyond = (
        pytest.warns(PrecisionWarning, match="Centering cancels numbers larger than the eigenvalues")
        if offset == 1e5
        else nullcontext()
    )
    with beyond:
        scores = model.fit_transform(X)
    assert np.abs(model.transform(X) - scores).max() <= bound * np.abs(scores).max()
    sums, sizes = np.abs(model.projection_.sum(axis=0)), np.abs(model.projection_).max(axis=0)
    assert np.all(sums <= 1e-12 * sizes)
