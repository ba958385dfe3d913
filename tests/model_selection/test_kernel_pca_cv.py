"""Choosing kernel and components without labels: the scores of `GridSearchCV`, shared work, faults, where it runs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline

from gpukpca import KernelPCA, Progress, load
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.exceptions import ConvergenceWarning, PrecisionWarning
from gpukpca.kernels import RBF, Laplacian
from gpukpca.model_selection import KernelPCACV
from gpukpca.model_selection.grid import automatic_gammas
from tests import tolerances
from tests.conftest import Namespace

GAMMAS, COMPONENTS = [0.05, 0.4], [1, 3, 6]
ALL_METHODS = {
    "rbf": ["ridge", "fixed_point", "distance_constraint"],
    "rational_quadratic": ["ridge", "fixed_point", "distance_constraint"],
    "matern": ["ridge", "fixed_point", "distance_constraint"],
    "poly": ["ridge", "distance_constraint"],
    "laplacian": ["ridge"],
    "sigmoid": ["ridge"],
}
PAIRS = [(kernel, method) for kernel, methods in ALL_METHODS.items() for method in methods]


def blobs(n: int = 48, d: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + 2.0 * rng.integers(0, 2, (n, 1))


def dense(search: KernelPCACV) -> KernelPCACV:
    return search.set_params(eigen_solver="dense", cv=3)


def means(search: Any) -> np.ndarray:
    return search.cv_results_["mean_test_score"]


# -- the scores --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "method"), PAIRS)
def test_scores_are_those_of_grid_search(kernel: str, method: str):
    X = blobs(36, 3)
    gammas = [0.01, 0.02] if kernel == "sigmoid" else GAMMAS
    ours = dense(KernelPCACV(kernel, gammas=gammas, n_components=COMPONENTS, preimage=method)).fit(X)
    theirs = GridSearchCV(
        KernelPCA(kernel=kernel, preimage=method, eigen_solver="dense"),
        {"gamma": gammas, "n_components": COMPONENTS},
        cv=3,
    ).fit(X)
    assert ours.sharing_.startswith("distances once a fold; one decomposition for each of 2")
    for k in range(3):
        name = f"split{k}_test_score"
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=1e-7)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_array_equal(ours.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"])
    assert ours.score(X) == theirs.score(X)


def test_the_table_has_the_layout_of_grid_search():
    X = blobs()
    grid = [{"degree": [2], "alpha": [0.1, 1.0]}, {"kernel": ["rbf"]}]
    ours = KernelPCACV("poly", gammas=[0.1], n_components=[2], param_grid=grid, cv=3).fit(X)
    own = {"gamma": [0.1], "n_components": [2]}
    theirs = GridSearchCV(KernelPCA(kernel="poly", preimage="ridge"), [own | one for one in grid], cv=3).fit(X)
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name, column in theirs.cv_results_.items():
        if name.startswith("param_"):
            np.testing.assert_array_equal(ours.cv_results_[name].mask, column.mask)
            assert ours.cv_results_[name].dtype == column.dtype
            assert list(ours.cv_results_[name].compressed()) == list(column.compressed())
    np.testing.assert_allclose(means(ours), means(theirs), rtol=1e-7)
    assert np.all(ours.cv_results_["mean_fit_time"] > 0)


def test_a_score_is_the_error_written_out():
    """A Gaussian kernel, its scores and the ridge pre-image, with nothing of the package in it."""
    X, gamma, p, alpha = blobs(30), 0.3, 2, 0.5
    train, test = np.arange(10, 30), np.arange(10)
    method = RidgePreimage(RBF(0.7), alpha=alpha, centered=False)
    search = KernelPCACV(gammas=[gamma], n_components=[p, 4], preimage=method, cv=[(train, test)]).fit(X)

    def kernel(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
        return np.exp(-gamma * np.sum((A[:, None, :] - B[None, :, :]) ** 2, axis=2))

    A, B = X[train], X[test]
    K, n = kernel(A, A, gamma), len(A)
    H = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(H @ K @ H)
    W = H @ (vectors[:, ::-1][:, :p] / np.sqrt(values[::-1][:p]))
    Z, Z_new = (K - K.mean(axis=0)) @ W, (kernel(B, A, gamma) - K.mean(axis=0)) @ W
    points = kernel(Z_new, Z, 0.7) @ np.linalg.solve(kernel(Z, Z, 0.7) + alpha * np.eye(n), A)
    expected = -np.mean(np.sum((B - points) ** 2, axis=1))
    np.testing.assert_allclose(search.cv_results_["split0_test_score"][0], expected, rtol=1e-10)


def test_more_components_never_worsen_an_exact_inverse():
    X = blobs()
    search = KernelPCACV("linear", n_components=[1, 2, 3, 4], cv=4).fit(X)
    assert np.all(np.diff(means(search)) > 0)
    assert search.best_params_ == {"n_components": 4}
    assert abs(search.best_score_) < 1e-20


@pytest.mark.parametrize("gammas", [[0.1], [0.1, 0.3], [0.1, 0.3, 0.9]])  # with two threads one is left over, or none
def test_scores_do_not_depend_on_threads_or_the_order_of_the_grid(gammas: list[float]):
    X = blobs()
    first = KernelPCACV(gammas=gammas, n_components=[2, 5], n_jobs=1).fit(X)
    second = KernelPCACV(gammas=gammas[::-1], n_components=[5, 2], n_jobs=2).fit(X)
    np.testing.assert_allclose(means(first), means(second)[::-1], rtol=1e-10)
    assert first.best_params_ == second.best_params_


# -- every library -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ridge", FixedPointPreimage(tol=1e-4)], ids=["ridge", "fixed_point"])
def test_arrays_stay_in_their_library(method: Any, xp: Namespace, dtype: str):
    host = blobs(16, 3)
    X = xp.array(host, dtype)
    search = KernelPCACV(gammas=[0.1, 0.3], n_components=[1, 2], preimage=method, cv=2, eigen_solver="dense").fit(X)
    oracle = clone(search).fit(host)
    rtol = 1e-8 if dtype == "float64" else 3e-3
    assert isinstance(search.cv_results_["mean_test_score"], np.ndarray)
    np.testing.assert_allclose(means(search), means(oracle), rtol=rtol)
    Z = search.transform(X)
    assert xp.owns(Z)
    assert Z.dtype == X.dtype
    assert xp.owns(search.inverse_transform(Z))
    np.testing.assert_array_equal(
        xp.host(search.inverse_transform(Z, 1)), xp.host(search.best_estimator_.inverse_transform(Z, 1))
    )
    assert xp.owns(search.score_samples(X))
    np.testing.assert_allclose(
        xp.host(search.denoise(X)), xp.host(search.best_estimator_.denoise(X)), atol=tolerances.eps(dtype)
    )


def test_offsets_cost_no_digits(dtype: str):
    X = np.round(blobs() * 64) / 64
    near = dense(KernelPCACV(gammas=GAMMAS, n_components=COMPONENTS)).fit(X.astype(dtype))
    far = dense(KernelPCACV(gammas=GAMMAS, n_components=COMPONENTS)).fit((X + 2.0**16).astype(dtype))
    np.testing.assert_allclose(means(far), means(near), rtol=1e-6 if dtype == "float64" else 2e-3)


@pytest.mark.parametrize("exponent", [-84, 66])  # 1e-25 and 1e20, whose squares float32 has no room for
@pytest.mark.parametrize("kernel", [RBF("scale"), RBF("scale") + RBF("median")], ids=["together", "alone"])
def test_float32_in_far_out_units_is_scored(kernel: Any, exponent: int):
    X = blobs().astype(np.float32)
    near = dense(KernelPCACV(kernel, n_components=[1, 3])).fit(X)
    far = dense(KernelPCACV(kernel, n_components=[1, 3])).fit(np.ldexp(X, exponent))
    np.testing.assert_allclose(means(far) * 4.0**-exponent, means(near), rtol=2e-3)


def test_data_on_the_host_are_searched_on_a_device(cuda: Any):
    X = blobs(24, 3)
    search = dense(KernelPCACV(gammas=[0.1, 0.3], n_components=[1, 3], device="cuda")).fit(X)
    oracle = dense(KernelPCACV(gammas=[0.1, 0.3], n_components=[1, 3])).fit(X)
    np.testing.assert_allclose(means(search), means(oracle), rtol=1e-8)
    assert search.best_estimator_.device_.startswith("cuda")
    assert isinstance(search.transform(X), np.ndarray)


# -- the grid ----------------------------------------------------------------------------------------------------------


def test_automatic_gammas_reach_around_both_rules():
    X = blobs()
    gammas = automatic_gammas(X)
    rules = [KernelPCA(2, kernel="rbf", gamma=rule).fit(X).gamma_ for rule in ("scale", "median")]
    np.testing.assert_allclose([gammas[0] * 16, gammas[-1] / 16], [min(rules), max(rules)])
    ratios = np.diff(np.log(gammas)) / np.log(4.0)
    assert np.all((ratios > 0.7) & (ratios < 1.4))
    search = KernelPCACV(cv=3).fit(X)
    tried = search.cv_results_["param_gamma"]
    np.testing.assert_allclose(sorted(set(tried)), gammas)
    assert sorted(set(search.cv_results_["param_n_components"])) == [2, 4, 8, 16]


def test_rules_for_gamma_are_resolved_on_the_training_rows():
    X = blobs()
    search = KernelPCACV(gammas=["scale", "median", None], n_components=[2], cv=3).fit(X)
    theirs = GridSearchCV(KernelPCA(2, kernel="rbf", preimage="ridge"), {"gamma": ["scale", "median", None]}, cv=3).fit(
        X
    )
    np.testing.assert_allclose(means(search), means(theirs), rtol=1e-7)


@pytest.mark.parametrize(
    "grid",
    [
        {"preimage__alpha": [0.01, 1.0]},
        {"preimage": [RidgePreimage(alpha=0.01), FixedPointPreimage(tol=1e-8), DistanceConstraintPreimage(5)]},
        {"kernel": ["matern"], "kernel_params": [{"nu": 0.5}, {"nu": 2.5}]},
        {"kernel": ["rbf", "laplacian", "poly"], "degree": [2]},
        {"eigen_solver": ["nystrom", "randomized"], "random_state": [0]},
    ],
    ids=lambda grid: "-".join(grid),
)
def test_other_parameters_are_searched(grid: dict[str, Any]):
    X = blobs()
    search = KernelPCACV(gammas=[0.2], n_components=[2, 4], param_grid=grid, cv=3).fit(X)
    params = search.cv_results_["params"]
    assert len(params) == 2 * np.prod([len(values) for values in grid.values()])
    template = KernelPCA(kernel="rbf", preimage=RidgePreimage())
    theirs = GridSearchCV(template, {"gamma": [0.2], "n_components": [2, 4], **grid}, cv=3).fit(X)
    assert params == theirs.cv_results_["params"] or "preimage" in grid
    np.testing.assert_allclose(means(search), means(theirs), rtol=1e-6)


def test_kernel_objects_are_searched_by_their_parameters():
    X = blobs()
    first = KernelPCACV(RBF(), gammas=[0.1, 0.3], n_components=[3], cv=3).fit(X)
    np.testing.assert_allclose(means(first), means(KernelPCACV(gammas=[0.1, 0.3], n_components=[3], cv=3).fit(X)))
    mixed = KernelPCACV(RBF(0.1) + Laplacian(0.1), n_components=[2, 3], param_grid={"kernel__k1__gamma": [0.1, 1.0]})
    mixed.fit(X)
    assert len(mixed.cv_results_["params"]) == 4
    assert "0 of 20 fits" in mixed.sharing_


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")
def test_shares_of_the_variance_are_searched():
    X = blobs()
    search = KernelPCACV(gammas=[0.1], n_components=[0.5, 0.9, 3], cv=3).fit(X)
    theirs = GridSearchCV(
        KernelPCA(kernel="rbf", gamma=0.1, preimage="ridge"), {"n_components": [0.5, 0.9, 3]}, cv=3
    ).fit(X)
    np.testing.assert_allclose(means(search), means(theirs), rtol=1e-7)


# -- folds and memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cv", [4, KFold(3, shuffle=True, random_state=0), ShuffleSplit(2, random_state=0)], ids=str)
def test_splitters_are_scikit_learns(cv: Any):
    X = blobs()
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=cv).fit(X)
    theirs = GridSearchCV(KernelPCA(2, kernel="rbf", preimage="ridge"), {"gamma": [0.2]}, cv=cv).fit(X)
    assert search.n_splits_ == theirs.n_splits_
    np.testing.assert_allclose(means(search), means(theirs), rtol=1e-7)


def test_splitters_may_look_at_labels_and_groups():
    X, y = blobs(), np.repeat([0, 1, 2], 16)
    KernelPCACV(gammas=[0.2], n_components=[2], cv=StratifiedKFold(4)).fit(X, y)
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=GroupKFold(3)).fit(X, groups=y)
    by_mask = KernelPCACV(gammas=[0.2], n_components=[2], cv=[(y != k, y == k) for k in range(3)]).fit(X)
    assert sorted(search.cv_results_[f"split{k}_test_score"][0] for k in range(3)) == pytest.approx(
        sorted(by_mask.cv_results_[f"split{k}_test_score"][0] for k in range(3)), rel=1e-10
    )


def test_without_memory_for_distances_kernels_are_fitted_as_they_are():
    X = blobs(200, 3)
    wide = KernelPCACV(gammas=GAMMAS, n_components=[2, 4], preimage="fixed_point", eigen_solver="randomized", cv=2)
    wide.set_params(refit=False)
    tight = clone(wide).set_params(memory_limit="300 kB")
    np.testing.assert_allclose(means(tight.fit(X)), means(wide.fit(X)), rtol=1e-6)
    assert "too little memory" in tight.sharing_
    assert "0 of 8 fits" in tight.sharing_


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_is_told_to_the_last_fit(n_jobs: int):
    events: list[Progress] = []
    KernelPCACV(gammas=GAMMAS, n_components=COMPONENTS, cv=3, n_jobs=n_jobs, verbose=events.append).fit(blobs())
    assert {event.stage for event in events} == {"fold"}
    done = [event.done for event in events]
    assert done == sorted(done)
    assert done[-1] == events[-1].total == 18
    assert events[-1].text == "fold 3 of 3: 18 of 18 fits"


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_a_search_on_threads(n_jobs: int):
    def interrupt(event: Progress) -> None:
        raise KeyboardInterrupt

    search = KernelPCACV(gammas=[0.02, 0.1], n_components=[2, 4], cv=3, n_jobs=n_jobs, verbose=interrupt)
    with pytest.raises(KeyboardInterrupt):
        search.fit(blobs())
    assert not hasattr(search, "cv_results_")


def test_a_fold_with_fewer_rows_than_components_is_nan_with_a_reason():
    X = blobs(20)
    cv = [(np.arange(10, 20), np.arange(10)), (np.arange(5), np.arange(5, 20))]
    search = KernelPCACV(gammas=[0.2], n_components=[2, 8], cv=cv)
    with pytest.warns(FitFailedWarning, match=r"n_components=8 is more than the 5 training rows of the fold"):
        search.fit(X)
    np.testing.assert_array_equal(np.isnan(means(search)), [False, True])
    assert not np.isnan(search.cv_results_["split0_test_score"]).any()
    assert search.best_params_["n_components"] == 2
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], [1, 2])


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
def test_an_indefinite_candidate_is_nan_with_a_reason_and_its_smaller_counts_are_not():
    X = np.random.default_rng(0).standard_normal((40, 6))
    search = KernelPCACV("sigmoid", gammas=[0.01, 5.0], n_components=[1, 15], cv=2)
    with pytest.warns(FitFailedWarning, match="IndefiniteKernelError: There are significant negative eigenvalues"):
        search.fit(X)
    failed = np.array([params["n_components"] == 15 for params in search.cv_results_["params"]])
    np.testing.assert_array_equal(np.isnan(means(search)), failed)
    assert search.best_params_["n_components"] == 1


def test_when_nothing_can_be_scored_the_first_error_is_told():
    search = KernelPCACV("poly", gammas=[0.2], n_components=[2], preimage="fixed_point", cv=2)
    with pytest.raises(ValueError, match=r"all of the 2 fits failed. .*FixedPointPreimage does not suit Polynomial"):
        search.fit(blobs())
    assert not [name for name in vars(search) if name.endswith("_")]


def test_a_failed_fit_leaves_the_old_search_working():
    X = blobs()
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=2).fit(X)
    before = search.transform(X)
    search.set_params(preimage="fixed_point", kernel="poly")
    with pytest.raises(ValueError, match="fits failed"):
        search.fit(X[:10])
    np.testing.assert_array_equal(search.transform(X), before)


@pytest.mark.parametrize("kernel", [RBF(0.2), RBF(0.1) + RBF(0.1)], ids=["together", "alone"])
def test_points_that_do_not_converge_are_told_once(kernel: Any):
    search = KernelPCACV(kernel, n_components=[2, 3], preimage=FixedPointPreimage(max_iter=1), cv=2, refit=False)
    with pytest.warns(ConvergenceWarning, match=r"in 4 of 4 fits") as told:
        search.fit(blobs())
    assert len(told) == 1


def test_components_that_rounding_chose_are_told_once():
    X = blobs()
    search = KernelPCACV(gammas=[0.2, 1e4], n_components=[2, 3], cv=2, refit=False)  # K of the second is I
    with pytest.warns(PrecisionWarning, match=r"'n_components': 2.* and 1 more .*not separately determined") as told:
        search.fit(X)
    assert len(told) == 1
    with pytest.warns(PrecisionWarning, match="not separately determined"):
        KernelPCA(2, kernel="rbf", gamma=1e4).fit(X[:24])


def test_scikit_learns_ridge_is_searched_by_its_flag():
    X, grid = blobs(), {"gamma": GAMMAS}
    options = {"preimage": [None], "fit_inverse_transform": [True]}
    ours = dense(KernelPCACV(n_components=[2], param_grid=grid | options)).fit(X)
    model = sklearn.decomposition.KernelPCA(2, kernel="rbf", fit_inverse_transform=True, eigen_solver="dense")
    theirs = GridSearchCV(
        model,
        grid,
        cv=3,
        scoring=lambda one, Y: -np.mean(np.sum((one.inverse_transform(one.transform(Y)) - Y) ** 2, axis=1)),
    ).fit(X)
    np.testing.assert_allclose(means(ours), means(theirs), rtol=1e-10)


WRONG = [
    ({"gammas": [-1.0]}, "gamma=-1.0"),
    ({"gammas": []}, "gammas is empty"),
    ({"gammas": "wide"}, "gamma='wide'"),
    ({"n_components": []}, "n_components is empty"),
    ({"n_components": [0]}, "n_components=0"),
    ({"n_components": [1.5]}, "n_components=1.5"),
    ({"param_grid": {"degree": 2}}, "give a dict of lists.*'degree' needs to be a list"),
    ({"param_grid": {"degree": []}}, "give a dict of lists.*non-empty"),
    ({"param_grid": []}, "give a dict of lists"),
    ({"param_grid": 3}, "give a dict of lists"),
    ({"param_grid": {"wrong": [1]}}, "wrong"),
    ({"param_grid": {"gamma": [1.0]}, "gammas": [2.0]}, "give one of the two"),
    ({"kernel": "rbff"}, "did you mean|'rbf'"),
    ({"kernel": "precomputed"}, "Cannot find pre-images with a precomputed kernel"),
    ({"kernel": RBF(1.0) + RBF(2.0), "gammas": [1.0]}, "kernel__k1__gamma"),
    ({"preimage": None}, "candidates are scored by it"),
    ({"param_grid": {"preimage": ["ridge", None]}}, r"'preimage': None.* has no pre-image"),
    ({"preimage": "fixed_point", "param_grid": {"fit_inverse_transform": [False, True]}}, "Set one of the two"),
    ({"preimage": "wrong"}, "preimage='wrong'"),
    ({"refit": "yes"}, "refit='yes'"),
    ({"verbose": -1}, "verbose=-1"),
    ({"memory_limit": "much"}, "memory_limit='much'"),
    ({"device": "tpu"}, "device='tpu'"),
    ({"cv": []}, "gives no fold"),
    ({"kernel": "rfb"}, "^kernel='rfb' is not known.*Did you mean 'rbf'"),
]


@pytest.mark.parametrize(("parameters", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_parameters_are_errors_before_any_fit(parameters: dict[str, Any], text: str):
    search = KernelPCACV(**parameters)
    with pytest.raises(ValueError, match=text):
        search.fit(blobs())
    assert not [name for name in vars(search) if name.endswith("_")]


def test_without_refit_there_is_no_model():
    search = KernelPCACV(gammas=[0.2], n_components=[2], refit=False, cv=2).fit(blobs())
    assert not hasattr(search, "transform")
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(AttributeError, match="has no attribute 'denoise'") as error:
        _ = search.denoise
    assert "refit=False" in str(error.value.__cause__)
    assert not hasattr(search, "save")
    assert search.best_params_ == {"gamma": 0.2, "n_components": 2}


def test_saving_a_search_saves_its_best_model(tmp_path: Path):
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=2)
    with pytest.raises(NotFittedError):
        search.save(tmp_path / "model.npz")
    search.fit(blobs()).save(tmp_path / "model.npz")
    model = load(tmp_path / "model.npz")
    assert type(model) is KernelPCA
    np.testing.assert_array_equal(model.transform(blobs()), search.transform(blobs()))


def test_data_are_not_written_to_and_the_search_can_be_cloned_and_pickled():
    X = blobs()
    X.flags.writeable = False
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=2, random_state=np.random.default_rng(0)).fit(X)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.transform(X), search.transform(X))
    assert clone(search).get_params()["gammas"] == [0.2]


# -- with labels -------------------------------------------------------------------------------------------------------


def test_digits_with_a_linear_classifier_are_searched_over_gamma_and_components():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16.0, y[:300]
    pipeline = make_pipeline(KernelPCA(kernel="rbf"), LogisticRegression(C=10.0, max_iter=500))
    grid = {"kernelpca__gamma": [0.001, 0.05], "kernelpca__n_components": [8, 32]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:200], y[:200])
    assert search.best_params_ == {"kernelpca__gamma": 0.05, "kernelpca__n_components": 32}
    assert search.score(X[200:], y[200:]) >= 0.9
