"""Functions of PCA refuse what the estimators refuse, with the names of their own arguments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from gpukpca.algorithms import (
    KernelPCASettings,
    PCASettings,
    Resources,
    fit_pca,
)
from gpukpca.exceptions import (
    ConvergenceError,
    InvalidParameterError,
    MemoryBudgetError,
    RankWarning,
)
from tests.each import each

ROWS = np.random.default_rng(0).standard_normal((60, 5)) * np.arange(1.0, 6.0)
HOLED, INFINITE, COMPLEX = ROWS.copy(), ROWS.copy(), ROWS + 1j
HOLED[3, 2], INFINITE[3, 2] = np.nan, np.inf
MASKED = np.ma.masked_greater(ROWS, 2.0)
DATES = np.full((60, 5), "2020-01-01", dtype="datetime64[D]")

# Rows that no function takes.
WRONG_ROWS = {
    "NaN": (HOLED, ValueError, "NaN"),
    "infinity": (INFINITE, ValueError, "infinity"),
    "complex": (COMPLEX, ValueError, "complex"),
    "dates": (DATES, TypeError, "dates"),
    "masked": (MASKED, ValueError, "masked"),
    "one row": (ROWS[0], ValueError, "Expected 2D array"),
    "None": (None, (TypeError, ValueError), None),
    "text": ([["a", "b", "c", "d", "e"]], (TypeError, ValueError), None),
}
WRONG_WIDTHS = {f"{d} features": (ROWS[:, :d], ValueError, "feature") for d in (1, 3)}
WRONG_COUNTS = {
    "fit_pca": ["MLE", "all", 1.5, 1.0, 2.0, 0.0, True, False, -1, 6, [2], np.nan],
}
FITS = {
    "fit_pca": lambda X, **arguments: fit_pca(X, **arguments),
}
RESULTS = {
    "PCAFit": lambda X: fit_pca(X, 2),
    "PCAFit, CSR": lambda X: fit_pca(scipy.sparse.csr_array(X), 2),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
@pytest.mark.parametrize("fit", FITS)
def test_fits_refuse_rows(fit, name):
    X, error, words = WRONG_ROWS[name]
    with pytest.raises(error, match=words):
        FITS[fit](X)


@each("fit, count", [(fit, count) for fit, counts in WRONG_COUNTS.items() for count in counts])
def test_fits_refuse_numbers_of_components(fit, count):
    with pytest.raises(InvalidParameterError, match=r"n_components=.* (is not allowed|must be between)"):
        FITS[fit](ROWS, n_components=count)


@each(
    "arguments, words",
    [
        ({"settings": None}, "settings=None is not allowed"),
        ({"settings": {}}, "settings={} is not allowed"),
        ({"settings": PCASettings}, "give an object of PCASettings"),
        ({"settings": KernelPCASettings()}, "give an object of PCASettings"),
        ({"resources": "4GiB"}, "resources='4GiB' is not allowed"),
        ({"resources": 4}, "give an object of Resources"),
        ({"settings": PCASettings(scale=np.ones(5) + 1j)}, "give True, False or 5 numbers"),
        ({"progress": 3}, "progress=3 is not allowed"),
        ({"rng": "a"}, "rng='a' is not allowed"),
        ({"with_scores": "no"}, "with_scores='no' is not allowed"),
    ],
)
def test_fit_pca_refuses_arguments(arguments, words):
    with pytest.raises(InvalidParameterError, match=words):
        fit_pca(ROWS, 2, **arguments)


@each(
    "settings",
    [
        {"solver": "foo"},
        {"solver": "Full"},
        {"tol": "x"},
        {"tol": -1},
        {"tol": 1.0},
        {"tol": np.nan},
        {"oversampling": -1},
        {"oversampling": 2.5},
        {"passes": "a"},
        {"passes": 0},
        {"scale": "yes"},
        {"has_checkpoint": 3},
        {"warns_of_rounding": "no"},
    ],
)
def test_settings_refuse_values(settings):
    (name,) = settings
    with pytest.raises(InvalidParameterError, match=f"{name}="):
        PCASettings(**settings)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": "a"}, "n_jobs"),
        ({"n_jobs": 1.5}, "n_jobs"),
        ({"memory_limit": "a lot"}, "memory_limit"),
        ({"memory_limit": 0}, "memory_limit"),
        ({"memory_limit": True}, "memory_limit"),
        ({"device": "gpu"}, "device"),
    ],
    ids=repr,
)
def test_resources_for_data_refuse_values(arguments, name):
    with pytest.raises(InvalidParameterError, match=f"^{name}="):
        Resources.for_data(ROWS, **arguments)


def test_resources_take_a_place_and_bytes():
    with pytest.raises(InvalidParameterError, match="place='cpu'"):
        Resources(place="cpu", limit=100)
    place = Resources.for_data(ROWS.tolist()).place
    for limit in (-1, 1.5, "4GiB"):
        with pytest.raises(InvalidParameterError, match="limit="):
            Resources(place=place, limit=limit)


@each("name", {**WRONG_ROWS, **WRONG_WIDTHS})
@each("result", RESULTS)
def test_results_refuse_rows(result, name):
    fit = RESULTS[result](ROWS)
    X, error, words = {**WRONG_ROWS, **WRONG_WIDTHS}[name]
    for method in ("transform", "log_density"):
        if hasattr(fit, method):
            with pytest.raises(error, match=words):
                getattr(fit, method)(X)


@each(
    "scores, error, words",
    [
        (ROWS[:, :1], ValueError, "column"),
        (ROWS[:, :3], ValueError, "column"),
        (ROWS[0, :2], ValueError, "Expected 2D array"),
        (HOLED[:, 1:3], ValueError, "NaN"),
        (INFINITE[:, 1:3], ValueError, "infinity"),
        (COMPLEX[:, :2], ValueError, "complex"),
        (MASKED[:, :2], ValueError, "masked"),
        (scipy.sparse.csr_array(ROWS[:, :2]), TypeError, "sparse"),
    ],
)
@each("result", RESULTS)
def test_results_refuse_scores(result, scores, error, words):
    fit = RESULTS[result](ROWS)
    with pytest.raises(error, match=words):
        fit.inverse_transform(scores)


@pytest.mark.parametrize("result", RESULTS)
def test_results_take_containers_of_every_library(xp, result):
    import pandas as pd

    X = xp.array(ROWS)
    fit = RESULTS[result](ROWS if "CSR" in result else X)
    expected = xp.host(fit.transform(X))
    for same in (ROWS, ROWS.tolist(), pd.DataFrame(ROWS), np.asfortranarray(ROWS)):
        assert np.allclose(xp.host(fit.transform(same)), expected)
    assert np.allclose(xp.host(fit.inverse_transform(expected.tolist())), xp.host(fit.inverse_transform(expected)))
    assert fit.transform(ROWS[:0]).shape == (0, 2)
    with pytest.raises(InvalidParameterError, match="whiten='no'"):
        fit.transform(X, whiten="no")


@pytest.mark.parametrize("result", RESULTS)
def test_results_refuse_what_overflows(result):
    fit = RESULTS[result](ROWS.astype(np.float32))
    with pytest.raises(ValueError, match="The array of scores contains infinity or a value too large for float32"):
        fit.inverse_transform(np.full((1, 2), 1e39))
    with pytest.raises(ValueError, match="The array of scores"):
        fit.transform(np.full((1, 5), 1e39))


@pytest.mark.parametrize("count", [4, 99, -1, 0, None, True, 1.5])
def test_truncated_refuses_numbers(count):
    with pytest.raises(InvalidParameterError, match="from 1 to 3"):
        fit_pca(ROWS, 3).truncated(count)


@pytest.mark.parametrize("result", RESULTS)
def test_results_compare_by_identity(result):
    fit, other = RESULTS[result](ROWS), RESULTS[result](ROWS)
    assert fit != other
    assert len({fit, other, fit}) == 2


@pytest.mark.parametrize("X", [ROWS[:1], np.ones((9, 3))], ids=["one row", "equal rows"])
@pytest.mark.parametrize("fit", FITS)
def test_rows_without_variance_warn(fit, X):
    with pytest.warns(RankWarning):
        FITS[fit](X, n_components=1)


def test_advice_names_the_arguments_of_functions():
    scarce = Resources.for_data(ROWS, memory_limit=10)
    with pytest.raises(MemoryBudgetError, match=r"a larger memory_limit\."):
        fit_pca(ROWS, resources=scarce)
    noise = np.random.default_rng(0).standard_normal((400, 300))
    with pytest.raises(ConvergenceError, match="passes=None") as failed:
        fit_pca(noise, 5, settings=PCASettings(solver="randomized", passes=1), rng=0)
    assert failed.value.partial_result is not None
