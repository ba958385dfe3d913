"""KernelPCACV: the scores of `GridSearchCV`, shared work, the grid, faults, and where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.decomposition
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold

from gpukpca import KernelPCA, Progress, load
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.exceptions import ConvergenceWarning, GpuKPCAWarning, PrecisionWarning
from gpukpca.kernels import RBF, Laplacian, Sigmoid
from gpukpca.model_selection import KernelPCACV
from gpukpca.model_selection.grid import automatic_gammas
from tests import tolerances
from tests.conftest import Namespace
from tests.each import each

GAMMAS, COMPONENTS = [0.05, 0.4], [1, 3, 6]


def blobs(n: int = 48, d: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + 2.0 * rng.integers(0, 2, (n, 1))


def means(search: Any) -> np.ndarray:
    return search.cv_results_["mean_test_score"]


def is_fitted(search: KernelPCACV) -> bool:
    return any(name.endswith("_") for name in vars(search))


# -- the scores --------------------------------------------------------------------------------------------------------

METHODS = {
    "rbf": ["ridge", "fixed_point", "distance_constraint"],
    "rational_quadratic": ["distance_constraint"],
    "matern": ["fixed_point"],
    "poly": ["ridge", "distance_constraint"],
    "laplacian": ["ridge"],
    "sigmoid": ["ridge"],
}
PREIMAGES = [RidgePreimage(alpha=0.01), FixedPointPreimage(tol=1e-8), DistanceConstraintPreimage(5)]
# Parameters of both searches, what both search, other parameters of the grid, and the folds.
SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any], Any, Any]] = {
    f"{kernel} {method}": (
        {"kernel": kernel, "preimage": method, "eigen_solver": "dense"},
        {"gamma": [0.01, 0.02] if kernel == "sigmoid" else GAMMAS, "n_components": COMPONENTS},
        {},
        2,
    )
    for kernel, methods in METHODS.items()
    for method in methods
}
SEARCHES |= {
    name: ({"kernel": "rbf", "preimage": RidgePreimage()}, {"gamma": [0.2], "n_components": [2, 4]} | own, grid, 3)
    for name, own, grid in [
        ("rules for gamma", {"gamma": ["scale", "median", None]}, {}),
        ("shares of the variance", {"n_components": [0.3, 0.9, 3]}, {}),
        ("options of a pre-image", {}, {"preimage__alpha": [0.01, 1.0]}),
        ("pre-images", {}, {"preimage": PREIMAGES}),
        ("options of a kernel", {}, {"kernel": ["matern"], "kernel_params": [{"nu": 0.5}, {"nu": 2.5}]}),
        ("kernels", {}, {"kernel": ["rbf", "laplacian", "poly"], "degree": [2]}),
        ("a solver", {}, {"eigen_solver": ["nystrom"], "random_state": [0]}),
        ("several grids", {}, [{"degree": [2], "alpha": [0.1, 1.0], "kernel": ["poly"]}, {"kernel": ["rbf"]}]),
    ]
}
SEARCHES |= {
    str(cv): ({"kernel": "rbf", "preimage": "ridge"}, {"gamma": [0.2], "n_components": [2]}, {}, cv)
    for cv in (4, KFold(3, shuffle=True, random_state=0), ShuffleSplit(2, random_state=0))
}


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.RankWarning")  # a share of 0.9 of a flat spectrum
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")  # the sigmoid kernel
@each("name", SEARCHES)
def test_the_table_is_that_of_grid_search(name: str):
    settings, own, grid, cv = SEARCHES[name]
    X, grids = blobs(36, 3), [own | one for one in (grid if isinstance(grid, list) else [grid])]
    ranges = {"gammas": own["gamma"], "n_components": own["n_components"], "param_grid": grid, "cv": cv}
    search = KernelPCACV(**ranges, **{"solver" if key == "eigen_solver" else key: settings[key] for key in settings})
    ours, theirs = search.fit(X), GridSearchCV(KernelPCA(**settings), grids, cv=cv).fit(X)
    assert ours.cv_results_.keys() == theirs.cv_results_.keys()
    assert ours.n_splits_ == theirs.n_splits_
    for column, reference in theirs.cv_results_.items():
        found = ours.cv_results_[column]
        if column.endswith("_time"):
            assert np.all(found >= 0)
        elif column.startswith("param_"):
            np.testing.assert_array_equal(found.mask, reference.mask)
            assert list(found.compressed()) == list(reference.compressed())
            assert found.dtype == reference.dtype or found.dtype == object  # 3 of [0.5, 3] stays an integer
        elif "score" in column:
            np.testing.assert_allclose(found, reference, rtol=1e-6, atol=1e-12, err_msg=column)
        else:
            assert found == reference
    assert ours.best_index_ == theirs.best_index_
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-9)


class Counting(RBF):
    """A Gaussian kernel that counts its values."""

    evaluated = 0

    def tile(self, a: Any, b: Any, out: Any = None) -> Any:
        Counting.evaluated += a.n_rows * b.n_rows
        return super().tile(a, b, out)


def test_the_kernel_is_evaluated_once_a_fold_for_all_components_and_pre_images():
    counts = []
    for components, grid in (([6], {}), (COMPONENTS, {"preimage__alpha": [0.01, 1.0]})):
        Counting.evaluated = 0
        settings = {"n_components": components, "param_grid": grid, "preimage": RidgePreimage(), "cv": 3}
        KernelPCACV(Counting(0.2), refit=False, **settings).fit(blobs())
        counts.append(Counting.evaluated)
    assert counts[0] == counts[1] > 0


def test_scikit_learns_ridge_is_searched_by_its_flag():
    X, grid = blobs(), {"gamma": GAMMAS}
    options = {"preimage": [None], "fit_inverse_transform": [True]}
    ours = KernelPCACV(n_components=[2], param_grid=grid | options, cv=3, solver="dense").fit(X)
    model = sklearn.decomposition.KernelPCA(2, kernel="rbf", fit_inverse_transform=True, eigen_solver="dense")

    def score(one: Any, Y: np.ndarray) -> float:
        return -np.mean(np.sum((one.inverse_transform(one.transform(Y)) - Y) ** 2, axis=1))

    np.testing.assert_allclose(means(ours), means(GridSearchCV(model, grid, cv=3, scoring=score).fit(X)), rtol=1e-10)


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
    search = KernelPCACV("linear", n_components=[1, 2, 3, 4], cv=4).fit(blobs())
    assert np.all(np.diff(means(search)) > 0)
    assert search.best_params_ == {"n_components": 4}
    assert abs(search.best_score_) < 1e-20


@pytest.mark.filterwarnings("ignore:the best gamma of the search lies on the edge")
@pytest.mark.parametrize("gammas", [[0.1], [0.1, 0.3], [0.1, 0.3, 0.9]])  # with two threads one is left over, or none
def test_scores_do_not_depend_on_threads_or_the_order_of_the_grid(gammas: list[float]):
    first = KernelPCACV(gammas=gammas, n_components=[2, 5], n_jobs=1).fit(blobs())
    second = KernelPCACV(gammas=gammas[::-1], n_components=[5, 2], n_jobs=2).fit(blobs())
    np.testing.assert_allclose(means(first), means(second)[::-1], rtol=1e-10)
    assert first.best_params_ == second.best_params_


# -- every library, units and places -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ridge", FixedPointPreimage(tol=1e-2)], ids=["ridge", "fixed_point"])
def test_arrays_stay_in_their_library(method: Any, xp: Namespace, dtype: str):
    host = blobs(16, 3)
    X = xp.array(host, dtype)
    search = KernelPCACV(gammas=[0.1, 0.3], n_components=[1, 2], preimage=method, cv=2, solver="dense").fit(X)
    assert isinstance(means(search), np.ndarray)
    np.testing.assert_allclose(means(search), means(clone(search).fit(host)), rtol=1e-8 if dtype == "float64" else 3e-3)
    Z, best = search.transform(X), search.best_estimator_
    assert Z.dtype == X.dtype
    for found, expected in [
        (Z, best.transform(X)),
        (search.inverse_transform(Z), best.inverse_transform(Z)),
        (search.inverse_transform(Z, 1), best.inverse_transform(Z, 1)),
        (search.score_samples(X), best.score_samples(X)),
        (search.denoise(X), best.denoise(X)),
    ]:
        assert xp.owns(found)
        np.testing.assert_allclose(xp.host(found), xp.host(expected), atol=tolerances.eps(dtype))


@pytest.mark.parametrize(
    ("kernel", "dtype", "change", "unit", "rtol"),
    [
        (RBF(0.2), "float64", lambda X: X + 2.0**16, 1.0, 1e-6),
        (RBF(0.2), "float32", lambda X: X + 2.0**16, 1.0, 2e-3),
        # 1e-25 and 1e20, whose squares float32 has no room for
        (RBF("scale"), "float32", lambda X: np.ldexp(X, -84), 2.0**-84, 2e-3),
        (RBF("scale"), "float32", lambda X: np.ldexp(X, 66), 2.0**66, 2e-3),
        (RBF("scale") + RBF("median"), "float32", lambda X: np.ldexp(X, -84), 2.0**-84, 2e-3),
        (RBF("scale") + RBF("median"), "float32", lambda X: np.ldexp(X, 66), 2.0**66, 2e-3),
    ],
)
def test_offsets_and_units_cost_no_digits(kernel: Any, dtype: str, change: Any, unit: float, rtol: float):
    X = (np.round(blobs() * 64) / 64).astype(dtype)
    near, far = (
        KernelPCACV(kernel, n_components=[1, 3], cv=3, solver="dense").fit(Y) for Y in (X, change(X).astype(dtype))
    )
    np.testing.assert_allclose(means(far) / unit / unit, means(near), rtol=rtol)


def test_data_on_the_host_are_searched_on_a_device(cuda: Any):
    host = KernelPCACV(gammas=[0.1, 0.3], n_components=[1, 3], cv=3, solver="dense").fit(blobs(24, 3))
    search = clone(host).set_params(device="cuda").fit(blobs(24, 3))
    np.testing.assert_allclose(means(search), means(host), rtol=1e-8)
    assert search.best_estimator_.device_.startswith("cuda")
    assert isinstance(search.transform(blobs(24, 3)), np.ndarray)


def test_a_limit_without_room_for_a_matrix_changes_no_score():
    X = blobs(200, 3)
    wide = KernelPCACV(gammas=GAMMAS, n_components=[2, 4], preimage="fixed_point", solver="randomized", cv=2)
    tight = clone(wide.set_params(refit=False)).set_params(memory_limit="300 kB")
    np.testing.assert_allclose(means(tight.fit(X)), means(wide.fit(X)), rtol=1e-6)


# -- the grid and the folds --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the best gamma of the search lies on the edge")
def test_automatic_gammas_reach_around_both_rules():
    X = blobs()
    gammas = automatic_gammas(X)
    rules = [KernelPCA(2, kernel="rbf", gamma=rule).fit(X).gamma_ for rule in ("scale", "median")]
    np.testing.assert_allclose([gammas[0] * 16, gammas[-1] / 16], [min(rules), max(rules)])
    ratios = np.diff(np.log(gammas)) / np.log(4.0)
    assert np.all((ratios > 0.7) & (ratios < 1.4))
    results = KernelPCACV(cv=3).fit(X).cv_results_
    np.testing.assert_allclose(sorted(set(results["param_gamma"])), gammas)
    assert sorted(set(results["param_n_components"])) == [2, 4, 8, 16]
    gamma = automatic_gammas(X, ["laplacian"])
    np.testing.assert_allclose(automatic_gammas(1e-3 * X, ["laplacian"]), 1e3 * np.asarray(gamma))
    both = automatic_gammas(1e-3 * X, ["laplacian", "rbf"])
    assert both[0] < 1.001 * 1e3 * gamma[0] < 1e6 * gammas[-1] < 1.001 * both[-1]


def test_kernel_objects_are_searched_by_their_parameters():
    X = blobs()
    first = KernelPCACV(RBF(), gammas=[0.1, 0.3], n_components=[3], cv=3).fit(X)
    np.testing.assert_allclose(means(first), means(KernelPCACV(gammas=[0.1, 0.3], n_components=[3], cv=3).fit(X)))
    mixed = KernelPCACV(RBF(0.1) + Laplacian(0.1), n_components=[2, 3], param_grid={"kernel__k1__gamma": [0.1, 1.0]})
    assert len(mixed.fit(X).cv_results_["params"]) == 4


def test_splitters_may_look_at_labels_and_groups():
    X, y = blobs(), np.repeat([0, 1, 2], 16)
    search = KernelPCACV(gammas=[0.2], n_components=[2], refit=False)
    for cv, arguments in ((StratifiedKFold(4), {"y": y}), (GroupKFold(3), {"groups": y})):
        folds = [tuple(np.isin(np.arange(48), rows) for rows in pair) for pair in cv.split(X, **{"y": y} | arguments)]
        by_mask = clone(search).set_params(cv=folds).fit(X)
        np.testing.assert_allclose(means(clone(search).set_params(cv=cv).fit(X, **arguments)), means(by_mask))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_progress_is_reported_to_the_last_fit(n_jobs: int):
    events: list[Progress] = []
    search = KernelPCACV(gammas=GAMMAS, n_components=COMPONENTS, cv=3, n_jobs=n_jobs, verbose=events.append)
    search.set_params(param_grid={"kernel": ["rbf", "laplacian"]}).fit(blobs())
    done = [event.done for event in events]
    assert {event.stage for event in events} == {"fold"}
    assert done == sorted(set(done))
    assert (done[-1], events[-1].total, events[-1].text) == (36, 36, "fold 3 of 3: 36 of 36 fits")


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_a_search(n_jobs: int):
    def interrupt(event: Progress) -> None:
        raise KeyboardInterrupt

    search = KernelPCACV(gammas=[0.02, 0.1], n_components=[2, 4], cv=3, n_jobs=n_jobs, verbose=interrupt)
    with pytest.raises(KeyboardInterrupt):
        search.fit(blobs())
    assert not is_fitted(search)


FAILURES = {
    "fewer rows than components": (
        {"gammas": [0.2], "n_components": [2, 8], "cv": [(np.arange(10, 20), np.arange(10)), (range(5), range(5, 20))]},
        blobs(20),
        "n_components=8 is more than the 5 training rows of the fold",
        8,
    ),
    "data in large units": (
        {
            "gammas": [2e-21],
            "n_components": [2, 8],
            "cv": [(np.arange(10, 20), np.arange(10)), (range(5), range(5, 20))],
        },
        1e10 * blobs(20),
        "n_components=8 is more than the 5 training rows of the fold",
        8,
    ),
    "an indefinite kernel": (
        {"kernel": "sigmoid", "gammas": [0.01, 5.0], "n_components": [1, 15], "cv": 2},
        np.random.default_rng(0).standard_normal((40, 6)),
        "IndefiniteKernelError: There are significant negative eigenvalues",
        15,
    ),
    "an indefinite kernel of no family": (
        {"kernel": Sigmoid(5.0) + Sigmoid(5.0), "n_components": [1, 15], "cv": 2},
        np.random.default_rng(0).standard_normal((40, 6)),
        "IndefiniteKernelError: There are significant negative eigenvalues",
        15,
    ),
}


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_candidate_is_nan_with_a_reason_and_smaller_ones_are_not(name: str):
    parameters, X, reason, too_many = FAILURES[name]
    search = KernelPCACV(**parameters)
    with pytest.warns(FitFailedWarning, match=reason):
        search.fit(X)
    failed = search.cv_results_["param_n_components"] == too_many
    np.testing.assert_array_equal(np.isnan(means(search)), failed)
    assert np.all(search.cv_results_["rank_test_score"][failed] == 1 + np.sum(~failed))
    assert search.best_params_["n_components"] < too_many


@pytest.mark.parametrize(
    ("parameters", "category", "text"),
    [
        ({"kernel": RBF(0.2), "preimage": FixedPointPreimage(max_iter=1)}, ConvergenceWarning, "held-out rows"),
        (
            {"kernel": RBF(0.1) + RBF(0.1), "preimage": FixedPointPreimage(max_iter=1)},
            ConvergenceWarning,
            "held-out rows",
        ),
        # K of the second gamma is I
        ({"gammas": [0.2, 1e4]}, PrecisionWarning, "of some candidates .* not separately determined"),
    ],
)
def test_doubtful_scores_are_reported_once(parameters: dict[str, Any], category: type[Warning], text: str):
    with pytest.warns(category, match=text) as caught:
        KernelPCACV(n_components=[2, 3], cv=2, refit=False, **parameters).fit(blobs())
    assert len(caught) == 1


def test_a_failed_search_keeps_the_old_one():
    X = blobs()
    search = KernelPCACV("poly", gammas=[0.2], n_components=[2], preimage="fixed_point", cv=2)
    with pytest.raises(ValueError, match=r"all of the 2 fits failed. .*FixedPointPreimage does not suit Polynomial"):
        search.fit(X)
    assert not is_fitted(search)
    before = search.set_params(preimage="ridge").fit(X).transform(X)
    with pytest.raises(ValueError, match="fits failed"):
        search.set_params(preimage="fixed_point").fit(X[:10])
    np.testing.assert_array_equal(search.transform(X), before)


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
    ({"param_grid": {"wrong": [1]}}, "wrong"),
    ({"param_grid": {"gamma": [1.0]}, "gammas": [2.0]}, "give one of the two"),
    ({"kernel": "rfb"}, "^kernel='rfb' is not known.*Did you mean 'rbf'"),
    ({"kernel": "precomputed"}, "Cannot find pre-images with a precomputed kernel"),
    ({"kernel": RBF(1.0) + RBF(2.0), "gammas": [1.0]}, "kernel__k1__gamma"),
    ({"preimage": None}, "candidates are scored by it"),
    ({"param_grid": {"preimage": ["ridge", None]}}, r"'preimage': None.* has no pre-image"),
    ({"preimage": "fixed_point", "param_grid": {"fit_inverse_transform": [False, True]}}, "Set one of the two"),
    ({"cv": []}, "gives no fold"),
]


@each("parameters, text", WRONG, ids=lambda value: str(value)[:40])
def test_wrong_parameters_are_errors_before_any_fit(parameters: dict[str, Any], text: str):
    events: list[Progress] = []
    search = KernelPCACV(**{"verbose": events.append} | parameters)
    with pytest.raises(ValueError, match=text):
        search.fit(blobs())
    assert not is_fitted(search)
    assert not events


# -- the best model ----------------------------------------------------------------------------------------------------


def test_without_refit_there_is_no_model():
    search = KernelPCACV(gammas=[0.2], n_components=[2], refit=False, cv=2).fit(blobs())
    for name in ("transform", "inverse_transform", "denoise", "score", "score_samples", "save", "best_estimator_"):
        assert not hasattr(search, name), name
    with pytest.raises(AttributeError, match="keeps no model with refit=False"):
        _ = search.denoise
    assert search.best_params_ == {"gamma": 0.2, "n_components": 2}


def test_saving_a_search_saves_its_best_model(tmp_path: Path):
    search = KernelPCACV(gammas=[0.2], n_components=[2], cv=2, random_state=np.random.default_rng(0))
    with pytest.raises(NotFittedError):
        search.save(tmp_path / "model.safetensors")
    X = blobs()
    X.flags.writeable = False
    search.fit(X).save(tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors")
    assert type(model) is KernelPCA
    np.testing.assert_array_equal(model.transform(X), search.transform(X))


def test_a_best_gamma_on_the_edge_of_its_grid_is_named(rng: np.random.Generator):
    X = rng.standard_normal((40, 3))
    inner = KernelPCACV(kernel="rbf", gammas=[1e-4, 1e-2, 1.0, 1e2], n_components=[4], cv=3).fit(X)
    best = inner.best_params_["gamma"]
    assert best not in (1e-4, 1e2)
    scores = inner.cv_results_["mean_test_score"].tolist()
    assert scores.index(max(scores)) == [1e-4, 1e-2, 1.0, 1e2].index(best)
    for gammas in ([best, 100 * best, 1e4 * best], [best / 1e4, best / 100, best]):
        with pytest.warns(GpuKPCAWarning, match="the best gamma of the search lies on the edge of the grid"):
            KernelPCACV(kernel="rbf", gammas=gammas, n_components=[4], cv=3).fit(X)
