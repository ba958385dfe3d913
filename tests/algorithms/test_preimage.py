"""Pre-images, denoising, and distances in feature space."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca import PCA, KernelPCA, kernels
from gpukpca.algorithms.preimage import distance_constraint
from gpukpca.algorithms.preimage.ridge import RidgeMethod
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.eigen import Nystrom
from gpukpca.exceptions import (
    ConvergenceWarning,
    InvalidParameterError,
    PrecisionWarning,
    RankWarning,
)
from tests import datasets, oracle, tolerances
from tests.conftest import Namespace
from tests.each import each

NUMPY = Namespace("numpy", np, None)
METHODS = ["ridge", "fixed_point", "distance_constraint"]
# Ridges so small that the regression goes through its points.
SHARP = {
    "ridge": RidgePreimage(alpha=1e-10),
    "fixed_point": FixedPointPreimage(max_iter=2000, tol=1e-10),
    "distance_constraint": DistanceConstraintPreimage(),
}
RADIAL: dict[str, Any] = {
    "rbf": kernels.RBF(0.3),
    "matern 1.5": kernels.Matern(0.3, 1.5),
    "matern 2.5": kernels.Matern(0.3, 2.5),
    "rational quadratic": kernels.RationalQuadratic(0.3, 1.5),
    "a multiple": 3.0 * kernels.RBF(0.2),
    "a sum": kernels.RBF(0.3) + kernels.RationalQuadratic(0.2),
    "a product": kernels.RBF(0.2) * kernels.Matern(0.2, 2.5),
    "a power": (kernels.RBF(0.1) + kernels.Matern(0.2, 2.5)) ** 2,
    "an exponential": kernels.exp(0.5 * kernels.RationalQuadratic(0.3)),
}


def data(n: int = 40, d: int = 4, seed: int = 0) -> np.ndarray:
    return datasets.data(n, d, seed)


def fitted(X: Any, p: int | None = 4, kernel: Any = "rbf", preimage: Any = "ridge", **parameters: Any) -> KernelPCA:
    if kernel == "rbf":
        parameters = {"gamma": 0.3} | parameters
    return KernelPCA(p, kernel=kernel, preimage=preimage, eigen_solver="dense", **parameters).fit(X)


def distance_from_space(F: np.ndarray, G: np.ndarray, p: int) -> np.ndarray:
    """Squared distances of rows G from the mean of F and its first p axes, in features written down."""
    mean = F.mean(axis=0)
    axes = np.linalg.svd(F - mean)[2][:p]
    off = (G - mean) - (G - mean) @ axes.T @ axes
    return np.sum(off**2, axis=1)


# -- exact where it can be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_linear_kernel_gives_the_reconstruction_of_pca_by_every_method(method):
    assert_reconstruction_of_pca(NUMPY, "float64", method, 0.0)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_the_linear_kernel_gives_the_reconstruction_of_pca_wherever_the_data_are(xp, dtype, offset):
    assert_reconstruction_of_pca(xp, dtype, "fixed_point", offset)


def assert_reconstruction_of_pca(xp: Namespace, dtype: str, method: str, offset: float) -> None:
    if dtype == "float32" and offset:
        offset = 1e3
    X, Y = (data() + offset).astype(dtype), (data(9, seed=1) + offset).astype(dtype)
    model = fitted(xp.array(X), 2, "linear", method)
    reference = PCA(2).fit(X.astype(np.float64))
    wide = Y.astype(np.float64)
    wanted = reference.inverse_transform(reference.transform(wide))
    atol = 240 * tolerances.eps(dtype) * (1.0 + offset)
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(Y))), wanted, rtol=0, atol=atol)
    errors = np.sum((wide - wanted) ** 2, axis=1)
    np.testing.assert_allclose(xp.host(model.feature_space_error(xp.array(Y))), errors, rtol=0, atol=20 * atol)


@pytest.mark.parametrize("rank", [8, 20])
def test_the_linear_kernel_is_exact_on_landmarks_too(rank):
    X = data(20, 40) + 5.0
    model = KernelPCA(5, kernel="linear", eigen_solver=Nystrom(rank=rank), preimage="fixed_point", random_state=0).fit(
        X
    )
    centered = X - X.mean(axis=0)
    basis = np.linalg.qr(centered[model.landmarks_].T)[0]
    features = centered @ basis @ basis.T
    mean = features.mean(axis=0)
    axes = np.linalg.svd(features - mean)[2][:5]
    wanted = X.mean(axis=0) + mean + (centered - mean) @ axes.T @ axes
    np.testing.assert_allclose(model.denoise(X), wanted, rtol=0, atol=1e-12)


@each("method", METHODS)
@each("kernel", [*RADIAL, "poly"])
def test_a_training_point_comes_back_whatever_the_kernel(method, kernel):
    assert_comes_back(NUMPY, "float64", method, kernel)


@each("method", METHODS)
def test_a_training_point_projected_onto_all_components_comes_back(xp, dtype, method):
    assert_comes_back(xp, dtype, method, "rbf")


def assert_comes_back(xp: Namespace, dtype: str, method: str, kernel: str) -> None:
    k = kernels.Polynomial(3, 0.25) if kernel == "poly" else RADIAL[kernel]
    X = data(20)
    try:
        model = fitted(xp.array(X, dtype), None, k, SHARP[method] if dtype == "float64" else method, alpha=1e-5)
    except InvalidParameterError:
        combined = kernel in ("a sum", "a product", "a power", "an exponential")
        assert (method, kernel) == ("fixed_point", "poly") or (method == "distance_constraint" and combined)
        return
    atol = 2e-8 if dtype == "float64" else 3e-3
    restored = model.denoise(xp.array(X, dtype))
    assert xp.owns(restored)
    assert restored.dtype == xp.dtype(dtype)
    np.testing.assert_allclose(xp.host(restored), X, rtol=0, atol=atol)
    again = model.inverse_transform(model.transform(xp.array(X, dtype)))
    np.testing.assert_allclose(xp.host(again), X, rtol=0, atol=atol)


@pytest.mark.parametrize("method", METHODS)
def test_two_points_come_back_and_what_lies_between_them_stays_on_the_segment(xp, method):
    assert_on_the_segment(xp, method, "rbf")


def test_two_points_and_the_segment_between_them_with_the_linear_kernel():
    assert_on_the_segment(NUMPY, "ridge", "linear")


def assert_on_the_segment(xp: Namespace, method: str, kernel: str) -> None:
    X = np.array([[1.0, 2.0, 0.0], [2.0, 0.0, 1.0]])
    model = fitted(xp.array(X), 1, kernel, SHARP[method], **({"gamma": 0.05} if kernel == "rbf" else {}))
    Z = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(X))), X, rtol=0, atol=1e-7)
    shares = np.linspace(0.1, 0.9, 5)[:, None]
    between = xp.host(model.inverse_transform(xp.array((1 - shares) * Z[0] + shares * Z[1])))
    along = (between - X[0]) @ (X[1] - X[0]) / np.sum((X[1] - X[0]) ** 2)
    np.testing.assert_allclose(between, X[0] + along[:, None] * (X[1] - X[0]), rtol=0, atol=1e-9)
    assert np.all((along > -1e-9) & (along < 1 + 1e-9))
    assert np.all(np.diff(along) > 0)


@pytest.mark.parametrize("method", METHODS)
def test_on_a_circle_a_pair_of_scores_at_an_angle_gives_a_point_on_that_ray(xp, method):
    X = datasets.circle()
    # An even number of neighbors is not the same on both sides of a ray.
    preimage = DistanceConstraintPreimage(9) if method == "distance_constraint" else method
    model = fitted(xp.array(X), 2, "rbf", preimage, gamma=1.0)
    size = float(np.sqrt(xp.host(model.eigenvalues_)[0] * 2 / len(X)))
    first = np.arctan2(*xp.host(model.transform(xp.array(X[:1])))[0, ::-1])
    second = np.arctan2(*xp.host(model.transform(xp.array(X[1:2])))[0, ::-1])
    turn = 1.0 if np.sin(second - first) > 0 else -1.0
    angles = 2.0 * np.pi * np.arange(0, len(X), 5) / len(X)
    phi = first + turn * angles
    points = xp.host(model.inverse_transform(xp.array(size * np.column_stack([np.cos(phi), np.sin(phi)]))))
    radii = np.sum(points * np.column_stack([np.cos(angles), np.sin(angles)]), axis=1)
    assert np.all(radii > 0.1)
    np.testing.assert_allclose(points, radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)]), atol=1e-4)


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_ridge_with_the_peers_kernel_and_no_centering_is_the_peers(xp, alpha):
    X, Y = data(), data(11, seed=1)
    rule = RidgePreimage(kernels.RBF(0.3), alpha=alpha, centered=False)
    theirs = sklearn.decomposition.KernelPCA(4, kernel="rbf", gamma=0.3, fit_inverse_transform=True, alpha=alpha)
    wanted = theirs.fit(X).inverse_transform(theirs.transform(Y))
    for parameters in ({"preimage": rule}, {"preimage": None, "fit_inverse_transform": True, "alpha": alpha}):
        model = fitted(xp.array(X), **parameters)
        np.testing.assert_allclose(xp.host(model.denoise(xp.array(Y))), wanted, rtol=0, atol=1e-9)


def test_beside_a_ridge_the_flag_adds_nothing():
    X, Y = data(), data(11, seed=1)
    for preimage in ("ridge", RidgePreimage(gamma=0.7, centered=False)):
        both, alone = (fitted(X, preimage=preimage, fit_inverse_transform=flag) for flag in (True, False))
        np.testing.assert_array_equal(both.denoise(Y), alone.denoise(Y))


def test_ridge_is_the_regression_written_out(xp, dtype):
    X, Y = data() + 3.0, data(11, seed=1) + 3.0
    model = fitted(xp.array(X, dtype), preimage=RidgePreimage(gamma=0.7, alpha=0.1))
    S, Z = (xp.host(model.transform(xp.array(A, dtype))).astype(np.float64) for A in (X, Y))
    k = oracle.rbf(0.7)
    wanted = X.mean(0) + oracle.gram(k, Z, S) @ np.linalg.solve(oracle.gram(k, S) + 0.1 * np.eye(40), X - X.mean(0))
    np.testing.assert_allclose(xp.host(model.denoise(xp.array(Y, dtype))), wanted, atol=2e4 * tolerances.eps(dtype))


def test_the_default_bandwidth_of_the_ridge_is_the_median_rule_of_the_scores():
    X = data()
    gamma = kernels.RBF("median").resolve(fitted(X).transform(X)).gamma
    np.testing.assert_allclose(fitted(X).denoise(X), fitted(X, preimage=RidgePreimage(gamma=gamma)).denoise(X))


def test_without_alpha_of_its_own_the_ridge_has_that_of_the_estimator():
    X = data()
    by_estimator = fitted(X, alpha=0.03).denoise(X)
    np.testing.assert_array_equal(by_estimator, fitted(X, preimage=RidgePreimage(alpha=0.03)).denoise(X))
    assert np.max(np.abs(by_estimator - fitted(X).denoise(X))) > 1e-3


def test_the_centered_ridge_pulls_towards_the_mean_of_the_data():
    X = data() + 100.0
    model = fitted(X, preimage=RidgePreimage(gamma=50.0, alpha=1.0))
    np.testing.assert_allclose(model.inverse_transform(np.full((1, 4), 1e3))[0], X.mean(axis=0), rtol=0, atol=1e-9)


def test_an_offset_costs_the_ridge_no_digits():
    X = np.round(data() * 2**10) / 2**10
    near, far = fitted(X, alpha=0.01), fitted(X + 2.0**26, alpha=0.01)
    np.testing.assert_allclose(far.denoise(X + 2.0**26) - 2.0**26, near.denoise(X), rtol=0, atol=1e-6)


def test_a_ridge_that_gives_back_less_than_the_mean_says_so(xp):
    """And no other does; the numbers of the warning are those of the rows that come back."""
    told = set()
    for offset, kernel, landmarks in itertools.product((0.0, 1.0, 10.0), ("rbf", "cosine", "sigmoid", "poly"), (0, 20)):
        X = data() + offset
        if landmarks and kernel == "sigmoid":  # which Nyström refuses
            continue
        whole = {"fit_inverse_transform": True, "preimage": None}
        by = {"preimage": RidgePreimage(kernel, 0.2, centered=False, n_landmarks=landmarks)} if landmarks else whole
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gamma = None if kernel == "cosine" else 0.2
            model = KernelPCA(3, kernel=kernel, gamma=gamma, random_state=0, **by).fit(xp.array(X))
        found = [seen.message for seen in caught if "worse than the mean" in str(seen.message)]
        back = xp.host(model.inverse_transform(model.transform(xp.array(X))))
        left, variance = ((back - X) ** 2).sum() / len(X), X.var(axis=0).sum()
        assert bool(found) == (left > variance), (offset, kernel, landmarks)
        if found:
            told.add(kernel)
            assert found[0].values["left"] == pytest.approx(left, rel=1e-6)
            assert found[0].values["variance"] == pytest.approx(variance, rel=1e-9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", "inverse_transform is worse")
            KernelPCA(3, kernel=kernel, gamma=gamma, preimage="ridge").fit(xp.array(X))
    assert {"cosine", "sigmoid"} <= told


def test_with_all_scores_for_landmarks_the_ridge_is_the_whole_one(xp):
    X, Y = data(), data(11, seed=1)
    whole = fitted(xp.array(X), preimage=RidgePreimage(alpha=0.1, n_landmarks=None))
    model = fitted(xp.array(X), preimage=RidgePreimage(alpha=0.1, n_landmarks=40))
    found, wanted = (xp.host(m.denoise(xp.array(Y))) for m in (model, whole))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8)


def test_a_ridge_whose_matrix_does_not_fit_takes_landmarks_and_the_plan_says_it():
    X = data(1500, 3)
    parameters: dict[str, Any] = {"kernel": "rbf", "eigen_solver": "randomized", "gram": "tiled", "random_state": 0}
    model = KernelPCA(2, preimage=RidgePreimage(gamma=2.0), memory_limit="15MiB", alpha=0.1, **parameters)
    model.set_params(preimage__n_landmarks=150).fit(X)
    assert model.plan_.preimage_landmarks == 150
    assert "150 landmarks among the 1500 scores" in str(model.plan_)
    assert model.dual_coef_.shape[0] <= 150
    whole = KernelPCA(2, preimage=RidgePreimage(gamma=2.0), alpha=0.1, **parameters).fit(X)
    assert whole.plan_.preimage_landmarks == 0
    assert np.max(np.abs(model.denoise(X) - whole.denoise(X))) < 1e-3
    assert RidgeMethod(None, 1.0, True, "auto").landmarks_for(5000, fits=True) == 0
    assert RidgeMethod(None, 1.0, True, "auto").landmarks_for(5000, fits=False) == 1000
    assert RidgeMethod(None, 1.0, True, "auto").landmarks_for(20_000, fits=True) == 2000
    assert RidgeMethod(None, 1.0, True, None).landmarks_for(20_000, fits=True) == 0


@pytest.mark.parametrize(("method", "exponent"), [("ridge", 100), (FixedPointPreimage(tol=1e-3), -100)], ids=str)
def test_combined_kernels_take_any_unit_of_float32(xp, method, exponent):
    kernel = kernels.RBF("scale") * (kernels.RBF("scale") + 2.0 * kernels.Matern("scale", 1.5))
    X, Y = data().astype(np.float32), data(9, seed=1).astype(np.float32)
    model = fitted(xp.array(X), 6, kernel, method)
    scaled = fitted(xp.array(np.ldexp(X, exponent)), 6, kernel, method)
    points, info = scaled.denoise(xp.array(np.ldexp(Y, exponent)), return_info=True)
    assert info.converged.all()
    np.testing.assert_allclose(np.ldexp(xp.host(points), -exponent), xp.host(model.denoise(xp.array(Y))), atol=3e-3)


# -- fixed point -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", RADIAL)
def test_the_gradient_vanishes_for_every_kernel(kernel):
    assert_no_gradient(NUMPY, RADIAL[kernel], "dense")


@pytest.mark.parametrize("solver", ["dense", Nystrom(rank=12)])
def test_the_gradient_of_the_distance_in_feature_space_vanishes_where_the_iteration_ends(xp, solver):
    assert_no_gradient(xp, kernels.RBF(0.1), solver)


def assert_no_gradient(xp: Namespace, kernel: kernels.Kernel, solver: Any) -> None:
    X = data()
    Y = X[:4] + 0.3 * data(4, seed=1)
    model = KernelPCA(4, kernel=kernel, eigen_solver=solver, preimage=SHARP["fixed_point"], random_state=0)
    points, info = model.fit(xp.array(X)).denoise(xp.array(Y), return_info=True)
    assert info.converged.all()
    x, basis, A = xp.host(points), xp.host(model.X_fit_), xp.host(model.projection_)
    weights = xp.host(model.transform(xp.array(Y))) @ A.T + mean_weights(kernel, X, basis)

    def g(at: np.ndarray) -> np.ndarray:
        return np.sum(weights * kernel(at, basis), axis=1)

    gradient = np.array([(g(x + step) - g(x - step)) / 2e-5 for step in 1e-5 * np.eye(4)])
    assert np.max(np.abs(gradient)) < 1e-8
    assert np.all(g(x) >= g(Y) - 1e-12)


def mean_weights(kernel: kernels.Kernel, X: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Weights over the basis of the mean feature, projected onto what the basis spans: K_BB c = mean of K_BX."""
    return np.linalg.lstsq(kernel(basis), kernel(basis, X).mean(axis=1), rcond=1e-13)[0]


def test_the_mean_of_feature_space_is_put_back():
    """For scores 0 the point wanted is the one nearest to the mean itself, the mode of the sum of all kernels."""
    X = np.concatenate([data(30), data(5, seed=1) + 6.0])
    model = fitted(X, 3, preimage=SHARP["fixed_point"])
    x = model.inverse_transform(np.zeros((1, 3)))
    for _ in range(500):
        weights = kernels.RBF(0.3)(x, X)
        x_next = weights @ X / weights.sum()
        assert np.max(np.abs(x_next - x)) < 1e-9
        x = x_next


def test_a_small_gamma_gives_the_reconstruction_of_pca():
    X = data()
    model = KernelPCA(2, kernel="rbf", gamma=1e-6, preimage=SHARP["fixed_point"], eigen_solver="dense").fit(X)
    reference = PCA(2).fit(X)
    wanted = reference.inverse_transform(reference.transform(X))
    np.testing.assert_allclose(model.denoise(X), wanted, rtol=0, atol=1e-4)


def test_where_the_kernel_vanishes_the_search_restarts_at_the_nearest_training_point(xp):
    X = data()
    far = 1e3 * data(3, seed=1)
    model = fitted(xp.array(X), preimage="fixed_point")
    points, info = model.denoise(xp.array(np.concatenate([far, X[:2]])), return_info=True)
    assert info.restarted.tolist() == [True, True, True, False, False]
    assert info.converged.all()
    assert np.max(np.abs(xp.host(points))) < 2.0 * np.max(np.abs(X))


def test_too_few_iterations_are_reported_and_the_points_are_finite(xp):
    X, Y = data(), data(9, seed=1)
    model = fitted(xp.array(X), preimage=FixedPointPreimage(max_iter=2))
    with pytest.warns(ConvergenceWarning, match="some pre-images did not converge") as caught:
        points, info = model.denoise(xp.array(Y), return_info=True)
    assert not info.converged.all()
    unconverged = int(np.sum(~info.converged))
    assert caught[0].message.values == {"unconverged": unconverged, "n_points": 9, "n_iter": 2}
    assert info.n_iter.max() == 2
    assert np.all(np.isfinite(xp.host(points)))


def test_a_point_alone_goes_where_it_goes_among_others():
    X, Y = data(), data(50, seed=1)
    for method in METHODS:
        model = fitted(X, preimage=method)
        together = model.denoise(Y)
        alone = np.concatenate([model.denoise(Y[i : i + 1]) for i in range(0, 50, 7)])
        np.testing.assert_allclose(together[::7], alone, rtol=0, atol=1e-12)


def test_translation_moves_the_fixed_points_with_the_data():
    X, Y = (np.round(A * 2**10) / 2**10 for A in (data(), data(9, seed=1)))
    near = fitted(X, preimage=SHARP["fixed_point"]).denoise(Y)
    far = fitted(X + 2.0**26, preimage=SHARP["fixed_point"]).denoise(Y + 2.0**26)
    np.testing.assert_allclose(far - 2.0**26, near, rtol=0, atol=1e-6)


def test_a_kernel_written_in_another_way_gives_the_same_points():
    X, Y = data(), data(7, seed=1)
    wanted = fitted(X, kernel=kernels.RBF(0.3), preimage="fixed_point").denoise(Y)
    for kernel in (kernels.RBF(0.1) ** 3, kernels.RBF(0.1) * kernels.RBF(0.2), kernels.RBF(0.3) + kernels.RBF(0.3)):
        found = fitted(X, kernel=kernel, preimage="fixed_point").denoise(Y)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


# -- distance constraint -----------------------------------------------------------------------------------------------


def test_the_distance_constraint_is_that_of_the_paper_written_out(xp, dtype):
    X, Y, k = data(), data(7, seed=1), 6
    model = fitted(xp.array(X, dtype), preimage=DistanceConstraintPreimage(k))
    K, K_new = oracle.gram(oracle.rbf(0.3), X), oracle.gram(oracle.rbf(0.3), Y, X)
    values, vectors = oracle.eigenpairs(oracle.centered(K), 4)
    A = oracle.centering(40) @ vectors / np.sqrt(values)
    weights = oracle.projected(K_new, K, 4) @ A.T + 1 / 40
    found = xp.host(model.denoise(xp.array(Y, dtype)))
    for i, gamma in enumerate(weights):
        in_features = 1.0 + gamma @ K @ gamma - 2.0 * K @ gamma
        near = np.argsort(in_features)[:k]
        squares = -np.log(1.0 - in_features[near] / 2.0) / 0.3
        around = X[near] - X[near].mean(axis=0)
        U, s, Vt = np.linalg.svd(around, full_matrices=False)
        position = 0.5 * (U.T @ (np.sum(around**2, axis=1) - squares)) / s
        wanted = X[near].mean(axis=0) + position @ Vt
        np.testing.assert_allclose(found[i], wanted, rtol=0, atol=1e-9 if dtype == "float64" else 2e-3)


@each("gamma", [0.3, 5.0, 40.0])
@each("kernel", ["rbf", "matern", "rational_quadratic"])
def test_all_components_give_training_points_back(xp, dtype, kernel, gamma):
    X = xp.array(data(d=5), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted(X, 39, kernel, "distance_constraint", gamma=gamma)
    found = xp.host(model.inverse_transform(model.transform(X)))
    # Squared distances to the nearest neighbor, which are 0, are known to the rounding of kernel values.
    np.testing.assert_allclose(found, data(d=5), rtol=0, atol=16.0 * np.sqrt(tolerances.eps(dtype)))


def damped_waves(n: int, seed: int) -> np.ndarray:
    """Curves that lie in few dimensions to rounding, though each has 60 values."""
    frequency, height, fall = np.random.default_rng(seed).uniform([[2], [0.5], [0]], [[6], [2], [3]], (3, n))[..., None]
    t = np.linspace(0.0, 1.0, 60)
    return height * np.sin(2.0 * np.pi * frequency * t) * np.exp(-fall * t)


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_neighbors_that_are_nearly_flat_do_not_send_noisy_curves_away(xp, scale):
    clean = damped_waves(20, 1)
    noisy = clean + 0.3 * np.random.default_rng(2).standard_normal(clean.shape)
    model = fitted(xp.array(scale * damped_waves(150, 0)), 15, preimage="distance_constraint", gamma=0.01 / scale**2)
    found = xp.host(model.denoise(xp.array(scale * noisy))) / scale
    assert np.mean((found - clean) ** 2) < 0.7 * np.mean((noisy - clean) ** 2)


def test_a_position_is_that_of_the_paper_unless_it_is_twice_as_far_as_the_distances_say():
    rng = np.random.default_rng(0)
    around = rng.standard_normal((50, 6, 4)) * [1.0, 1.0, 1e-1, 1e-3]
    around = around - around.mean(axis=1, keepdims=True)
    gram = around @ around.transpose(0, 2, 1)
    wanted = rng.standard_normal((50, 6)) * np.logspace(-4.0, 0.0, 50)[:, None]
    wanted = wanted - wanted.mean(axis=1, keepdims=True)
    found = np.einsum("ik,ikd->id", distance_constraint._coordinates(gram, wanted, np.full(50, 1.0)), around)
    paper = np.einsum("idk,ik->id", np.linalg.pinv(around, rcond=1e-9), wanted)
    length = np.linalg.norm(paper, axis=1)
    assert 5 < np.sum(length < 2.0) < 45
    np.testing.assert_allclose(found[length < 2.0], paper[length < 2.0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(found[length > 2.0], axis=1), 1.0, rtol=1e-8)
    # Least squares on a sphere: the gradient of the residual points to its center.
    gradient = np.einsum("ikd,ik->id", around, wanted - np.einsum("ikd,id->ik", around, found))
    cosine = np.sum(gradient * found, axis=1) / (np.linalg.norm(gradient, axis=1) * np.linalg.norm(found, axis=1))
    np.testing.assert_allclose(cosine[length > 2.0], 1.0, rtol=1e-6)


@pytest.mark.parametrize("degree", [1, 3])
@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_inner_products_far_from_the_origin_cost_the_digits_of_the_kernel_alone(degree, offset):
    X = data(d=3) + offset
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        model = fitted(X, None, "poly", "distance_constraint", degree=degree)
    np.testing.assert_allclose(model.denoise(X), X, rtol=0, atol=50 * tolerances.eps("float64") * offset**2)


def test_duplicate_neighbors_do_no_harm():
    X = np.repeat(data(8), 5, axis=0)
    model = KernelPCA(3, kernel="rbf", gamma=0.3, preimage="distance_constraint", eigen_solver="dense").fit(X)
    points = model.denoise(data(9, seed=1))
    assert np.all(np.isfinite(points))
    assert np.max(np.abs(points)) < 10.0
    with pytest.warns(RankWarning):
        same = fitted(np.ones((6, 2)), 1, preimage="distance_constraint")
    np.testing.assert_allclose(same.denoise(np.ones((2, 2))), 1.0, atol=1e-12)


# -- distances in feature space ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gram", ["auto", "tiled"])
def test_feature_space_errors_are_distances_between_features_written_down(xp, dtype, gram):
    X, Y = data(), data(11, seed=1)
    k = kernels.Polynomial(2, 0.25, 1.0)
    F, G = k.features(X, None), k.features(Y, None)
    model = KernelPCA(3, kernel=k, gram=gram, eigen_solver="dense").fit(xp.array(X, dtype))
    for q in (0, 2, 3, None):
        wanted = distance_from_space(F, G, 3 if q is None else q)
        found = model.feature_space_error(xp.array(Y, dtype), q)
        assert xp.owns(found)
        assert found.dtype == xp.dtype(dtype)
        np.testing.assert_allclose(xp.host(found), wanted, rtol=0, atol=2e3 * tolerances.eps(dtype) * wanted.max())


def test_feature_space_errors_of_landmarks_are_distances_from_what_they_span(xp):
    X, Y = data(), data(11, seed=1)
    k = kernels.Polynomial(2, 0.25, 1.0)
    model = KernelPCA(3, kernel=k, eigen_solver=Nystrom(rank=8), gram="tiled", random_state=0).fit(xp.array(X))
    basis = np.linalg.qr(k.features(X[model.landmarks_], None).T)[0]
    F = k.features(X, None) @ basis @ basis.T
    mean = F.mean(axis=0)
    axes = np.linalg.svd(F - mean)[2][:3]
    off = k.features(Y, None) - mean
    off = off - off @ axes.T @ axes
    found = xp.host(model.feature_space_error(xp.array(Y)))
    np.testing.assert_allclose(found, np.sum(off**2, axis=1), rtol=1e-10)


@pytest.mark.parametrize("gamma", [1e-7, 0.3])
def test_flat_kernels_keep_their_digits_with_landmarks_and_without(gamma):
    X, Y = data(), data(11, seed=1)
    parameters = {"kernel": "rbf", "gamma": gamma, "random_state": 0}
    whole = KernelPCA(2, eigen_solver="dense", **parameters).fit(X).feature_space_error(Y)
    landmarks = KernelPCA(2, eigen_solver=Nystrom(rank=40), **parameters).fit(X).feature_space_error(Y)
    np.testing.assert_allclose(landmarks, whole, rtol=1e-8)
    if gamma < 1e-3:
        reference = PCA(2).fit(X)
        off = Y - reference.inverse_transform(reference.transform(Y))
        np.testing.assert_allclose(whole, 2.0 * gamma * np.sum(off**2, axis=1), rtol=1e-5)


def test_a_precomputed_kernel_needs_its_diagonal_and_gives_the_same_errors():
    X, Y, k = data(), data(11, seed=1), kernels.RBF(0.3)
    wanted = KernelPCA(3, kernel=k).fit(X).feature_space_error(Y)
    model = KernelPCA(3, kernel="precomputed").fit(k(X))
    np.testing.assert_allclose(model.feature_space_error(k(Y, X), diagonal=np.ones(11)), wanted, rtol=0, atol=1e-12)
    with pytest.raises(InvalidParameterError, match="diagonal"):
        model.feature_space_error(k(Y, X))
    with pytest.raises(InvalidParameterError, match="11 new points"):
        model.feature_space_error(k(Y, X), diagonal=np.ones(3))
    with pytest.raises(NotFittedError, match="diagonal"):
        model.score_samples(k(Y, X))


def test_training_points_have_no_error_with_all_components_and_far_points_most():
    X = data()
    model = KernelPCA(None, kernel="rbf", gamma=0.3).fit(X)
    errors = model.feature_space_error(X)
    assert np.all(errors >= 0)
    assert np.max(errors) < 1e-13
    np.testing.assert_array_equal(model.score_samples(X), -errors)
    few = KernelPCA(3, kernel="rbf", gamma=0.3).fit(X)
    assert few.score_samples(X + 10.0).max() < few.score_samples(X).min()


def test_the_errors_of_training_points_add_up_to_the_variance_left_out(xp, dtype):
    X = data()
    model = KernelPCA(3, kernel="rbf", gamma=0.3).fit(xp.array(X, dtype))
    left = (1.0 - float(np.sum(xp.host(model.explained_variance_ratio_)))) * model.total_variance_ * 39
    total = float(np.sum(xp.host(model.feature_space_error(xp.array(X, dtype)))))
    assert abs(total - left) < 1e3 * tolerances.eps(dtype) * left


def test_sparse_rows_have_errors_too():
    X = np.where(np.random.default_rng(0).random((40, 6)) < 0.6, 0.0, data(40, 6))
    for kernel in ("linear", "rbf", "poly"):
        dense = KernelPCA(3, kernel=kernel).fit(X).feature_space_error(X)
        sparse = (
            KernelPCA(3, kernel=kernel).fit(scipy.sparse.csr_array(X)).feature_space_error(scipy.sparse.csr_array(X))
        )
        np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-12)


# -- fewer components --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_fewer_components_are_those_of_a_smaller_fit(xp, method):
    assert_smaller_fit(xp, kernels.RBF(0.05), method, ["denoise"])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_errors_by_fewer_components_are_those_of_a_smaller_fit(xp, kernel):
    assert_smaller_fit(xp, kernel, "ridge", ["denoise", "reconstruction_error", "feature_space_error"])


def assert_smaller_fit(xp: Namespace, kernel: Any, method: str, names: list[str]) -> None:
    X, Y = data(), data(9, seed=1)
    large, small = (fitted(xp.array(X), p, kernel, method) for p in (3, 2))
    for name in names:
        found, wanted = getattr(large, name)(xp.array(Y), n_components=2), getattr(small, name)(xp.array(Y))
        np.testing.assert_allclose(xp.host(found), xp.host(wanted), rtol=0, atol=1e-8)
    assert large.transform(xp.array(Y)).shape == (9, 3)


class Squares(kernels.RBF):
    """Count the square tiles, of the training scores among themselves."""

    counts: ClassVar[list[int]] = []

    def tile(self, a, b, out=None):
        Squares.counts += [1] * (a.n_rows == b.n_rows)
        return super().tile(a, b, out)


def test_the_ridge_on_fewer_components_is_solved_once_for_all_panels(sizes):
    model, Y = fitted(data(), preimage=RidgePreimage(Squares(0.7))), data(50, seed=1)
    wanted = model.denoise(Y, n_components=2)
    sizes(PREIMAGE_PANEL=20)
    Squares.counts.clear()
    np.testing.assert_allclose(model.denoise(Y, n_components=2), wanted, rtol=0, atol=1e-12)
    model.denoise(Y)
    assert len(Squares.counts) == 1


class Counted(kernels.RBF):
    """A Gaussian kernel that counts the rows that it prepares."""

    prepared: ClassVar[list[int]] = []

    def prepare_rows(self, X: Any, like: Any, centered: bool) -> Any:
        self.prepared.append(int(X.shape[0]))
        return super().prepare_rows(X, like, centered)


@pytest.mark.parametrize("preimage", [RidgePreimage(kernel=Counted(0.3)), "fixed_point"])
def test_the_training_rows_are_prepared_once_for_all_calls_and_are_not_pickled(preimage):
    model = fitted(data(40), kernel=Counted(0.3), preimage=preimage)
    before = pickle.dumps(model)
    first = model.inverse_transform(model.transform(data(3)))
    Counted.prepared.clear()
    np.testing.assert_array_equal(model.inverse_transform(model.transform(data(3))), first)
    assert max(Counted.prepared) == 3
    assert len(pickle.dumps(model)) == len(before)


def test_repeated_rows_leave_the_bandwidth_of_the_ridge_determined():
    X = np.repeat(data(9) * [3.0, 1.0, 0.5, 0.1], 5, axis=0)
    large, small = (fitted(X, p, gamma=1e-3) for p in (4, 3))
    np.testing.assert_allclose(large.denoise(X, n_components=3), small.denoise(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("count", [0, 5, True, 1.5, "2"])
def test_a_count_that_is_none_of_the_components_is_refused(count):
    model = fitted(data())
    with pytest.raises(InvalidParameterError, match="from 1 to 4"):
        model.denoise(data(), n_components=count)


def test_without_components_there_is_no_count_to_give():
    with pytest.warns(RankWarning, match="none is kept"):
        model = fitted(np.ones((9, 4)), None)
    with pytest.raises(InvalidParameterError, match=r"None for all 0 fitted components\.$"):
        model.denoise(data(), n_components=1)


# -- scores and searches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_scores_go_back_by_fewer_components_too(xp, method):
    X = data()
    model, small = (fitted(xp.array(X), p, preimage=method) for p in (4, 2))
    Z = model.transform(xp.array(X[:9]))
    found, info = model.inverse_transform(Z, n_components=2, return_info=True)
    wanted = small.inverse_transform(Z[:, :2])
    np.testing.assert_allclose(xp.host(found), xp.host(wanted), rtol=0, atol=1e-9)
    assert info.converged.shape == (9,)
    with pytest.raises(InvalidParameterError, match="from 1 to 4"):
        model.inverse_transform(Z, n_components=5)
    with pytest.raises(ValueError, match="n_components = 4"):
        model.inverse_transform(Z[:, :2], n_components=2)


@pytest.mark.parametrize("method", METHODS)
def test_the_score_is_minus_the_mean_squared_error_by_every_method(method):
    assert_score_of_denoised(NUMPY, method)


def test_the_score_is_minus_the_mean_squared_error_of_what_denoising_gives(xp):
    assert_score_of_denoised(xp, "ridge")


def assert_score_of_denoised(xp: Namespace, method: str) -> None:
    X, Y, dtype = data(), data(9, seed=1), "float32"
    model = fitted(xp.array(X, dtype), preimage=method, gamma=0.1)
    errors = np.sum((Y - xp.host(model.denoise(xp.array(Y, dtype)))) ** 2, axis=1)
    found = model.reconstruction_error(xp.array(Y, dtype))
    assert xp.owns(found)
    np.testing.assert_allclose(xp.host(found), errors, rtol=2e3 * tolerances.eps(dtype))
    np.testing.assert_allclose(model.score(xp.array(Y, dtype)), -errors.mean(), rtol=2e3 * tolerances.eps(dtype))


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_the_score_is_a_number_whatever_the_unit(xp, unit):
    X, Y = data().astype(np.float32), data(9, seed=1).astype(np.float32)
    models = [fitted(xp.array(np.float32(u) * X), gamma="scale") for u in (1.0, unit)]
    scores = [model.score(xp.array(np.float32(u) * Y)) for model, u in zip(models, (1.0, unit), strict=True)]
    assert scores[1] / unit**2 == pytest.approx(scores[0], rel=1e-4)


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e25), ("float64", 1e200)])
def test_squared_errors_beyond_the_dtype_are_refused(xp, dtype, unit):
    model = fitted(xp.array(data(), dtype))
    with pytest.raises(ValueError, match=f"beyond {dtype}"):
        model.reconstruction_error(xp.array(data() * unit, dtype))


@pytest.mark.parametrize("method", [RidgePreimage(), FixedPointPreimage(), DistanceConstraintPreimage()])
def test_a_search_without_labels_compares_kernels_on_data_held_out(method):
    X = np.repeat(datasets.circle(20), 3, axis=0) + 0.05 * data(60, 2)
    pipe = make_pipeline(StandardScaler(), KernelPCA(3, kernel="rbf", preimage=method))
    grid = {"kernelpca__gamma": [0.1, 1.0], "kernelpca__n_components": [1, 3]}
    own = {"RidgePreimage": "alpha", "FixedPointPreimage": "max_iter", "DistanceConstraintPreimage": "n_neighbors"}
    name = own[type(method).__name__]
    grid[f"kernelpca__preimage__{name}"] = [0.01, 1.0] if name == "alpha" else [5, 50]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(pipe, grid, cv=3).fit(X)
        assert search.best_params_["kernelpca__n_components"] == 3
        assert -1.0 < search.best_score_ < 0.0  # the variance of the scaled data is 2
        assert np.all(cross_val_score(search.best_estimator_, X, cv=3) < 0.0)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "name", "text"),
    [
        (
            KernelPCA(preimage="ridge"),
            "preimage__alpha",
            r"preimage='ridge' is not an object with options; set .*RidgePreimage\(\)",
        ),
        (KernelPCA(), "preimage__alpha", "preimage=None is not an object with options"),
        (
            KernelPCA(kernel="rbf"),
            "kernel__gamma",
            r"kernel='rbf' is not an object with options; set .*kernels.RBF\(\)",
        ),
    ],
)
def test_options_of_what_is_given_by_name_ask_for_an_object(model: KernelPCA, name: str, text: str):
    with pytest.raises(InvalidParameterError, match=text):
        model.set_params(**{name: 1.0})
    given = {"preimage": RidgePreimage(), "kernel": kernels.RBF()}[name.split("__")[0]]
    changed = model.set_params(**{name.split("__")[0]: given, name: 0.5})
    assert changed.get_params()[name] == 0.5


@each(
    "parameters, text",
    [
        ({"preimage": "fixedpoint"}, "Did you mean 'fixed_point'"),
        ({"preimage": 3}, "must be None, one of"),
        ({"preimage": RidgePreimage}, "must be None, one of"),
        ({"preimage": "fixed_point", "fit_inverse_transform": True}, "Set one of the two"),
        ({"preimage": DistanceConstraintPreimage(), "fit_inverse_transform": True}, "Set one of the two"),
        ({"preimage": "fixed_point", "kernel": "poly"}, "'ridge', 'distance_constraint'"),
        ({"preimage": "fixed_point", "kernel": "laplacian"}, "Methods that do: 'ridge'"),
        ({"preimage": "distance_constraint", "kernel": "sigmoid"}, "Methods that do: 'ridge'"),
        ({"preimage": "distance_constraint", "kernel": lambda x, y: float(x @ y)}, "Methods that do: 'ridge'"),
        ({"preimage": "ridge", "kernel": "precomputed"}, "Cannot find pre-images with a precomputed kernel"),
        ({"preimage": "fixed_point", "kernel": "precomputed"}, "Cannot find pre-images with a precomputed kernel"),
        ({"preimage": RidgePreimage(kernel="precomputed")}, "kernel='precomputed' is not allowed"),
        ({"preimage": RidgePreimage(kernel=kernels.RBF(), gamma=1.0)}, "together with a kernel object"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_computed(parameters, text):
    X = data(6, 6) @ data(6, 6).T if parameters.get("kernel") == "precomputed" else data()
    model = KernelPCA(2, **({"kernel": "rbf"} | parameters))
    before = dict(vars(model))
    with pytest.raises(InvalidParameterError, match=text):
        model.fit(X)
    assert vars(model) == before


@pytest.mark.parametrize("method", METHODS)
def test_wrong_scores_are_refused(xp, method):
    model = fitted(xp.array(data()), preimage=method)
    with pytest.raises(ValueError, match="n_components = 4"):
        model.inverse_transform(xp.array(data(5, 3)))
    with pytest.raises(ValueError, match=r"m >= 1 .* got shape \(0, 4\)"):
        model.inverse_transform(xp.array(data(0)))
    wrong = data(5, 4)
    wrong[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.inverse_transform(xp.array(wrong))
    with pytest.raises(ValueError, match="features"):
        model.denoise(xp.array(data(5, 3)))


def test_fit_again_without_a_preimage_leaves_nothing_of_the_old_one():
    model = fitted(data(), preimage="fixed_point")
    model.set_params(preimage=None).fit(data())
    assert not hasattr(model, "X_transformed_fit_")
    model.preimage = "ridge"
    with pytest.raises(NotFittedError, match="fitted without preimage"):
        model.denoise(data())


# -- extremes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e3, 1e150, 1e200])
def test_points_far_out_come_back_to_the_data(method, size):
    X = data()
    model = fitted(X, preimage=method)
    points = model.denoise(size * data(9, seed=1))
    assert np.all(np.isfinite(points))
    assert np.max(np.abs(points)) < 10.0
    assert np.all(np.isfinite(model.inverse_transform(np.full((2, 4), 1e6)))) or method != "ridge"


@pytest.mark.parametrize("method", METHODS)
def test_components_of_eigenvalue_zero_do_no_harm(method):
    X = np.repeat(data(3), 4, axis=0)
    with pytest.warns(Warning, match="carry variance"):
        model = fitted(X, 4, preimage=SHARP[method])
    np.testing.assert_allclose(model.denoise(X), X, rtol=0, atol=1e-7)


@pytest.mark.parametrize("preimage", [*METHODS, RidgePreimage(gamma="scale"), None])
def test_without_components_every_point_goes_to_the_one_there_is(preimage):
    assert_the_only_point(NUMPY, preimage)


@pytest.mark.parametrize("method", METHODS)
def test_without_components_points_stay_in_their_library(xp, method):
    assert_the_only_point(xp, method)


def assert_the_only_point(xp: Namespace, preimage: Any) -> None:
    X = np.full((5, 2), 3.0)
    model = KernelPCA(None, kernel="rbf", preimage=preimage, fit_inverse_transform=preimage is None)
    with pytest.warns(RankWarning, match="none is kept"):
        model.fit(xp.array(X))
    Z = model.transform(xp.array(data(4, 2)))
    assert Z.shape == (4, 0)
    np.testing.assert_array_equal(xp.host(model.inverse_transform(Z)), X[:4])
    np.testing.assert_array_equal(xp.host(model.denoise(xp.array(data(4, 2)))), X[:4])


def test_points_stay_in_their_library_whatever_set_output_says_of_scores(xp):
    model = KernelPCA(2, kernel="rbf", preimage="ridge").set_output(transform="pandas").fit(xp.array(data()))
    for name in ("denoise", "reconstruction_error", "score_samples"):
        assert xp.owns(getattr(model, name)(xp.array(data())))
    assert xp.owns(model.inverse_transform(xp.array(data(3, 2))))
    assert isinstance(model.inverse_transform(model.transform(xp.array(data()))), np.ndarray)


@pytest.mark.parametrize("method", METHODS)
def test_memory_does_not_grow_with_the_number_of_points(sizes, method):
    sizes(PREIMAGE_PANEL=200)
    model = KernelPCA(4, kernel="rbf", gamma=0.1, preimage=method, n_jobs=1).fit(data(200, 8))
    few, many = data(400, 8, seed=1), data(2000, 8, seed=2)
    model.denoise(few[:10])
    peaks = []
    for points in (few, many):
        tracemalloc.start()
        model.denoise(points)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 4 * many.nbytes


def test_the_advice_of_an_inverse_that_cannot_be_learned_helps():
    rows = np.random.default_rng(0).standard_normal((60, 3))
    tiny = KernelPCA(2, kernel="poly", gamma="scale", fit_inverse_transform=True)
    with pytest.raises(InvalidParameterError, match="use a smaller gamma, or multiply the data"):
        tiny.fit(1e-3 * rows)
    tiny.set_params(gamma=1.0).fit(1e-3 * rows)
    tiny.set_params(gamma="scale").fit(rows)
    sharp = KernelPCA(2, kernel="poly", gamma=1.0, alpha=1e-12, fit_inverse_transform=True)
    with pytest.raises(InvalidParameterError, match="Use a larger alpha"):
        sharp.fit(rows)
    sharp.set_params(alpha=1.0).fit(rows)
