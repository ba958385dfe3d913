"""Fits of latent models and local PCA without an estimator: the bits of the estimators, wrong arguments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import BayesianPCA, LocalPCA, ProbabilisticPCA
from gpukpca.algorithms import (
    LatentSettings,
    MixtureSettings,
    Resources,
    fit_bayesian_pca,
    fit_local_pca,
    fit_pca,
    fit_probabilistic_pca,
)
from gpukpca.algorithms.fields import attributes_of
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError
from tests.datasets import same_bits

X = np.random.default_rng(0).standard_normal((60, 5)) * np.arange(1.0, 6.0)
LATENT = fit_probabilistic_pca(X, 2)
LOCAL = fit_local_pca(X, 2, 1, rng=0)


def with_entry(value):
    rows = X.copy()
    rows[3, 2] = value
    return rows


# Function, its settings, and the estimator.
EM = LatentSettings(tol=1e-3)
COARSE = {"n_init": 2, "tol": 1e-2}
TWINS = {
    "probabilistic": (fit_probabilistic_pca, (3,), EM, ProbabilisticPCA(3, tol=1e-3, random_state=0)),
    "Bayesian": (fit_bayesian_pca, (3,), EM, BayesianPCA(3, tol=1e-3, random_state=0)),
    "mixture": (fit_local_pca, (2, 2), MixtureSettings("mixture", **COARSE), LocalPCA(2, 2, **COARSE, random_state=0)),
    "hard": (
        fit_local_pca,
        ([1, 2], 2),
        MixtureSettings("hard", **COARSE),
        LocalPCA([1, 2], 2, method="hard", **COARSE, random_state=0),
    ),
}


@pytest.mark.parametrize(
    ("name", "missing"), [(name, False) for name in TWINS] + [("probabilistic", True), ("Bayesian", True)]
)
def test_functions_have_the_bits_of_the_estimators(xp, rng, dtype, name, missing):
    function, arguments, settings, estimator = TWINS[name]
    host = rng.standard_normal((57, 3)) @ rng.standard_normal((3, 8)) + 0.1 * rng.standard_normal((57, 8)) + 5.0
    if missing:
        host[rng.random(host.shape) < 0.1] = np.nan
    rows = xp.array(host.astype(dtype))
    fit, model = function(rows, *arguments, settings=settings, rng=0), clone(estimator).fit(rows)
    for field, value in attributes_of(fit, "model").items():
        assert (field not in vars(model)) if value is None else same_bits(value, getattr(model, field), xp), field
    scores, labels = model.transform(rows), (model.labels_,) if name in ("mixture", "hard") else ()
    assert same_bits(fit.transform(rows), scores, xp)
    assert same_bits(fit.inverse_transform(scores, *labels), model.inverse_transform(scores, *labels), xp)
    assert same_bits(fit.log_density(rows), model.score_samples(rows), xp)
    if labels:
        assert same_bits(fit.predict(rows), model.predict(rows), xp)
    assert fit == fit
    assert fit != function(rows, *arguments, settings=settings, rng=0)


def test_results_take_lists_and_no_rows():
    assert np.array_equal(LATENT.transform(X.tolist()), LATENT.transform(X))
    assert np.array_equal(LOCAL.predict(X.tolist()), LOCAL.labels)
    assert (LOCAL.predict(X[:0]).shape, LOCAL.transform(X[:0]).shape) == ((0,), (0, 1))
    assert LATENT.transform(X[:0]).shape == (0, 2)


ROWS = {
    "one column": (X[:2, :1], "1 feature.*has 5"),
    "three columns": (X[:, :3], "3 feature.*has 5"),
    "one row": (X[0], "Expected 2D array"),
    "None": (None, "not an array of shape"),
    "infinity": (with_entry(np.inf), "infinity.*row 3, column 2"),
    "complex": (X + 1j, "complex"),
    "dates": (X.astype("datetime64[s]"), "dates"),
    "text": ("rows", "not an array of shape"),
}
COMPLETE = {
    "NaN": (with_entry(np.nan), "NaN.*row 3, column 2"),
    "masked": (np.ma.masked_greater(X, 2.0), "masked"),
    "sparse": (scipy.sparse.csc_array(X), "sparse"),
}
EMPTY = {"no rows": (X[:0], "a minimum of 1 is required"), "no columns": (X[:, :0], "a minimum of 1 is required")}
SCORES = {
    "too wide": (np.ones((4, 3)), "3 column"),
    "NaN": (np.full((4, 1), np.nan), "column|NaN"),
    "one row": (np.ones(1), "Expected 2D array"),
    "None": (None, "not an array of shape"),
    "complex": (np.ones((4, 1)) + 1j, "complex"),
    "sparse": (scipy.sparse.csr_array(np.ones((4, 1))), "sparse"),
}


def cases(*tables):
    items = [(name, *case) for table in tables for name, case in table.items()]
    return pytest.mark.parametrize(("wrong", "words"), [case[1:] for case in items], ids=[case[0] for case in items])


@pytest.mark.parametrize("method", ["transform", "log_density"])
@cases(ROWS)
def test_latent_fits_check_new_rows(method, wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        getattr(LATENT, method)(wrong)


@pytest.mark.parametrize("method", ["transform", "log_density", "predict"])
@cases(ROWS, COMPLETE)
def test_mixture_fits_check_new_rows(method, wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        getattr(LOCAL, method)(wrong)


@cases(SCORES)
def test_results_check_scores(wrong, words):
    with pytest.raises(ValueError, match=words):
        LATENT.inverse_transform(wrong)
    with pytest.raises(ValueError, match=words):
        LOCAL.inverse_transform(wrong, np.zeros(4, dtype=int))


@pytest.mark.parametrize(
    "labels", [[2] * 4, [-1] * 4, [0.5] * 4, np.zeros((4, 1), dtype=int), [True] * 4, [0], None, "text"], ids=str
)
def test_mixture_fits_check_labels(labels):
    with pytest.raises(InvalidParameterError, match="labels must be"):
        LOCAL.inverse_transform(np.ones((4, 1)), labels)
    with pytest.raises(InvalidParameterError, match="masked"):
        LOCAL.inverse_transform(np.ones((2, 1)), np.ma.masked_equal([0, 1], 1))


def test_results_that_overflow_are_reported():
    with pytest.raises(ValueError, match="scores are too large"):
        LATENT.inverse_transform(np.full((4, 2), 1.7e308))
    with pytest.raises(ValueError, match="too large"):
        LOCAL.log_density(with_entry(1e300))


@pytest.mark.parametrize("function", [fit_probabilistic_pca, fit_bayesian_pca])
@cases(
    {name: case for name, case in ROWS.items() if "column" not in name},
    EMPTY,
    {
        "no batches": ([], "X is empty"),
        "rows as lists": (X.tolist(), r"list.*numpy\.asarray"),
        "an iterator": (iter([X]), "iterator"),
        "single rows": (list(X), r"X\[0\] has 1 dimension"),
        "a batch of one column": ([X[:30], X[30:, :1]], r"1 features, and X\[0\] has 5"),
        "a narrow batch": ([X, X[:, :3]], r"3 features, and X\[0\] has 5"),
        "infinity in a batch": ([X, with_entry(np.inf)], r"X\[1\] contains infinity"),
    },
)
def test_latent_functions_check_the_rows(function, wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        function(wrong, 2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [([X], "iterable of batches"), (with_entry(np.nan), "missing values")],
    ids=["batches", "missing"],
)
def test_the_direct_solver_needs_complete_rows_in_one_array(rows, words):
    with pytest.raises(ValueError, match=words):
        fit_probabilistic_pca(rows, 2, settings=LatentSettings(solver="direct"))


@cases({name: case for name, case in ROWS.items() if "column" not in name}, COMPLETE, EMPTY)
def test_fit_local_pca_checks_the_rows(wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fit_local_pca(wrong, 2, 1)


ARGUMENTS = {
    "settings": [None, {}, LatentSettings, MixtureSettings, 3],
    "resources": ["cpu", "4GiB", {}, 4],
    "progress": [3, "line"],
}


@pytest.mark.parametrize("function", [fit_probabilistic_pca, fit_bayesian_pca, fit_local_pca])
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, many in ARGUMENTS.items() for value in many])
def test_functions_check_their_arguments(function, name, value):
    with pytest.raises(InvalidParameterError, match=f"^{name}="):
        function(X, 2, **{name: value})


@pytest.mark.parametrize("p", [0.9, 1.5, 2.0, "mle", 0, -1, True, [2]])
def test_latent_functions_check_the_components(p):
    for function, rows in [(fit_probabilistic_pca, X), (fit_bayesian_pca, X), (fit_probabilistic_pca, [X])]:
        with pytest.raises(InvalidParameterError, match=r"^n_components="):
            function(rows, p)


@pytest.mark.parametrize(
    "count", ["a", "bik", 0, -1, 1.5, None, True, [], [1, 2.5], {1, 2}, np.array(2), np.array([[1, 2]])], ids=str
)
def test_fit_local_pca_checks_the_counts(count):
    for name in ("n_clusters", "n_components"):
        with pytest.raises(InvalidParameterError, match=f"^{name}="):
            fit_local_pca(X, **{name: count})


FIELDS = {
    LatentSettings: {
        "solver": ["foo", "EM", None],
        "ddof": [-100, 2, "a", True],
        "tol": [-1, np.nan, "a"],
        "max_iter": [0, -1, 1.5, True],
    },
    MixtureSettings: {
        "method": ["foo", None],
        "n_init": [0, 1.5],
        "tol": [-1, "a"],
        "max_iter": [0, 1.5],
        "reg": [-1, 0, 1, np.nan],
    },
}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [(kind, name, value) for kind, fields in FIELDS.items() for name, many in fields.items() for value in many],
)
def test_settings_check_their_fields(settings, name, value):
    with pytest.raises(InvalidParameterError, match=f"^{settings.__name__}: {name}="):
        settings(**{name: value})


@pytest.mark.parametrize("function", [fit_pca, fit_probabilistic_pca, fit_local_pca])
def test_resources_of_other_data(function):
    integers = np.round(10.0 * X).astype(np.int64)
    for kind in (np.int64, np.float32, np.float16):
        given = Resources.for_data(integers.astype(kind))
        found = function(integers, 1, resources=given, rng=0).components
        expected = function(integers, 1, rng=0).components
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)
    torch = pytest.importorskip("torch")
    with pytest.raises(DeviceMismatchError, match="resources are for data of torch"):
        function(X, 1, resources=Resources.for_data(torch.asarray(X)))


@pytest.mark.parametrize("function", [fit_probabilistic_pca, fit_bayesian_pca, fit_local_pca])
def test_functions_name_their_generator(function):
    for wrong in ("seed", -1, 1.5):
        with pytest.raises(InvalidParameterError, match=r"^rng="):
            function(X, 2, rng=wrong)


def test_masked_entries_are_missing():
    masked = np.ma.masked_greater(X, 2.0)
    fit, other = (fit_probabilistic_pca(rows, 2, rng=0) for rows in (masked, masked.filled(np.nan)))
    assert fit.solver == "em"
    assert np.array_equal(fit.components, other.components)
    assert np.array_equal(fit.transform(masked), fit.transform(masked.filled(np.nan)))


def test_batches_have_the_widest_dtype():
    narrow = X.astype(np.float32)
    for batches in ([X[:30], narrow[30:]], [narrow[:30], X[30:]]):
        assert fit_probabilistic_pca(batches, 2, rng=0).components.dtype == np.float64


def test_kinds_of_tensors():
    torch = pytest.importorskip("torch")
    rows = torch.asarray(X)
    latent, local = fit_probabilistic_pca(rows, 2), fit_local_pca(rows, 2, 1, rng=0)
    for wrong, words in [(rows.to_sparse(), "sparse"), (rows + 1j, "complex"), (rows[:, :1], "1 feature")]:
        for method in (latent.transform, latent.log_density, local.transform, local.log_density, local.predict):
            with pytest.raises(InvalidParameterError, match=words):
                method(wrong)
    assert isinstance(latent.inverse_transform(np.ones((4, 2))), torch.Tensor)
    assert isinstance(local.inverse_transform(np.ones((4, 1)), torch.zeros(4, dtype=torch.int64)), torch.Tensor)
    assert latent.transform(rows.to(torch.bfloat16)).shape == (60, 2)
    assert local.transform(rows.to(torch.float16)).shape == (60, 1)
    with pytest.raises(DeviceMismatchError, match=r"X\[1\] is of torch"):
        fit_probabilistic_pca([X, rows], 2)
