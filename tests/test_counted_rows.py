"""The law of weights over the whole public interface: m rows with counts are n repeated rows.

Every public function and method of rows is in one of three tables: it takes `sample_weight`, it has a result for each
row, or it takes no weights, for a reason. A new one that is in none fails.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gpukpca
from gpukpca import (
    PCA,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
)
from gpukpca.algorithms import fit_kernel_pca, fit_pca
from gpukpca.decomposition import (
    inertia,
    reconstruction,
    reconstruction_error,
    residuals,
    squared_cosines,
    variable_correlations,
)
from gpukpca.eigen import Solver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import Storage, SymmetricOperator
from gpukpca.kernels import RBF, Kernel, Linear
from gpukpca.model_selection import n_components_for
from tests.data.test_containers import held_by_all
from tests.test_public_api import ROOMS

N, D = 48, 4
# Names of parameters that are rows, or what holds them.
OF_ROWS = {"X", "Y", "X_new", "model_or_X", "K", "scores"}
# Classes of which the base alone is listed: their methods are the same.
BASES = (Kernel, Solver, Storage, SymmetricOperator)


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((N, D)) * [4.0, 2.0, 1.0, 0.5] + 3.0


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    """Counts of rows, some of which are 0."""
    return np.random.default_rng(4).integers(0, 4, N).astype(float)


def repeated(X: Any, counts: np.ndarray) -> Any:
    return np.repeat(X, counts.astype(int), axis=0)


# -- the public interface ----------------------------------------------------------------------------------------------


def functions_of_rows() -> Iterator[tuple[str, Any]]:
    """Every public function, method and constructor with an argument of `OF_ROWS`, by name."""
    for room in ROOMS:
        for name in import_module(room).__all__:
            value = getattr(import_module(room), name)
            if inspect.isroutine(value):
                yield name, value
            elif inspect.isclass(value) and not issubclass(value, Exception):
                owner = next((base for base in BASES if issubclass(value, base)), value)
                yield from methods(owner.__name__, value)


def methods(owner: str, cls: type) -> Iterator[tuple[str, Any]]:
    yield owner, cls
    for name in dir(cls):
        member = getattr(cls, name, None)
        own = any(name in vars(base) for base in cls.__mro__ if base.__module__.startswith("gpukpca"))
        if name[0] != "_" and own and callable(member) and not inspect.isclass(member):
            yield f"{owner}.{name}", member


def takes_rows(function: Any) -> bool:
    parameters = inspect.signature(function).parameters
    return bool(OF_ROWS & {*parameters})


# -- the tables --------------------------------------------------------------------------------------------------------

RBF_01 = {"kernel": "rbf", "gamma": 0.1}
Call = Callable[[np.ndarray, Any], Any]


def of(model: Any) -> list[np.ndarray]:
    """What a fit says of itself, but for signs and for what has a row for each row."""
    names = ("explained_variance_", "explained_variance_ratio_", "eigenvalues_", "mean_", "n_samples_", "certificate_")
    found = [np.asarray(getattr(model, name)) for name in names if hasattr(model, name)]
    return [*found, np.abs(model.transform(PROBES))]


MANY = np.random.default_rng(7).standard_normal((D, 200))
PROBES = np.random.default_rng(5).standard_normal((3, D))


def fit(make: Callable[[], Any], method: str = "fit") -> Call:
    return lambda X, w: of(getattr(make(), method)(X, sample_weight=w))


def fit_transform(make: Callable[[], Any]) -> Call:
    """Scores as their weighted squares: weighted rows have one score each."""

    def call(X: np.ndarray, w: Any) -> np.ndarray:
        scores = make().fit_transform(X, sample_weight=w)
        return np.sum((1.0 if w is None else np.asarray(w, dtype=float)[:, None]) * scores**2, axis=0)

    return call


def score(model: Any) -> Call:
    model = model.fit(TRAINING)
    return lambda X, w: model.score(X, sample_weight=w)


TRAINING = np.random.default_rng(6).standard_normal((60, D)) * [4.0, 2.0, 1.0, 0.5] + 3.0
LANDMARKS = TRAINING[:12]


def nystrom() -> KernelPCA:
    return KernelPCA(2, eigen_solver=Nystrom(landmarks=LANDMARKS), **RBF_01)


def latent(kind: Any) -> list[Call]:
    """Fits from the spectrum, and by EM with and without missing entries, until nothing changes."""

    def gaps(X: np.ndarray) -> np.ndarray:
        return np.where((X[:, :1] > 4.0) & (np.arange(D) == 1), np.nan, X)

    def by_em(**how: Any) -> Call:
        return fit(lambda: kind(2, solver="em", tol=0.0, random_state=0, **how))

    def with_gaps(X: np.ndarray, w: Any) -> Any:
        model = kind(2, tol=1e-14, max_iter=4000, random_state=0).fit(gaps(X), sample_weight=w)
        return [*of(model), model.noise_variance_, model.log_likelihoods_[-1]]

    def of_many_features(X: np.ndarray, w: Any) -> Any:
        with np.errstate(all="ignore"):  # rows of weight 0
            many = 3.0 * X @ MANY + np.cos(9.0 * X @ MANY)
        model = kind(2).fit(many, sample_weight=w)
        return [model.explained_variance_, model.noise_variance_, model.total_variance_]

    plain = (fit(lambda: kind(2)), fit(lambda: kind(2, ddof=0)), of_many_features)
    return [*plain, by_em(), by_em(batch_size=7), with_gaps]


def fit_local(k: Any, p: Any, columns: int = D, **how: Any) -> Call:
    """A fit of local PCA to rows of D columns, or of more; counted and repeated rows draw the same starts."""

    def call(X: np.ndarray, w: Any) -> list[Any]:
        with np.errstate(all="ignore"):  # rows of weight 0
            rows = X if columns == D else 3.0 * X @ MANY + np.cos(9.0 * X @ MANY)
        model = LocalPCA(k, p, random_state=0, **how).fit(rows, sample_weight=w)
        history = model.log_likelihoods_ if hasattr(model, "log_likelihoods_") else model.errors_
        found = [model.weights_, model.means_, model.explained_variance_, model.noise_variance_, history]
        return [*found, np.abs(model.components_), np.asarray([*model.bic_.values()])]

    return call


def audit(make: Callable[[], Any]) -> Call:
    def call(X: np.ndarray, w: Any) -> list[Any]:
        found = residuals(make().fit(X, sample_weight=w), X, sample_weight=w)
        bounds = [] if found.trace_bound is None else [found.landmark_eigenvalues, found.trace_bound]
        return [found.eigenvalues, found.rayleigh_quotients, found.trace, *bounds]

    return call


def rule(name: str, value: float | None = None, **options: Any) -> Call:
    def call(X: np.ndarray, w: Any) -> list[Any]:
        report = n_components_for(X, name, value, return_report=True, sample_weight=w, **options)
        wide = n_components_for(
            np.c_[X, X, X, X, X, X, X][:6], "broken_stick", sample_weight=None if w is None else w[:6]
        )
        return [report.n_components, report.values, wide]

    return call


def arrows(X: np.ndarray, w: Any) -> np.ndarray:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from gpukpca.plotting import BiplotDisplay

    model = KernelPCA(2, **RBF_01).fit(TRAINING)
    display = BiplotDisplay.from_estimator(model, X, sample_weight=w)
    pyplot.close(display.figure_)
    return display.arrows


READ = PCA(2, scale=True).fit(TRAINING)
# name -> calls that take rows and their counts
COUNTED: dict[str, list[Call]] = {
    "PCA.fit": [
        fit(lambda: PCA(2)),
        fit(lambda: PCA(2, scale=True, svd_solver="randomized", random_state=0, tol=1e-12)),
    ],
    "PCA.fit_transform": [fit_transform(lambda: PCA(2))],
    "PCA.score": [score(PCA(2))],
    "IncrementalPCA.fit": [fit(lambda: IncrementalPCA(batch_size=1000))],
    "IncrementalPCA.fit_transform": [fit_transform(lambda: IncrementalPCA(batch_size=1000))],
    "IncrementalPCA.partial_fit": [fit(IncrementalPCA, "partial_fit")],
    "KernelPCA.fit": [
        fit(lambda: KernelPCA(2, **RBF_01)),
        fit(nystrom),
        fit(lambda: KernelPCA(2, kernel="rbf", gamma="scale")),
        fit(lambda: KernelPCA(2, kernel="rbf", gamma="median")),
        fit(lambda: KernelPCA(2, kernel="laplacian", gamma="median")),
    ],
    "KernelPCA.fit_transform": [fit_transform(lambda: KernelPCA(2, **RBF_01))],
    "KernelPCA.partial_fit": [fit(nystrom, "partial_fit")],
    "KernelPCA.score": [score(KernelPCA(2, preimage="ridge", **RBF_01))],
    "KernelPCACV.score": [score(KernelPCACV(gammas=[0.1], n_components=[2], cv=2))],
    "LocalPCA.score": [score(LocalPCA(2, 1, random_state=0)), score(LocalPCA(2, 1, method="hard", random_state=0))],
    "ProbabilisticPCA.score": [score(ProbabilisticPCA(2))],
    "BayesianPCA.score": [score(BayesianPCA())],
    "ProbabilisticPCA.fit": latent(ProbabilisticPCA),
    "BayesianPCA.fit": latent(BayesianPCA),
    "LocalPCA.fit": [
        fit_local(2, 2),
        fit_local(3, 1, method="hard"),
        fit_local(2, "bic", n_init=1),
        fit_local([1, 2, 3], 5, columns=200),
    ],
    "fit_pca": [lambda X, w: fit_pca(X, 2, sample_weight=w).explained_variance],
    "fit_kernel_pca": [
        lambda X, w: fit_kernel_pca(X, RBF(0.1), 2, sample_weight=w).eigenvalues,
        lambda X, w: fit_kernel_pca(X, RBF("median") + Linear(), 2, sample_weight=w).eigenvalues,
    ],
    "residuals": [
        audit(lambda: PCA(2)),
        audit(lambda: PCA(2, center=False, scale=True)),
        audit(lambda: KernelPCA(2, **RBF_01)),
        audit(nystrom),
        audit(lambda: nystrom().set_params(center=False)),
    ],
    "variable_correlations": [
        lambda X, w: variable_correlations(READ, X, sample_weight=w),
        lambda X, w: variable_correlations(READ, X, np.abs(X[:, :2] - 2.0), sample_weight=w),
    ],
    "BiplotDisplay.from_estimator": [arrows],
    "reconstruction_error": [lambda X, w: [reconstruction_error(READ, X, k, sample_weight=w) for k in range(3)]],
    "inertia": [
        lambda X, w: inertia(X, sample_weight=w),
        lambda X, w: inertia(X, np.ones(D), sample_weight=w),
        lambda X, w: inertia(X, (np.ones(D), np.eye(D)[:2]), sample_weight=w),
    ],
    "n_components_for": [
        rule("variance", 0.9),
        rule("error", 2.0),
        rule("error", 100.0, per="total"),
        rule("mle"),
        rule("bayesian"),
        rule("broken_stick"),
    ],
    "Kernel.resolve": [lambda X, w: [RBF(gamma).resolve(X, w).gamma for gamma in ("scale", "median")]],
}
# Those that are sums over the rows, or fits whose variances have Σ w - 1 degrees of freedom.
SUMS = {"inertia", "n_components_for", "residuals"}

RIDGE = KernelPCA(2, preimage="ridge", **RBF_01).fit(TRAINING)
SEARCH = KernelPCACV(gammas=[0.1], n_components=[2], cv=2).fit(TRAINING)
LOCAL, LATENT = LocalPCA(2, 1, random_state=0).fit(TRAINING), ProbabilisticPCA(2).fit(TRAINING)
BAYESIAN, FITS = BayesianPCA(2).fit(TRAINING), (fit_pca(TRAINING, 2), fit_kernel_pca(TRAINING, RBF(0.1), 2))
INCREMENTAL, DIAGONAL = IncrementalPCA(2).fit(TRAINING), Linear()


def each(model: Any, *names: str) -> dict[str, Callable[[Any], Any]]:
    """Methods of a model with a result for each row; those of scores take the first two columns."""
    owner = type(model).__name__

    def call(name: str) -> Callable[[Any], Any]:
        width = 1 if owner == "LocalPCA" else 2
        return lambda X: getattr(model, name)(X[:, :width] if name == "inverse_transform" else X)

    return {f"{owner}.{name}": call(name) for name in names}


# name -> a call with a result for each row, which the number of times that the row is there does not change
EACH_ROW: dict[str, Callable[[Any], Any]] = {
    **each(READ, "transform", "inverse_transform", "score_samples"),
    **each(INCREMENTAL, "transform", "inverse_transform"),
    **each(RIDGE, "transform", "inverse_transform", "score_samples", "denoise", "reconstruction_error"),
    **each(RIDGE, "feature_space_error"),
    **each(SEARCH, "transform", "inverse_transform", "score_samples", "denoise"),
    **each(LOCAL, "transform", "score_samples", "denoise", "predict", "predict_proba"),
    "LocalPCA.inverse_transform": lambda X: LOCAL.inverse_transform(LOCAL.transform(X), LOCAL.predict(X)),
    **each(LATENT, "transform", "inverse_transform", "score_samples", "denoise", "impute", "posterior_covariance"),
    **each(BAYESIAN, "transform", "score_samples", "denoise", "impute", "posterior_covariance"),
    "BayesianPCA.inverse_transform": lambda X: BAYESIAN.inverse_transform(BAYESIAN.transform(X)),
    **each(FITS[0], "transform", "log_density", "inverse_transform"),
    **each(FITS[1], "transform"),
    "squared_cosines": lambda X: squared_cosines(READ, X, residual=True),
    "reconstruction": lambda X: reconstruction(READ, X),
    "Kernel.diagonal": DIAGONAL.diagonal,
    "to_device": lambda X: gpukpca.backend.to_device(X, "cpu"),
}

A_MATRIX = "it makes a matrix, or an operator, with a row for each row"
A_PICTURE = "it draws a point for each row"
PARTS = "a part of a fit, of rows that the fit has counted"
PLANS = "it reads shapes"
# name -> why there are no weights
UNWEIGHTED: dict[str, str] = {
    "intrinsic_dimension": "k nearest neighbors: a repeated row has itself for neighbors",
    "KernelPCACV.fit": "folds: the copies of a row are in several of them",
    "KernelPCACV.fit_transform": "folds: the copies of a row are in several of them",
    **dict.fromkeys(("gram_matrix", "kernel_matmat", "is_psd"), A_MATRIX),
    **dict.fromkeys(("SymmetricOperator", "SymmetricOperator.of_kernel"), A_MATRIX),
    "double_center": "a matrix has no rows of data; CenteredGram takes frequencies",
    **dict.fromkeys(("plot_fit", "plot_images", "AxesDisplay", "AxesDisplay.from_estimator"), A_PICTURE),
    **dict.fromkeys(
        ("ContoursDisplay", "ContoursDisplay.from_estimator", "ImageRowsDisplay.from_estimator"), A_PICTURE
    ),
    **dict.fromkeys(("ScoresDisplay", "ScoresDisplay.from_estimator", "BiplotDisplay"), A_PICTURE),
    **dict.fromkeys(("PCA.plan", "KernelPCA.plan"), PLANS),
    **dict.fromkeys(("Resources.for_data", "Resources.for_fit", "Resources.check_copy"), PLANS),
    **dict.fromkeys(("Kernel.prepare", "Kernel.prepare_rows", "Kernel.template", "Kernel.features"), PARTS),
    "KernelPCAFit.of_eigenpairs": PARTS,
    **dict.fromkeys(("KernelPCAFit", "PCAFit"), PARTS),
}


# -- the law -----------------------------------------------------------------------------------------------------------


def test_every_function_of_rows_is_in_one_table():
    found = {name: function for name, function in functions_of_rows() if takes_rows(function)}
    tables = (COUNTED, EACH_ROW, UNWEIGHTED)
    listed = [name for table in tables for name in table]
    assert sorted(found) == sorted(listed)
    weighted = {name for name, function in found.items() if has_weights(function)}
    assert weighted == {*COUNTED}
    assert all(UNWEIGHTED.values())


def has_weights(function: Any) -> bool:
    """Whether a function takes weights of rows; a resolved kernel calls them `weights`."""
    return bool({"sample_weight", "weights"} & {*inspect.signature(function).parameters})


def agree(found: Any, expected: Any, name: str) -> None:
    found, expected = ([one] if not isinstance(one, list) else one for one in (found, expected))
    for ours, theirs in zip(found, expected, strict=True):
        size = np.max(np.abs(theirs), initial=1e-30)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8 * size, err_msg=name)


@pytest.mark.filterwarnings("ignore:sample_weight counts fewer than two rows")
def test_counted_rows_are_repeated_rows(X, counts):
    for name, calls in COUNTED.items():
        for call in calls:
            kept, few = X[counts > 0], counts[counts > 0]
            with_copies = call(repeated(X, counts), None)
            agree(call(kept, few), with_copies, name)
            for fill in (0.0, np.nan, np.inf, 1e300) if "transform" not in name else (0.0,):  # which has a row for each
                filled = np.where(counts[:, None] > 0, X, fill)
                agree(call(filled, counts), with_copies, f"{name}, {fill} in rows of weight 0")
            agree(call(X, np.ones(N)), call(X, None), f"{name}, weights of 1")


@pytest.mark.filterwarnings("ignore:(X does not have valid feature names|column)")
def test_weights_are_read_in_one_way_everywhere(X, counts):
    pandas, strict = pytest.importorskip("pandas"), pytest.importorskip("array_api_strict")
    few = np.maximum(counts, 1.0)
    forms = (few.astype(int).tolist(), few.astype("uint8"), few.astype("float32"), few.astype(object))
    of_others = pandas.Series(few, index=range(N, 0, -1)), strict.asarray(few)
    third = np.arange(N) == 3
    refused = {
        rf"its shape is \(5,\), and X has {N} rows": few[:5],
        rf"its shape is \({N + 1},\)": np.append(few, 1.0),
        rf"its shape is \({N}, 1\)": few[:, None],
        "entry 3 is -1": np.where(third, -1.0, few),
        "entry 3 is nan": np.where(third, np.nan, few),
        "entry 3 is inf": np.where(third, np.inf, few),
        "entry 0 is nan": [None] * N,
        "all weights are zero": np.zeros(N),
        "got list that holds no real numbers": ["a"] * N,
        "got MaskedArray that holds no real numbers": np.ma.array(few, mask=third),
    }
    for name, calls in COUNTED.items():
        call = calls[0]
        expected = call(X, few)
        for weights in (*forms, *of_others):
            agree(call(X, weights), expected, f"{name}, weights as {type(weights).__name__}")
        for words, weights in refused.items():
            with pytest.raises(InvalidParameterError, match=f"sample_weight is not allowed: {words}"):
                call(X, weights)


def test_a_mean_does_not_know_the_unit_of_the_weights(X, counts):
    for name, calls in COUNTED.items():
        if "fit" in name or name in SUMS:
            continue
        for call in calls:
            kept, few = X[counts > 0], counts[counts > 0]
            for factor in (0.37, 1e-6, 1e6):
                agree(call(kept, factor * few), call(kept, few), name)
    assert np.isclose(inertia(X, sample_weight=0.37 * counts), 0.37 * inertia(X, sample_weight=counts))


def test_a_result_for_each_row_does_not_know_the_others(X, counts):
    for name, call in EACH_ROW.items():
        found = np.asarray(call(repeated(X, counts)))
        np.testing.assert_allclose(found, repeated(np.asarray(call(X)), counts), rtol=1e-9, atol=1e-9, err_msg=name)


def test_what_counts_each_row_once_says_so(X, counts):
    for call, words in (
        (lambda: SEARCH.fit(X, sample_weight=counts), "whose folds have each row once"),
        (lambda: KernelPCACV().fit_transform(X, sample_weight=counts), "whose folds have each row once"),
        (lambda: n_components_for(X, "parallel", sample_weight=counts), "draws random rows, each of which counts once"),
        (lambda: n_components_for(READ, sample_weight=counts), "a model has the weights of its fit"),
        (lambda: reconstruction_error(READ, X, per_sample=True, sample_weight=counts), "one number a row"),
    ):
        with pytest.raises(InvalidParameterError, match=words) as error:
            call()
        assert error.value.argument == "sample_weight"


def test_a_model_of_weighted_rows_is_read_with_its_weights():
    X, counts = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [9.0, -9.0]]), [1000, 1000, 1000, 1]
    model = PCA(1).fit(X, sample_weight=counts)
    found = np.abs(variable_correlations(model, X, sample_weight=counts))
    S = np.cov(np.c_[X, model.transform(X)].T, fweights=counts)
    expected = np.abs(S[:2, 2:] / np.sqrt(np.outer(np.diag(S)[:2], np.diag(S)[2:])))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert np.all(found > 0.97)
    error = reconstruction_error(model, X, sample_weight=counts)
    left = PCA().fit(X, sample_weight=counts).explained_variance_[1]
    assert np.isclose(error, left * 3000 / 3001, rtol=1e-10)
    assert error < 0.06
    with pytest.warns(UserWarning, match="fewer than two rows"):
        whole = PCA().fit(X, sample_weight=np.divide(counts, 3001))
    rest = whole.explained_variance_[1]
    assert np.isclose(reconstruction_error(whole, X, 1, sample_weight=counts), rest, rtol=1e-10)
    errors = n_components_for(whole, "error", 1e3, return_report=True).values
    assert np.isclose(errors[0], rest, rtol=1e-10)


# -- containers --------------------------------------------------------------------------------------------------------

# Functions that read rows in any container, of rows and counts.
READERS: dict[str, Call] = {
    "inertia": lambda X, w: inertia(X, sample_weight=w),
    "inertia about a point": lambda X, w: inertia(X, np.ones(D), sample_weight=w),
    "reconstruction_error": lambda X, w: reconstruction_error(READ, X, 1, sample_weight=w),
    "variable_correlations": lambda X, w: variable_correlations(READ, X, sample_weight=w),
    "variables": lambda X, w: variable_correlations(READ, TRAINING[:N], X, sample_weight=w),
    "squared_cosines": lambda X, _: squared_cosines(READ, X, residual=True),
    "reconstruction": lambda X, _: reconstruction(READ, X),
    "errors": lambda X, _: reconstruction_error(READ, X, per_sample=True),
    **{
        f"rule {name}": lambda X, w, name=name: (
            n_components_for(X, name, 2.0 if name == "error" else None, return_report=True, sample_weight=w).values
        )
        for name in ("variance", "error", "mle", "bayesian", "broken_stick")
    },
}


@pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
def test_every_container_gives_the_number_of_the_array(X, counts, tmp_path):
    X = np.where(np.abs(X - 3.0) < 0.5, 0.0, X)
    for name, call in READERS.items():
        for weights in (None, counts):
            expected = call(X, weights)
            for container, held in held_by_all(X, tmp_path):
                agree(call(held, weights), expected, f"{name} of {container}, {'' if weights is None else 'weighted'}")
        with pytest.raises(InvalidParameterError, match="reads the batches more than once"):
            call(iter([X]), None)


class Pieces:
    """A set that gives no more than some rows at once."""

    def __init__(self, rows: np.ndarray, most: int) -> None:
        self.rows, self.most, self.shape, self.dtype = rows, most, rows.shape, rows.dtype

    def __getitem__(self, part: slice) -> np.ndarray:
        assert part.stop - part.start <= self.most, "read whole"
        return np.array(self.rows[part])


def test_a_set_is_never_read_whole(monkeypatch, X, counts):
    from gpukpca.backend import blocking

    monkeypatch.setattr(blocking, "READ_ENTRIES", 7 * D)
    for name, call in READERS.items():
        agree(call(Pieces(X, 7), counts), call(X, counts), name)
    with pytest.raises(InvalidParameterError, match=r"permutes the columns of X, which needs all rows in memory"):
        n_components_for(Pieces(X, 7), "parallel")
    with pytest.raises(InvalidParameterError, match=r"searches neighbors among all rows, in memory"):
        gpukpca.decomposition.intrinsic_dimension(Pieces(X, 7))


def test_rows_of_weight_zero_may_hold_anything(X, counts, tmp_path):
    Z = X.copy()
    Z[counts == 0] = np.nan
    of_each_row = ("squared_cosines", "reconstruction", "errors")
    calls = {name: call for name, call in READERS.items() if name not in of_each_row}
    for name, call in {**calls, "score": COUNTED["PCA.score"][0]}.items():
        for container, held in held_by_all(Z, tmp_path):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                agree(call(held, counts), call(X, counts), f"{name} of {container}")
        with pytest.raises(ValueError, match="NaN"):
            call(Z, None)
        with pytest.raises(ValueError, match="NaN"):
            call(scipy.sparse.csr_array(Z), None)


def test_rows_on_a_cluster_give_the_number_of_the_array(active, X, counts):
    da = pytest.importorskip("dask.array")
    filled = da.from_array(np.where(counts[:, None] > 0, X, np.nan), chunks=(20, 3))
    for name, call in READERS.items():
        rows = da.from_array(X, chunks=(20, 3)) if name in ("squared_cosines", "reconstruction", "errors") else filled
        agree(call(rows, counts), call(X, counts), f"{name} on a cluster")
    for rows in (filled, filled[filled[:, 0] != 1e9]):  # of unknown length
        assert np.isclose(READ.score(rows, sample_weight=counts), READ.score(X, sample_weight=counts), rtol=1e-12)


def test_a_fill_value_in_a_row_of_weight_0_changes_no_score() -> None:
    """Its squares overflow, and 0 times infinity is no number."""
    rows = np.array([[0, 0], [1, 1], [2, 2.5], [9e36, 9e36]], dtype="float32")
    weights = np.array([1.0, 1.0, 1.0, 0.0])
    model = PCA(1).fit(rows, sample_weight=weights)
    assert model.score(rows, sample_weight=weights) == pytest.approx(model.score(rows[:3]), rel=1e-6)


def test_latent_models_leave_out_rows_of_weight_0_whatever_they_hold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 4)) * [3.0, 2.0, 1.0, 0.5]
    weights = np.ones(60)
    weights[[3, 40]] = 0.0
    weights[10] = 3.0
    kept = weights > 0
    for make in (
        lambda: ProbabilisticPCA(2),
        lambda: BayesianPCA(),
        lambda: ProbabilisticPCA(2, solver="em", tol=1e-12),
    ):
        expected = make().fit(rows[kept], sample_weight=weights[kept]).explained_variance_
        for fill in (1e200, np.nan, np.inf):
            filled = rows.copy()
            filled[~kept] = fill
            np.save(tmp_path / "rows.npy", filled)
            for given in (filled, np.load(tmp_path / "rows.npy", mmap_mode="r")):
                found = make().fit(given, sample_weight=weights).explained_variance_
                np.testing.assert_allclose(found, expected, rtol=1e-6)
