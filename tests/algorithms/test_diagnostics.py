"""Reading a fitted PCA: against plain formulas, identities, and known answers."""

from __future__ import annotations

import inspect
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, FactorAnalysis, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpukpca
from gpukpca.datasets import uk_foods
from gpukpca.decomposition import (
    inertia,
    intrinsic_dimension,
    reconstruction,
    reconstruction_error,
    squared_cosines,
)
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning
from gpukpca.model_selection import n_components_for
from tests import tolerances

N, D = 40, 6


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * np.arange(1, D + 1) + 10.0


@pytest.fixture(params=["PCA", "IncrementalPCA"])
def fitted(request, xp, dtype, X):
    """The models of this library, fitted exactly on every array library."""
    model = {"PCA": gpukpca.PCA(), "IncrementalPCA": gpukpca.IncrementalPCA(batch_size=1000)}[request.param]
    return model.fit(xp.array(X.astype(dtype)))


def covariance_spectrum(X):
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False))
    return values[::-1], vectors[:, ::-1].T


# -- points ------------------------------------------------------------------------------------------------------------


def test_squared_cosines_point_by_point(xp, dtype, fitted, X):
    rows = X[:9].astype(dtype)
    cosines = squared_cosines(fitted, xp.array(rows))
    assert xp.owns(cosines)
    assert str(dtype) in str(cosines.dtype)
    mean, V = xp.host(fitted.mean_), xp.host(fitted.components_).astype(np.float64)
    for i, row in enumerate(rows.astype(np.float64)):
        x = row - mean
        for d in range(D):
            wanted = (x @ V[d]) ** 2 / (x @ x)
            assert float(xp.host(cosines)[i, d]) == pytest.approx(wanted, abs=40 * tolerances.eps(dtype))
    np.testing.assert_allclose(xp.host(cosines).sum(axis=1), 1.0, atol=40 * tolerances.eps(dtype))


def test_the_rest_of_the_squared_cosines_is_residual(X):
    model = PCA(3).fit(X)
    cosines = squared_cosines(model, X, residual=True)
    assert cosines.shape == (N, 4)
    np.testing.assert_allclose(cosines.sum(axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(squared_cosines(model, X), cosines[:, :3], rtol=1e-14)


def test_rows_that_are_all_equal_have_cosines_zero():
    with pytest.warns(UserWarning, match="all rows are equal"):
        flat = gpukpca.IncrementalPCA(2).fit(np.ones((5, 3)))
    assert np.all(squared_cosines(flat, np.ones((2, 3)), residual=True) == 0.0)


def test_the_point_at_the_mean_has_cosine_zero(X):
    X = np.vstack([X, X.mean(axis=0)])
    model = PCA().fit(X)
    cosines = squared_cosines(model, np.vstack([model.mean_, np.nextafter(model.mean_, 99.0), X[:1]]), residual=True)
    assert np.all(cosines[:2] == 0.0)
    assert cosines[2].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-250, 1e150])
def test_neither_huge_nor_tiny_points_overflow(X, scale):
    model = PCA().fit(X - 10.0)
    shifted = squared_cosines(model, model.mean_ + (X - 10.0) * max(scale, 1.0))
    np.testing.assert_allclose(shifted.sum(axis=1), 1.0, rtol=1e-10)
    model.mean_ = 0.0 * model.mean_
    wanted = squared_cosines(model, X - 10.0)
    np.testing.assert_allclose(squared_cosines(model, (X - 10.0) * scale), wanted, rtol=1e-10, atol=1e-14)


def test_whitening_and_row_order_change_nothing(X):
    plain, white = PCA().fit(X), PCA(whiten=True).fit(X)
    np.testing.assert_allclose(squared_cosines(white, X), squared_cosines(plain, X), atol=1e-13)
    np.testing.assert_allclose(squared_cosines(plain, X[::-1]), squared_cosines(plain, X)[::-1], atol=1e-13)
    np.testing.assert_allclose(reconstruction(white, X, 2), reconstruction(plain, X, 2), atol=1e-12)


def test_sparse_rows_and_frames_are_rows(X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = PCA(3).fit(frame)
    wanted = squared_cosines(model, frame)
    assert isinstance(wanted, np.ndarray)
    plain = PCA(3).fit(X)
    np.testing.assert_allclose(squared_cosines(plain, scipy.sparse.csr_array(X)), wanted, atol=1e-14)


# -- reconstruction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [0, 1, 3, D])
def test_the_error_on_the_data_of_fit_is_what_is_left_of_the_spectrum(xp, dtype, fitted, X, K):
    values, _ = covariance_spectrum(X.astype(dtype))
    wanted = np.sum(values[K:]) * (N - 1) / N
    data = xp.array(X.astype(dtype))
    # What is left of a full reconstruction is the rounding of the points.
    assert reconstruction_error(fitted, data, K) == pytest.approx(wanted, abs=100 * tolerances.eps(dtype) * values[0])
    points = reconstruction(fitted, data, K)
    assert xp.owns(points)
    errors = reconstruction_error(fitted, data, K, per_sample=True)
    assert xp.owns(errors)
    by_hand = np.sum((X.astype(dtype) - xp.host(points)) ** 2, axis=1, dtype=np.float64)
    np.testing.assert_allclose(xp.host(errors), by_hand, atol=1e3 * tolerances.eps(dtype) * values[0])


def test_reconstruction_is_that_of_scikit_learn(X):
    model = PCA(4).fit(X)
    np.testing.assert_allclose(reconstruction(model, X), model.inverse_transform(model.transform(X)), rtol=1e-12)
    np.testing.assert_allclose(reconstruction(model, X, 0), np.tile(model.mean_, (N, 1)), rtol=1e-14)


def test_a_standardizing_model_measures_standardized_points(X):
    deviations = X.std(axis=0, ddof=1)
    model = PCA().fit((X - X.mean(axis=0)) / deviations)
    model.mean_, model.scale_ = X.mean(axis=0), deviations
    np.testing.assert_allclose(reconstruction(model, X), X, atol=1e-12)
    wanted = np.sum(model.explained_variance_[2:]) * (N - 1) / N
    assert reconstruction_error(model, X, 2) == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(squared_cosines(model, X).sum(axis=1), 1.0, rtol=1e-12)


def test_the_pca_of_this_library_standardizes_by_itself(xp, X):
    model = gpukpca.PCA(scale=True).fit(xp.array(X))
    np.testing.assert_allclose(xp.host(reconstruction(model, xp.array(X))), X, atol=1e-12)
    wanted = np.sum(xp.host(model.explained_variance_)[2:]) * (N - 1) / N
    assert reconstruction_error(model, xp.array(X), 2) == pytest.approx(wanted, rel=1e-12)
    plain = PCA().fit(X / xp.host(model.scale_))
    cosines = squared_cosines(model, xp.array(X))
    np.testing.assert_allclose(xp.host(cosines), squared_cosines(plain, X / xp.host(model.scale_)), atol=1e-11)


# -- units and names of the data ---------------------------------------------------------------------------------------

# name -> (function of a PCA and rows, power of the unit that its result has)
OF_ROWS = {
    "squared_cosines": (lambda model, X: squared_cosines(model, X, residual=True), 0),
    "reconstruction": (reconstruction, 1),
    "reconstruction_error": (reconstruction_error, 2),
    "inertia": (lambda _, X: inertia(X), 2),
    "intrinsic_dimension": (lambda _, X: intrinsic_dimension(X).per_sample, 0),
    "loadings": (lambda model, _: gpukpca.loadings(model), 1),
    "variable_correlations": (gpukpca.variable_correlations, 0),
    "supplementary variables": (lambda model, X: gpukpca.variable_correlations(model, X, X), 0),
    "residuals": (lambda model, X: gpukpca.residuals(model, X).rayleigh_quotients, 2),
    "trace": (lambda model, X: gpukpca.residuals(model, X).trace, 2),
    "residuals of scores": (lambda _, X: gpukpca.residuals(("cosine", X[:, :2]), X).rayleigh_quotients, 0),
    "eigenvalues of scores": (lambda _, X: gpukpca.residuals(("cosine", X[:, :2]), X).eigenvalues, 2),
} | {
    f"rule {rule}": (
        lambda _, X, rule=rule: n_components_for(X, rule, 0.0 if rule == "error" else None, n_draws=5),
        0,
    )
    for rule in ("variance", "error", "mle", "bayesian", "parallel", "broken_stick")
}

# Others that state squares.
OVERFLOW = ("residuals of scores", "rule error", "rule bayesian", "rule parallel")


@pytest.mark.parametrize("exponent", [1015, 996, 500, -500, -996, -1010, -1030])
def test_the_unit_of_the_data_changes_the_unit_of_the_result_alone(exponent):
    """Or a message names the overflow; nothing is NaN, infinite or of another size without a word."""
    half = np.random.default_rng(0).standard_normal((30, 4)) * [4.0, 2.0, 1.0, 0.5]
    X = np.concatenate([half, -half])
    Y, model = np.ldexp(X, exponent), gpukpca.PCA(2).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)  # variances that underflow
        scaled = model  # which has the mean 0 too
        if exponent < 511:
            scaled = gpukpca.PCA(2).fit(Y)
        for name, (function, power) in OF_ROWS.items():
            if (name == "loadings" and abs(exponent) > 511) or (name == "rule error" and exponent < -511):
                # made of variances out of range
                continue
            if exponent > 511 and (power == 2 or name in OVERFLOW):
                with pytest.raises(ValueError, match=r"overflow|too large"):
                    function(scaled, Y)
                continue
            expected = np.ldexp(np.asarray(function(model, X), dtype=np.float64), power * exponent)
            found = np.asarray(function(scaled, Y), dtype=np.float64)
            tiny = 1e-9 * np.max(np.abs(expected)) + 5e-324
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=tiny, err_msg=name)


def test_a_model_whose_variances_underflow_has_no_rule():
    X = np.random.default_rng(0).standard_normal((30, 4)) * 2.0**-996
    with pytest.warns(PrecisionWarning, match="variances are 0 or lost digits"):
        model = gpukpca.PCA().fit(X)
    with pytest.raises(InvalidParameterError, match="underflow, and are 0; fit it to the data times a large constant"):
        n_components_for(model, "variance")


MODELS_WITH_NAMES = [
    gpukpca.PCA(2),
    gpukpca.IncrementalPCA(2),
    gpukpca.KernelPCA(2, kernel="rbf", gamma=0.1, fit_inverse_transform=True),
    gpukpca.KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=gpukpca.Nystrom(rank=10)),
    gpukpca.ProbabilisticPCA(2),
    gpukpca.LocalPCA(2, 2, random_state=0),
    PCA(2),
    KernelPCA(2, kernel="rbf", gamma=0.1),
    make_pipeline(PCA(2)),
    make_pipeline(StandardScaler(), gpukpca.PCA(2)),
    make_pipeline(Nystroem(gamma=0.1, n_components=10, random_state=0), PCA(2)),
]
OF_NAMES = [squared_cosines, reconstruction, reconstruction_error, gpukpca.variable_correlations, gpukpca.residuals]


@pytest.mark.parametrize("model", MODELS_WITH_NAMES, ids=str)
def test_a_frame_with_other_columns_is_refused_as_by_transform(model):
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((30, 3)), columns=list("abc"))
    model = clone(model).fit(frame)
    methods = [
        getattr(model, name)
        for name in dir(type(model))
        if not name.startswith(("_", "fit", "partial_fit", "plan", "inverse"))
        and callable(getattr(type(model), name))
        and hasattr(model, name)
        and "X" in list(inspect.signature(getattr(model, name)).parameters)[:1]
    ]
    assert "transform" in [method.__name__ for method in methods]
    refused = "feature names should match|^residuals takes|has no axes of a PCA"
    for function in (*methods, *(partial(function, model) for function in OF_NAMES)):
        for other in (frame[["b", "a", "c"]], frame.rename(columns={"a": "z"})):
            with pytest.raises(ValueError, match=refused):
                function(other)


# kind of model -> whether it has axes, and what `residuals` takes
KINDS = {
    "PCA": (gpukpca.PCA(), True, True),
    "IncrementalPCA": (gpukpca.IncrementalPCA(2), True, True),
    "KernelPCA": (gpukpca.KernelPCA(2), False, True),
    "ProbabilisticPCA": (gpukpca.ProbabilisticPCA(2), True, False),
    "BayesianPCA": (gpukpca.BayesianPCA(), True, False),
    "LocalPCA": (gpukpca.LocalPCA(2, random_state=0), False, False),
    "their PCA": (PCA(), True, True),
    "their KernelPCA": (KernelPCA(2), False, True),
    "TruncatedSVD": (TruncatedSVD(2), False, False),
    "FactorAnalysis": (FactorAnalysis(2), False, False),
    "StandardScaler": (StandardScaler(), False, False),
    "Nystroem": (Nystroem(n_components=5), False, False),
    "Pipeline": (make_pipeline(PCA(2)), False, True),
    "GridSearchCV": (GridSearchCV(PCA(), {"n_components": [1, 2]}, cv=2), False, True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_every_function_takes_a_model_or_says_what_to_pass(kind):
    X = np.random.default_rng(0).standard_normal((40, 4))
    model, has_axes, is_audited = KINDS[kind]
    model = clone(model).fit(X)
    for function in OF_NAMES:
        expected = is_audited if function is gpukpca.residuals else has_axes
        if function is gpukpca.variable_correlations or expected:
            found = function(model, X)
            found = found.residual_norms if function is gpukpca.residuals else found
            assert np.all(np.isfinite(found)), function
        else:
            with pytest.raises(InvalidParameterError, match=r"pass a fitted PCA|residuals takes a fitted"):
                function(model, X)
        with pytest.raises(InvalidParameterError, match=f"the class {type(model).__name__}"):
            function(type(model), X)
    for rule in ("variance", "error", "mle", "bayesian", "parallel", "broken_stick"):
        try:
            count = n_components_for(model, rule, 100.0 if rule == "error" else None)
        except InvalidParameterError:
            continue
        assert 0 <= count <= 4, rule


# -- inertia -----------------------------------------------------------------------------------------------------------


def test_huygens(xp, dtype, X, rng):
    rows, a = X.astype(dtype), rng.standard_normal(D)
    center = rows.mean(axis=0, dtype=np.float64)
    about_mean = inertia(xp.array(rows))
    assert about_mean == pytest.approx((N - 1) * np.trace(np.cov(rows, rowvar=False)), rel=1e-6)
    wanted = N * np.sum((a - center) ** 2) + about_mean
    assert inertia(xp.array(rows), a) == pytest.approx(wanted, rel=1e-12)
    assert inertia(xp.array(rows), xp.array(a)) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("q", range(1, D))
def test_total_is_explained_and_residual_for_any_subspace_through_the_mean(xp, X, rng, q):
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0].T
    data, center = xp.array(X), X.mean(axis=0)
    residual = inertia(data, (center, Q[:q]))
    explained = np.sum(((X - center) @ Q[:q].T) ** 2)
    assert residual + explained == pytest.approx(inertia(data), rel=1e-12)
    assert inertia(data, (center, Q[q:])) == pytest.approx(explained, rel=1e-11)


def test_no_subspace_has_less_inertia_than_that_of_the_components(X, rng):
    model = PCA().fit(X)
    best = inertia(X, (model.mean_, model.components_[:2]))
    assert best == pytest.approx(model.explained_variance_[2:].sum() * (N - 1), rel=1e-12)
    for _ in range(20):
        axes = np.linalg.qr(rng.standard_normal((D, 2)))[0].T
        assert inertia(X, (model.mean_, axes)) >= best


# -- intrinsic dimension -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 3])
def test_a_curved_sheet_has_its_own_dimension(xp, q):
    rng = np.random.default_rng(q)
    t = rng.uniform(-1, 1, (600, q))
    sheet = np.hstack([t, 0.3 * np.sin(2 * t), 0.2 * t**2]) @ rng.standard_normal((3 * q, 10))
    found = intrinsic_dimension(xp.array(sheet), n_neighbors=15)
    assert found.median == q
    assert found.per_sample.shape == (600,)
    assert np.mean(found.per_sample == q) > 0.8


def test_local_dimension_by_hand(X):
    found = intrinsic_dimension(X, n_neighbors=5, threshold=0.1)
    for i in (0, 7):
        near = X[np.argsort(np.sum((X - X[i]) ** 2, axis=1))[:6]]
        values = np.linalg.eigvalsh(np.cov(near, rowvar=False))
        assert found.per_sample[i] == np.sum(values > 0.1 * values[-1])
    assert found.median == np.median(found.per_sample)


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e305])
def test_the_dimension_does_not_depend_on_the_unit(X, scale):
    np.testing.assert_array_equal(intrinsic_dimension(X * scale, 5).per_sample, intrinsic_dimension(X, 5).per_sample)


def test_repeated_points_have_dimension_zero():
    assert np.all(intrinsic_dimension(np.ones((10, 3)), n_neighbors=4).per_sample == 0)
    assert np.all(intrinsic_dimension(np.linspace(0, 1e-200, 30)[:, None] * np.ones(3), 5).per_sample == 1)


@pytest.mark.parametrize("d", [5, 16, 40])
def test_neither_an_offset_nor_far_clusters_change_the_neighbors(d: int) -> None:
    rng = np.random.default_rng(0)
    X = np.tanh(rng.standard_normal((300, 3)) @ rng.standard_normal((3, d))) + 0.05 * rng.standard_normal((300, d))
    for offset in (1e7, 1e9):
        moved = X + offset
        X = moved - offset  # exact: the rows that are left of X
        wanted = intrinsic_dimension(X).per_sample
        np.testing.assert_array_equal(intrinsic_dimension(moved).per_sample, wanted)
        clusters = intrinsic_dimension(np.concatenate([moved, -moved])).per_sample
        np.testing.assert_array_equal(clusters, np.concatenate([wanted, wanted]))


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named(X):
    model = PCA(3).fit(X)
    with pytest.raises(NotFittedError):
        squared_cosines(PCA(), X)
    for call in (lambda given: squared_cosines(given, X), lambda given: reconstruction(given, X)):
        with pytest.raises(InvalidParameterError, match="expected a fitted estimator, got an object of type ndarray"):
            call(X)
    with pytest.raises(InvalidParameterError, match=r"shape=\(40, 0\)"):
        intrinsic_dimension(X[:, :0])
    with pytest.raises(ValueError, match="expecting 6 features"):
        squared_cosines(model, X[:, :4])
    with pytest.raises(ValueError, match="NaN"):
        squared_cosines(model, np.full((2, D), np.nan))
    with pytest.raises(InvalidParameterError, match="n_components=4"):
        reconstruction(model, X, 4)
    with pytest.raises(InvalidParameterError, match="n_components=True"):
        reconstruction_error(model, X, True)


def test_wrong_places_for_inertia_are_named(X):
    with pytest.raises(InvalidParameterError, match=r"shape \(6,\)"):
        inertia(X, np.zeros(5))
    with pytest.raises(InvalidParameterError, match=r"shape \(q, 6\)"):
        inertia(X, (np.zeros(6), np.zeros((1, 5))))
    with pytest.raises(InvalidParameterError, match="orthonormal axes"):
        inertia(X, (np.zeros(6), np.ones((2, 6))))
    with pytest.raises(InvalidParameterError, match="finite"):
        inertia(X, np.full(6, np.nan))
    with pytest.raises(ValueError, match="overflows"):
        inertia(X * 1e200)


@pytest.mark.parametrize("bad", [{"n_neighbors": 1}, {"n_neighbors": N}, {"threshold": 0.0}, {"threshold": 1.0}])
def test_wrong_neighborhoods_are_named(X, bad):
    with pytest.raises(InvalidParameterError, match=next(iter(bad))):
        intrinsic_dimension(X, **bad)


# -- known answers -----------------------------------------------------------------------------------------------------


def test_iris_is_nearly_a_plane():
    X = load_iris().data
    model = IncrementalPCA(batch_size=len(X)).fit(X)
    np.testing.assert_allclose(model.explained_variance_ratio_, PCA().fit(X).explained_variance_ratio_, rtol=2e-12)
    assert reconstruction_error(model, X, 2) / reconstruction_error(model, X, 0) == pytest.approx(0.02231, abs=5e-6)


def test_the_plane_of_foods_leaves_little_of_northern_ireland():
    X = uk_foods().X
    model = PCA().fit(X)
    np.testing.assert_allclose(model.explained_variance_ratio_, [0.67444, 0.29052, 0.03503, 0.0], atol=5e-6)
    assert squared_cosines(model, X)[3, :2].sum() > 0.99  # the odd one out among four countries
    assert reconstruction_error(model, X, 3) == pytest.approx(0.0, abs=1e-9)
