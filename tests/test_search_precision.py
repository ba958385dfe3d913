"""Searches in float32: scores and choice of float64, and float64 itself wherever float32 could decide."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from conftest import Namespace
from sklearn.base import clone

from gpukpca import Progress
from gpukpca.decomposition import FixedPointPreimage, RidgePreimage
from gpukpca.exceptions import PrecisionWarning
from gpukpca.kernels import RBF, Linear
from gpukpca.model_selection import KernelPCACV, precision
from gpukpca.model_selection.folds import Outcome

GAMMAS, COMPONENTS = [0.02, 0.1, 0.5], [2, 4, 10]
# What a score in float32 is off by here; near the largest condition allowed of the ridge's matrix that may be 6e-5.
RTOL = 2e-5
# At the end of what is told of a search.
NARROW = "in float32, which was enough to choose by"


def clusters(n: int = 90, d: int = 6, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + 3.0 * rng.integers(0, 2, (n, 1))


def search(search_dtype: str, **options: Any) -> KernelPCACV:
    settings = {"gammas": GAMMAS, "n_components": COMPONENTS, "cv": 3, "refit": False} | options
    return KernelPCACV(search_dtype=search_dtype, **settings)


def scores(fitted: KernelPCACV) -> np.ndarray:
    return np.stack([fitted.cv_results_[f"split{k}_test_score"] for k in range(fitted.n_splits_)])


def both(X: Any, **options: Any) -> tuple[KernelPCACV, KernelPCACV]:
    return search("float32", **options).fit(X), search("float64", **options).fit(X)


def count(fitted: KernelPCACV) -> int:
    """Fits that are left in float32."""
    return int(fitted.sharing_.split("; ")[-1].split()[0]) if fitted.sharing_.endswith(NARROW) else 0


# -- the same scores and the same choice -------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "matern", "rational_quadratic", "laplacian"])
def test_scores_and_choice_are_those_of_float64(kernel: str):
    narrow, wide = both(clusters(), kernel=kernel)
    assert count(narrow) >= 18
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=RTOL)
    assert not np.array_equal(scores(narrow), scores(wide))
    assert narrow.best_params_ == wide.best_params_
    assert count(wide) == 0


def test_every_library_is_searched_in_float32(xp: Namespace):
    host = clusters(36, 3)
    narrow = search("float32", gammas=[0.1, 0.3], n_components=[2], refit=True).fit(xp.array(host))
    wide = search("float64", gammas=[0.1, 0.3], n_components=[2]).fit(host)
    assert count(narrow) == 6
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=RTOL)
    Z = narrow.transform(xp.array(host))
    assert xp.owns(Z)
    assert "float64" in str(Z.dtype)  # the best is fitted in the precision of the data


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_only_large_float64_data_are_searched_in_float32_by_themselves(dtype: str, monkeypatch: pytest.MonkeyPatch):
    X = clusters().astype(dtype)
    assert count(search("auto").fit(X)) == 0
    monkeypatch.setattr(precision, "NARROW_FROM", 60)
    assert (count(search("auto").fit(X)) > 0) == (dtype == "float64")
    assert count(search("auto", cv=2).fit(X)) == 0  # 45 training rows


def test_float32_data_are_searched_as_they_are():
    X = clusters().astype(np.float32)
    narrow, wide = both(X)
    np.testing.assert_array_equal(scores(narrow), scores(wide))


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 2.0**20), (2.0**30, 0.0), (2.0**-30, 0.0)])
def test_offsets_and_units_cost_no_digits(factor: float, offset: float):
    X = np.round(clusters() * 2**16) / 2**16
    gammas = [gamma / factor**2 for gamma in GAMMAS]
    narrow = search("float32", gammas=gammas).fit(X * factor + offset)
    assert count(narrow) >= 18
    np.testing.assert_allclose(scores(narrow), scores(search("float64").fit(X)) * factor**2, rtol=RTOL)


# -- where float32 could decide ----------------------------------------------------------------------------------------


def test_candidates_too_near_to_the_best_are_compared_in_full():
    gammas = [0.1, 0.1 * (1 + 1e-9), 0.1 * (1 + 1e-6), 0.5]
    narrow, wide = both(clusters(), gammas=gammas, n_components=[4])
    assert count(narrow) == 3
    np.testing.assert_allclose(scores(narrow)[:, :3], scores(wide)[:, :3], rtol=1e-13)
    assert narrow.best_params_ == wide.best_params_


def test_scores_in_full_are_compared_again_with_those_left_in_float32():
    narrow, wide = (lambda score: Outcome(score, narrow=True)), Outcome
    assert precision.rivals([{0: narrow(-1.0), 1: narrow(-1.1), 2: narrow(-1.1001)}]) == [set()]
    assert precision.rivals([{0: wide(-1.2), 1: narrow(-1.1), 2: narrow(-1.1001)}]) == [{1, 2}]
    assert precision.rivals([{0: wide(-1.1), 1: narrow(-1.1), 2: narrow(float("nan"))}]) == [{1}]
    assert precision.rivals([{0: wide(-1.0), 1: narrow(-1.0)}, {0: wide(-1.0), 1: wide(-1.0)}]) == [{1}, set()]
    assert precision.rivals([{0: wide(-1.0), 1: wide(-1.0)}]) == [set()]


def test_a_fold_in_doubt_is_fitted_again_alone_and_a_candidate_in_doubt_twice_no_more():
    sure, doubted, full = (Outcome(-1.0, narrow=narrow, doubtful=doubt) for narrow, doubt in [(1, 0), (1, 1), (0, 0)])
    failed = Outcome(error=ValueError("no"), narrow=True)
    folds = [{0: sure, 1: doubted, 2: failed}, {0: doubted, 1: full, 2: doubted}, {0: sure}]
    assert precision.unfit(folds) == {2}
    assert precision.unsettled(folds, {0, 1, 2}) == [{1, 2}, {0, 2}, {1, 2}]


FULL = {
    "errors of nothing but rounding": {"param_grid": {"alpha": [1e-3]}, "gammas": [1e-3], "n_components": [20]},
    "the nearest point": {"preimage": FixedPointPreimage(tol=1e-3)},
    "a kernel that sees where data lie": {"kernel": "poly"},
    "a ridge that pulls to the origin": {"preimage": RidgePreimage(centered=False)},
    "scikit-learn's ridge": {"param_grid": {"preimage": [None], "fit_inverse_transform": [True]}},
    "a ridge without weight": {"param_grid": {"alpha": [1e-6]}},
    "a ridge between scores by products": {"preimage": RidgePreimage(Linear())},
    "neighbours": {"preimage": "distance_constraint"},
    "components that float32 blurs": {"gammas": [1e-3], "n_components": [30]},
    "a sum of kernels": {"kernel": RBF(0.1) + RBF(0.01), "gammas": None},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("name", FULL)
def test_what_float32_is_not_fit_for_is_searched_in_float64(name: str):
    narrow, wide = both(clusters(), **FULL[name])
    assert count(narrow) == 0
    np.testing.assert_array_equal(scores(narrow), scores(wide))


@pytest.mark.parametrize("exponent", [-60, 60])
def test_sizes_beyond_float32_are_searched_in_float64(exponent: int):
    X = np.ldexp(clusters(), exponent)
    narrow, wide = both(X, gammas=[gamma * 4.0**-exponent for gamma in GAMMAS])
    assert count(narrow) == 0
    np.testing.assert_array_equal(scores(narrow), scores(wide))


def test_one_candidate_in_doubt_leaves_the_others_in_float32():
    narrow, wide = both(clusters(), gammas=[0.1], n_components=[2, 4], param_grid={"alpha": [1.0, 1e-6]})
    assert count(narrow) in (3, 6)  # the two with a weight, less the best one's rivals
    light = [params["alpha"] < 1 for params in narrow.cv_results_["params"]]
    np.testing.assert_allclose(scores(narrow)[:, light], scores(wide)[:, light], rtol=1e-11)
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=RTOL)


def cubes(apart: float) -> np.ndarray:
    """The corners of a cube twice, its edges longer by so much from one to the next."""
    cube = np.array(list(itertools.product([-1.0, 1.0], repeat=5))) * (1.0 + apart * np.arange(5))
    return np.concatenate([cube, cube + 0.3])


HALVES = [(np.arange(32), np.arange(32, 64))]


def test_candidates_that_cut_through_equal_eigenvalues_are_told_of():
    with pytest.warns(PrecisionWarning, match=r"n_components.: 1\} and 1 more and the one after it"):
        narrow = search("float32", gammas=[0.1], n_components=[1, 3, 5], cv=HALVES).fit(cubes(0.0))
    assert count(narrow) == 1


@pytest.mark.parametrize("apart", [1e-9, 1e-7, 1e-6])
def test_eigenvalues_that_float32_does_not_tell_apart_are_told_apart(apart: float):
    narrow, wide = both(cubes(apart), gammas=[0.1], n_components=[1, 3, 5], cv=HALVES)
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=RTOL)
    assert count(narrow) == 1


@pytest.mark.parametrize("seed", range(4))
def test_scores_that_only_float64_tells_apart_leave_the_median_alone(seed: int):
    """Rows of few kinds have scores of few kinds, and median distances between two of their levels."""
    X = (np.random.default_rng(seed).random((120, 3)) < 0.2).astype(float)
    grid = {"alpha": [0.1]}
    narrow, wide = both(X, kernel="matern", gammas=[0.1, 0.3], n_components=[2], param_grid=grid)
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=RTOL)


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01])
def test_small_errors_of_a_ridge_of_little_weight_are_those_of_float64(alpha: float):
    narrow, wide = both(clusters(120, 1), kernel="matern", n_components=[2, 4], param_grid={"alpha": [alpha]})
    np.testing.assert_allclose(scores(narrow), scores(wide), rtol=3e-4)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_a_search_on_threads(n_jobs: int):
    def interrupt(event: Progress) -> None:
        raise KeyboardInterrupt

    started = search("float32", n_jobs=n_jobs, verbose=interrupt)
    with pytest.raises(KeyboardInterrupt):
        started.fit(clusters())
    assert not hasattr(started, "cv_results_")


# -- what is told ------------------------------------------------------------------------------------------------------


def test_progress_is_told_to_the_end_of_every_round():
    events: list[Progress] = []
    grid = {"alpha": [1.0, 1e-6]}
    search("float32", gammas=[0.1], n_components=[2, 4], param_grid=grid, verbose=events.append).fit(clusters())
    rounds = [event for event in events if event.done == event.total]
    assert [event.text.endswith("in float32") for event in rounds[:2]] == [True, False]
    assert all(event.done <= event.total for event in events)


def test_the_precision_is_a_parameter():
    assert clone(search("float32")).search_dtype == "float32"
    with pytest.raises(ValueError, match=r"search_dtype=.float16. is not allowed"):
        search("float16").fit(clusters())
